//! The output of a running command, in chunks for a client that displays it: the start as it comes, and the end.

use std::collections::VecDeque;

/// The maximum size of the start, in bytes. A command may write without end, and everything that is sent is stored.
const MAX_START: usize = 512 << 10;

/// The maximum size of the end, in bytes.
const MAX_END: usize = 64 << 10;

/// Output that waits to be sent.
#[derive(Debug, Default)]
pub struct LiveOutput {
    // Invariant: `sent` and the length of `pending` together are at most `MAX_START`.
    pending: Vec<u8>,
    sent: usize,
    // What follows the start. Invariant: at most `MAX_END`.
    end: VecDeque<u8>,
    // How many bytes between the start and the end are gone.
    omitted: u64,
}

impl LiveOutput {
    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = if self.has_end() { 0 } else { MAX_START - self.sent - self.pending.len() };
        let (start, rest) = bytes.split_at(room.min(bytes.len()));
        self.pending.extend_from_slice(start);
        self.end.extend(rest);
        let excess = self.end.len().saturating_sub(MAX_END);
        self.omitted += self.end.drain(..excess).len() as u64;
    }

    /// Adds output that is not known: only its length is.
    pub fn skip(&mut self, bytes: u64) {
        self.omitted += self.end.drain(..).len() as u64 + bytes;
    }

    /// Returns whether there is something to send before the command ends.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes what can be sent now as text. A character that is not complete stays.
    pub fn take_pending(&mut self) -> String {
        let complete = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // The text may also have errors before an incomplete character, which is then an error, too.
            _ => self.pending.len(),
        };
        let rest = self.pending.split_off(complete);
        let taken = std::mem::replace(&mut self.pending, rest);
        self.sent += taken.len();
        String::from_utf8_lossy(&taken).into_owned()
    }

    /// Takes the rest as text, which says how much of the output is missing.
    #[must_use]
    pub fn into_rest(mut self) -> String {
        let (start, end) = self.end.as_slices();
        let end = [start, end].concat();
        let mut text = String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
        if self.omitted > 0 {
            text += &format!("\r\n[{} bytes of output are not shown]\r\n", self.omitted);
        }
        text + &String::from_utf8_lossy(&end)
    }

    fn has_end(&self) -> bool {
        !self.end.is_empty() || self.omitted > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        let mut output = LiveOutput::default();
        let mut texts = Vec::new();
        for bytes in [&b"a\xe2\x82"[..], b"\xacb\xff", b"\xf0\x9f", b"c"] {
            output.push(bytes);
            texts.push(output.take_pending());
        }
        assert_eq!(texts, ["a", "€b\u{fffd}", "", "\u{fffd}c"]);
        assert_eq!(output.into_rest(), "");
    }

    #[test]
    fn the_start_and_the_end_of_long_output_are_sent() {
        let mut output = LiveOutput::default();
        let mut sent = 0;
        for number in 0..3000 {
            output.push(format!("{number:1023}\n").as_bytes());
            sent += output.take_pending().len();
            assert!(output.pending.len() + output.end.len() <= MAX_START + MAX_END);
        }
        assert_eq!((sent, output.has_pending()), (MAX_START, false));
        let omitted = 3000 * 1024 - MAX_START - MAX_END;
        let rest = output.into_rest();
        assert!(
            rest.starts_with(&format!("\r\n[{omitted} bytes of output are not shown]\r\n")),
            "{rest:.99}"
        );
        assert!(rest.ends_with(" 2999\n"));
    }

    #[test]
    fn what_was_missed_is_counted() {
        let mut output = LiveOutput::default();
        output.push(b"one");
        output.skip(7);
        output.push(b"two");
        assert_eq!(output.into_rest(), "one\r\n[7 bytes of output are not shown]\r\ntwo");
    }
}
