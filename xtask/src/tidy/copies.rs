//! Duplicated code: runs of equal lines, ignoring layout, comments, imports and attributes.

use super::{Repo, RustSource, TidyFinding};
use std::collections::HashMap;

/// The length of the shortest run of equal lines that counts as a copy.
const MIN_COPIED_LINES: usize = 8;

/// Pairs of files that may share code: the two paths in order, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// No eight lines of production code occur twice.
pub fn no_copied_code(repo: &Repo) -> Vec<TidyFinding> {
    check(repo, EXCEPTIONS)
}

fn check(repo: &Repo, exceptions: &[(&str, &str, &str)]) -> Vec<TidyFinding> {
    // The peers are built outside the workspace and cannot share code with it.
    let ours = repo.sources.iter().filter(|source| !source.path.starts_with("tests/peers/"));
    let files: Vec<(&str, Vec<CodeLine>)> =
        ours.map(|source| (source.path.as_str(), code_lines(source))).collect();
    let mut used = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for copy in find_copies(&files) {
        let (first, second) = (files[copy.first.0].0, files[copy.second.0].0);
        if let Some(index) = exceptions.iter().position(|(a, b, _)| (*a, *b) == (first, second)) {
            used[index] = true;
            continue;
        }
        let line = |(file, index): LinePosition| files[file].1[index].number;
        let advice =
            format!("{} lines equal those at {first}:{}: give both one home", copy.lines, line(copy.first));
        findings.push(TidyFinding::new(second, line(copy.second), advice));
    }
    for ((first, second, _), _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        findings.push(TidyFinding::new(
            *first,
            1,
            format!("is no copy of {second} any more: remove the exception in {}", file!()),
        ));
    }
    findings.sort();
    findings
}

/// A significant line, with normalised layout.
struct CodeLine {
    number: usize,
    text: String,
}

/// A file and a line in it, as indices.
type LinePosition = (usize, usize);

/// A maximal run of equal lines at two positions.
struct CopiedRun {
    first: LinePosition,
    second: LinePosition,
    lines: usize,
}

fn code_lines(source: &RustSource) -> Vec<CodeLine> {
    let mut kept = Vec::new();
    let mut inside = LineContext::Code;
    for line in source.production_lines() {
        let text = line.plain.split_whitespace().collect::<Vec<_>>().join(" ");
        if inside == LineContext::Code {
            inside = LineContext::starting_at(&text);
        }
        let skipped = inside != LineContext::Code || !text.contains(|c: char| c.is_alphanumeric());
        if inside.ends_at(&text) {
            inside = LineContext::Code;
        }
        if !skipped {
            kept.push(CodeLine { number: line.number, text });
        }
    }
    kept
}

/// The context of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineContext {
    Code,
    Import,
    Attribute,
}

impl LineContext {
    fn starting_at(text: &str) -> Self {
        let item = text
            .strip_prefix("pub")
            .map_or(text, |rest| rest.split_once(") ").map_or(rest, |(_, item)| item));
        if item.trim_start().starts_with("use ") {
            Self::Import
        } else if text.starts_with("#[") || text.starts_with("#![") {
            Self::Attribute
        } else {
            Self::Code
        }
    }

    fn ends_at(self, text: &str) -> bool {
        match self {
            Self::Code => false,
            Self::Import => text.ends_with(';'),
            Self::Attribute => text.ends_with(']') || (text.starts_with('#') && is_closed(text)),
        }
    }
}

fn is_closed(attribute: &str) -> bool {
    attribute.matches('[').count() == attribute.matches(']').count()
}

