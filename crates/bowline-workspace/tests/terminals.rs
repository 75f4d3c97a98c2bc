//! Tests of terminals with real processes, including ones that resist being killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "terminals/confinement.rs"]
mod confinement;
#[path = "terminals/fixture.rs"]
mod fixture;
#[path = "terminals/protocol.rs"]
mod protocol;
#[path = "terminals/shutdown.rs"]
mod shutdown;
#[path = "terminals/stress.rs"]
mod stress;
