//! Tests of the patterns against file names.

use super::*;

fn check(files: &ForeignFiles, foreign: &[&str], recorded: &[&str]) {
    for path in foreign {
        assert!(files.matches(path), "{path}");
    }
    for path in recorded {
        assert!(!files.matches(path), "{path}");
    }
}

#[test]
fn sessions_transcripts_backups_and_swap_files_are_other_programs() {
    check(
        &ForeignFiles::default(),
        &[
            ".fast-agent/sessions/2611171007-d9cjkC/session.json",
            "sub/.fast-agent/sessions/a",
            ".fast-agent/fast-agent-log.jsonl",
            ".agent-shell/transcripts/2026-11-17.md",
            "src/main.rs~",
            "src/.main.rs.swp",
            ".main.rs.swo",
            "src/.#main.rs",
            "src/#main.rs#",
            "4913",
            "src/4913",
        ],
        &[
            ".fast-agent/agent-cards/reviewer.md",
            ".fast-agent",
            "sessions/a",
            "main.rs",
            "~main.rs",
            "main.swp",
            "a.swift",
            "#main.rs",
            "src/4913.rs",
            "14913",
            ".agent-shell",
        ],
    );
}

#[test]
fn a_pattern_of_the_user_matches_at_any_depth_unless_it_begins_at_the_root() {
    let files = ForeignFiles::with_patterns(&["*.orig", ".aider*", "/notes/", "logs/*.txt"]).unwrap();
    check(
        &files,
        &["a.orig", "x/y/a.orig", ".aider.chat.history.md", "notes/a/b", "logs/a.txt", "x/logs/a.txt", "a~"],
        &["a.origin", "x/notes/a", "notes", "logs/x/a.txt"],
    );
}

#[test]
fn a_pattern_that_cannot_be_meant_is_refused() {
    let error_text = |pattern: &str| ForeignFiles::with_patterns(&[pattern]).unwrap_err().to_string();
    assert_eq!(error_text("[a"), "the pattern \"[a\" cannot be used: unclosed character class; missing ']'");
    for pattern in ["", "/", "*", "**", "/**/*"] {
        assert!(
            error_text(pattern).ends_with("matches every file: name the files to pass over"),
            "{pattern}"
        );
    }
    let many = vec!["a"; MAX_PATTERNS + 1];
    assert_eq!(
        ForeignFiles::with_patterns(&many).unwrap_err(),
        PatternError::TooManyPatterns(MAX_PATTERNS + 1)
    );
}