fn find_copies(files: &[(&str, Vec<CodeLine>)]) -> Vec<CopiedRun> {
    let mut places: HashMap<Vec<&str>, Vec<LinePosition>> = HashMap::new();
    for (file, (_, lines)) in files.iter().enumerate() {
        for (index, window) in lines.windows(MIN_COPIED_LINES).enumerate() {
            let window = window.iter().map(|kept| kept.text.as_str()).collect();
            places.entry(window).or_default().push((file, index));
        }
    }
    let text = |(file, index): LinePosition| files[file].1.get(index).map(|kept| kept.text.as_str());
    let mut found = Vec::new();
    for group in places.values() {
        for (rank, &first) in group.iter().enumerate() {
            for &second in &group[rank + 1..] {
                // A run is reported once, from its first line.
                let starts_earlier = first.1 > 0
                    && second.1 > 0
                    && text((first.0, first.1 - 1)) == text((second.0, second.1 - 1));
                if starts_earlier {
                    continue;
                }
                // Within one file, the two runs must not overlap.
                let room = if first.0 == second.0 { second.1 - first.1 } else { usize::MAX };
                let equal = |offset: &usize| {
                    let line = text((first.0, first.1 + offset));
                    line.is_some() && line == text((second.0, second.1 + offset))
                };
                let lines = (0..room).take_while(equal).count();
                if lines >= MIN_COPIED_LINES {
                    found.push(CopiedRun { first, second, lines });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::fixture;
    use expect_test::{Expect, expect};

    const EIGHT: &str =
        "fn a(x: u8) {\n    b(x);\n    c(x);\n    d(x);\n    e(x);\n    f(x);\n    g(x);\n    h(x);\n}\n";

    fn check_copies(tree: &str, exceptions: &[(&str, &str, &str)], expected: Expect) {
        fixture::check(tree, |repo| check(repo, exceptions), expected);
    }

    #[test]
    fn eight_lines_in_two_files_are_a_copy() {
        let again = EIGHT.replace("    b(x);", "\t b(x);  // the same\n\n    #[expect(\n  unused\n)]");
        check_copies(
            &format!("//- src/a.rs\n//! A.\n{EIGHT}//- src/b.rs\n//! B.\nuse x::{{\n  y,\n}};\n{again}"),
            &[],
            expect!["src/b.rs:5: 8 lines equal those at src/a.rs:2: give both one home"],
        );
    }

    #[test]
    fn one_different_line_is_enough_to_be_no_copy() {
        let other = EIGHT.replace("e(x)", "e(\"x\")");
        check_copies(&format!("//- src/a.rs\n{EIGHT}//- src/b.rs\n{other}"), &[], expect![""]);
    }

    #[test]
    fn a_longer_copy_is_reported_once() {
        let longer = format!("{EIGHT}fn z() {{\n    last();\n}}\n");
        check_copies(
            &format!("//- src/a.rs\n{longer}//- src/b.rs\n{longer}"),
            &[],
            expect!["src/b.rs:1: 10 lines equal those at src/a.rs:1: give both one home"],
        );
    }

    #[test]
    fn a_copy_in_the_same_file_counts_and_overlap_does_not() {
        check_copies(
            &format!("//- src/a.rs\n{EIGHT}{EIGHT}//- src/b.rs\n{}", "row();\n".repeat(12)),
            &[],
            expect!["src/a.rs:10: 8 lines equal those at src/a.rs:1: give both one home"],
        );
    }

    #[test]
    fn tests_and_peers_may_repeat_themselves() {
        check_copies(
            &format!(
                "//- src/a.rs\n{EIGHT}//- src/b/tests.rs\n{EIGHT}//- src/c.rs\n#[cfg(test)]\nmod tests {{\n{EIGHT}}}\n\
                 //- tests/peers/rust/src/main.rs\n{EIGHT}"
            ),
            &[],
            expect![""],
        );
    }

    #[test]
    fn an_exception_is_for_a_pair_that_needs_it() {
        check_copies(
            &format!("//- src/a.rs\n{EIGHT}//- src/b.rs\n{EIGHT}"),
            &[("src/a.rs", "src/b.rs", "two examples"), ("src/a.rs", "src/c.rs", "was a copy")],
            expect![
                "src/a.rs:1: is no copy of src/c.rs any more: remove the exception in xtask/src/tidy/copies.rs"
            ],
        );
    }
}
