//! The benchmarks: of the wire, with the hand-written floor that it is measured against, of files, and of the host.

pub mod bench;
pub mod files;
pub mod floor;
pub mod host;
