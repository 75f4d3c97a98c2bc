//! Byte streams: lines in, messages out, and copies of what passes.

pub(crate) mod eager_reader;
pub(crate) mod head_reader;
pub(crate) mod line_buffer;
pub(crate) mod outbox;
pub(crate) mod recorder;
pub(crate) mod stdio;
pub(crate) mod tail;
