//! Tests of traces: format, reading, summaries and replay.

mod format;
mod replay;
mod sequence;
