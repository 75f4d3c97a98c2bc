//! Wire forms held against the official schema, both directions, for every message.
//!
//! The texts are in `golden/messages.txt`. What has to be in there is not a matter of taste: the schema that the schema
//! crate generates says which messages, fields and variants there are, and a test fails for each that no text shows.

#[cfg(test)]
#[path = "schema/carried.rs"]
mod carried;
#[cfg(test)]
#[path = "schema/messages.rs"]
mod messages;
#[cfg(test)]
#[path = "schema/official.rs"]
mod official;
#[cfg(test)]
#[path = "schema/pair.rs"]
mod pair;
#[cfg(test)]
#[path = "schema/random.rs"]
mod random;
#[cfg(test)]
#[path = "schema/seeds.rs"]
mod seeds;
#[cfg(test)]
#[path = "schema/texts.rs"]
mod texts;
#[cfg(test)]
#[path = "schema/tolerance.rs"]
mod tolerance;
