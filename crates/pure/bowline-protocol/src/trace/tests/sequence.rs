//! Tests of a recorded connection as a sequence of steps.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use crate::trace::{AnswerOutcome, TraceMessageKind, TraceReader, TraceRecord, TraceSequence};

/// Adds messages behind `> ` and `< `, 1 ms apart, and shows each step.
fn check(wire: &str, expect: Expect) {
    let (mut reader, mut sequence) = (TraceReader::default(), TraceSequence::default());
    let mut out = String::new();
    for (at, line) in wire.trim().lines().enumerate() {
        let Some(TraceRecord::Message(mut entry)) = reader.read(line.as_bytes()) else { panic!("{line}") };
        entry.elapsed_us = u64::try_from(at).unwrap() * 1000;
        let step = sequence.add_entry(&entry);
        let kind = match &step.kind {
            TraceMessageKind::Request { method, id } => format!("{method} {id}"),
            TraceMessageKind::Notification { method } => method.clone(),
            TraceMessageKind::Answer { method, id, outcome, took_us } => {
                let sign = if *outcome == AnswerOutcome::Result { "✓" } else { "✗" };
                format!("{sign} {} {id} {}", method.as_deref().unwrap_or("?"), took_us.unwrap_or_default())
            }
            TraceMessageKind::Other => "?".to_owned(),
        };
        let ids = [step.session, step.call].into_iter().flatten().collect::<Vec<_>>().join("/");
        writeln!(out, "{} {kind} [{ids}] {}", entry.from, step.summary).unwrap();
    }
    for call in sequence.calls() {
        writeln!(
            out,
            "call {} {:?} {} {:?} ×{}",
            call.id, call.title, call.status, call.first_last_us, call.messages
        )
        .unwrap();
    }
    for open in sequence.unanswered() {
        writeln!(out, "open {} {} {}", open.from, open.method, open.id).unwrap();
    }
    expect.assert_eq(&out);
}

