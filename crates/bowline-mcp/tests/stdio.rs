//! Servers that are programs: called, crashed, hung, flooded, ended, with all they started (F18).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end when something is wrong")]

mod stdio {
    pub(crate) mod faults;
    pub(crate) mod processes;
    pub(crate) mod support;
    pub(crate) mod use_of_tools;
}
