//! The slowest tests of the last run, read from nextest's JUnit report.

use std::fmt::Write as _;
use std::path::Path;

use crate::bench::target_dir;

/// How many tests are listed.
const LISTED: usize = 20;

/// Where nextest writes its report, as `.config/nextest.toml` says.
const REPORT: &str = "nextest/default/junit.xml";

/// Returns a list of the slowest tests, or nothing if there is no report.
pub fn list_slowest(root: &Path) -> String {
    std::fs::read_to_string(target_dir(root).join(REPORT))
        .map(|report| format_slowest(&report))
        .unwrap_or_default()
}

fn format_slowest(report: &str) -> String {
    let mut tests: Vec<(f64, String)> = report.lines().filter_map(read_test).collect();
    tests.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut list = String::new();
    for (seconds, name) in tests.iter().take(LISTED) {
        writeln!(list, "{seconds:.1} s  {name}").unwrap_or_default();
    }
    list
}

/// Returns how long a test took, and its name, if the line begins one.
fn read_test(line: &str) -> Option<(f64, String)> {
    let line = line.trim_start().strip_prefix("<testcase ")?;
    let seconds = attribute(line, "time")?.parse().ok()?;
    Some((seconds, format!("{} {}", attribute(line, "classname")?, attribute(line, "name")?)))
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name}=\"");
    let at = line.match_indices(&start).find(|(at, _)| *at == 0 || line.as_bytes()[at - 1] == b' ')?.0;
    line[at + start.len()..].split('"').next()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn the_slowest_come_first() {
        let report = r#"
<testsuite name="bowline-wire" tests="2">
    <testcase name="peer::tests::one" classname="bowline-wire" timestamp="2026-01-01T00:00:00Z" time="0.250">
    </testcase>
    <testcase name="two" classname="bowline-tests::host" timestamp="2026-01-01T00:00:00Z" time="12.031"/>
    <testcase name="broken" classname="x" time="soon"/>
</testsuite>
"#;
        expect![[r#"
            12.0 s  bowline-tests::host two
            0.2 s  bowline-wire peer::tests::one
        "#]]
        .assert_eq(&super::format_slowest(report));
        assert_eq!(super::format_slowest(""), "");
    }
}
