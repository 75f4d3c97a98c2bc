//! Tests of replay: a recorded side, played to a peer.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use crate::trace::{ReplayAction, ReplayPlayer, TraceEntry, TraceReader, TraceRecord, TraceSide};

const TURN: &str = r#"
> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}
> {"id":1,"method":"session/new","params":{"cwd":"/then"}}
< {"id":1,"result":{"sessionId":"s1"}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"available_commands_update"}}}
> {"id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}
< {"id":"p","method":"session/request_permission","params":{"sessionId":"s1","options":[{"optionId":"y","kind":"allow_once"}]}}
> {"id":"p","result":{"outcome":{"outcome":"selected","optionId":"y"}}}
< {"id":"t","method":"terminal/create","params":{"sessionId":"s1","command":"ls","cwd":"/then/sub"}}
> {"id":"t","result":{"terminalId":"T1"}}
< {"id":"r","method":"terminal/release","params":{"sessionId":"s1","terminalId":"T1"}}
> {"id":"r","result":{}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"/then is not /thenceforth"}}}}
< {"id":2,"result":{"stopReason":"end_turn"}}
"#;

/// Plays a side of a recording to a peer that sends the lines of `peer`.
fn check(recording: &str, role: TraceSide, cwd: Option<&str>, peer: &str, expect: Expect) {
    let mut reader = TraceReader::default();
    let entries: Vec<_> = recording
        .trim()
        .lines()
        .map(|line| match reader.read(line.as_bytes()) {
            Some(TraceRecord::Message(entry)) => entry,
            other => panic!("{line}: {other:?}"),
        })
        .collect();
    let mut player = ReplayPlayer::new(&entries, role, cwd);
    let mut out = String::new();
    let mut record = |actions: Vec<ReplayAction>| {
        for action in actions {
            match action {
                ReplayAction::Send(bytes) => writeln!(out, "{}", String::from_utf8_lossy(&bytes)).unwrap(),
                ReplayAction::Diverged(reason) => writeln!(out, "! {reason}").unwrap(),
            }
        }
    };
    record(player.start());
    for line in peer.trim().lines() {
        record(player.receive(line.as_bytes()));
    }
    writeln!(
        out,
        "over: {}, diverged: {}, left: {:?}",
        player.is_finished(),
        player.has_diverged(),
        player.describe_remaining()
    )
    .unwrap();
    expect.assert_eq(&out);
}

#[test]
fn an_agent_is_played_to_a_client_with_other_ids_and_names() {
    check(
        TURN,
        TraceSide::Agent,
        None,
        r#"
{"id":"a","method":"initialize","params":{}}
{"id":"b","method":"session/new","params":{"cwd":"/now"}}
{"id":"c","method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"other"}]}}
{"id":"p","result":{"outcome":{"outcome":"cancelled"}}}
{"id":"t","result":{"terminalId":"term-7"}}
{"id":"r","result":{}}
"#,
        expect![[r#"
            {"jsonrpc":"2.0","id":"a","result":{"protocolVersion":1}}
            {"id":"b","result":{"sessionId":"s1"}}
            {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"available_commands_update"}}}
            {"id":"p","method":"session/request_permission","params":{"sessionId":"s1","options":[{"optionId":"y","kind":"allow_once"}]}}
            {"id":"t","method":"terminal/create","params":{"sessionId":"s1","command":"ls","cwd":"/now/sub"}}
            {"id":"r","method":"terminal/release","params":{"sessionId":"s1","terminalId":"term-7"}}
            {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"/then is not /thenceforth"}}}}
            {"id":"c","result":{"stopReason":"end_turn"}}
            over: true, diverged: false, left: None
        "#]],
    );
}

