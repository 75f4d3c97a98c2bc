//! The engine as an agent and a user see it: a file tree and steps in, what they are told out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "engine/boundaries.rs"]
mod boundaries;
#[path = "engine/documents.rs"]
mod documents;
#[path = "engine/journal.rs"]
mod journal;
#[path = "engine/properties.rs"]
mod properties;
#[path = "engine/reads.rs"]
mod reads;
#[path = "engine/served.rs"]
mod served;
#[path = "engine/text_formats.rs"]
mod text_formats;
#[path = "engine/writes.rs"]
mod writes;

use expect_test::Expect;
use test_support::fixture;

use crate::served::Served;

/// Runs a script on the engine.
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&seen(script, Served::open));
}

/// Runs a script with both resolvers, which have to agree.
fn check_both(script: &str, expected: Expect) {
    let by_the_kernel = seen(script, Served::open);
    expected.assert_eq(&by_the_kernel);
    assert_eq!(seen(script, Served::open_walking), by_the_kernel, "the walk gives the same as the kernel");
}

fn seen(script: &str, open: impl FnOnce(&fixture::World) -> anyhow::Result<Served>) -> String {
    let seen = fixture::run(script, open).expect("a script that can be run");
    // The expected texts are read by people, in editors that a name should not be able to confuse.
    seen.replace('\u{202e}', "\\u202e")
}
