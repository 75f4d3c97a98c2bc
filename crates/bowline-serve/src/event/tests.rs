//! Events as they are stored.

use proptest::prelude::*;

use super::*;

fn event() -> impl Strategy<Value = Event> {
    let id = "[0-9a-f]{1,8}".prop_map(|id| ConnectionId::from(id.as_str()));
    let recipient = prop_oneof![
        Just(Recipient::All),
        id.clone().prop_map(Recipient::Only),
        id.prop_map(Recipient::AllBut)
    ];
    let kind = proptest::sample::select(EventKind::ALL.map(|(kind, _)| kind).to_vec());
    (kind, recipient, "[^\n]{0,20}").prop_map(|(kind, recipient, body)| Event {
        seq: 0,
        kind,
        recipient,
        body: if kind == EventKind::ClientRequest { Bytes::new() } else { body.into_bytes().into() },
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
        if let Ok(events) = decode_run(1, &bytes) {
            prop_assert_eq!(events.len(), bytes.iter().filter(|byte| **byte == b'\n').count());
        }
    }
}

#[test]
fn requests_to_clients_are_stored_without_their_body() {
    let event = Event {
        seq: 3,
        kind: EventKind::ClientRequest,
        recipient: Recipient::Only("c".into()),
        body: Bytes::from_static(b"{\"method\":\"fs/write_text_file\"}"),
    };
    let stored = decode_run(3, &encode_run(std::slice::from_ref(&event)).into()).unwrap();
    assert_eq!(stored, [Event { body: Bytes::new(), ..event }]);
}
