//! Tests of server programs: calls, crashes, hangs, floods, and the end of all their processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end when something is wrong")]

mod stdio {
    pub(crate) mod faults;
    pub(crate) mod processes;
    pub(crate) mod support;
    pub(crate) mod tools;
}
