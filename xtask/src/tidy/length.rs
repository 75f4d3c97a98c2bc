//! The length of files: a file has one subject and stays short, unless an exception is listed here.

use super::{Repo, TidyFinding};

/// The maximum number of production lines in a file.
const MAX_LINES: usize = 900;

/// Longer files that still have one subject: the path and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// No file has more than 900 lines outside its tests, except those in the list.
pub fn files_stay_short(repo: &Repo) -> Vec<TidyFinding> {
    check(repo, EXCEPTIONS)
}

fn check(repo: &Repo, exceptions: &[(&str, &str)]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for source in &repo.sources {
        let lines = source.production_lines().count();
        let excepted = exceptions.iter().any(|(path, _)| *path == source.path);
        if lines > MAX_LINES && !excepted {
            let advice = format!(
                "{lines} production lines, at most {MAX_LINES}: split it by subject, or name it in {}",
                file!()
            );
            findings.push(TidyFinding::new(&source.path, MAX_LINES + 1, advice));
        }
        if lines <= MAX_LINES && excepted {
            findings.push(TidyFinding::new(
                &source.path,
                1,
                format!("needs no exception any more: remove it in {}", file!()),
            ));
        }
    }
    for (path, _) in exceptions.iter().filter(|(path, _)| repo.tree.file(path).is_none()) {
        findings.push(TidyFinding::new(
            *path,
            1,
            format!("does not exist: remove its exception in {}", file!()),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, check};
    use crate::tidy::fixture;
    use expect_test::{Expect, expect};

    /// Checks files with the given numbers of production and test lines.
    fn check_lengths(files: &[(&str, usize, usize)], exceptions: &[(&str, &str)], expected: Expect) {
        let mut tree = String::new();
        for (path, production, test) in files {
            tree.push_str(&format!("//- {path}\n{}", "fn a() {}\n".repeat(*production)));
            tree.push_str(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn t() {}\n".repeat(*test)));
        }
        fixture::check(&tree, |repo| check(repo, exceptions), expected);
    }

    #[test]
    fn only_production_lines_count() {
        check_lengths(
            &[
                ("src/a.rs", MAX_LINES, 400),
                ("src/b.rs", MAX_LINES + 1, 0),
                ("src/b/tests.rs", MAX_LINES + 1, 0),
            ],
            &[],
            expect![[
                "src/b.rs:901: 901 production lines, at most 900: split it by subject, or name it in xtask/src/tidy/length.rs"
            ]],
        );
    }

    #[test]
    fn an_exception_is_for_a_file_that_needs_it() {
        check_lengths(
            &[("src/a.rs", MAX_LINES + 100, 0), ("src/b.rs", 20, 0)],
            &[("src/a.rs", "a table"), ("src/b.rs", "was long"), ("src/c.rs", "is gone")],
            expect![[r#"
                src/b.rs:1: needs no exception any more: remove it in xtask/src/tidy/length.rs
                src/c.rs:1: does not exist: remove its exception in xtask/src/tidy/length.rs"#]],
        );
    }
}
