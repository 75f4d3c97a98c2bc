//! Tests of splitting and refusing batches.

use expect_test::expect;

use super::{MAX_BATCH, refuse_part, split_batch};

fn describe_batch(text: &str) -> String {
    let Some(parts) = split_batch(text.as_bytes()) else { return "no batch\n".to_owned() };
    let lines = parts.iter().map(|part| {
        let answer = refuse_part(part).map(|answer| serde_json::to_string(&answer).unwrap());
        format!("{} -> {}\n", part.get(), answer.unwrap_or_else(|| "nothing".to_owned()))
    });
    lines.collect()
}

#[test]
fn each_request_of_a_batch_is_answered_and_nothing_else_is() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","method":"x"},
        {"jsonrpc":"2.0","id":2,"result":{}},7,[],{"id":"a","method":"ping"},{"id":null,"method":"ping"}]"#;
    expect![[r#"
        {"jsonrpc":"2.0","id":1,"method":"ping"} -> {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
        {"jsonrpc":"2.0","method":"x"} -> nothing
        {"jsonrpc":"2.0","id":2,"result":{}} -> nothing
        7 -> nothing
        [] -> nothing
        {"id":"a","method":"ping"} -> {"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
        {"id":null,"method":"ping"} -> nothing
    "#]].assert_eq(&describe_batch(batch));
}

#[test]
fn what_is_none_or_has_none_or_too_many_is_no_batch() {
    let many = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    for text in ["", "{}", "[]", "[1,", "[1] 2", " [1]", &many(MAX_BATCH + 1)] {
        assert_eq!(describe_batch(text), "no batch\n", "{text:.20}");
    }
    assert_eq!(describe_batch(&many(MAX_BATCH)).lines().count(), MAX_BATCH);
}
