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
#[path = "engine/text_formats.rs"]
mod text_formats;
#[path = "engine/writes.rs"]
mod writes;

use bowline_workspace::roots::Resolver;
use expect_test::Expect;
use test_support::fixture::{self, Direct, Steps, Wired, World};

/// Runs a script on the engine, and through an agent, a wire and a host on the engine: the same comes of it.
fn check(script: &str, expected: Expect) {
    let directly = seen(script, |world| Direct::open(world, Resolver::Kernel));
    expected.assert_eq(&directly);
    assert_eq!(seen(script, Wired::open), directly, "over a wire comes the same as directly");
}

/// Runs a script with both resolvers, which have to agree.
fn check_both(script: &str, expected: Expect) {
    expected.assert_eq(&seen(script, |world| Direct::open(world, Resolver::Walk)));
    check(script, expected);
}

fn seen<S: Steps>(script: &str, open: impl FnOnce(&World) -> anyhow::Result<S>) -> String {
    let seen = fixture::run(script, open).expect("a script that can be run");
    // The expected texts are read by people, in editors that a name should not be able to confuse.
    seen.replace('\u{202e}', "\\u202e")
}
