//! Tests of the journal on a real disk: retention, pruning and recovery.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
#![allow(clippy::print_stdout, reason = "a test that runs as a child tells its parent how far it is")]

#[path = "journal/crash.rs"]
mod crash;
#[path = "journal/damage.rs"]
mod damage;
#[path = "journal/deltas.rs"]
mod deltas;
#[path = "journal/fixture.rs"]
mod fixture;
#[path = "journal/model.rs"]
mod model;
#[path = "journal/retention.rs"]
mod retention;
