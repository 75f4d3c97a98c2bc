//! How a writer left a log, and what its anchor knows of that.

use bowline_state::audit::{Anchor, MAX_LAG};

use super::place::Written;

/// A log as a writer left it.
#[derive(Debug)]
pub(super) struct Known {
    /// What the anchor says.
    pub(super) anchor: Written,
    /// What it would say if it knew of the reads since.
    pub(super) end: Anchor,
}

impl Known {
    /// The anchor knows all there is.
    pub(super) fn whole(anchor: Written) -> Self {
        Self { end: anchor.anchor, anchor }
    }

    pub(super) fn lags(&self) -> bool {
        self.anchor.anchor != self.end
    }

    /// Says whether the anchor need not learn of the entry with this number at once, if it is a read.
    pub(super) fn may_lag(&self, seq: u64) -> bool {
        seq.saturating_sub(self.anchor.anchor.end.seq) < MAX_LAG
    }
}

/// When the anchor learns of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchoring {
    Now,
    /// Later, if it may.
    Later,
}
