//! The benchmarks: of the wire, with the hand-written floor that it is measured against, and of files.

pub mod bench;
pub mod files;
pub mod floor;
