//! Whatever a file has for a trace, it is read, followed and played without a panic, and what was read is written again as
//! the same.

#![no_main]

use bowline_state::trace::{Line, Player, Reader, Reading, Sequence, Side, decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let (mut reader, mut sequence) = (Reader::default(), Sequence::default());
    let mut entries = Vec::new();
    for line in file.split(|byte| *byte == b'\n') {
        if let Some(Reading::Message(entry)) = reader.read(line) {
            sequence.step(&entry);
            let again = encode(&entry);
            assert_eq!(decode(&again[..again.len() - 1]), Some(Line::Message(entry.clone())));
            entries.push(entry);
        }
    }
    for role in [Side::Agent, Side::Client] {
        let mut player = Player::new(&entries, role, Some("/now"));
        player.begin();
        for entry in &entries {
            player.hear(&entry.bytes);
        }
        player.left();
    }
});
