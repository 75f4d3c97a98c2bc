//! Code that the end-to-end tests share with the programs in this package: a program in a pseudo-terminal, and the
//! picture of its screen.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

pub mod picture;
pub mod pty;