#[test]
fn every_kind_of_message_has_its_gist() {
    check(
        r#"
> {"id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"zed","version":"1.2"}}}
< {"id":0,"result":{"protocolVersion":1,"agentInfo":{"name":"a"}}}
> {"id":1,"method":"session/new","params":{"cwd":"/p","mcpServers":[{},{}]}}
< {"id":1,"result":{"sessionId":"s1"}}
> {"id":2,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"fix\nit"},{"type":"resource","resource":{"uri":"file:///p/a"}},{"type":"image"}]}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u001b[31mred"}}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"plan","entries":[{"status":"completed"},{"status":"pending"}]}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit a","status":"pending","content":[{"type":"diff","path":"/p/a"},{"type":"terminal","terminalId":"x"}]}}}
< {"id":0,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1"},"options":[{"optionId":"y","name":"Yes"},{"optionId":"n","name":"No"}]}}
> {"id":0,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}
< {"id":1,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1"},"options":[]}}
> {"id":1,"result":{"outcome":{"outcome":"selected","optionId":"z"}}}
< {"id":9,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1"},"options":[{"optionId":"y","name":"Yes"}]}}
> {"id":9,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"reason":"the tool asks","by":"proxy"}}}}
< {"id":2,"method":"fs/read_text_file","params":{"sessionId":"s1","path":"/p/a","line":3,"limit":10}}
> {"id":2,"result":{"content":"abc"}}
< {"id":3,"method":"fs/write_text_file","params":{"sessionId":"s1","path":"/p/a","content":"x"}}
> {"id":3,"error":{"code":-32602,"message":"bad","data":"why"}}
< {"id":4,"method":"terminal/create","params":{"sessionId":"s1","command":"ls","args":["-l"]}}
> {"id":4,"result":{"terminalId":"x"}}
< {"id":5,"method":"terminal/wait_for_exit","params":{"sessionId":"s1","terminalId":"x"}}
> {"id":5,"result":{"exitCode":1}}
< {"id":6,"method":"terminal/output","params":{"sessionId":"s1","terminalId":"x"}}
> {"id":6,"result":{"output":"ab","truncated":true,"exitStatus":{"signal":"SIGKILL"}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"brand_new","x":1}}}
> {"method":"session/cancel","params":{"sessionId":"s1"}}
< {"id":2,"result":{"stopReason":"cancelled"}}
> {"id":3,"method":"_zed/x","params":{"deep":{"a":1}}}
"#,
        expect![[r#"
            client initialize 0 [] protocol 1, zed 1.2
            agent ✓ initialize 0 1000 [] protocol 1, a
            client session/new 1 [] /p, 2 MCP servers
            agent ✓ session/new 1 1000 [s1] session s1
            client session/prompt 2 [s1] fix\nit [file:///p/a] [image]
            agent session/update [s1] thinks: hm
            agent session/update [s1] \u{1b}[31mred
            agent session/update [s1] plan: 1 of 2 done
            agent session/update [s1/t1] Edit a [pending], changes /p/a, terminal x
            agent session/request_permission 0 [s1/t1] Edit a? Yes | No
            client ✓ session/request_permission 0 1000 [s1/t1] Yes
            agent session/request_permission 1 [s1/t1] Edit a? 
            client ✓ session/request_permission 1 1000 [s1/t1] z (not offered)
            agent session/request_permission 9 [s1/t1] Edit a? Yes
            client ✓ session/request_permission 9 1000 [s1/t1] Yes, answered by the proxy, the tool asks
            agent fs/read_text_file 2 [s1] /p/a, from line 3, limit 10
            client ✓ fs/read_text_file 2 1000 [s1] 3 bytes
            agent fs/write_text_file 3 [s1] /p/a, 1 byte
            client ✗ fs/write_text_file 3 1000 [s1] error -32602: bad (why)
            agent terminal/create 4 [s1] ls -l
            client ✓ terminal/create 4 1000 [s1] terminal x
            agent terminal/wait_for_exit 5 [s1] x
            client ✓ terminal/wait_for_exit 5 1000 [s1] exit 1
            agent terminal/output 6 [s1] x
            client ✓ terminal/output 6 1000 [s1] 2 bytes, cut, signal SIGKILL
            agent session/update [s1/t1] Edit a [completed]
            agent session/update [s1] brand_new: {"x":1}
            client session/cancel [s1] 
            agent ✓ session/prompt 2 24000 [s1] cancelled
            client _zed/x 3 [] {"deep":{"a":1}}
            call t1 "Edit a" completed (8000, 25000) ×8
            open client _zed/x 3
        "#]],
    );
}

#[test]
fn what_is_no_message_is_shown_and_breaks_nothing() {
    check(
        r#"
< {"id":7,"result":{}}
> not json
< [1]
> {"id":1}
> {"id":1,"method":"a","params":7}
> {"id":1,"method":"session/update","params":{"update":7}}
> {"method":"session/request_permission","params":{"options":7,"toolCall":"x"}}
< {"id":1,"error":7}
> {"id":2,"method":"session/prompt","params":{"prompt":[{"type":7},"x"]}}
"#,
        expect![[r#"
            agent ✓ ? 7 0 [] 
            client ? [] no JSON: not json
            agent ? [] no message of the protocol: [1]
            client ? [] no message of the protocol: {"id":1}
            client a 1 [] 7
            client session/update 1 [] 7
            client session/request_permission [] ? 
            agent ✗ session/update 1 2000 [] error null: 
            client session/prompt 2 [] {"type":7} "x"
            open client session/prompt 2
        "#]],
    );
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    let long = "é".repeat(100_000);
    let wire = format!(
        r#"> {{"method":"session/prompt","params":{{"prompt":[{{"type":"text","text":"{long}"}}]}}}}"#
    );
    check(
        &wire,
        expect![[r#"
        client session/prompt [] éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé…
    "#]],
    );
}
