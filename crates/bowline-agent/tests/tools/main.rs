//! The tools of a session, called as a model would, with an editor at the other end that behaves well and badly.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests end where something is not as it should be"
)]

mod beside;
mod commands;
mod dropping;
mod editing;
mod linking;
mod offering;
mod permitting;
mod reading;
mod recording;
mod stage;
