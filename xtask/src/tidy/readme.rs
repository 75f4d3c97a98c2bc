//! Tested documentation: a test runs every command in the README and in the guides under `docs`.
//!
//! The rule compares their shell blocks with the array `COMMANDS` in `tests/e2e/readme.rs`, whose strings are the
//! commands that its test runs. The two must be equal, so that every added or removed command is noticed.

use super::mask::mask;
use super::{Repo, TidyFinding};

const README: &str = "README.md";
const GUIDES_DIR: &str = "docs/";
const README_TEST: &str = "tests/e2e/readme.rs";

/// Commands that a test cannot run inside itself, and where they run instead.
const RUN_ELSEWHERE: &[(&str, &str)] = &[("cargo xtask test", "it is what runs the tests; .ci/run calls it")];

/// The shell commands of the README and the guides are those that `tests/e2e/readme.rs` runs.
pub fn readme_commands_are_tested(repo: &Repo) -> Vec<TidyFinding> {
    if repo.tree.file(README).is_none() {
        return vec![TidyFinding::new(README, 1, "is missing: write it")];
    }
    let runner = repo.tree.file(README_TEST).map_or("", |file| file.text.as_str());
    let tested = tested_commands(runner);
    let is_page = |path: &str| path == README || (path.starts_with(GUIDES_DIR) && path.ends_with(".md"));
    let mut findings = Vec::new();
    let mut shown = Vec::new();
    for page in repo.tree.files.iter().filter(|file| is_page(&file.path)) {
        let FencedBlocks { commands, unnamed } = parse_blocks(&page.text);
        findings.extend(unnamed.into_iter().map(|line| {
            TidyFinding::new(&page.path, line, "name the language of this block: `sh`, `console`, `text`, …")
        }));
        for (line, command) in commands {
            let elsewhere = RUN_ELSEWHERE.iter().any(|(known, _)| *known == command);
            if !elsewhere && !tested.iter().any(|(_, tested)| *tested == command) {
                let told = format!("no test runs `{command}`: add it to `COMMANDS` in {README_TEST}");
                findings.push(TidyFinding::new(&page.path, line, told));
            }
            shown.push(command);
        }
    }
    for (line, command) in tested {
        if !shown.contains(&command) {
            let told =
                format!("`{command}` is not in {README} or {GUIDES_DIR}: remove it here or show it there");
            findings.push(TidyFinding::new(README_TEST, line, told));
        }
    }
    findings
}

/// The fenced blocks of a Markdown text, with line numbers.
#[derive(Default)]
struct FencedBlocks {
    commands: Vec<(usize, String)>,
    /// Blocks without a language, which could hide a command.
    unnamed: Vec<usize>,
}

fn parse_blocks(markdown: &str) -> FencedBlocks {
    let mut found = FencedBlocks::default();
    let mut language: Option<&str> = None;
    let mut open: Option<(usize, String)> = None;
    for (index, line) in markdown.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            language = match language {
                Some(_) => None,
                None => Some(fence.trim()),
            };
            if language == Some("") {
                found.unnamed.push(index + 1);
            }
            continue;
        }
        let shown = match language {
            Some("sh" | "bash" | "shell") => line.trim(),
            Some("console") if open.is_some() => line.trim().trim_start_matches("> ").trim_start(),
            Some("console") => line.trim().strip_prefix("$ ").unwrap_or_default(),
            _ => continue,
        };
        let command = shown.split_once(" # ").map_or(shown, |(command, _)| command.trim_end());
        if command.is_empty() || command.starts_with('#') {
            continue;
        }
        let (first, so_far) = open.take().unwrap_or((index + 1, String::new()));
        match command.strip_suffix('\\') {
            Some(part) => open = Some((first, format!("{so_far}{} ", part.trim_end()))),
            None => found.commands.push((first, so_far + command)),
        }
    }
    found
}

/// Returns the strings in the array `COMMANDS` of a Rust file, with their lines.
fn tested_commands(rust: &str) -> Vec<(usize, String)> {
    let masked = mask(rust);
    let Some(name) = masked.code.find("COMMANDS:") else {
        return Vec::new();
    };
    let value = masked.code[name..].find('=').map_or(masked.code.len(), |offset| name + offset);
    let end = masked.code[value..].find(';').map_or(masked.code.len(), |offset| value + offset);
    let inside = masked.strings.iter().filter(|(at, _)| (value..end).contains(at));
    inside
        .map(|(at, text)| {
            let line = masked.code[..*at].matches('\n').count() + 1;
            (line, text.replace("\\\"", "\"").replace("\\\\", "\\"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::readme_commands_are_tested;
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn a_command_that_no_test_runs_is_found() {
        check(
            r##"
//- README.md
```sh
# Build it.
cargo xtask test
bowline demo    # watch it
bowline new --twice
```
Text with `bowline undo`.
```console
$ bowline doctor \
>   --all
everything is fine
$ bowline say "hi"
```
```json
{"command": "x"}
```
//- tests/e2e/readme.rs
//! Runs `bowline new --twice`, it says, but does not.
const COMMANDS: &[(&str, Check)] = &[
    ("bowline demo", shows_a_turn), // "bowline new --twice"
    (r#"bowline say "hi""#, Check::Succeeds),
    ("bowline doctor --all", Check::Succeeds),
];
const OTHER: &str = "bowline new --twice";
"##,
            readme_commands_are_tested,
            expect![
                "README.md:5: no test runs `bowline new --twice`: add it to `COMMANDS` in tests/e2e/readme.rs"
            ],
        );
    }

    #[test]
    fn a_command_that_the_readme_no_longer_has_is_found() {
        check(
            r#"
//- README.md
```text
bowline demo
```
//- tests/e2e/readme.rs
//! Runs the README.
const COMMANDS: [&str; 1] = [
    "bowline demo",
];
"#,
            readme_commands_are_tested,
            expect![
                "tests/e2e/readme.rs:3: `bowline demo` is not in README.md or docs/: remove it here or show it there"
            ],
        );
    }

    #[test]
    fn a_block_without_a_language_could_hide_a_command() {
        check(
            "
//- README.md
Try:
```
bowline demo
```
",
            readme_commands_are_tested,
            expect!["README.md:2: name the language of this block: `sh`, `console`, `text`, …"],
        );
    }

    #[test]
    fn commands_without_a_runner_are_all_untested() {
        check(
            "
//- README.md
```sh
bowline demo
```
",
            readme_commands_are_tested,
            expect!["README.md:2: no test runs `bowline demo`: add it to `COMMANDS` in tests/e2e/readme.rs"],
        );
    }

    #[test]
    fn a_readme_is_there() {
        check("\n//- src/lib.rs\n", readme_commands_are_tested, expect!["README.md:1: is missing: write it"]);
    }
}
