//! Diagnostics for clients: JSON of bounded size.

use bowline_protocol::diagnostics::{Diagnostic, FileDiagnostics};
use serde_json::{Value, json};

use super::resources::file_uri;

/// The most bytes that are returned; the files that do not fit are counted.
const MAX_BYTES: usize = 1 << 20;

/// Returns diagnostics by file. Those of files that have changed since are marked stale.
pub(crate) fn diagnostics_to_json<'f>(files: impl Iterator<Item = (&'f str, &'f FileDiagnostics)>) -> String {
    let (mut listed, mut left_out, mut bytes) = (Vec::new(), 0_u64, 0);
    for (path, diagnostics) in files {
        let file = file_to_json(path, diagnostics);
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

fn file_to_json(path: &str, file_diagnostics: &FileDiagnostics) -> Value {
    let diagnostics: Vec<Value> = file_diagnostics.diagnostics.iter().map(diagnostic_to_json).collect();
    json!({
        "path": path,
        "uri": file_uri(path),
        "stale": file_diagnostics.is_stale,
        "diagnostics": diagnostics,
        "leftOut": file_diagnostics.omitted,
    })
}

fn diagnostic_to_json(diagnostic: &Diagnostic) -> Value {
    let Diagnostic { range, severity, message, source, code } = diagnostic;
    let mut json = json!({ "range": range, "severity": severity.as_str(), "message": message });
    for (name, value) in [("source", source), ("code", code)] {
        if let Some(value) = value {
            json[name] = json!(value);
        }
    }
    json
}

#[cfg(test)]
mod tests;
