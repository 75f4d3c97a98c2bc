//! Requests for sessions that the agent has not answered to be open yet.

use std::time::Duration;

use super::*;

const RULES: Options = Options { rules: true, host: false, route: false, quirks: QuirkMode::On };

fn read(id: u32, session: &str, path: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file","params":{{"sessionId":"{session}","path":"{path}"}}}}"#
    )
}

fn ask(id: u32, session: &str, title: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","toolCall":{{"toolCallId":"c{id}","title":"{title}"}},"options":[{{"optionId":"y","name":"Yes","kind":"allow_once"}},{{"optionId":"n","name":"No","kind":"reject_once"}}]}}}}"#
    )
}

const NEW: &str = r#""session/new","params":{"cwd":"/w","mcpServers":[]}"#;
const LOAD: &str = r#""session/load","params":{"sessionId":"old","cwd":"/w","mcpServers":[]}"#;
const FAILED: &str = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"no"}}"#;

fn opened(session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":5,"result":{{"sessionId":"{session}"}}}}"#)
}

impl Stage {
    /// The editor asks for a session.
    async fn begins(&mut self, opens: &str) {
        let opening = format!(r#"{{"jsonrpc":"2.0","id":5,"method":{opens}}}"#);
        self.editor.say(&opening).await;
        assert_eq!(self.agent.hear().await, opening);
    }

    /// Says something that is passed on, so that all before it was looked at.
    async fn settles(&mut self) {
        self.passes(r#"{"jsonrpc":"2.0","method":"_settled"}"#).await;
    }
}

#[tokio::test]
async fn they_are_judged_in_order_once_it_is_open() {
    for (opens, session) in [(NEW, "fresh"), (LOAD, "old")] {
        let mut stage = stage(RULES, FULL).await;
        stage.begins(opens).await;
        for line in [
            read(20, session, "/w/a"),
            read(21, session, "/w/.env"),
            ask(22, session, "denied"),
            read(23, session, "/w/b"),
            ask(24, session, "asked"),
        ] {
            stage.agent.say(&line).await;
        }
        stage.settles().await;
        assert!(stage.engine.0.judged.lock().unwrap().is_empty());
        // What is open already does not wait.
        stage.passes(&read(25, "s", "/w/open")).await;
        stage.agent.say(&opened(session)).await;
        let mut told = String::new();
        for _ in 0..4 {
            told += &(stage.editor.hear().await + "\n");
        }
        for _ in 0..2 {
            told += &(stage.agent.hear().await + "\n");
        }
        told += &stage.engine.0.judged.lock().unwrap().join("\n");
        expect![[r#"
            {"jsonrpc":"2.0","id":5,"result":{"sessionId":"SESSION"}}
            {"jsonrpc":"2.0","id":20,"method":"fs/read_text_file","params":{"sessionId":"SESSION","path":"/w/a"}}
            {"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"SESSION","path":"/w/b"}}
            {"jsonrpc":"2.0","id":24,"method":"session/request_permission","params":{"sessionId":"SESSION","toolCall":{"toolCallId":"c24","title":"asked"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}}
            {"jsonrpc":"2.0","id":21,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
            {"jsonrpc":"2.0","id":22,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"by":"proxy"}}}}
            Read { path: "/w/open" }
            Read { path: "/w/a" }
            Read { path: "/w/.env" }
            Read { path: "/w/b" }"#]]
        .assert_eq(&told.replace(session, "SESSION"));
        stage.passes(&read(26, session, "/w/c")).await;
    }
}

#[tokio::test]
async fn they_are_answered_with_an_error_if_it_is_not_opened_or_is_another() {
    let mut stage = stage(RULES, FULL).await;
    let mut told = String::new();
    for answer in [FAILED.to_owned(), opened("another"), r#"{"jsonrpc":"2.0","id":5,"result":{}}"#.to_owned()]
    {
        stage.begins(NEW).await;
        stage.agent.say(&read(20, "fresh", "/w/a")).await;
        stage.agent.say(&ask(21, "fresh", "asked")).await;
        stage.passes(&answer).await;
        told += &format!("{answer}\n{}\n{}\n", stage.agent.hear().await, stage.agent.hear().await);
    }
    // One that no request opens is refused at once.
    stage.agent.say(&read(22, "fresh", "/w/a")).await;
    told += &(stage.agent.hear().await + "\n");
    stage.begins(LOAD).await;
    stage.agent.say(&read(23, "fresh", "/w/a")).await;
    told += &(stage.agent.hear().await + "\n");
    // Of two, the one that fails leaves those waiting that may be the other's.
    let second = r#"{"jsonrpc":"2.0","id":6,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#;
    stage.editor.say(second).await;
    assert_eq!(stage.agent.hear().await, second);
    stage.agent.say(&read(24, "fresh", "/w/a")).await;
    stage.agent.say(&read(25, "old", "/w/a")).await;
    stage.passes(FAILED).await;
    stage.passes(r#"{"jsonrpc":"2.0","id":6,"result":{"sessionId":"fresh"}}"#).await;
    told += &format!("{}\n{}\n", stage.editor.hear().await, stage.agent.hear().await);
    expect![[r#"
        {"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"no"}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":5,"result":{"sessionId":"another"}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":5,"result":{}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":23,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/a"}}
        {"jsonrpc":"2.0","id":25,"error":{"code":-32002,"message":"Resource not found: session old","data":{"sessionId":"old"}}}
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn one_that_is_cancelled_is_never_judged_and_the_others_keep_their_order() {
    let mut stage = stage(RULES, FULL).await;
    stage.begins(NEW).await;
    for id in 20..28 {
        stage.agent.say(&read(id, "fresh", &format!("/w/{id}"))).await;
    }
    let cancel =
        |id: u32| format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#);
    stage.agent.say(&cancel(20)).await;
    let mut told = stage.agent.hear().await + "\n";
    // One is cancelled as soon as it is open.
    stage.agent.say(&format!("{}\n{}", opened("fresh"), cancel(22))).await;
    for _ in 0..7 {
        told += &(stage.editor.hear().await + "\n");
    }
    told += &(stage.agent.hear().await + "\n");
    told += &stage.engine.0.judged.lock().unwrap().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":20,"error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":5,"result":{"sessionId":"fresh"}}
        {"jsonrpc":"2.0","id":21,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/21"}}
        {"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/23"}}
        {"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/24"}}
        {"jsonrpc":"2.0","id":25,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/25"}}
        {"jsonrpc":"2.0","id":26,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/26"}}
        {"jsonrpc":"2.0","id":27,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/27"}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32800,"message":"Request cancelled"}}
        Read { path: "/w/21" }
        Read { path: "/w/23" }
        Read { path: "/w/24" }
        Read { path: "/w/25" }
        Read { path: "/w/26" }
        Read { path: "/w/27" }"#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn so_many_wait_and_no_more() {
    let mut stage = stage(RULES, FULL).await;
    stage.begins(NEW).await;
    for id in 0..16 {
        stage.agent.say(&read(id, "fresh", "/w/a")).await;
    }
    stage.agent.say(&read(90, "fresh", "/w/a")).await;
    let mut told = stage.agent.hear().await + "\n";
    // One that is cancelled makes room.
    stage.agent.say(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}"#).await;
    told += &(stage.agent.hear().await + "\n");
    stage.agent.say(&read(91, "fresh", "/w/b")).await;
    stage.passes(&opened("fresh")).await;
    for id in 1..16 {
        assert_eq!(stage.editor.hear().await, read(id, "fresh", "/w/a"));
    }
    told += &(stage.editor.hear().await + "\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":90,"error":{"code":-32600,"message":"rules are to be applied, and session fresh is not open yet: too many requests wait for that"}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":91,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/b"}}
    "#]]
    .assert_eq(&told);
}

#[test]
fn so_many_bytes_wait_and_no_more() {
    let (mut unopened, session) = (UnopenedSessions::default(), SessionId::new("fresh"));
    let fact = Fact::Asked(Method::Write, Some(session.clone()), None);
    let mut hold = |size: usize| {
        let line = Bytes::from(vec![b' '; size << 20]);
        unopened.hold(&session, &Passing { from: Side::Agent, fact: &fact, id: None, line: &line })
    };
    let is_refused = |decision: &Decision| matches!(decision, Decision::Now(Deed::Answer(Err(_))));
    let first = hold(3);
    assert!(!is_refused(&first));
    assert!(is_refused(&hold(2)));
    let second = hold(1);
    assert!(!is_refused(&second));
    drop(first);
    assert!(!is_refused(&hold(3)));
}

#[tokio::test(start_paused = true)]
async fn they_do_not_wait_for_ever_for_an_agent_that_waits_for_them() {
    let mut stage = stage(RULES, FULL).await;
    stage.begins(NEW).await;
    stage.agent.say(&read(20, "fresh", "/w/a")).await;
    let begun = tokio::time::Instant::now();
    let told = stage.agent.hear().await;
    assert_eq!(begun.elapsed().max(OPENING), begun.elapsed());
    assert!(begun.elapsed() < OPENING + Duration::from_secs(1), "{:?}", begun.elapsed());
    expect![[r#"{"jsonrpc":"2.0","id":20,"error":{"code":-32600,"message":"rules are to be applied, and session fresh is not open yet: answer the request that opens it first"}}"#]].assert_eq(&told);
    // It is not too late for the session.
    stage.passes(&opened("fresh")).await;
    stage.passes(&read(21, "fresh", "/w/a")).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_agent_they_are_gone() {
    let mut stage = stage(RULES, FULL).await;
    stage.begins(NEW).await;
    stage.agent.say(&read(20, "fresh", "/w/a")).await;
    stage.settles().await;
    drop(stage.agent);
    expect![[r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"gone"}}"#]]
        .assert_eq(&stage.editor.hear().await);
    assert_eq!(stage._running.await.unwrap(), crate::proxy::Ended::Agent("gone".to_owned()));
    assert!(stage.engine.0.judged.lock().unwrap().is_empty());
}
