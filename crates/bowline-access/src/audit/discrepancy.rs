//! Discrepancies between the end of a log and its anchor, and their description.

use bowline_text::hash::ContentHash;

/// The differences between the disk and the anchor.
#[derive(Debug, Default)]
pub(super) struct AnchorDiscrepancies {
    /// Lines after the anchor that continue the chain.
    pub(super) adopted_lines: u64,
    /// Lines after the anchor that do not.
    pub(super) foreign_lines: u64,
    /// The hash and length of a line without an end.
    pub(super) torn_line: Option<(ContentHash, u64)>,
    /// The log ends before its anchor.
    pub(super) is_truncated: bool,
    /// The anchor was missing or unreadable.
    pub(super) lacks_anchor: bool,
}

impl AnchorDiscrepancies {
    /// Describes the discrepancies, or returns `None` if the log matches its anchor.
    pub(super) fn describe(&self) -> Option<String> {
        let mut told = Vec::new();
        if self.lacks_anchor
            && (self.adopted_lines > 0
                || self.foreign_lines > 0
                || self.torn_line.is_some()
                || self.is_truncated)
        {
            told.push("the anchor was missing or unreadable".to_owned());
        } else if self.lacks_anchor {
            told.push("the anchor was missing or unreadable, and was made anew from the log".to_owned());
        }
        if self.is_truncated {
            told.push("the log ended before what its anchor says".to_owned());
        }
        if self.adopted_lines > 0 {
            told.push(format!("{} at the end not in the anchor", count_entries(self.adopted_lines)));
        }
        if self.foreign_lines > 0 {
            told.push(format!("{} at the end that are not of the log", self.foreign_lines));
        }
        if self.torn_line.is_some() {
            told.push("the last line was torn".to_owned());
        }
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn count_entries(count: u64) -> String {
    if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") }
}
