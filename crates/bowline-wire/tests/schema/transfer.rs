//! Tests that every text is carried from one peer to another.

use serde_json::Value;

use crate::messages::{self, MessageSpecKind};
use crate::{golden, official_schema};

#[test]
fn two_peers_carry_every_text_on_one_line() {
    for message in messages::all_messages() {
        let (shape, members) = match message.kind {
            MessageSpecKind::Request => ("JsonRpcRequest", ["jsonrpc", "id", "method", "params"].as_slice()),
            MessageSpecKind::Response => ("JsonRpcResponse", ["jsonrpc", "id", "result"].as_slice()),
            MessageSpecKind::Error => ("JsonRpcResponse", ["jsonrpc", "id", "error"].as_slice()),
            MessageSpecKind::Notification => {
                ("JsonRpcNotification", ["jsonrpc", "method", "params"].as_slice())
            }
        };
        for (_, text) in golden::golden_texts().filter(|(name, _)| *name == message.name) {
            let line: Value = serde_json::from_str(&message.carry(text)).unwrap();
            official_schema::validate(shape, &line);
            assert_eq!(line.as_object().unwrap().keys().collect::<Vec<_>>(), members, "{line}");
            let value: Value = serde_json::from_str(text).unwrap();
            match message.kind {
                MessageSpecKind::Response => assert_eq!(line["result"], value),
                MessageSpecKind::Error => assert_eq!(line["error"], value),
                MessageSpecKind::Request | MessageSpecKind::Notification => {
                    assert_eq!((&line["method"], &line["params"]), (&message.method.into(), &value));
                }
            }
        }
    }
}
