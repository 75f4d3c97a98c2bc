//! Tests of diagnostics as JSON.

use bowline_protocol::diagnostics::{
    Diagnostic, DiagnosticSeverity, FileDiagnostics, TextPosition, TextRange,
};
use expect_test::expect;
use serde_json::Value;

use super::{MAX_BYTES, diagnostics_to_json};

fn diagnostic(message: String) -> Diagnostic {
    let end = TextPosition { line: 2, character: 5 };
    let range = TextRange { start: TextPosition { line: 2, character: 1 }, end };
    Diagnostic {
        range,
        severity: DiagnosticSeverity::Warning,
        message,
        source: Some("lint".to_owned()),
        code: None,
    }
}

#[test]
fn each_file_says_what_is_wrong_and_whether_that_is_old() {
    let old =
        FileDiagnostics { diagnostics: vec![diagnostic("unused".to_owned())], omitted: 3, is_stale: true };
    let text = diagnostics_to_json([("/p/a b.rs", &old)].into_iter());
    let parsed: Value = serde_json::from_str(&text).unwrap();
    expect![[r#"
        {
          "files": [
            {
              "path": "/p/a b.rs",
              "uri": "file:///p/a%20b.rs",
              "stale": true,
              "diagnostics": [
                {
                  "range": {
                    "start": {
                      "line": 2,
                      "character": 1
                    },
                    "end": {
                      "line": 2,
                      "character": 5
                    }
                  },
                  "severity": "warning",
                  "message": "unused",
                  "source": "lint"
                }
              ],
              "leftOut": 3
            }
          ],
          "filesLeftOut": 0
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&parsed).unwrap());
}

#[test]
fn what_is_too_much_is_counted_and_the_rest_is_json() {
    let large =
        FileDiagnostics { diagnostics: vec![diagnostic("x".repeat(MAX_BYTES))], omitted: 0, is_stale: false };
    let small =
        FileDiagnostics { diagnostics: vec![diagnostic("y".to_owned())], omitted: 0, is_stale: false };
    let text = diagnostics_to_json([("/large", &large), ("/small", &small)].into_iter());
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (parsed["files"][0]["path"].as_str(), parsed["filesLeftOut"].as_u64()),
        (Some("/small"), Some(1))
    );
}
