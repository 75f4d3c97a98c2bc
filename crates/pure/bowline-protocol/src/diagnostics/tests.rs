//! Tests of stored diagnostics, limits and staleness.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

fn diagnostic(line: u32, severity: DiagnosticSeverity, message: &str) -> Diagnostic {
    let start = TextPosition { line, character: 0 };
    let range = TextRange { start, end: start };
    Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }
}

fn check(params: &str, expected: Expect) {
    let out = match DiagnosticsNotification::parse(params) {
        Ok(shared) => {
            let mut known = Diagnostics::default();
            let mut out = format!(
                "{:?} {:?}\n",
                shared.session_id,
                known.replace_file(&shared.path, shared.diagnostics)
            );
            for (path, file) in known.iter() {
                for diagnostic in &file.diagnostics {
                    let (start, end) = (diagnostic.range.start, diagnostic.range.end);
                    let (word, message) = (diagnostic.severity.as_str(), &diagnostic.message);
                    writeln!(
                        out,
                        "{path}:{}:{}-{}:{} {word} {message} {:?} {:?}",
                        start.line,
                        start.character,
                        end.line,
                        end.character,
                        diagnostic.source,
                        diagnostic.code
                    )
                    .unwrap();
                }
            }
            out
        }
        Err(error) => format!("! {error}\n"),
    };
    expected.assert_eq(&out);
}

#[test]
fn what_a_client_shares_is_read_as_language_servers_write_it() {
    check(
        r#"{"sessionId":"s","path":"/p/a.rs","diagnostics":[
            {"range":{"start":{"line":3,"character":1},"end":{"line":3,"character":4}},"severity":2,"message":"unused","source":"rustc","code":"W1","tags":[1]},
            {"range":{"start":{"line":9,"character":0},"end":{"line":9,"character":1}},"severity":1,"message":"missing","code":308},
            {"message":"of the whole file"}]}"#,
        expect![[r#"
            Some(SessionId("s")) ["/p/a.rs"]
            /p/a.rs:0:0-0:0 error of the whole file None None
            /p/a.rs:9:0-9:1 error missing None Some("308")
            /p/a.rs:3:1-3:4 warning unused Some("rustc") Some("W1")
        "#]],
    );
}

#[test]
fn what_has_another_form_is_refused() {
    check(
        "[]",
        expect![[r#"
            ! diagnostics have path and diagnostics: invalid length 1, expected struct DiagnosticsNotification with 3 elements at line 1 column 2
        "#]],
    );
    check(
        r#"{"path":"/a"}"#,
        expect![[r#"
        ! diagnostics have path and diagnostics: missing field `diagnostics` at line 1 column 13
    "#]],
    );
    let long = format!("\"{}\"", "x".repeat(MAX_NOTIFICATION_BYTES));
    assert_eq!(
        DiagnosticsNotification::parse(&long),
        Err(ParseDiagnosticsError::TooLong(MAX_NOTIFICATION_BYTES + 2))
    );
}

#[test]
fn a_file_that_was_changed_has_old_diagnostics_until_it_is_told_of_again() {
    let mut known = Diagnostics::default();
    assert!(!known.mark_stale("/a"), "nothing is known of it");
    assert_eq!(known.replace_file("/a", vec![diagnostic(1, DiagnosticSeverity::Hint, "h")]), ["/a"]);
    assert_eq!(
        known.replace_file("/a", vec![diagnostic(1, DiagnosticSeverity::Hint, "h")]),
        [""; 0],
        "it is known"
    );
    assert!(known.mark_stale("/a"));
    assert!(!known.mark_stale("/a"), "it is old already");
    assert!(known.get("/a").unwrap().is_stale);
    assert_eq!(known.replace_file("/a", vec![diagnostic(1, DiagnosticSeverity::Hint, "h")]), ["/a"]);
    assert!(!known.get("/a").unwrap().is_stale);
    assert_eq!(known.replace_file("/a", Vec::new()), ["/a"]);
    assert_eq!(known.replace_file("/a", Vec::new()), [""; 0]);
    assert_eq!(known.get("/a"), None);
    assert_eq!(known.bytes, 0);
}

#[test]
fn neither_files_nor_diagnostics_nor_messages_grow_without_end() {
    let mut known = Diagnostics::default();
    for number in 0..MAX_FILES + 3 {
        known.replace_file(&format!("/{number}"), vec![diagnostic(0, DiagnosticSeverity::Error, "e")]);
    }
    assert_eq!(known.files.len(), MAX_FILES);
    assert_eq!((known.get("/2"), known.get("/3").is_some()), (None, true));
    let many: Vec<_> = (0..MAX_PER_FILE as u32 + 5)
        .map(|line| diagnostic(line, DiagnosticSeverity::Error, &"ä".repeat(4096)))
        .collect();
    for number in 0..20 {
        known.replace_file(&format!("/large-{number}"), many.clone());
        assert!(known.bytes <= MAX_TOTAL_BYTES);
    }
    let file = known.get("/large-19").unwrap();
    assert_eq!((file.diagnostics.len(), file.omitted), (MAX_PER_FILE, 5));
    assert!(file.diagnostics.iter().all(|diagnostic| diagnostic.message.len() <= MAX_MESSAGE_BYTES));
    assert_eq!(known.bytes, known.files.values().map(FileDiagnostics::text_bytes).sum::<usize>());
}