#[test]
fn a_client_is_played_to_an_agent_with_other_ids_and_names() {
    check(
        TURN,
        TraceSide::Client,
        Some("/now"),
        r#"
{"id":0,"result":{"protocolVersion":1}}
{"id":1,"result":{"sessionId":"real"}}
{"id":5,"method":"session/request_permission","params":{"sessionId":"real","options":[{"optionId":"1","kind":"reject_once"},{"optionId":"2","kind":"allow_once"}]}}
{"id":6,"method":"terminal/create","params":{"sessionId":"real","command":"ls","cwd":"/now/sub"}}
{"id":7,"method":"terminal/release","params":{"sessionId":"real","terminalId":"T1"}}
{"id":2,"result":{"stopReason":"end_turn"}}
"#,
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
            {"id":1,"method":"session/new","params":{"cwd":"/now"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"real","prompt":[]}}
            {"id":5,"result":{"outcome":{"outcome":"selected","optionId":"2"}}}
            {"id":6,"result":{"terminalId":"T1"}}
            {"id":7,"result":{}}
            over: true, diverged: false, left: None
        "#]],
    );
}

#[test]
fn what_the_recording_does_not_have_is_refused_and_told() {
    check(
        TURN,
        TraceSide::Agent,
        None,
        r#"
{"id":1,"method":"session/list"}
garbage
{"id":2,"method":"initialize"}
{"id":3,"method":"initialize"}
{"id":77,"result":{}}
{"id":4,"method":"session/new","params":{"cwd":"/then"}}
{"id":5,"method":"session/prompt","params":{"sessionId":"s1"}}
{"id":"p","error":{"code":-32603,"message":"no"}}
"#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the recording has no session/list"}}
            ! the recording has no session/list
            {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":1}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the recording has no further initialize"}}
            ! the recording has no further initialize
            ! request 77 was answered, and was not made
            {"id":4,"result":{"sessionId":"s1"}}
            {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"available_commands_update"}}}
            {"id":"p","method":"session/request_permission","params":{"sessionId":"s1","options":[{"optionId":"y","kind":"allow_once"}]}}
            ! session/request_permission was answered by error -32603: no, in the recording by a result
            {"id":"t","method":"terminal/create","params":{"sessionId":"s1","command":"ls","cwd":"/then/sub"}}
            over: false, diverged: true, left: Some("3 messages were not played: the next, terminal/release, waits for the answer to terminal/create")
        "#]],
    );
}

