//! Tests of the engine as an agent and a user see it: a file tree and steps in, their output out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "engine/boundaries.rs"]
mod boundaries;
#[path = "engine/documents.rs"]
mod documents;
#[path = "engine/file_extension.rs"]
mod file_extension;
#[path = "engine/journal.rs"]
mod journal;
#[path = "engine/properties.rs"]
mod properties;
#[path = "engine/reads.rs"]
mod reads;
#[path = "engine/text_formats.rs"]
mod text_formats;
#[path = "engine/writes.rs"]
mod writes;

use bowline_workspace::roots::Resolver;
use expect_test::Expect;
use test_support::fixture::{self, DirectBackend, ScriptBackend, ScriptDirs, WireBackend};

/// Runs a script on the engine directly, and through an agent, a connection and a host: the output must be the same.
fn check(script: &str, expected: Expect) {
    let directly = run_script(script, |world| DirectBackend::open(world, Resolver::Kernel));
    expected.assert_eq(&directly);
    assert_eq!(run_script(script, WireBackend::open), directly, "over a wire comes the same as directly");
}

/// Runs a script with both resolvers, which have to agree.
fn check_both(script: &str, expected: Expect) {
    expected.assert_eq(&run_script(script, |world| DirectBackend::open(world, Resolver::Walk)));
    check(script, expected);
}

fn run_script<S: ScriptBackend>(script: &str, open: impl FnOnce(&ScriptDirs) -> anyhow::Result<S>) -> String {
    let seen = fixture::run_script(script, open).expect("a script that can be run");
    // Expected texts are read in editors, which a bidirectional override could confuse.
    seen.replace('\u{202e}', "\\u202e")
}
