//! Code that the end-to-end tests share with the programs in this package: a program in a pseudo-terminal, the
//! picture of its screen, and peers that are servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

pub mod own_server;
pub mod peer_server;
pub mod picture;
pub mod pty;
