//! Tests of the trace format: round trips, and the count of lost messages.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::trace::{
    Backlog, BacklogItem, TraceEntry, TraceGap, TraceReader, TraceRecord, TraceSide, decode_line,
    encode_entry, encode_gap, encode_header,
};

fn entry(bytes: &[u8]) -> TraceEntry {
    TraceEntry { elapsed_us: 7, from: TraceSide::Client, to: TraceSide::Agent, bytes: bytes.to_vec() }
}

#[test]
fn any_bytes_are_one_line_that_reads_back() {
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    let messages: [&[u8]; 12] = [
        br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
        br#"{"a":1,"a":2,"n":1.10,"big":123456789012345678901234567890}"#,
        b" {}",
        b"{}\r",
        b"",
        b"\xff\x00{",
        b"no json",
        b"{\"cut\":",
        b"\"\\ud800\"",
        b"{}{}",
        "é\u{2028}".as_bytes(),
        deep.as_bytes(),
    ];
    let mut out = String::new();
    for message in messages {
        let line = encode_entry(&entry(message));
        let (end, body) = line.split_last().unwrap();
        assert_eq!((*end, body.contains(&b'\n')), (b'\n', false));
        assert_eq!(decode_line(body), Some(TraceRecord::Message(entry(message))));
        out += &String::from_utf8(line).unwrap().chars().take(110).collect::<String>();
    }
    expect![[r#"
        {"us":7,"from":"client","to":"agent","message":{"jsonrpc":"2.0","id":1,"method":"m"}}
        {"us":7,"from":"client","to":"agent","message":{"a":1,"a":2,"n":1.10,"big":123456789012345678901234567890}}
        {"us":7,"from":"client","to":"agent","text":" {}"}
        {"us":7,"from":"client","to":"agent","text":"{}\r"}
        {"us":7,"from":"client","to":"agent","text":""}
        {"us":7,"from":"client","to":"agent","bytes":"ÿ\u0000{"}
        {"us":7,"from":"client","to":"agent","text":"no json"}
        {"us":7,"from":"client","to":"agent","text":"{\"cut\":"}
        {"us":7,"from":"client","to":"agent","message":"\ud800"}
        {"us":7,"from":"client","to":"agent","text":"{}{}"}
        {"us":7,"from":"client","to":"agent","text":"é "}
        {"us":7,"from":"client","to":"agent","message":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["#]].assert_eq(&out);
}

proptest! {
    #[test]
    fn an_entry_is_read_back_as_written(bytes in proptest::collection::vec(any::<u8>(), 0..60), elapsed_us in any::<u64>()) {
        let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != b'\n').collect();
        let entry = TraceEntry { elapsed_us, from: TraceSide::Agent, to: TraceSide::Proxy, bytes };
        let line = encode_entry(&entry);
        prop_assert_eq!(decode_line(&line[..line.len() - 1]), Some(TraceRecord::Message(entry)));
    }

    #[test]
    fn a_reader_accepts_any_bytes(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6)) {
        let mut reader = TraceReader::default();
        for line in lines {
            reader.read(&line);
        }
    }
}

/// Reads lines, and shows each record.
fn check(lines: &[u8], expect: Expect) {
    let mut reader = TraceReader::default();
    let mut out = String::new();
    for line in lines.split(|byte| *byte == b'\n') {
        out += &match reader.read(line) {
            None => "-\n".to_owned(),
            Some(TraceRecord::Message(TraceEntry { elapsed_us, from, to, bytes })) => {
                format!("{elapsed_us} {from} → {to} {}\n", String::from_utf8_lossy(&bytes))
            }
            Some(other) => format!("{other:?}\n"),
        };
    }
    expect.assert_eq(&out);
}

#[test]
fn a_trace_is_read_past_what_is_broken() {
    let mut file = encode_header(1_772_355_912_250);
    file.extend(encode_entry(&entry(b"{\"id\":1}")));
    file.extend(b"garbage\n{\"us\":1,\"from\":\"server\",\"to\":\"agent\",\"text\":\"\"}\n\n");
    file.extend(b"{\"us\":1,\"from\":\"agent\",\"to\":\"client\",\"text\":\"a\",\"bytes\":\"a\"}\n");
    file.extend(b"{\"us\":1,\"from\":\"agent\",\"to\":\"client\",\"bytes\":\"\xe2\x82\xac\"}\n");
    file.extend(b"{\"us\":2,\"later\":true,\"from\":\"agent\",\"to\":\"client\",\"text\":\"kept\"}\n");
    file.extend(encode_gap(TraceGap { messages: 3, bytes: 100 }));
    file.extend(b"{\"trace\":\"bowline\",\"version\":2}\n{\"us\":9,\"from\":\"age");
    check(
        &file,
        expect![[r#"
            Header(Some(1772355912250))
            7 client → agent {"id":1}
            Unreadable(7)
            Unreadable(47)
            -
            Unreadable(60)
            Unreadable(51)
            2 agent → client kept
            Gap(TraceGap { messages: 3, bytes: 100 })
            NewerVersion(2)
            Unreadable(19)
        "#]],
    );
}

#[test]
fn bare_messages_are_told_apart_by_their_methods_and_ids() {
    check(
        br#"> {"id":1,"method":"x"}
< anything
{"id":1,"method":"session/prompt"}
{"id":1,"method":"fs/read_text_file"}
{"method":"session/update"}
{"id":1,"result":{}}
{"id":1,"result":{}}
{"id":9,"error":{}}
{"id":9}
words"#,
        expect![[r#"
            0 client → agent {"id":1,"method":"x"}
            0 agent → client anything
            0 client → agent {"id":1,"method":"session/prompt"}
            0 agent → client {"id":1,"method":"fs/read_text_file"}
            0 agent → client {"method":"session/update"}
            0 agent → client {"id":1,"result":{}}
            0 client → agent {"id":1,"result":{}}
            0 agent → client {"id":9,"error":{}}
            Unreadable(8)
            Unreadable(5)
        "#]],
    );
}

#[test]
fn dropped_messages_are_counted_at_their_position() {
    let mut backlog = Backlog::new(200);
    let mut out = String::new();
    // The long one does not fit, which does not affect the short one.
    for size in [10, 500, 20, 300, 300] {
        backlog.push(entry(&vec![b'x'; size]));
    }
    backlog.record_loss(5);
    let mut drain = |backlog: &mut Backlog| {
        while let Some(item) = backlog.pop() {
            out += &match item {
                BacklogItem::Message(entry) => format!("{} bytes\n", entry.bytes.len()),
                BacklogItem::Gap(gap) => format!("lost {gap:?}\n"),
            };
        }
    };
    drain(&mut backlog);
    // All its space is free again.
    backlog.push(entry(&[b'x'; 136]));
    backlog.push(entry(&[]));
    drain(&mut backlog);
    expect![[r#"
        10 bytes
        lost TraceGap { messages: 1, bytes: 500 }
        20 bytes
        lost TraceGap { messages: 3, bytes: 605 }
        136 bytes
        lost TraceGap { messages: 1, bytes: 0 }
    "#]]
    .assert_eq(&out);
}
