//! Tests of the proxy with third-party agents and editors.
//!
//! An agent that knows nothing of Bowline reads unsaved text and writes through the editor. All other messages are the
//! same with the proxy and without; and when one side disconnects, the other is informed and no process stays.

mod agents;
pub(crate) mod editor_client;
mod permission;
mod shutdown;
mod transparency;
mod unsaved_text;
