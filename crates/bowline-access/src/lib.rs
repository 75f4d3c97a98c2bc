//! Access: whether an agent may do what it asks for.
//!
//! - [`approvals`]: the check before every operation, by rules, grants and the user.
//! - [`policy`]: the user's rules in a file. [`audit`]: the log of every decision.
//!
//! The decisions themselves are in `bowline-policy`; this crate reads and writes files, and asks.

pub mod approvals;
pub mod audit;
pub mod policy;
