//! Terminals: the user's own, and those of the agent's commands, as the screen shows them.

pub(crate) mod emulator;
pub(crate) mod key_stream;
pub(crate) mod tty;
pub(crate) mod views;
