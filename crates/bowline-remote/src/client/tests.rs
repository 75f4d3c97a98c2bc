//! Scripts of events, and what the client does about each.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// The caller's `initialize`, answered by a server without extensions whose agent can resume sessions.
const START: &str = r#"
> {"id":0,"method":"initialize","params":{"protocolVersion":1}}
answer c1 {"id":0,"result":{"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}}}}}
open connection
"#;

/// The same by a server with the extensions.
const START_BOWLINE: &str = r#"
> {"id":0,"method":"initialize","params":{"protocolVersion":1}}
answer c1 {"id":0,"result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
open connection
"#;

/// A new session `s` with an open stream.
const SESSION: &str = r#"
> {"id":1,"method":"session/new","params":{"cwd":"/p","mcpServers":[]}}
accepted
event connection - {"id":1,"result":{"sessionId":"s"}}
open s
"#;

/// A prompt in it that the server has taken.
const PROMPT: &str = r#"
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
accepted
"#;

struct Script {
    client: Client,
    now: Duration,
    output: String,
}

impl Script {
    fn new(has_session_streams: bool) -> Self {
        let options = ClientOptions {
            url: "http://h/acp".to_owned(),
            reconnect_for: Duration::from_secs(300),
            has_session_streams,
            seed: 1,
        };
        Self { client: Client::new(options), now: Duration::ZERO, output: String::new() }
    }

    fn run(&mut self, step: &str) {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        let key = |name: &str| match name {
            "connection" => StreamKey::Connection,
            name => StreamKey::Session(name.to_owned()),
        };
        let refusal =
            |status: &str| Refusal { status: status.parse().expect("a status"), ..Refusal::default() };
        let mut words = rest.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (now, client) = (self.now, &mut self.client);
        match word {
            ">" => client.on_line(now, Bytes::from(rest.to_owned())),
            "eof" => client.on_input_end(now),
            "accepted" => client.on_post(now, PostOutcome::Accepted),
            "answer" => {
                let (connection, body) = rest.split_once(' ').expect("a connection and a message");
                let connection = (connection != "-").then(|| connection.to_owned());
                client.on_post(now, PostOutcome::Answered { connection, body: Bytes::from(body.to_owned()) });
            }
            "refused" => client.on_post(now, PostOutcome::Refused(refusal(rest))),
            "lost" | "unsent" => {
                let delivery = if word == "lost" { Delivery::Possible } else { Delivery::Impossible };
                client.on_post(now, PostOutcome::Lost { reason: "reset".to_owned(), delivery });
            }
            "unusable" => client.on_post(now, PostOutcome::Unusable(rest.to_owned())),
            "open" => client.on_stream_open(now, &key(next()), true),
            "assumed" => client.on_stream_open(now, &key(next()), false),
            "event" => {
                let (key, id) = (key(next()), next());
                let data = Some(Bytes::from(next().to_owned()));
                client.on_event(now, &key, (id != "-").then(|| id.to_owned()), data);
            }
            "dropped" => client.on_stream_end(now, &key(next()), StreamEnd::Dropped("reset".to_owned())),
            "closed" => {
                let (key, status) = (key(next()), next());
                client.on_stream_end(now, &key, StreamEnd::Refused(refusal(status)));
            }
            "broken" => client.on_stream_end(now, &key(next()), StreamEnd::Unusable("too large".to_owned())),
            "timer" => {
                self.now = client.next_timer().expect("a timer");
                client.on_timer(self.now);
            }
            "later" => self.now += Duration::from_secs(rest.parse().expect("seconds")),
            other => panic!("no step {other}"),
        }
        while let Some(action) = self.client.next_action() {
            self.output.push_str(&format!("    {}\n", show(&action)));
        }
    }
}

fn show(action: &Action) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let name = |key: &StreamKey| match key {
        StreamKey::Connection => "connection".to_owned(),
        StreamKey::Session(session) => session.clone(),
    };
    match action {
        Action::Deliver(line) => format!("deliver {}", text(line)),
        Action::Post(Post { connection, session, body }) => {
            let ids = [connection, session].map(|id| id.as_deref().unwrap_or("-"));
            format!("post {} {}", ids.join(" "), text(body))
        }
        Action::OpenStream { key, connection, last_event_id } => {
            let last = last_event_id.as_ref().map(|id| format!(" after {id}")).unwrap_or_default();
            format!("open stream {} of {connection}{last}", name(key))
        }
        Action::CloseStream(key) => format!("close stream {}", name(key)),
        Action::Report(text) => format!("report {text}"),
        Action::End { connection, reason } => {
            let connection = connection.as_deref().unwrap_or("-");
            format!("end {connection} {}", reason.as_deref().unwrap_or("as asked"))
        }
    }
}

/// Runs the steps of `setup` silently, and then those of `script` with what they lead to.
fn check(setup: &[&str], script: &str, expected: Expect) {
    check_with(Script::new(true), setup, script, expected);
}

fn check_with(mut run: Script, setup: &[&str], script: &str, expected: Expect) {
    let steps = |text: &str| -> Vec<String> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    for step in setup.iter().flat_map(|text| steps(text)) {
        run.run(&step);
    }
    run.output.clear();
    for step in steps(script) {
        run.output.push_str(&format!("{step}\n"));
        run.run(&step);
    }
    expected.assert_eq(&run.output);
}

#[test]
fn messages_wait_for_the_connection_and_for_the_stream_of_their_answer() {
    check(
        &[],
        r#"
> {"id":0,"method":"initialize","params":{}}
> {"id":1,"method":"session/new","params":{"cwd":"/p"}}
answer c1 {"id":0,"result":{}}
open connection
accepted
event connection - {"id":1,"result":{"sessionId":"s"}}
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
> {"method":"session/cancel","params":{"sessionId":"s"}}
open s
accepted
accepted
event s - {"method":"session/update","params":{"sessionId":"s"}}
event s - {"id":2,"result":{"stopReason":"cancelled"}}
> {"id":3,"method":"session/close","params":{"sessionId":"s"}}
accepted
event s - {"id":3,"result":{}}
eof
"#,
        expect![[r#"
            > {"id":0,"method":"initialize","params":{}}
                post - - {"id":0,"method":"initialize","params":{}}
            > {"id":1,"method":"session/new","params":{"cwd":"/p"}}
            answer c1 {"id":0,"result":{}}
                deliver {"id":0,"result":{}}
                open stream connection of c1
            open connection
                post c1 - {"id":1,"method":"session/new","params":{"cwd":"/p"}}
            accepted
            event connection - {"id":1,"result":{"sessionId":"s"}}
                open stream s of c1
                deliver {"id":1,"result":{"sessionId":"s"}}
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            > {"method":"session/cancel","params":{"sessionId":"s"}}
            open s
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            accepted
                post c1 s {"method":"session/cancel","params":{"sessionId":"s"}}
            accepted
            event s - {"method":"session/update","params":{"sessionId":"s"}}
                deliver {"method":"session/update","params":{"sessionId":"s"}}
            event s - {"id":2,"result":{"stopReason":"cancelled"}}
                deliver {"id":2,"result":{"stopReason":"cancelled"}}
            > {"id":3,"method":"session/close","params":{"sessionId":"s"}}
                post c1 s {"id":3,"method":"session/close","params":{"sessionId":"s"}}
            accepted
            event s - {"id":3,"result":{}}
                close stream s
                deliver {"id":3,"result":{}}
            eof
                end c1 as asked
        "#]],
    );
}

#[test]
fn the_stream_of_a_session_is_open_before_the_session_is_loaded() {
    check(
        &[START],
        r#"
> {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
open s
accepted
event connection - {"method":"session/update","params":{"sessionId":"s"}}
event s - {"id":1,"result":{}}
"#,
        expect![[r#"
            > {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
                open stream s of c1
            open s
                post c1 s {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
            accepted
            event connection - {"method":"session/update","params":{"sessionId":"s"}}
                deliver {"method":"session/update","params":{"sessionId":"s"}}
            event s - {"id":1,"result":{}}
                deliver {"id":1,"result":{}}
        "#]],
    );
}

#[test]
fn the_stream_of_an_unknown_session_is_opened_again_after_the_response() {
    check(
        &[START],
        r#"
> {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
closed s 404
accepted
event connection - {"id":1,"result":{}}
open s
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
"#,
        expect![[r#"
            > {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
                open stream s of c1
            closed s 404
                post c1 s {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
            accepted
            event connection - {"id":1,"result":{}}
                open stream s of c1
                deliver {"id":1,"result":{}}
            open s
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
        "#]],
    );
}

#[test]
fn a_stream_that_is_refused_late_is_opened_again() {
    check(
        &[START],
        r#"
> {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
assumed s
accepted
event connection - {"id":1,"result":{}}
closed s 403
timer
open s
closed s 403
"#,
        expect![[r#"
            > {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
                open stream s of c1
            assumed s
                post c1 s {"id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/p"}}
            accepted
            event connection - {"id":1,"result":{}}
                deliver {"id":1,"result":{}}
            closed s 403
                report a stream was interrupted and is opened again (http://h/acp denies access (403); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN); messages may be missing, because the server does not number them
            timer
                open stream s of c1
            open s
            closed s 403
                report session s: http://h/acp denies access (403); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
        "#]],
    );
}

#[test]
fn an_answer_names_the_session_of_its_request() {
    check(
        &[START, SESSION],
        r#"
event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
event s - {"id":8,"method":"_ext","params":{}}
event connection - {"id":9,"method":"_ext"}
> {"id":7,"result":{}}
accepted
> {"id":8,"result":{}}
accepted
> {"id":9,"error":{"code":1,"message":"no"}}
accepted
> {"id":9,"result":{}}
"#,
        expect![[r#"
            event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
                deliver {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
            event s - {"id":8,"method":"_ext","params":{}}
                deliver {"id":8,"method":"_ext","params":{}}
            event connection - {"id":9,"method":"_ext"}
                deliver {"id":9,"method":"_ext"}
            > {"id":7,"result":{}}
                post c1 s {"id":7,"result":{}}
            accepted
            > {"id":8,"result":{}}
                post c1 s {"id":8,"result":{}}
            accepted
            > {"id":9,"error":{"code":1,"message":"no"}}
                post c1 - {"id":9,"error":{"code":1,"message":"no"}}
            accepted
            > {"id":9,"result":{}}
                report the answer to request 9 was dropped: the server no longer waits for it
        "#]],
    );
}

#[test]
fn nothing_precedes_initialize() {
    check(
        &[],
        r#"
> {"id":1,"method":"session/new","params":{}}
> {"method":"session/cancel","params":{"sessionId":"s"}}
> [{"id":1}]
> not JSON
> {"id":0,"method":"initialize"}
> {"id":0,"method":"session/list"}
"#,
        expect![[r#"
            > {"id":1,"method":"session/new","params":{}}
                deliver {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the first message must be `initialize`"}}
            > {"method":"session/cancel","params":{"sessionId":"s"}}
                report a notification before `initialize` was dropped
            > [{"id":1}]
                deliver {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches of messages are not supported"}}
            > not JSON
                deliver {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"this is not a JSON-RPC message"}}
            > {"id":0,"method":"initialize"}
                post - - {"id":0,"method":"initialize"}
            > {"id":0,"method":"session/list"}
                deliver {"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"the request id 0 is already in use"}}
        "#]],
    );
}

#[test]
fn a_refused_initialize_can_be_repeated() {
    check(
        &[],
        r#"
> {"id":0,"method":"initialize"}
refused 401
> {"id":1,"method":"initialize"}
lost
> {"id":2,"method":"initialize"}
accepted
> {"id":3,"method":"initialize"}
answer - {"id":3,"result":{}}
> {"id":4,"method":"initialize"}
answer c1 {"id":9,"result":{}}
> {"id":5,"method":"initialize"}
answer c1 {"id":5,"error":{"code":-32602,"message":"too old"}}
> {"id":6,"method":"initialize"}
unusable http://h/acp answers with a web page
eof
"#,
        expect![[r#"
            > {"id":0,"method":"initialize"}
                post - - {"id":0,"method":"initialize"}
            refused 401
                deliver {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"http://h/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN"}}
            > {"id":1,"method":"initialize"}
                post - - {"id":1,"method":"initialize"}
            lost
                deliver {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"reset"}}
            > {"id":2,"method":"initialize"}
                post - - {"id":2,"method":"initialize"}
            accepted
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"http://h/acp did not answer `initialize`: it does not speak ACP over HTTP"}}
            > {"id":3,"method":"initialize"}
                post - - {"id":3,"method":"initialize"}
            answer - {"id":3,"result":{}}
                deliver {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"http://h/acp did not name the connection (header Acp-Connection-Id)"}}
            > {"id":4,"method":"initialize"}
                post - - {"id":4,"method":"initialize"}
            answer c1 {"id":9,"result":{}}
                deliver {"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"http://h/acp answered `initialize` with something else than its response"}}
            > {"id":5,"method":"initialize"}
                post - - {"id":5,"method":"initialize"}
            answer c1 {"id":5,"error":{"code":-32602,"message":"too old"}}
                deliver {"id":5,"error":{"code":-32602,"message":"too old"}}
            > {"id":6,"method":"initialize"}
                post - - {"id":6,"method":"initialize"}
            unusable http://h/acp answers with a web page
                deliver {"jsonrpc":"2.0","id":6,"error":{"code":-32603,"message":"http://h/acp answers with a web page"}}
            eof
                end - as asked
        "#]],
    );
}

#[test]
fn a_status_becomes_the_error_of_its_request() {
    check(
        &[START, SESSION],
        r#"
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
refused 413
> {"id":3,"method":"session/list"}
refused 403
> {"id":4,"method":"session/list"}
refused 429
> {"id":5,"method":"session/list"}
refused 503
> {"method":"session/cancel","params":{"sessionId":"s"}}
refused 400
event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
> {"id":7,"result":{"content":"large"}}
refused 413
accepted
"#,
        expect![[r#"
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            refused 413
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the message is larger than http://h/acp accepts (413)"}}
            > {"id":3,"method":"session/list"}
                post c1 - {"id":3,"method":"session/list"}
            refused 403
                deliver {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"http://h/acp denies access (403); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN"}}
            > {"id":4,"method":"session/list"}
                post c1 - {"id":4,"method":"session/list"}
            refused 429
                deliver {"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"http://h/acp has too many requests (429); try again later"}}
            > {"id":5,"method":"session/list"}
                post c1 - {"id":5,"method":"session/list"}
            refused 503
                deliver {"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"http://h/acp failed (503)"}}
            > {"method":"session/cancel","params":{"sessionId":"s"}}
                post c1 s {"method":"session/cancel","params":{"sessionId":"s"}}
            refused 400
                report a notification was not delivered: http://h/acp refused the message (400)
            event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
                deliver {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
            > {"id":7,"result":{"content":"large"}}
                post c1 s {"id":7,"result":{"content":"large"}}
            refused 413
                report the message is larger than http://h/acp accepts (413): an answer to the agent became an error
                post c1 s {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the answer is larger than the server accepts"}}
            accepted
        "#]],
    );
}

#[test]
fn a_dropped_stream_continues_after_its_last_event() {
    check(
        &[START_BOWLINE, SESSION, PROMPT],
        r#"
event s 1 {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
event s 2 {"method":"session/update","params":{"sessionId":"s"}}
dropped s
> {"id":7,"result":{}}
timer
open s
event s 2 {"method":"session/update","params":{"sessionId":"s"}}
event s 1 {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
event s 3 {"id":2,"result":{}}
event s 4 {"id":2,"result":{}}
"#,
        expect![[r#"
            event s 1 {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
                deliver {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
            event s 2 {"method":"session/update","params":{"sessionId":"s"}}
                deliver {"method":"session/update","params":{"sessionId":"s"}}
            dropped s
                report a stream was interrupted and is opened again (reset)
            > {"id":7,"result":{}}
            timer
                open stream s of c1 after 2
            open s
                post c1 s {"id":7,"result":{}}
            event s 2 {"method":"session/update","params":{"sessionId":"s"}}
            event s 1 {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
            event s - {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}
            event s 3 {"id":2,"result":{}}
                deliver {"id":2,"result":{}}
            event s 4 {"id":2,"result":{}}
        "#]],
    );
}

#[test]
fn ids_of_other_servers_are_not_compared() {
    check(
        &[START, SESSION],
        r#"
event s 5 {"method":"session/update","params":{"sessionId":"s","n":1}}
dropped s
timer
open s
event s 5 {"method":"session/update","params":{"sessionId":"s","n":1}}
event s 1 {"method":"session/update","params":{"sessionId":"s","n":2}}
"#,
        expect![[r#"
            event s 5 {"method":"session/update","params":{"sessionId":"s","n":1}}
                deliver {"method":"session/update","params":{"sessionId":"s","n":1}}
            dropped s
                report a stream was interrupted and is opened again (reset)
            timer
                open stream s of c1 after 5
            open s
            event s 5 {"method":"session/update","params":{"sessionId":"s","n":1}}
            event s 1 {"method":"session/update","params":{"sessionId":"s","n":2}}
                deliver {"method":"session/update","params":{"sessionId":"s","n":2}}
        "#]],
    );
}

#[test]
fn a_lost_post_is_repeated_if_the_server_recognizes_it() {
    check(
        &[START_BOWLINE, SESSION],
        r#"
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
lost
timer
refused 502
timer
accepted
"#,
        expect![[r#"
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            lost
            timer
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            refused 502
            timer
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            accepted
        "#]],
    );
}

#[test]
fn another_server_gets_a_request_again_only_if_it_cannot_have_it() {
    check(
        &[START, SESSION],
        r#"
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
unsent
timer
lost
> {"method":"session/cancel","params":{"sessionId":"s"}}
lost
timer
accepted
"#,
        expect![[r#"
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            unsent
            timer
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            lost
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"reset; the agent may have received the request: check before you repeat it"}}
            > {"method":"session/cancel","params":{"sessionId":"s"}}
                post c1 s {"method":"session/cancel","params":{"sessionId":"s"}}
            lost
            timer
                post c1 s {"method":"session/cancel","params":{"sessionId":"s"}}
            accepted
        "#]],
    );
}

#[test]
fn a_bowline_server_that_was_restarted_takes_over_the_connection() {
    check(
        &[START_BOWLINE, SESSION, PROMPT],
        r#"
event s 4 {"method":"session/update","params":{"sessionId":"s"}}
> {"id":3,"method":"session/list"}
accepted
dropped connection
dropped s
> {"method":"session/cancel","params":{"sessionId":"s"}}
timer
timer
closed s 404
closed connection 404
unsent
timer
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
open connection
open s
accepted
accepted
event s 5 {"id":2,"error":{"code":-32603,"message":"interrupted"}}
event s 6 {"id":2,"error":{"code":-32603,"message":"lost"}}
"#,
        expect![[r#"
            event s 4 {"method":"session/update","params":{"sessionId":"s"}}
                deliver {"method":"session/update","params":{"sessionId":"s"}}
            > {"id":3,"method":"session/list"}
                post c1 - {"id":3,"method":"session/list"}
            accepted
            dropped connection
                report a stream was interrupted and is opened again (reset)
            dropped s
                report a stream was interrupted and is opened again (reset)
            > {"method":"session/cancel","params":{"sessionId":"s"}}
            timer
                open stream connection of c1
            timer
                open stream s of c1 after 4
            closed s 404
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                deliver {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the server was restarted before it answered: try again"}}
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1,"_meta":{"bowline":{"resumes":"c1"}}}}
            unsent
            timer
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1,"_meta":{"bowline":{"resumes":"c1"}}}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
                report connected to http://h/acp again
                open stream connection of c2
                open stream s of c2 after 4
            open connection
            open s
                post c2 s {"method":"session/cancel","params":{"sessionId":"s"}}
            accepted
                post c2 s {"jsonrpc":"2.0","id":2,"method":"_bowline/request/await","params":{"sessionId":"s"}}
            accepted
            event s 5 {"id":2,"error":{"code":-32603,"message":"interrupted"}}
                deliver {"id":2,"error":{"code":-32603,"message":"interrupted"}}
            event s 6 {"id":2,"error":{"code":-32603,"message":"lost"}}
        "#]],
    );
}

#[test]
fn an_answer_reaches_only_the_question_that_the_caller_saw() {
    check(
        &[START_BOWLINE, SESSION, PROMPT],
        r#"
event s 1 {"id":7,"method":"session/request_permission","params":{"sessionId":"s","n":1}}
event s 2 {"id":8,"method":"session/request_permission","params":{"sessionId":"s","n":2}}
event s 3 {"id":9,"method":"session/request_permission","params":{"sessionId":"s","n":3}}
dropped connection
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
open connection
open s
accepted
event s 4 {"id":7,"method":"session/request_permission","params":{"sessionId":"s","n":1}}
event s 5 {"id":8,"method":"session/request_permission","params":{"sessionId":"s","n":4}}
event s - {"method":"$/cancel_request","params":{"requestId":7}}
event s - {"method":"$/cancel_request","params":{"requestId":8}}
> {"id":7,"result":"to the first"}
accepted
> {"id":8,"result":"too late"}
> {"id":9,"result":"not asked again yet"}
event s 6 {"id":9,"method":"session/request_permission","params":{"sessionId":"s","n":3}}
> {"id":"bowline-1-8","result":"to the fourth"}
"#,
        expect![[r#"
            event s 1 {"id":7,"method":"session/request_permission","params":{"sessionId":"s","n":1}}
                deliver {"id":7,"method":"session/request_permission","params":{"sessionId":"s","n":1}}
            event s 2 {"id":8,"method":"session/request_permission","params":{"sessionId":"s","n":2}}
                deliver {"id":8,"method":"session/request_permission","params":{"sessionId":"s","n":2}}
            event s 3 {"id":9,"method":"session/request_permission","params":{"sessionId":"s","n":3}}
                deliver {"id":9,"method":"session/request_permission","params":{"sessionId":"s","n":3}}
            dropped connection
                report a stream was interrupted and is opened again (reset)
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1,"_meta":{"bowline":{"resumes":"c1"}}}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
                report connected to http://h/acp again
                open stream connection of c2
                open stream s of c2 after 3
            open connection
            open s
                post c2 s {"jsonrpc":"2.0","id":2,"method":"_bowline/request/await","params":{"sessionId":"s"}}
            accepted
            event s 4 {"id":7,"method":"session/request_permission","params":{"sessionId":"s","n":1}}
            event s 5 {"id":8,"method":"session/request_permission","params":{"sessionId":"s","n":4}}
                deliver {"id":"bowline-1-8","method":"session/request_permission","params":{"sessionId":"s","n":4}}
            event s - {"method":"$/cancel_request","params":{"requestId":7}}
                deliver {"method":"$/cancel_request","params":{"requestId":7}}
            event s - {"method":"$/cancel_request","params":{"requestId":8}}
                deliver {"method":"$/cancel_request","params":{"requestId":"bowline-1-8"}}
            > {"id":7,"result":"to the first"}
                post c2 s {"id":7,"result":"to the first"}
            accepted
            > {"id":8,"result":"too late"}
                report the answer to request 8 was dropped: the server no longer waits for it
            > {"id":9,"result":"not asked again yet"}
                report the answer to request 9 was dropped: the server no longer waits for it
            event s 6 {"id":9,"method":"session/request_permission","params":{"sessionId":"s","n":3}}
                deliver {"id":"bowline-1-9","method":"session/request_permission","params":{"sessionId":"s","n":3}}
            > {"id":"bowline-1-8","result":"to the fourth"}
                post c2 s {"id":8,"result":"to the fourth"}
        "#]],
    );
}

#[test]
fn a_message_that_a_restarted_server_refused_is_posted_again() {
    check(
        &[START_BOWLINE, SESSION],
        r#"
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
refused 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
open connection
open s
refused 404
"#,
        expect![[r#"
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            refused 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1,"_meta":{"bowline":{"resumes":"c1"}}}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}
                report connected to http://h/acp again
                open stream connection of c2
                open stream s of c2
            open connection
            open s
                post c2 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            refused 404
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"http://h/acp was not found (404); check the URL, whose path is usually /acp"}}
        "#]],
    );
}

#[test]
fn another_server_that_was_restarted_resumes_the_sessions() {
    check(
        &[START, SESSION, PROMPT],
        r#"
event s - {"id":0,"method":"session/request_permission","params":{"sessionId":"s"}}
dropped connection
> {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}}
> {"id":0,"result":{"outcome":"old"}}
open connection
open s
accepted
event s - {"id":"bowline-connect-2","result":{}}
accepted
event s - {"id":0,"method":"fs/read_text_file","params":{"sessionId":"s"}}
event s - {"method":"$/cancel_request","params":{"requestId":0}}
> {"id":"bowline-1-0","result":{"content":""}}
accepted
event s - {"id":3,"result":{}}
"#,
        expect![[r#"
            event s - {"id":0,"method":"session/request_permission","params":{"sessionId":"s"}}
                deliver {"id":0,"method":"session/request_permission","params":{"sessionId":"s"}}
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            > {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the connection to http://h/acp was lost and its state with it: the agent may or may not have done this; check, and try again"}}
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}}
                report connected to http://h/acp again
                open stream connection of c2
            > {"id":0,"result":{"outcome":"old"}}
                report the answer to request 0 was dropped: the server no longer waits for it
            open connection
                open stream s of c2
            open s
                post c2 s {"jsonrpc":"2.0","id":"bowline-connect-2","method":"session/resume","params":{"cwd":"/p","mcpServers":[],"sessionId":"s"}}
            accepted
            event s - {"id":"bowline-connect-2","result":{}}
                post c2 s {"id":3,"method":"session/prompt","params":{"sessionId":"s"}}
            accepted
            event s - {"id":0,"method":"fs/read_text_file","params":{"sessionId":"s"}}
                deliver {"id":"bowline-1-0","method":"fs/read_text_file","params":{"sessionId":"s"}}
            event s - {"method":"$/cancel_request","params":{"requestId":0}}
                deliver {"method":"$/cancel_request","params":{"requestId":"bowline-1-0"}}
            > {"id":"bowline-1-0","result":{"content":""}}
                post c2 s {"id":0,"result":{"content":""}}
            accepted
            event s - {"id":3,"result":{}}
                deliver {"id":3,"result":{}}
        "#]],
    );
}

#[test]
fn a_server_that_is_still_starting_is_asked_again() {
    check(
        &[START],
        r#"
closed connection 404
refused 406
timer
refused 404
timer
refused 401
"#,
        expect![[r#"
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            refused 406
            timer
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            refused 404
            timer
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            refused 401
                end - http://h/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
        "#]],
    );
}

#[test]
fn the_replay_of_a_session_that_is_loaded_again_is_swallowed() {
    check(
        &[START, SESSION],
        r#"
dropped connection
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"loadSession":true}}}
open connection
open s
accepted
event s - {"method":"session/update","params":{"sessionId":"s","n":1}}
event connection - {"method":"session/update","params":{"sessionId":"s","n":2}}
event connection - {"method":"session/update","params":{"sessionId":"other","n":3}}
event connection - {"id":"bowline-connect-2","result":{}}
event s - {"method":"session/update","params":{"sessionId":"s","n":4}}
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"loadSession":true}}}
                report connected to http://h/acp again
                open stream connection of c2
            open connection
                open stream s of c2
            open s
                post c2 s {"jsonrpc":"2.0","id":"bowline-connect-2","method":"session/load","params":{"cwd":"/p","mcpServers":[],"sessionId":"s"}}
            accepted
            event s - {"method":"session/update","params":{"sessionId":"s","n":1}}
            event connection - {"method":"session/update","params":{"sessionId":"s","n":2}}
            event connection - {"method":"session/update","params":{"sessionId":"other","n":3}}
                deliver {"method":"session/update","params":{"sessionId":"other","n":3}}
            event connection - {"id":"bowline-connect-2","result":{}}
            event s - {"method":"session/update","params":{"sessionId":"s","n":4}}
                deliver {"method":"session/update","params":{"sessionId":"s","n":4}}
        "#]],
    );
}

#[test]
fn a_session_that_cannot_be_continued_is_reported() {
    check(
        &[START, SESSION],
        r#"
dropped connection
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{}}
open connection
> {"id":3,"method":"session/new","params":{"cwd":"/p"}}
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            answer c2 {"id":"bowline-connect-1","result":{}}
                report connected to http://h/acp again
                open stream connection of c2
                report session s could not be continued: the agent can neither resume nor load sessions
            open connection
            > {"id":3,"method":"session/new","params":{"cwd":"/p"}}
                post c2 - {"id":3,"method":"session/new","params":{"cwd":"/p"}}
        "#]],
    );
    check(
        &[START, SESSION],
        r#"
dropped connection
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}}
open connection
open s
accepted
event connection - {"id":"bowline-connect-2","error":{"code":-32002,"message":"no such session"}}
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                close stream s
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{"protocolVersion":1}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}}
                report connected to http://h/acp again
                open stream connection of c2
            open connection
                open stream s of c2
            open s
                post c2 s {"jsonrpc":"2.0","id":"bowline-connect-2","method":"session/resume","params":{"cwd":"/p","mcpServers":[],"sessionId":"s"}}
            accepted
            event connection - {"id":"bowline-connect-2","error":{"code":-32002,"message":"no such session"}}
                report session s could not be continued: no such session
        "#]],
    );
}

#[test]
fn the_client_gives_up_after_the_time_limit() {
    check(
        &[START, SESSION, PROMPT],
        r#"
dropped connection
timer
later 300
dropped connection
> {"id":3,"method":"session/list"}
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            later 300
            dropped connection
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"http://h/acp could not be reached again within 300 s: reset"}}
                end c1 http://h/acp could not be reached again within 300 s: reset
            > {"id":3,"method":"session/list"}
        "#]],
    );
}

#[test]
fn a_revoked_token_ends_the_connection() {
    check(
        &[START, SESSION, PROMPT],
        r#"
dropped connection
timer
closed connection 401
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            closed connection 401
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"http://h/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN"}}
                end c1 http://h/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
        "#]],
    );
}

#[test]
fn a_broken_session_does_not_affect_others() {
    check(
        &[START, SESSION, PROMPT],
        r#"
> {"id":3,"method":"session/set_mode","params":{"sessionId":"s"}}
broken s
> {"id":4,"method":"session/list"}
accepted
accepted
"#,
        expect![[r#"
            > {"id":3,"method":"session/set_mode","params":{"sessionId":"s"}}
                post c1 s {"id":3,"method":"session/set_mode","params":{"sessionId":"s"}}
            broken s
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"too large"}}
                deliver {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"too large"}}
                report session s: too large
            > {"id":4,"method":"session/list"}
            accepted
                post c1 - {"id":4,"method":"session/list"}
            accepted
        "#]],
    );
}

#[test]
fn a_session_that_the_server_forgot_is_given_up_after_a_few_attempts() {
    check(
        &[START, SESSION, PROMPT],
        r#"
dropped s
timer
closed s 404
timer
closed s 404
timer
closed s 404
timer
closed s 404
timer
closed s 404
"#,
        expect![[r#"
            dropped s
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream s of c1
            closed s 404
            timer
                open stream s of c1
            closed s 404
            timer
                open stream s of c1
            closed s 404
            timer
                open stream s of c1
            closed s 404
            timer
                open stream s of c1
            closed s 404
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"http://h/acp no longer knows the session: load it again"}}
                report session s: http://h/acp no longer knows the session: load it again
        "#]],
    );
}

#[test]
fn the_end_of_the_caller_waits_for_its_last_messages_but_not_for_the_server() {
    check(
        &[START],
        r#"
> {"id":1,"method":"session/list"}
> {"id":2,"method":"session/list"}
eof
accepted
accepted
"#,
        expect![[r#"
            > {"id":1,"method":"session/list"}
                post c1 - {"id":1,"method":"session/list"}
            > {"id":2,"method":"session/list"}
            eof
            accepted
                post c1 - {"id":2,"method":"session/list"}
            accepted
                end c1 as asked
        "#]],
    );
    check(
        &[START],
        r#"
dropped connection
> {"id":1,"method":"session/list"}
eof
"#,
        expect![[r#"
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            > {"id":1,"method":"session/list"}
            eof
                end c1 as asked
        "#]],
    );
}

#[test]
fn a_websocket_has_no_streams_for_sessions() {
    check_with(
        Script::new(false),
        &[],
        r#"
> {"id":0,"method":"initialize","params":{}}
answer c1 {"id":0,"result":{"agentCapabilities":{"loadSession":true,"_meta":{"bowline":{"remote":{"version":1}}}}}}
open connection
> {"id":1,"method":"session/new","params":{"cwd":"/p"}}
accepted
event connection - {"id":1,"result":{"sessionId":"s"}}
> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
accepted
dropped connection
timer
closed connection 404
answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"loadSession":true}}}
open connection
accepted
event connection - {"id":"bowline-connect-2","result":{}}
"#,
        expect![[r#"
            > {"id":0,"method":"initialize","params":{}}
                post - - {"id":0,"method":"initialize","params":{}}
            answer c1 {"id":0,"result":{"agentCapabilities":{"loadSession":true,"_meta":{"bowline":{"remote":{"version":1}}}}}}
                deliver {"id":0,"result":{"agentCapabilities":{"loadSession":true,"_meta":{"bowline":{"remote":{"version":1}}}}}}
                open stream connection of c1
            open connection
            > {"id":1,"method":"session/new","params":{"cwd":"/p"}}
                post c1 - {"id":1,"method":"session/new","params":{"cwd":"/p"}}
            accepted
            event connection - {"id":1,"result":{"sessionId":"s"}}
                deliver {"id":1,"result":{"sessionId":"s"}}
            > {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
                post c1 s {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}
            accepted
            dropped connection
                report a stream was interrupted and is opened again (reset); messages may be missing, because the server does not number them
            timer
                open stream connection of c1
            closed connection 404
                report http://h/acp no longer knows the connection, perhaps because it was restarted
                close stream connection
                deliver {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the connection to http://h/acp was lost and its state with it: the agent may or may not have done this; check, and try again"}}
                post - - {"jsonrpc":"2.0","id":"bowline-connect-1","method":"initialize","params":{}}
            answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"loadSession":true}}}
                report connected to http://h/acp again
                open stream connection of c2
            open connection
                post c2 s {"jsonrpc":"2.0","id":"bowline-connect-2","method":"session/load","params":{"cwd":"/p","sessionId":"s"}}
            accepted
            event connection - {"id":"bowline-connect-2","result":{}}
        "#]],
    );
}

#[test]
fn the_caller_waits_while_messages_cannot_be_posted() {
    let mut run = Script::new(true);
    for step in START.lines().filter(|line| !line.is_empty()) {
        run.run(step);
    }
    let mut taken = 0;
    while run.client.accepts_input() {
        run.run(r#"> {"method":"_note"}"#);
        taken += 1;
    }
    // One is being posted.
    assert_eq!(taken, MAX_QUEUED + 1);
    run.run("accepted");
    assert!(run.client.accepts_input());
    run.run(&format!(r#"> {{"method":"_note","params":{{"text":"{}"}}}}"#, "x".repeat(MAX_QUEUED_BYTES)));
    assert!(!run.client.accepts_input());
}

/// One of the things that may happen, in any order.
fn any_step() -> impl Strategy<Value = String> {
    let steps = [
        r#"> {"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#,
        r#"> {"id":3,"method":"session/list"}"#,
        r#"> {"id":4,"method":"session/load","params":{"sessionId":"t"}}"#,
        r#"> {"id":7,"result":{}}"#,
        r#"> {"method":"session/cancel","params":{"sessionId":"s"}}"#,
        "accepted",
        "refused 404",
        "refused 503",
        "lost",
        "unsent",
        r#"answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"loadSession":true}}}"#,
        r#"answer c2 {"id":"bowline-connect-1","result":{"agentCapabilities":{"_meta":{"bowline":{"remote":{"version":1}}}}}}"#,
        "open connection",
        "open s",
        "open t",
        r#"event s 1 {"id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#,
        r#"event s 2 {"id":2,"result":{}}"#,
        r#"event connection - {"id":3,"result":{}}"#,
        r#"event connection - {"id":4,"result":{}}"#,
        r#"event connection - {"id":"bowline-connect-2","result":{}}"#,
        "dropped connection",
        "closed connection 404",
        "dropped s",
        "closed s 404",
        "broken t",
        "later 100",
    ];
    prop::sample::select(steps.to_vec()).prop_map(str::to_owned)
}

proptest! {
    /// Whatever happens, each request of the caller gets exactly one answer, at the latest at the end.
    #[test]
    fn every_request_is_answered_once(has_extensions: bool, steps in prop::collection::vec(any_step(), 0..60)) {
        let mut run = Script::new(true);
        let start = if has_extensions { START_BOWLINE } else { START };
        for step in [start, SESSION].iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty()) {
            run.run(step);
        }
        run.output.clear();
        let mut asked = 0;
        for step in steps {
            if run.client.has_ended {
                break;
            }
            asked += usize::from(step.contains(r#""method":"session/"#) && step.starts_with(r#"> {"id""#));
            run.run(&step);
            while run.client.next_timer().is_some_and(|at| at <= run.now) {
                run.run("timer");
            }
        }
        run.client.fail("the test ends".to_owned());
        while let Some(action) = run.client.next_action() {
            run.output.push_str(&format!("    {}\n", show(&action)));
        }
        let delivered = run.output.lines().filter(|line| {
            line.trim().starts_with("deliver ") && (line.contains(r#""result":"#) || line.contains(r#""error":"#))
        });
        prop_assert_eq!(delivered.count(), asked, "{}", run.output);
    }
}
