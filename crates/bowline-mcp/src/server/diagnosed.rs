//! Diagnostics as a client reads them: JSON, within bounds.

use bowline_state::diagnostics::{Diagnostic, OfFile};
use serde_json::{Value, json};

use super::resources::file_uri;

/// So many bytes are given; the files that do not fit are counted.
const MAX_BYTES: usize = 1 << 20;

/// Returns diagnostics by file. Those of files that were changed since are marked: they may not be true any more.
pub(crate) fn text<'f>(files: impl Iterator<Item = (&'f str, &'f OfFile)>) -> String {
    let (mut listed, mut left_out, mut bytes) = (Vec::new(), 0_u64, 0);
    for (path, of_file) in files {
        let file = file(path, of_file);
        let length = file.to_string().len();
        if bytes + length > MAX_BYTES {
            left_out += 1;
            continue;
        }
        bytes += length;
        listed.push(file);
    }
    json!({ "files": listed, "filesLeftOut": left_out }).to_string()
}

fn file(path: &str, of_file: &OfFile) -> Value {
    let diagnostics: Vec<Value> = of_file.diagnostics.iter().map(one).collect();
    json!({
        "path": path,
        "uri": file_uri(path),
        "stale": of_file.is_old,
        "diagnostics": diagnostics,
        "leftOut": of_file.left_out,
    })
}

fn one(diagnostic: &Diagnostic) -> Value {
    let Diagnostic { range, severity, message, source, code } = diagnostic;
    let mut one = json!({ "range": range, "severity": severity.word(), "message": message });
    for (name, value) in [("source", source), ("code", code)] {
        if let Some(value) = value {
            one[name] = json!(value);
        }
    }
    one
}

#[cfg(test)]
mod tests;
