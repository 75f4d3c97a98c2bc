//! What the commands share that look at what agents did: which workspace is meant, and how things are told.

pub(crate) mod elsewhere;
pub(crate) mod here;
pub(crate) mod names;
pub(crate) mod pager;
pub(crate) mod showing;
pub(crate) mod times;
