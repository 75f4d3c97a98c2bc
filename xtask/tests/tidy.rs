//! Checks this repository against every rule of the house. A failure lists its places and what to do.

use std::collections::BTreeSet;
use std::path::Path;

use xtask::command::cargo;
use xtask::tidy::{self, Repo, RepoTree, TidyFinding};

type TidyRule = fn(&Repo) -> Vec<TidyFinding>;

/// Every rule, by name.
const RULES: &[(&str, TidyRule)] = &[
    ("crates_depend_in_one_direction", tidy::crates_depend_in_one_direction),
    ("every_file_starts_with_its_subject", tidy::every_file_starts_with_its_subject),
    ("no_mod_rs", tidy::no_mod_rs),
    ("files_stay_short", tidy::files_stay_short),
    ("methods_stand_together", tidy::methods_stand_together),
    ("no_ignored_tests", tidy::no_ignored_tests),
    ("no_sleeping_tests", tidy::no_sleeping_tests),
    ("libraries_leave_the_process_alone", tidy::libraries_leave_the_process_alone),
    ("no_copied_code", tidy::no_copied_code),
    ("readme_commands_are_tested", tidy::readme_commands_are_tested),
    ("nothing_names_a_machine", tidy::nothing_names_a_machine),
];

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree =
        RepoTree::read(&root).unwrap_or_else(|error| panic!("cannot read {}: {error}", root.display()));
    let repo = Repo::new(tree);
    assert!(repo.sources.len() > 10, "the repository was not found at {}", root.display());
    let mut report = String::new();
    for (rule, check) in RULES {
        for finding in check(&repo) {
            report.push_str(&format!("{rule}: {finding}\n"));
        }
    }
    assert!(report.is_empty(), "to tidy:\n{report}");
}

/// Otherwise every crate above such a dependency is built twice: for `cargo run`, and for the tests.
#[test]
fn the_program_and_the_tests_use_the_same_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let features = |packages: &[&str]| -> BTreeSet<String> {
        let listing = ["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p} with {f}"];
        let output = cargo(&root, &[&listing, packages].concat()).output().expect("cargo tree");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let program = features(&["--package", "bowline-cli", "--edges", "normal,build"]);
    let tests = features(&["--workspace", "--edges", "all"]);
    let other: Vec<_> = program.difference(&tests).collect();
    assert!(other.is_empty(), "give bowline-cli the features that the tests have, too: {other:#?}");
}
