//! Recovery of interrupted writes: the outcome, inferred from the bytes left on disk.
//!
//! Before a write touches the disk, the journal holds its two texts and the name of its temporary file. The next
//! process that opens the journal finds the write without an outcome, reads the disk and decides here.

use crate::changes::ChangeOutcome;

/// How a write changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMethod {
    /// The new text goes to a temporary file that is exchanged with the old one; to delete a file, it is renamed to
    /// the temporary name.
    Exchange,
    /// The new bytes overwrite the old ones, and the file is truncated to its length.
    InPlace,
}

/// The state found after an interrupted write.
#[derive(Debug, Clone, Copy)]
pub struct InterruptedWrite<'a> {
    /// How it was written.
    pub method: WriteMethod,
    /// The file before the write; `None` if it did not exist.
    pub before: Option<&'a [u8]>,
    /// The intended file; `None` if it was to be deleted.
    pub after: Option<&'a [u8]>,
    /// The file as found.
    pub current: Option<&'a [u8]>,
    /// The file found under the temporary name.
    pub temp: Option<&'a [u8]>,
}

/// The repair of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    None,
    /// Remove the temporary file.
    RemoveTemp,
    /// The temporary name holds someone else's text: exchange it with the file, then remove the temporary file, which
    /// has the text that was to be written.
    ExchangeBack,
    /// The temporary name holds the file: rename it back.
    RenameBack,
    /// Keep the bytes of the temporary file in the journal, then remove it: their author is unknown and they must not
    /// be lost.
    KeepTemp,
    /// The file is half written: complete the write.
    CompleteWrite,
}

/// Decides the outcome and the repair of an interrupted write.
#[must_use]
pub fn decide_recovery(remains: InterruptedWrite<'_>) -> (ChangeOutcome, Repair) {
    match remains.method {
        WriteMethod::Exchange => decide_exchange(remains),
        WriteMethod::InPlace => decide_in_place(remains),
    }
}

/// A change of a file's end that was interrupted: bytes were to be added there, or removed.
#[derive(Debug, Clone, Copy)]
pub struct InterruptedTail<'a> {
    /// Whether the bytes were to be added.
    pub is_append: bool,
    /// The bytes.
    pub tail: &'a [u8],
    /// What follows the part of the file that the change leaves alone, at least one byte more than `tail` if there is
    /// more; `None` if that part has changed, or the file is gone.
    pub rest: Option<&'a [u8]>,
}

/// The repair of a file's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailRepair {
    /// Nothing.
    None,
    /// Only the first bytes are there: append the others. To remove the first ones instead could remove the same bytes of
    /// someone else.
    Complete,
}

/// Decides the outcome and the repair of an interrupted change of a file's end.
#[must_use]
pub fn decide_tail_recovery(
    InterruptedTail { is_append, tail, rest }: InterruptedTail<'_>,
) -> (ChangeOutcome, TailRepair) {
    let outcome = |is_done| if is_done { ChangeOutcome::Done } else { ChangeOutcome::Abandoned };
    match rest {
        // What follows the bytes was appended later.
        Some(rest) if rest.starts_with(tail) => (outcome(is_append), TailRepair::None),
        Some([]) => (outcome(!is_append), TailRepair::None),
        Some(rest) if tail.starts_with(rest) => (outcome(is_append), TailRepair::Complete),
        Some(_) | None => (ChangeOutcome::Unknown, TailRepair::None),
    }
}

fn decide_exchange(
    InterruptedWrite { before, after, current, temp, .. }: InterruptedWrite<'_>,
) -> (ChangeOutcome, Repair) {
    let Some(temp) = temp else {
        let outcome = match current {
            current if current == after => ChangeOutcome::Done,
            current if current == before => ChangeOutcome::Abandoned,
            _ => ChangeOutcome::Unknown,
        };
        return (outcome, Repair::None);
    };
    // Before the exchange the temporary file has the new text, or a prefix of it.
    let is_new_text = after.is_some_and(|after| after.starts_with(temp));
    if current == before && is_new_text {
        return (ChangeOutcome::Abandoned, Repair::RemoveTemp);
    }
    // After the exchange it has the old text, or a prefix of it if the writer was rolling back because another file
    // of the same group could not be written.
    let is_old_text = before.is_some_and(|before| before.starts_with(temp));
    match (after, current) {
        (Some(_), _) if is_old_text && current != before => (ChangeOutcome::Done, Repair::RemoveTemp),
        (None, None) if is_old_text => (ChangeOutcome::Done, Repair::RemoveTemp),
        // Where names cannot be exchanged, a new file briefly has both names.
        (Some(_), current) if current == after && is_new_text => (ChangeOutcome::Done, Repair::RemoveTemp),
        // The file was changed between the check and the exchange, and the writer died before it could report that.
        (Some(_), current) if current == after => (ChangeOutcome::Abandoned, Repair::ExchangeBack),
        (None, None) => (ChangeOutcome::Abandoned, Repair::RenameBack),
        _ if is_new_text || is_old_text => (ChangeOutcome::Unknown, Repair::RemoveTemp),
        _ => (ChangeOutcome::Unknown, Repair::KeepTemp),
    }
}

fn decide_in_place(
    InterruptedWrite { before, after, current, .. }: InterruptedWrite<'_>,
) -> (ChangeOutcome, Repair) {
    let (Some(before), Some(after), Some(current)) = (before, after, current) else {
        return (ChangeOutcome::Unknown, Repair::None);
    };
    if current == after {
        (ChangeOutcome::Done, Repair::None)
    } else if current == before {
        (ChangeOutcome::Abandoned, Repair::None)
    } else if is_half_written(before, after, current) {
        (ChangeOutcome::Done, Repair::CompleteWrite)
    } else {
        (ChangeOutcome::Unknown, Repair::None)
    }
}

/// Returns whether the bytes are those of an incomplete write: each byte is the old or the new one at its offset, and
/// the length lies between the old one and the new one.
fn is_half_written(before: &[u8], after: &[u8], current: &[u8]) -> bool {
    let (shorter, longer) = if before.len() < after.len() { (before, after) } else { (after, before) };
    let is_either = |(at, byte): (usize, &u8)| before.get(at) == Some(byte) || after.get(at) == Some(byte);
    (shorter.len()..=longer.len()).contains(&current.len()) && current.iter().enumerate().all(is_either)
}

#[cfg(test)]
mod tests;
