//! Instructions of a project on disk, and of an unreadable one.

use std::fs;

use bowline_workspace::files::LocalFiles;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions};
use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::*;

/// Reads the instructions of the directories `a` and `b`, which `tree` fills.
async fn check(tree: &[(&str, &[u8])], explicit_files: &[(&str, &str)], expected: Expect) {
    let scratch = TempDir::new().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    for directory in ["a", "b"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    for (path, text) in tree {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text).unwrap();
    }
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let roots = Roots::open(&RootSpec::writable(path("a")), &[RootSpec::read_only(path("b"))]).unwrap();
    let workspace =
        Workspace::open(roots, &root.join("state"), WorkspaceOptions::default()).unwrap().workspace;
    let files = LocalFiles::new(workspace.session("s1"));
    let explicit_files: Vec<(String, Arc<str>)> =
        explicit_files.iter().map(|(name, text)| ((*name).to_owned(), Arc::from(*text))).collect();
    let instructions = super::read_instructions(&files, &[path("a"), path("b")], &explicit_files).await;
    let mut out = String::new();
    for InstructionFile { path: file, text } in &instructions.files {
        let text = if text.len() > 200 { format!("({} bytes)", text.len()) } else { text.clone() };
        out.push_str(&format!("{file}: {text}\n"));
    }
    for note in &instructions.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    expected.assert_eq(&out.replace(root.to_str().unwrap(), "$ROOT"));
}

#[tokio::test]
async fn a_project_without_instructions_has_none() {
    check(&[("a/deeper/AGENTS.md", b"not read")], &[], expect![[r#""#]]).await;
}

#[tokio::test]
async fn the_users_come_first_then_each_directory() {
    check(
        &[("a/AGENTS.md", "\u{feff}Use tabs.\r\n".as_bytes()), ("b/AGENTS.md", b"Use blanks.\n")],
        &[("mine.md", "Be brief.\n"), ("again.md", "Be brief."), ("empty.md", " \n")],
        expect![[r#"
            mine.md: Be brief.
            $ROOT/a/AGENTS.md: Use tabs.
            $ROOT/b/AGENTS.md: Use blanks.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn invisible_characters_are_removed_and_long_files_cut() {
    let long = "a rule\n".repeat(20_000);
    check(
        &[
            ("a/AGENTS.md", "Test.\u{e0041}\u{202e} \u{1b}[31mRed".as_bytes()),
            ("b/AGENTS.md", long.as_bytes()),
        ],
        &[],
        expect![[r#"
            $ROOT/a/AGENTS.md: Test. [31mRed
            $ROOT/b/AGENTS.md: (65533 bytes)
            note: Of $ROOT/b/AGENTS.md the model is told 65534 of 140000 bytes.
        "#]],
    )
    .await;
}

#[tokio::test]
async fn unreadable_instructions_are_noted() {
    check(&[("a/AGENTS.md", b"\x00\x01\x02\xff"), ("b/AGENTS.md/x", b"a directory")], &[], expect![[r#"
        note: $ROOT/a/AGENTS.md could not be read: $ROOT/a/AGENTS.md cannot be read as text: the content is binary, read it with a command that knows its kind.
        note: $ROOT/b/AGENTS.md could not be read: $ROOT/b/AGENTS.md is a directory: list it, or name a file in it.
    "#]])
        .await;
}
