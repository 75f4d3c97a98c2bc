//! Fuzzing the readers: arbitrary input neither panics nor exceeds the limits.

use bowline_conversation::tool_call_assembler::ToolCallAssembler;
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::model::remote::reply::ReplyPiece;
use crate::model::remote::{anthropic, gemini, openai};

/// The keys and words that the readers look for.
const WORDS: [&str; 38] = [
    "type", "index", "message", "delta", "content_block", "usage", "input_tokens", "tool_use", "thinking",
    "id", "name", "redacted_thinking", "signature", "text", "partial_json", "input_json_delta",
    "signature_delta", "stop_reason", "content_block_start", "content_block_delta", "content_block_stop",
    "choices", "content", "reasoning", "tool_calls", "function", "arguments", "finish_reason", "candidates",
    "parts", "functionCall", "args", "thought", "thoughtSignature", "finishReason", "usageMetadata",
    "promptFeedback", "blockReason",
];

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(&WORDS[..]).prop_map(str::to_owned)
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_that_a_server_sends_panics(events in prop::collection::vec((word(), json()), 0..8)) {
        let mut reader = anthropic::EventReader::default();
        let mut calls = ToolCallAssembler::default();
        for (kind, event) in &events {
            let pieces = [reader.read(kind, event), openai::read_event(event), gemini::read_event(event)];
            for piece in pieces.into_iter().flatten() {
                if let ReplyPiece::Call(delta) = piece {
                    prop_assert!(calls.add_delta(delta).is_ok());
                }
            }
        }
        calls.finish(&mut std::collections::HashSet::new());
    }
}
