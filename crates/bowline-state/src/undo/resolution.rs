//! What an undo does where a file was changed since in the same lines.

use super::{File, Why};
use crate::merge::{ConflictPlace, merge, merge_resolving};

/// What is done where the lines of a change were changed since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resolution {
    /// Nothing is taken back.
    #[default]
    Refuse,
    /// Both texts are put into the file, between marks as git has them.
    Markers,
    /// What was there before the change comes back; what those lines became since is only in the journal.
    Force,
}

/// Resolves what it meets, and counts it.
pub(super) struct Resolver {
    resolution: Resolution,
    pub(super) resolved: usize,
}

impl Resolver {
    pub(super) fn new(resolution: Resolution) -> Self {
        Self { resolution, resolved: 0 }
    }

    /// Merges a file as it is with what was before a change.
    pub(super) fn merge(&mut self, after: &str, now: &str, before: &str) -> Result<String, Why> {
        if self.resolution == Resolution::Refuse {
            return Ok(merge(after, now, before)?.text);
        }
        let merged = merge_resolving(after, now, before, &mut |place| {
            self.resolved += 1;
            match self.resolution {
                Resolution::Markers => with_markers(place),
                Resolution::Refuse | Resolution::Force => place.theirs.to_owned(),
            }
        });
        Ok(merged.text)
    }

    /// Returns what was before a change in place of a file that cannot be merged with it, if that is what is wanted.
    pub(super) fn replace<'a>(
        &mut self,
        file: Option<File<'a>>,
        before: Option<File<'a>>,
        why: Why,
    ) -> Result<Option<File<'a>>, Why> {
        // What is not known cannot come back.
        if self.resolution != Resolution::Force || matches!(why, Why::Forgotten | Why::Pruned) {
            return Err(why);
        }
        self.resolved += 1;
        let mode = file.map(|file| file.mode);
        Ok(before.map(|before| File { mode: mode.unwrap_or(before.mode), ..before }))
    }
}

fn with_markers(place: ConflictPlace<'_>) -> String {
    let mut text = String::new();
    let sides =
        [("<<<<<<< now", place.ours), ("||||||| after the change", place.base), ("=======", place.theirs)];
    // The lines of the file say how lines end in it.
    let end = if [place.ours, place.base, place.theirs].iter().any(|side| side.ends_with("\r\n")) {
        "\r\n"
    } else {
        "\n"
    };
    for (mark, side) in sides {
        text.push_str(mark);
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
