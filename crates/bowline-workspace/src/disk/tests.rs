//! What is taken for a whole text at hand, whatever this machine has in memory.

use std::fs::File;
use std::io::Write;

use rustix::fs::{Stat, fstat};

use super::text_at_hand;

/// A file of four bytes, and what it is like.
fn file() -> (File, Stat) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"one\n").unwrap();
    let stat = fstat(&file).unwrap();
    (file, stat)
}

/// Reads with so many of some bytes in memory.
fn at_hand(stat: &Stat, cap: u64, memory: Option<&[u8]>, after: Option<Stat>) -> Option<String> {
    let read = |room: &mut [u8]| {
        let memory = memory?;
        let count = memory.len().min(room.len());
        room[..count].copy_from_slice(&memory[..count]);
        Some(count)
    };
    text_at_hand(stat, cap, read, || after).map(|read| read.text.to_string())
}

#[test]
fn what_is_not_all_in_memory_or_not_what_it_was_is_left_to_who_may_wait() {
    let (mut file, stat) = file();
    assert_eq!(at_hand(&stat, 4, Some(b"one\n"), Some(stat)).as_deref(), Some("one\n"));
    assert_eq!(at_hand(&stat, 4, None, Some(stat)), None, "nothing of it is in memory");
    assert_eq!(at_hand(&stat, 4, Some(b"on"), Some(stat)), None, "a part of it is");
    assert_eq!(at_hand(&stat, 4, Some(b"one\ntwo\n"), Some(stat)), None, "it has grown");
    assert_eq!(at_hand(&stat, 3, Some(b"one\n"), Some(stat)), None, "it is too large");
    assert_eq!(at_hand(&stat, 4, Some(b"one\n"), None), None, "it cannot be looked at");
    file.write_all(b"more\n").unwrap();
    let longer = fstat(&file).unwrap();
    assert_eq!(at_hand(&stat, 4, Some(b"one\n"), Some(longer)), None, "it was changed since");
}
