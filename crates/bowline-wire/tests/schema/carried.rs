//! Every text sent by one peer and received by another.

use serde_json::Value;

use crate::messages::{self, Kind};
use crate::{official, texts};

#[test]
fn two_peers_carry_every_text_on_one_line() {
    for message in messages::all() {
        let (shape, members) = match message.kind {
            Kind::Request => ("JsonRpcRequest", ["jsonrpc", "id", "method", "params"].as_slice()),
            Kind::Response => ("JsonRpcResponse", ["jsonrpc", "id", "result"].as_slice()),
            Kind::Error => ("JsonRpcResponse", ["jsonrpc", "id", "error"].as_slice()),
            Kind::Notification => ("JsonRpcNotification", ["jsonrpc", "method", "params"].as_slice()),
        };
        for (_, text) in texts::golden().filter(|(name, _)| *name == message.name) {
            let line: Value = serde_json::from_str(&message.carry(text)).unwrap();
            official::validate(shape, &line);
            assert_eq!(line.as_object().unwrap().keys().collect::<Vec<_>>(), members, "{line}");
            let value: Value = serde_json::from_str(text).unwrap();
            match message.kind {
                Kind::Response => assert_eq!(line["result"], value),
                Kind::Error => assert_eq!(line["error"], value),
                Kind::Request | Kind::Notification => {
                    assert_eq!((&line["method"], &line["params"]), (&message.method.into(), &value));
                }
            }
        }
    }
}
