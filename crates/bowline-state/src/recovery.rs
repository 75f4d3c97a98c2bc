//! What became of a write that was interrupted: read off the bytes that it left behind.
//!
//! Before a write touches the disk its two texts and the name of its temporary file are in the journal. Whoever opens
//! the journal next finds the write with no outcome, looks at the disk and asks here.

/// How a write changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMethod {
    /// The new text goes to a temporary file that changes places with the old one; or, to delete the file, the old one
    /// takes the temporary name.
    Exchange,
    /// The bytes are written over the old ones, and the file is cut to its length.
    InPlace,
}

/// What was found.
#[derive(Debug, Clone, Copy)]
pub struct Remains<'a> {
    /// How it was written.
    pub method: WriteMethod,
    /// The file before; none if there was none.
    pub before: Option<&'a [u8]>,
    /// The file as it was to be; none if it was to be deleted.
    pub after: Option<&'a [u8]>,
    /// The file as it is.
    pub current: Option<&'a [u8]>,
    /// What bears the temporary name.
    pub temp: Option<&'a [u8]>,
}

/// What to say of the write in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not done.
    Abandoned,
    /// The file has been changed by somebody else since; whether before or after cannot be told.
    Unknown,
}

/// What to do to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    Nothing,
    /// Remove the temporary file.
    RemoveTemp,
    /// What bears the temporary name is somebody's text: let it change places with the file, then remove the
    /// temporary file, which has the text that was to be written.
    ExchangeBack,
    /// What bears the temporary name is the file: give it its name again.
    RenameBack,
    /// Keep the bytes of the temporary file in the journal, then remove it: they are nobody's and cannot be lost.
    KeepTemp,
    /// The file is half written: write it to the end.
    Finish,
}

/// Judges an interrupted write.
#[must_use]
pub fn judge(remains: Remains<'_>) -> (Outcome, Repair) {
    match remains.method {
        WriteMethod::Exchange => judge_exchange(remains),
        WriteMethod::InPlace => judge_in_place(remains),
    }
}

fn judge_exchange(Remains { before, after, current, temp, .. }: Remains<'_>) -> (Outcome, Repair) {
    let Some(temp) = temp else {
        let outcome = match current {
            current if current == after => Outcome::Done,
            current if current == before => Outcome::Abandoned,
            _ => Outcome::Unknown,
        };
        return (outcome, Repair::Nothing);
    };
    // Before the exchange the temporary file has the new text, or a first part of it.
    let is_new_text = after.is_some_and(|after| after.starts_with(temp));
    if current == before && is_new_text {
        return (Outcome::Abandoned, Repair::RemoveTemp);
    }
    // After it the temporary file has the old text; or a first part of that, if the writer was on its method back because
    // another file of the same group could not be written.
    let is_old_text = before.is_some_and(|before| before.starts_with(temp));
    match (after, current) {
        (Some(_), _) if is_old_text && current != before => (Outcome::Done, Repair::RemoveTemp),
        (None, None) if is_old_text => (Outcome::Done, Repair::RemoveTemp),
        // Where names cannot be exchanged a new file has both names for a moment.
        (Some(_), current) if current == after && is_new_text => (Outcome::Done, Repair::RemoveTemp),
        // The file was changed between the look at it and the exchange, and the writer died before it could tell.
        (Some(_), current) if current == after => (Outcome::Abandoned, Repair::ExchangeBack),
        (None, None) => (Outcome::Abandoned, Repair::RenameBack),
        _ if is_new_text || is_old_text => (Outcome::Unknown, Repair::RemoveTemp),
        _ => (Outcome::Unknown, Repair::KeepTemp),
    }
}

fn judge_in_place(Remains { before, after, current, .. }: Remains<'_>) -> (Outcome, Repair) {
    let (Some(before), Some(after), Some(current)) = (before, after, current) else {
        return (Outcome::Unknown, Repair::Nothing);
    };
    if current == after {
        (Outcome::Done, Repair::Nothing)
    } else if current == before {
        (Outcome::Abandoned, Repair::Nothing)
    } else if is_half_written(before, after, current) {
        (Outcome::Done, Repair::Finish)
    } else {
        (Outcome::Unknown, Repair::Nothing)
    }
}

/// Says whether the bytes are such as a write leaves that did not get to its end: each is the old one or the new one of
/// its place, and the length is between the old one and the new one.
fn is_half_written(before: &[u8], after: &[u8], current: &[u8]) -> bool {
    let (shorter, longer) = if before.len() < after.len() { (before, after) } else { (after, before) };
    let is_either = |(at, byte): (usize, &u8)| before.get(at) == Some(byte) || after.get(at) == Some(byte);
    (shorter.len()..=longer.len()).contains(&current.len()) && current.iter().enumerate().all(is_either)
}

#[cfg(test)]
mod tests;
