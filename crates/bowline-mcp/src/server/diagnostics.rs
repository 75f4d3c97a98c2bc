//! Diagnostics for clients: JSON of bounded size.

use bowline_protocol::diagnostics::{Diagnostic, FileDiagnostics};
use serde_json::{Value, json};

use super::resources::file_uri;

/// The most bytes that are returned; the files that do not fit are counted.
const MAX_BYTES: usize = 1 << 20;

/// Returns diagnostics by file. Those of files that have changed since are marked stale.
pub(crate) fn diagnostics_to_json<'f>(files: impl Iterator<Item = (&'f str, &'f FileDiagnostics)>) -> String {
    let (mut listed, mut left_out, mut bytes) = (Vec::new(), 0_u64, 0);
    for (path, of_file) in files {
        let file = file_to_json(path, of_file);
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

fn file_to_json(path: &str, of_file: &FileDiagnostics) -> Value {
    let diagnostics: Vec<Value> = of_file.diagnostics.iter().map(diagnostic_to_json).collect();
    json!({
        "path": path,
        "uri": file_uri(path),
        "stale": of_file.is_stale,
        "diagnostics": diagnostics,
        "leftOut": of_file.omitted,
    })
}

fn diagnostic_to_json(diagnostic: &Diagnostic) -> Value {
    let Diagnostic { range, severity, message, source, code } = diagnostic;
    let mut one = json!({ "range": range, "severity": severity.as_str(), "message": message });
    for (name, value) in [("source", source), ("code", code)] {
        if let Some(value) = value {
            one[name] = json!(value);
        }
    }
    one
}

#[cfg(test)]
mod tests;