#[test]
fn a_client_is_over_when_the_agent_asks_for_less_and_says_what_was_left() {
    check(
        TURN,
        TraceSide::Client,
        None,
        r#"
{"id":0,"result":{"protocolVersion":1}}
{"id":1,"result":{"sessionId":"s1"}}
{"id":2,"result":{"stopReason":"end_turn"}}
"#,
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
            {"id":1,"method":"session/new","params":{"cwd":"/then"}}
            {"id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}
            over: true, diverged: false, left: Some("3 messages were not played: the next, the answer to session/request_permission, waits for session/request_permission")
        "#]],
    );
}

#[test]
fn an_equal_request_is_answered_before_the_first_of_its_method() {
    check(
        r#"
< {"id":1,"method":"fs/read_text_file","params":{"path":"/a"}}
> {"id":1,"result":{"content":"a"}}
< {"id":2,"method":"fs/read_text_file","params":{"path":"/b"}}
> {"id":2,"result":{"content":"b"}}
< {"id":3,"method":"fs/read_text_file","params":{"path":"/c"}}
"#,
        TraceSide::Client,
        None,
        r#"
{"id":8,"method":"fs/read_text_file","params":{"path":"/b"}}
{"id":9,"method":"fs/read_text_file","params":{"path":"/other"}}
{"id":10,"method":"fs/read_text_file","params":{"path":"/c"}}
"#,
        expect![[r#"
            {"id":8,"result":{"content":"b"}}
            {"id":9,"result":{"content":"a"}}
            {"jsonrpc":"2.0","id":10,"error":{"code":-32603,"message":"the recording has no answer to fs/read_text_file"}}
            ! the recording has no answer to fs/read_text_file
            over: true, diverged: true, left: None
        "#]],
    );
}

#[test]
fn an_answer_after_a_cancellation_waits_for_it() {
    let recording = r#"
> {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
< {"method":"session/update","params":{"sessionId":"s"}}
> {"method":"session/cancel","params":{"sessionId":"s"}}
< {"id":1,"result":{"stopReason":"cancelled"}}
"#;
    check(
        recording,
        TraceSide::Agent,
        None,
        r#"
{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
"#,
        expect![[r#"
            {"method":"session/update","params":{"sessionId":"s"}}
            over: false, diverged: false, left: Some("1 message was not played: the next, the answer to session/prompt, waits for a notification")
        "#]],
    );
    check(
        recording,
        TraceSide::Client,
        None,
        r#"
{"method":"session/update","params":{"sessionId":"s"}}
{"id":1,"result":{"stopReason":"cancelled"}}
"#,
        expect![[r#"
            {"id":1,"method":"session/prompt","params":{"sessionId":"s"}}
            {"method":"session/cancel","params":{"sessionId":"s"}}
            over: true, diverged: false, left: None
        "#]],
    );
}

#[test]
fn a_proxy_is_the_agent_of_its_client_and_the_client_of_its_agent() {
    let entry =
        |from, to, text: &str| TraceEntry { elapsed_us: 0, from, to, bytes: text.as_bytes().to_vec() };
    let (client, proxy, agent) = (TraceSide::Client, TraceSide::Proxy, TraceSide::Agent);
    let (ask, answer) = (r#"{"id":1,"method":"initialize"}"#, r#"{"id":1,"result":{}}"#);
    let editor = [entry(client, proxy, ask), entry(proxy, client, answer)];
    let agents = [entry(proxy, agent, ask), entry(agent, proxy, answer)];
    let both = [&editor[..], &agents[..]].concat();
    for (entries, role) in
        [(&editor[..], agent), (&agents, client), (&editor, client), (&agents, agent), (&both, agent)]
    {
        let mut player = ReplayPlayer::new(entries, role, None);
        let mut actions = player.start();
        actions.extend(player.receive(if role == agent { ask } else { answer }.as_bytes()));
        let expected = if role == agent { answer } else { ask };
        assert_eq!(actions, [ReplayAction::Send(expected.as_bytes().to_vec())], "{role} {entries:?}");
        assert_eq!((player.is_finished(), player.describe_remaining()), (true, None));
    }
}

#[test]
fn sessions_that_take_turns_otherwise_get_their_own_answers() {
    check(
        r#"
> {"id":1,"method":"session/load","params":{"sessionId":"s1"}}
< {"id":1,"result":{}}
> {"id":2,"method":"session/load","params":{"sessionId":"s2"}}
< {"id":2,"result":{}}
> {"id":3,"method":"session/set_mode","params":{"sessionId":"s1","modeId":"x"}}
< {"id":3,"result":{"of":"s1"}}
> {"id":4,"method":"session/set_mode","params":{"sessionId":"s2","modeId":"y"}}
< {"id":4,"result":{"of":"s2"}}
not json, said by the agent
"#
        .replace("not json", "< not json")
        .as_str(),
        TraceSide::Agent,
        None,
        r#"
{"id":1,"method":"session/load","params":{"sessionId":"one"}}
{"id":2,"method":"session/load","params":{"sessionId":"two"}}
{"id":3,"method":"session/set_mode","params":{"sessionId":"two","modeId":"z"}}
{"id":4,"method":"session/set_mode","params":{"sessionId":"one","modeId":"z"}}
"#,
        expect![[r#"
            {"id":1,"result":{}}
            {"id":2,"result":{}}
            {"id":3,"result":{"of":"s2"}}
            {"id":4,"result":{"of":"s1"}}
            not json, said by the agent
            over: true, diverged: false, left: None
        "#]],
    );
}
