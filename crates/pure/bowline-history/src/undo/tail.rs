//! Reverting changes of a file's end, of which the journal has only the bytes that were added or removed.
//!
//! Where the file still ends as the change left it, the bytes are removed again, or added again, without a look at the
//! rest. Otherwise the texts before and after the change are rebuilt from the file, if the file proves what they were,
//! and reverted like any other.

use crate::changes::Change;
use bowline_text::hash::ContentHash;

/// A change of a file's end: its bytes are what `change` added there, or removed.
#[derive(Debug, Clone, Copy)]
pub struct TailStep<'a> {
    /// The change.
    pub change: &'a Change,
    /// The bytes.
    pub tail: &'a [u8],
}

/// The effect of a reversal on a file's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailPlan {
    /// These bytes are removed from the end.
    Cut(Vec<u8>),
    /// These bytes are added to the end.
    Append(Vec<u8>),
}

impl TailStep<'_> {
    /// Returns the file's sizes before and after, if they differ by the bytes.
    fn sizes(&self) -> Option<(u64, u64)> {
        let (before, after) = (self.change.before?.size, self.change.after?.size);
        (before.abs_diff(after) == self.tail.len() as u64).then_some((before, after))
    }

    /// Rebuilds the contents before and after the change from the current one, or returns `None` if that does not prove
    /// them.
    ///
    /// The file may prove the content before, wherever the bytes are now. Otherwise an end that is as the change left it
    /// is proof enough: other edits then belong to both contents. Bytes that were removed can always be added again.
    #[must_use]
    pub fn rebuild_contents(&self, current: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (before, after) = self.sizes()?;
        if after < before {
            return Some(([current, self.tail].concat(), current.to_vec()));
        }
        let hash = self.change.before?.hash;
        let is_before = |kept: &[u8]| ContentHash::digest(kept) == hash;
        let parts = current.split_at_checked(usize::try_from(before).ok()?);
        let Some((kept, end)) = parts.filter(|(kept, _)| is_before(kept)) else {
            return current.strip_suffix(self.tail).map(|kept| (kept.to_vec(), current.to_vec()));
        };
        // What follows or precedes the bytes was added by others, and belongs to both.
        let others = end.strip_prefix(self.tail).or_else(|| end.strip_suffix(self.tail));
        Some(match others {
            Some(others) => ([kept, others].concat(), current.to_vec()),
            None => (kept.to_vec(), [kept, self.tail].concat()),
        })
    }
}

/// Plans the reversal of consecutive changes of a file's end, newest first, from its size and its last bytes: at least
/// as many as the changes added. Returns `None` if it does not end as the newest change left it.
#[must_use]
pub fn plan_tail_reversal(mut size: u64, mut end: &[u8], steps: &[TailStep<'_>]) -> Option<TailPlan> {
    let (whole, mut added) = (end, Vec::new());
    let is_append = |step: &TailStep<'_>| step.sizes().map(|(before, after)| before < after);
    let appends = is_append(steps.first()?)?;
    for step in steps {
        let (before, after) = step.sizes()?;
        if after != size || is_append(step)? != appends {
            return None;
        }
        if appends {
            end = end.strip_suffix(step.tail)?;
        } else {
            added.extend_from_slice(step.tail);
        }
        size = before;
    }
    Some(if appends { TailPlan::Cut(whole[end.len()..].to_vec()) } else { TailPlan::Append(added) })
}

/// As [`plan_tail_reversal`], for appends to a file whose other text has another length by now. Returns `None` also if
/// the file has the size that it had before them: then they were probably removed by hand.
#[must_use]
pub fn plan_moved_tail_reversal(size: u64, end: &[u8], steps: &[TailStep<'_>]) -> Option<TailPlan> {
    let (newest, oldest) = (steps.first()?.sizes()?, steps.last()?.sizes()?);
    let plan = plan_tail_reversal(newest.1, end, steps)?;
    (size != oldest.0 && matches!(plan, TailPlan::Cut(_))).then_some(plan)
}

/// Returns the bytes that consecutive changes of a file's end, oldest first, added in total; `None` if they also removed
/// bytes that they did not add.
#[must_use]
pub fn sum_tails(steps: &[TailStep<'_>]) -> Option<Vec<u8>> {
    let mut added: Vec<u8> = Vec::new();
    for step in steps {
        let (before, after) = step.sizes()?;
        if before < after {
            added.extend_from_slice(step.tail);
        } else {
            let kept = added.strip_suffix(step.tail)?.len();
            added.truncate(kept);
        }
    }
    Some(added)
}

#[cfg(test)]
mod tests;
