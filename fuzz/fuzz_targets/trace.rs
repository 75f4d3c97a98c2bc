//! The trace target: any file is parsed, followed and replayed as a trace without a panic, and a parsed trace is
//! written back unchanged.

#![no_main]

use bowline_protocol::trace::{
    ReplayPlayer, TraceReader, TraceRecord, TraceSequence, TraceSide, decode_line, encode_entry,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let (mut reader, mut sequence) = (TraceReader::default(), TraceSequence::default());
    let mut entries = Vec::new();
    for line in file.split(|byte| *byte == b'\n') {
        if let Some(TraceRecord::Message(entry)) = reader.read(line) {
            sequence.add_entry(&entry);
            let again = encode_entry(&entry);
            assert_eq!(decode_line(&again[..again.len() - 1]), Some(TraceRecord::Message(entry.clone())));
            entries.push(entry);
        }
    }
    for role in [TraceSide::Agent, TraceSide::Client] {
        let mut player = ReplayPlayer::new(&entries, role, Some("/now"));
        player.start();
        for entry in &entries {
            player.receive(&entry.bytes);
        }
        drop(player.describe_remaining());
    }
});
