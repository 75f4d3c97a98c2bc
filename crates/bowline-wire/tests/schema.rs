//! Wire forms held against the official schema, both directions, for every message.
//!
//! The texts are in `golden/messages.txt`. What has to be in there is not a matter of taste: the schema that the schema
//! crate generates says which messages, fields and variants there are, and a test fails for each that no text shows.

#[path = "schema/carried.rs"]
mod carried;
#[path = "schema/messages.rs"]
mod messages;
#[path = "schema/official.rs"]
mod official;
#[path = "schema/pair.rs"]
mod pair;
#[path = "schema/random.rs"]
mod random;
#[path = "schema/seeds.rs"]
mod seeds;
#[path = "schema/texts.rs"]
mod texts;
#[path = "schema/tolerance.rs"]
mod tolerance;
