//! Tests of servers over HTTP: calls, crashes, expired sessions, HTML pages, streams that end at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests end when something is wrong")]

mod http {
    pub(crate) mod legacy;
    pub(crate) mod scripted_server;
    pub(crate) mod streamable;
}
