//! Test hygiene: every test runs, and waits for events instead of sleeping.

use super::words::first_word;
use super::{Repo, SourceLine, TidyFinding};

/// Code shared by tests, which is held to the same rules.
const TEST_SUPPORT: &str = "crates/test-support/";

/// Files that may sleep: the path and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "crates/test-support/src/wait.rs",
    "its pauses lie between two checks of a condition, so no test depends on their length",
)];

/// No test is disabled, neither by an attribute nor by `ignore` on a doc test.
pub fn no_ignored_tests(repo: &Repo) -> Vec<TidyFinding> {
    let advice = "an ignored test proves nothing: make it run everywhere, or delete it";
    check_lines(repo, |_, line| is_ignored(line).then(|| advice.to_owned()))
}

/// No test sleeps, except in the files of the list.
pub fn no_sleeping_tests(repo: &Repo) -> Vec<TidyFinding> {
    check_lines(repo, |path, line| {
        let excepted = EXCEPTIONS.iter().any(|(exception, _)| *exception == path);
        let test = (line.is_test || path.starts_with(TEST_SUPPORT)) && !excepted;
        let found = first_word(&line.code, &["sleep(", "sleep_until(", "sleep_ms("]).filter(|_| test)?;
        Some(format!("`{found}…)` in a test hides a race: await the event, or pass the time in"))
    })
}

fn is_ignored(line: &SourceLine) -> bool {
    let by_attribute =
        line.code.contains("#[ignore") || (line.code.contains("cfg_attr(") && line.code.contains("ignore"));
    // A comment is blank in the plain view; the same text in a string is not.
    let doc = if line.plain.trim().is_empty() { line.text.trim_start() } else { "" };
    let fence = doc
        .strip_prefix("///")
        .or(doc.strip_prefix("//!"))
        .and_then(|doc| doc.trim_start().strip_prefix("```"));
    by_attribute || fence.is_some_and(|words| words.split(',').any(|word| word.trim().starts_with("ignore")))
}

fn check_lines(repo: &Repo, advice: impl Fn(&str, &SourceLine) -> Option<String>) -> Vec<TidyFinding> {
    let lines =
        repo.sources.iter().flat_map(|source| source.lines.iter().map(move |line| (&source.path, line)));
    lines.filter_map(|(path, line)| Some(TidyFinding::new(path, line.number, advice(path, line)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::{no_ignored_tests, no_sleeping_tests};
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn a_test_is_not_switched_off() {
        check(
            r##"
//- src/a.rs
//! ```ignore
//! broken();
//! ```
/// ```no_run
/// ```
/// ```rust,ignore
fn a() { "#[ignore]"; }
#[cfg(test)]
mod tests {
    #[test]
    #[ignore = "slow"]
    fn t() {}
    #[cfg_attr(windows, ignore)]
    fn u() {} // #[ignore]
}
"##,
            no_ignored_tests,
            expect![[r#"
                src/a.rs:1: an ignored test proves nothing: make it run everywhere, or delete it
                src/a.rs:6: an ignored test proves nothing: make it run everywhere, or delete it
                src/a.rs:11: an ignored test proves nothing: make it run everywhere, or delete it
                src/a.rs:13: an ignored test proves nothing: make it run everywhere, or delete it"#]],
        );
    }

    #[test]
    fn a_test_does_not_sleep() {
        check(
            r#"
//- src/a.rs
async fn grace() { tokio::time::sleep(GRACE).await }
#[cfg(test)]
mod tests {
    fn t() { std::thread::sleep(d); }
    fn u() { oversleep(d); run("sleep(1)"); } // sleep(
}
//- crates/test-support/src/lib.rs
fn v() { sleep(d) }
//- crates/test-support/src/wait.rs
fn y() { sleep(d) }
//- tests/e2e/main.rs
fn w() { sleep_until(d) }
//- tests/peers/rust/src/agent.rs
fn x() { sleep(d) }
"#,
            no_sleeping_tests,
            expect![[r#"
                src/a.rs:4: `sleep(…)` in a test hides a race: await the event, or pass the time in
                crates/test-support/src/lib.rs:1: `sleep(…)` in a test hides a race: await the event, or pass the time in
                tests/e2e/main.rs:1: `sleep_until(…)` in a test hides a race: await the event, or pass the time in"#]],
        );
    }
}
