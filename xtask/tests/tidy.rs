//! Holds this repository against every rule of the house. Each failure lists its places and what to do.

use std::path::Path;
use xtask::tidy::{self, Repo, RepoTree, TidyFinding};

fn holds(rule: fn(&Repo) -> Vec<TidyFinding>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree =
        RepoTree::read(&root).unwrap_or_else(|error| panic!("cannot read {}: {error}", root.display()));
    let repo = Repo::new(tree);
    assert!(repo.sources.len() > 10, "the repository was not found at {}", root.display());
    let findings: Vec<_> = rule(&repo).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "to tidy ({}):\n{}\n", findings.len(), findings.join("\n"));
}

#[test]
fn crates_depend_in_one_direction() {
    holds(tidy::crates_depend_in_one_direction);
}

#[test]
fn every_file_starts_with_its_subject() {
    holds(tidy::every_file_starts_with_its_subject);
}

#[test]
fn no_mod_rs() {
    holds(tidy::no_mod_rs);
}

#[test]
fn files_stay_short() {
    holds(tidy::files_stay_short);
}

#[test]
fn no_ignored_tests() {
    holds(tidy::no_ignored_tests);
}

#[test]
fn no_sleeping_tests() {
    holds(tidy::no_sleeping_tests);
}

#[test]
fn libraries_leave_the_process_alone() {
    holds(tidy::libraries_leave_the_process_alone);
}

#[test]
fn no_copied_code() {
    holds(tidy::no_copied_code);
}

#[test]
fn readme_commands_are_tested() {
    holds(tidy::readme_commands_are_tested);
}

#[test]
fn nothing_names_a_machine() {
    holds(tidy::nothing_names_a_machine);
}
