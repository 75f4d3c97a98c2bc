//! Drawing: layout, markdown, diffs, wrapping and widgets.

pub(crate) mod diff;
pub(crate) mod draw;
pub(crate) mod item_lines;
pub(crate) mod markdown;
pub(crate) mod widgets;
pub(crate) mod wrap;
