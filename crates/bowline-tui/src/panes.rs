//! The panes of the screen: the conversation, and what is shown in front of it.

pub(crate) mod approval;
pub(crate) mod changes;
pub(crate) mod completion;
pub(crate) mod conversation;
pub(crate) mod elicitation;
pub(crate) mod picker;
