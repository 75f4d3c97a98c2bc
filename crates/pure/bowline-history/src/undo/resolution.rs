//! Resolution of conflicts between an undo and later changes to the same lines.

use super::{FileSnapshot, ReversalErrorReason};
use bowline_text::merge::{ConflictRegion, merge, merge_with_resolver};

/// How to resolve a conflict with later changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConflictResolution {
    /// Revert nothing.
    #[default]
    Refuse,
    /// Put both texts into the file, between conflict markers as in git.
    Markers,
    /// Restore the text before the change; the later text of those lines remains only in the journal.
    Force,
}

/// Resolves and counts conflicts.
pub(super) struct ConflictResolver {
    resolution: ConflictResolution,
    pub(super) resolved_count: usize,
}

impl ConflictResolver {
    pub(super) fn new(resolution: ConflictResolution) -> Self {
        Self { resolution, resolved_count: 0 }
    }

    /// Merges the current file with the text before a change.
    pub(super) fn merge(
        &mut self,
        after: &str,
        now: &str,
        before: &str,
    ) -> Result<String, ReversalErrorReason> {
        if self.resolution == ConflictResolution::Refuse {
            return Ok(merge(after, now, before)?);
        }
        Ok(merge_with_resolver(after, now, before, &mut |region| {
            self.resolved_count += 1;
            match self.resolution {
                ConflictResolution::Markers => with_markers(region),
                ConflictResolution::Refuse | ConflictResolution::Force => region.theirs.to_owned(),
            }
        }))
    }

    /// Returns the content before a change in place of a file that cannot be merged with it, if the resolution is
    /// `Force`.
    pub(super) fn replace<'a>(
        &mut self,
        file: Option<FileSnapshot<'a>>,
        before: Option<FileSnapshot<'a>>,
        reason: ReversalErrorReason,
    ) -> Result<Option<FileSnapshot<'a>>, ReversalErrorReason> {
        // Unknown content cannot be restored.
        if self.resolution != ConflictResolution::Force
            || matches!(reason, ReversalErrorReason::ContentUnavailable | ReversalErrorReason::Pruned)
        {
            return Err(reason);
        }
        self.resolved_count += 1;
        let mode = file.map(|file| file.mode);
        Ok(before.map(|before| FileSnapshot { mode: mode.unwrap_or(before.mode), ..before }))
    }
}

fn with_markers(region: ConflictRegion<'_>) -> String {
    let mut text = String::new();
    let sides =
        [("<<<<<<< now", region.ours), ("||||||| after the change", region.base), ("=======", region.theirs)];
    // The marker lines use the line ending of the conflicting lines.
    let end = if [region.ours, region.base, region.theirs].iter().any(|side| side.ends_with("\r\n")) {
        "\r\n"
    } else {
        "\n"
    };
    for (marker, side) in sides {
        text.push_str(marker);
        text.push_str(end);
        text.push_str(side);
        if !side.is_empty() && !side.ends_with('\n') {
            text.push_str(end);
        }
    }
    text.push_str(">>>>>>> before the change");
    text.push_str(end);
    text
}
