//! Events as they are stored.

use proptest::prelude::*;

use super::*;

fn event() -> impl Strategy<Value = Event> {
    let id = "[0-9a-f]{1,8}".prop_map(|id| ConnectionId::from(id.as_str()));
    let recipient = prop_oneof![
        Just(Recipient::All),
        id.clone().prop_map(Recipient::Only),
        id.clone().prop_map(Recipient::AllBut),
        id.prop_map(Recipient::Agent)
    ];
    let kind = proptest::sample::select(EventKind::ALL.map(|(kind, _)| kind).to_vec());
    // Some runs are long enough to be compressed.
    let body = prop_oneof!["[^\n]{0,20}", "[^\n]{1,20}".prop_map(|text| text.repeat(100))];
    let at = prop_oneof![Just(None), (1i64..4).prop_map(|at| Some(Timestamp(at)))];
    (at, kind, recipient, body).prop_map(|(at, kind, recipient, body)| Event {
        seq: 0,
        at,
        kind,
        recipient,
        body: body.into_bytes().into(),
    })
}

proptest! {
    #[test]
    fn stored_runs_come_back(mut events in proptest::collection::vec(event(), 0..8), first in 1u64..1000) {
        for (event, seq) in events.iter_mut().zip(first..) {
            event.seq = seq;
        }
        prop_assert_eq!(decode_run(first, &encode_run(&events).into()), Ok(events));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let bytes = Bytes::from(bytes);
        if let Ok(events) = decode_lines(1, &bytes) {
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.first().is_some_and(|mark| *mark != TIME_MARK));
            prop_assert_eq!(events.len(), lines.count());
        }
        let compressed = [&[COMPRESSED, 40, 0, 0, 0], &bytes[..]].concat();
        if let Ok(events) = decode_run(1, &compressed.into()) {
            prop_assert!(events.len() <= 40);
        }
    }
}

#[test]
fn long_runs_are_compressed() {
    let chunk = |seq| {
        Event {
        seq,
        at: None,
        kind: EventKind::Update,
        recipient: Recipient::All,
        body: format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"word {seq} "}}}}}}}}"#
        )
        .into(),
    }
    };
    let events: Vec<Event> = (1..=100).map(chunk).collect();
    let run = Bytes::from(encode_run(&events));
    assert!(run.len() * 8 < encode_lines(&events).len(), "{} bytes", run.len());
    assert_eq!(decode_run(1, &run), Ok(events.clone()));
    assert_eq!(encode_run(&events[..1]), encode_lines(&events[..1]), "too short");
    let cut = run.slice(..run.len() - 1);
    assert_eq!(decode_run(1, &cut), Err(DecodeError));
    let mut too_large = run.to_vec();
    too_large[1..COMPRESSED_HEAD].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode_run(1, &too_large.into()), Err(DecodeError));
}

#[test]
fn events_of_one_commit_share_a_line_with_their_time() {
    let event = |seq, at: Option<i64>| Event {
        seq,
        at: at.map(Timestamp),
        kind: EventKind::Update,
        recipient: Recipient::All,
        body: Bytes::from_static(b"{}"),
    };
    let events = [event(1, None), event(2, Some(70)), event(3, Some(70)), event(4, Some(80)), event(5, None)];
    let run = encode_lines(&events);
    assert_eq!(str::from_utf8(&run), Ok("u*\t{}\n@70\nu*\t{}\nu*\t{}\n@80\nu*\t{}\n@\nu*\t{}\n"));
    assert_eq!(decode_lines(1, &run.into()).unwrap(), events);
    assert_eq!(decode_lines(1, &Bytes::from_static(b"@7x\nu*\t{}\n")), Err(DecodeError));
}
