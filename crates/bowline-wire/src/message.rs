//! Messages: their form on the wire, and how it is read, repaired and rewritten.

pub mod body;
pub mod canonical;
pub(crate) mod envelope;
pub mod methods;
pub mod peek;
pub(crate) mod salvage;
