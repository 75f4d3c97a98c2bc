//! Made-up repositories for the tests of the rules: one string as input, the findings as text.

use super::{Repo, RepoFile, RepoTree, TidyFinding};
use expect_test::Expect;

/// Compares the findings of `rule` in a repository that is written as `//- path` lines, each followed by the file's
/// text.
pub(super) fn check(fixture: &str, rule: impl Fn(&Repo) -> Vec<TidyFinding>, expected: Expect) {
    let findings: Vec<_> = rule(&repo(fixture)).iter().map(ToString::to_string).collect();
    expected.assert_eq(&findings.join("\n"));
}

pub(super) fn repo(fixture: &str) -> Repo {
    let mut files: Vec<RepoFile> = Vec::new();
    for line in fixture.trim_start_matches('\n').split_inclusive('\n') {
        if let Some(path) = line.strip_prefix("//- ") {
            files.push(RepoFile { path: path.trim().to_owned(), text: String::new() });
        } else {
            files.last_mut().expect("a fixture starts with a //- line").text.push_str(line);
        }
    }
    Repo::new(RepoTree { files })
}
