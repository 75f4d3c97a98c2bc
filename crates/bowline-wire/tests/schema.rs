//! Tests of the wire form of every message against the official schema, in both directions.
//!
//! The texts are in `golden/messages.txt`. Their coverage is checked: the schema that the schema crate generates
//! lists all messages, fields and variants, and a test fails for each that no text shows.

#[cfg(test)]
#[path = "schema/examples.rs"]
mod examples;
#[cfg(test)]
#[path = "schema/file_extension.rs"]
mod file_extension;
#[cfg(test)]
#[path = "schema/golden.rs"]
mod golden;
#[cfg(test)]
#[path = "schema/messages.rs"]
mod messages;
#[cfg(test)]
#[path = "schema/official_schema.rs"]
mod official_schema;
#[cfg(test)]
#[path = "schema/peer_pair.rs"]
mod peer_pair;
#[cfg(test)]
#[path = "schema/random.rs"]
mod random;
#[cfg(test)]
#[path = "schema/tolerance.rs"]
mod tolerance;
#[cfg(test)]
#[path = "schema/transfer.rs"]
mod transfer;
