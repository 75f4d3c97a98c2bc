//! A moment, as a value: decisions are given the time and never read a clock.

/// A time in milliseconds since 1970, by the caller's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);
