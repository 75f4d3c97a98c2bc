//! The proxy with agents and editors that we did not write.
//!
//! An agent that knows nothing of Bowline reads text that is not saved, and writes through the editor. Whatever else they say
//! to each other is the same with the proxy and without; and when one of them goes, the other is told and nothing stays.

mod asking;
mod ending;
mod guests;
mod invisible;
pub(crate) mod wire;
mod working;
