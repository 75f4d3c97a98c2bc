//! The page and its API, over real connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod access;
mod changes;
mod overview;
mod records;
mod support;
