//! Tests of traces: their format, how they are read, shown and played.

mod format;
mod played;
mod shown;
