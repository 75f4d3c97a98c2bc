//! Code that stands in two places: runs of equal lines, once layout, comments, imports and attributes are set aside.

use super::{Finding, Repo, Source};
use std::collections::HashMap;

/// How many equal lines in a row make a copy.
const FEWEST: usize = 8;

/// Pairs of files that may be alike: the two paths in order, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// No eight lines of production code stand in two places.
pub fn no_copied_code(repo: &Repo) -> Vec<Finding> {
    check(repo, EXCEPTIONS)
}

fn check(repo: &Repo, exceptions: &[(&str, &str, &str)]) -> Vec<Finding> {
    // The peers are built apart from the workspace and cannot share code with it.
    let ours = repo.sources.iter().filter(|source| !source.path.starts_with("tests/peers/"));
    let files: Vec<(&str, Vec<Kept>)> =
        ours.map(|source| (source.path.as_str(), kept_lines(source))).collect();
    let mut used = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for copy in copies(&files) {
        let (first, second) = (files[copy.first.0].0, files[copy.second.0].0);
        if let Some(index) = exceptions.iter().position(|(a, b, _)| (*a, *b) == (first, second)) {
            used[index] = true;
            continue;
        }
        let line = |(file, index): Place| files[file].1[index].number;
        let advice =
            format!("{} lines equal those at {first}:{}: give both one home", copy.lines, line(copy.first));
        findings.push(Finding::new(second, line(copy.second), advice));
    }
    for ((first, second, _), _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        findings.push(Finding::new(
            *first,
            1,
            format!("is no copy of {second} any more: remove the exception in {}", file!()),
        ));
    }
    findings.sort();
    findings
}

/// A line that counts, with its layout made uniform.
struct Kept {
    number: usize,
    text: String,
}

/// A file and a line of it, as indices.
type Place = (usize, usize);

/// A longest run of equal lines, at two places.
struct Copy {
    first: Place,
    second: Place,
    lines: usize,
}

fn kept_lines(source: &Source) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut inside = Inside::Code;
    for line in source.production() {
        let text = line.plain.split_whitespace().collect::<Vec<_>>().join(" ");
        if inside == Inside::Code {
            inside = Inside::entered_by(&text);
        }
        let skipped = inside != Inside::Code || !text.contains(|c: char| c.is_alphanumeric());
        if inside.is_left_by(&text) {
            inside = Inside::Code;
        }
        if !skipped {
            kept.push(Kept { number: line.number, text });
        }
    }
    kept
}

/// What a line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    Import,
    Attribute,
}

impl Inside {
    fn entered_by(text: &str) -> Self {
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

    fn is_left_by(self, text: &str) -> bool {
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

fn copies(files: &[(&str, Vec<Kept>)]) -> Vec<Copy> {
    let mut places: HashMap<Vec<&str>, Vec<Place>> = HashMap::new();
    for (file, (_, lines)) in files.iter().enumerate() {
        for (index, window) in lines.windows(FEWEST).enumerate() {
            let window = window.iter().map(|kept| kept.text.as_str()).collect();
            places.entry(window).or_default().push((file, index));
        }
    }
    let text = |(file, index): Place| files[file].1.get(index).map(|kept| kept.text.as_str());
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
                // In one file the second place starts where the first has ended, at the earliest.
                let room = if first.0 == second.0 { second.1 - first.1 } else { usize::MAX };
                let equal = |offset: &usize| {
                    let line = text((first.0, first.1 + offset));
                    line.is_some() && line == text((second.0, second.1 + offset))
                };
                let lines = (0..room).take_while(equal).count();
                if lines >= FEWEST {
                    found.push(Copy { first, second, lines });
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
