//! Servers over HTTP: called, killed, forgotten sessions, pages of HTML, streams that end at once (F19).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end when something is wrong")]

mod http {
    pub(crate) mod legacy;
    pub(crate) mod scripted;
    pub(crate) mod streamable;
}
