//! The journal on a real disk: what it keeps, what it drops, what it survives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]
#![allow(clippy::print_stdout, reason = "a test that runs as a child tells its parent how far it is")]

#[path = "journal/crash.rs"]
mod crash;
#[path = "journal/damage.rs"]
mod damage;
#[path = "journal/differences.rs"]
mod differences;
#[path = "journal/fixture.rs"]
mod fixture;
#[path = "journal/keeping.rs"]
mod keeping;
#[path = "journal/model.rs"]
mod model;
