//! The benchmark of the wire: its runner, the hand-written floor, and what the peers of this package share.

pub mod bench;
pub mod floor;
