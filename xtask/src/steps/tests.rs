//! The steps' commands as text, and the effect of a failure on the steps after it.

use super::{TestExtent, TestStep, run_each};
use crate::command::to_command_line;
use crate::summary::{StepOutcome, SummaryRow};
use clap::ValueEnum;
use expect_test::{Expect, expect};
use std::path::Path;

#[test]
fn every_step_shows_what_it_runs() {
    let mut out = String::new();
    for step in TestStep::value_variants() {
        out.push_str(&format!("{}: {}\n", step.name(), step.about()));
        for command in step.commands(Path::new("no-such-folder"), TestExtent::Full, true) {
            out.push_str(&format!("    {}\n", to_command_line(&command)));
        }
    }
    expect![[r#"
        fmt: The format of every Rust file
            cargo fmt --all --check
        docs: The documentation builds; a warning is an error (only with --full, or by name)
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none RUSTDOCFLAGS='-D warnings' cargo doc --release --workspace --no-deps --locked
        build: The binary `bowline`, and everything else, with clippy as the compiler; a warning is an error
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo build --release --workspace --all-targets --locked
        peers: The programs on the official SDKs, and the agents and clients of others, at pinned versions
        test: Unit, property, tidy and end-to-end tests
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo build --release --workspace --all-targets --locked
            BOWLINE_BUILT=1 BOWLINE_FULL=1 BOWLINE_PEERS='' CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo nextest run --release --workspace --locked --no-fail-fast
        doctest: The tests in the documentation
            CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --release --workspace --doc --locked
    "#]]
    .assert_eq(&out);
}

#[test]
fn without_nextest_cargo_runs_the_tests() {
    let commands = TestStep::Test.commands(Path::new("no-such-folder"), TestExtent::Usual, false);
    expect![
        "BOWLINE_BUILT=1 BOWLINE_PEERS='' CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_STRIP=none CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --release --workspace --locked --no-fail-fast --lib --bins --tests --examples"
    ]
    .assert_eq(&to_command_line(&commands[1]));
}

/// Runs every step, with those in `failing` failing, and compares how each ended.
fn check(failing: &[TestStep], expected: Expect) {
    let summary = run_each(TestStep::value_variants(), |step| {
        let outcome =
            if failing.contains(&step) { StepOutcome::Failed("broken".into()) } else { StepOutcome::Passed };
        vec![SummaryRow::timed(step.name(), || outcome)]
    });
    let lines: Vec<_> = summary.rows.iter().map(|row| format!("{} {:?}\n", row.name, row.outcome)).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn after_a_failed_check_the_others_still_run() {
    check(
        &[TestStep::Fmt, TestStep::Docs],
        expect![[r#"
        fmt Failed("broken")
        docs Failed("broken")
        build Passed
        peers Passed
        test Passed
        doctest Passed
    "#]],
    );
}

#[test]
fn after_a_failed_build_nothing_is_tested() {
    check(
        &[TestStep::Build],
        expect![[r#"
        fmt Passed
        docs Passed
        build Failed("broken")
        peers Passed
        test Skipped("the build failed")
        doctest Skipped("the build failed")
    "#]],
    );
}
