//! Tests of pending diagnostics and their eviction.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::diagnostics::{DiagnosticSeverity, TextRange};

/// Inserts files with a message of the given length, or without diagnostics, and shows what is pending then.
fn check(inserts: &[(&str, usize)], expect: Expect) {
    let mut pending = PendingDiagnostics::default();
    for (path, length) in inserts {
        let diagnostic = Diagnostic {
            range: TextRange::default(),
            severity: DiagnosticSeverity::Error,
            message: "x".repeat(*length),
            source: None,
            code: None,
        };
        pending.insert((*path).to_owned(), if *length == 0 { Vec::new() } else { vec![diagnostic] });
    }
    let mut out = String::new();
    while let Some((path, diagnostics)) = pending.take_oldest() {
        let lengths: Vec<usize> = diagnostics.iter().map(|diagnostic| diagnostic.message.len()).collect();
        writeln!(out, "{path} {lengths:?}").unwrap();
    }
    assert_eq!(pending.bytes, 0);
    expect.assert_eq(&out);
}

#[test]
fn the_newest_of_a_file_stands_in_place_of_what_waited() {
    check(
        &[("a", 1), ("b", 2), ("a", 3), ("b", 0)],
        expect![[r#"
            a [3]
            b []
        "#]],
    );
}

#[test]
fn the_oldest_makes_room_and_one_alone_always_has_it() {
    check(
        &[("a", 9 << 20), ("b", 6 << 20), ("c", 2 << 20)],
        expect![[r#"
            b [6291456]
            c [2097152]
        "#]],
    );
    check(
        &[("a", 1), ("b", 20 << 20)],
        expect![[r#"
            b [20971520]
        "#]],
    );
}

#[test]
fn no_more_files_wait_than_are_kept() {
    let names: Vec<String> = (0..=MAX_FILES).map(|number| number.to_string()).collect();
    let mut waiting = PendingDiagnostics::default();
    names.iter().for_each(|name| waiting.insert(name.clone(), Vec::new()));
    assert_eq!(waiting.files.len(), MAX_FILES);
    assert_eq!(waiting.take_oldest().map(|(path, _)| path).as_deref(), Some("1"));
}
