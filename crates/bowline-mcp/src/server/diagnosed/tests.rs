//! Diagnostics in JSON.

use bowline_state::diagnostics::{Diagnostic, OfFile, Position, Range, Severity};
use expect_test::expect;
use serde_json::Value;

use super::{MAX_BYTES, text};

fn wrong(message: String) -> Diagnostic {
    let end = Position { line: 2, character: 5 };
    let range = Range { start: Position { line: 2, character: 1 }, end };
    Diagnostic { range, severity: Severity::Warning, message, source: Some("lint".to_owned()), code: None }
}

#[test]
fn each_file_says_what_is_wrong_and_whether_that_is_old() {
    let old = OfFile { diagnostics: vec![wrong("unused".to_owned())], left_out: 3, is_old: true };
    let text = text([("/p/a b.rs", &old)].into_iter());
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
    let large = OfFile { diagnostics: vec![wrong("x".repeat(MAX_BYTES))], left_out: 0, is_old: false };
    let small = OfFile { diagnostics: vec![wrong("y".to_owned())], left_out: 0, is_old: false };
    let text = text([("/large", &large), ("/small", &small)].into_iter());
    let parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (parsed["files"][0]["path"].as_str(), parsed["filesLeftOut"].as_u64()),
        (Some("/small"), Some(1))
    );
}
