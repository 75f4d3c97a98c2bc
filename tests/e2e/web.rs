//! The web page: its modules in Node, and the whole of it in a browser. The tests themselves are in `tests/web`.

use std::process::Command;

use xtask::peers::{WebBrowser, is_available};

use crate::programs::{build_program, run, workspace_root};

/// Runs files of tests at the same time, and shows all their output if one fails.
fn run_tests(files: &[&str]) {
    let root = workspace_root();
    if !is_available(WebBrowser::NAME, &WebBrowser::required_files(&root)) {
        return;
    }
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let mut tests = Command::new("node");
    tests
        .args(["--test", "--test-reporter=spec"])
        .arg(format!("--test-concurrency={}", files.len()))
        .args(files.iter().map(|file| root.join("tests/web").join(file)))
        .env("BOWLINE_BIN", bowline)
        .env("BOWLINE_WEB_PACKAGES", WebBrowser::packages_dir(&root));
    let output = run(&mut tests);
    let shown = String::from_utf8_lossy(&output.stdout);
    // Their names come first, where an excerpt of a long output has them.
    let failed: Vec<&str> = shown.lines().filter(|line| line.trim_start().starts_with('✖')).collect();
    let failed = failed.join("\n");
    assert!(output.status.success(), "{failed}\n\n{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    // Otherwise the file had no tests.
    assert!(shown.contains("pass ") && !shown.contains("pass 0"), "{shown}");
}

#[test]
fn the_modules_of_the_page_work() {
    run_tests(&["unit.test.mjs"]);
}

#[test]
fn the_page_works_in_a_browser() {
    run_tests(&["sessions.test.mjs", "conversation.test.mjs"]);
}

#[test]
fn the_page_keeps_its_budgets() {
    run_tests(&["budgets.test.mjs"]);
}
