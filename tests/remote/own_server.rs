//! Our client and our server, each in its own process, with the server killed during a turn.

use std::path::Path;

use expect_test::expect;
use serde_json::{Value, json};
use test_support::own_server::OwnServer;

use crate::caller::Caller;
use crate::programs::build_program;
use crate::servers::{Balancer, allow, connect};

/// Sends a request, and describes all messages until one that ends it.
async fn until(caller: &mut Caller, is_last: impl Fn(&Value) -> bool) -> (Vec<String>, Value) {
    let mut shown = Vec::new();
    loop {
        let message = caller.next().await;
        let update = &message["params"]["update"];
        let text = update["content"]["text"].as_str().or(update["sessionUpdate"].as_str());
        let text = text.or(message["method"].as_str()).or(message["error"]["message"].as_str());
        shown.push(text.unwrap_or("result").to_owned());
        if is_last(&message) {
            return (shown, message);
        }
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn prompt(id: u64, session: &Value, text: &str) -> Value {
    let prompt = json!([{ "type": "text", "text": text }]);
    request(id, "session/prompt", json!({ "sessionId": session, "prompt": prompt }))
}

#[tokio::test]
async fn a_turn_that_a_killed_server_interrupts_is_answered_and_the_session_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let start = || OwnServer::start(&bowline, &home, &project, "127.0.0.1:0", &[]).unwrap();
    let server = start();
    let network = Balancer::start(server.address()).await;
    let mut caller = Caller::start_with_token(&format!("http://{}", network.address()), server.token());
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    let session = &opened["result"]["sessionId"];
    caller.send(prompt(2, session, "write a.txt: hello")).await;
    let is_question = |message: &Value| message["method"] == "session/request_permission";
    until(&mut caller, is_question).await;
    // As `kill -9`, while the user is asked.
    drop(server);
    let server = start();
    network.switch_to(server.address());
    let (shown, _) = until(&mut caller, is_answer(2)).await;
    expect![[r#"
        the server stopped during this request; what the agent did until then is in the session
    "#]]
    .assert_eq(&(shown.join("\n") + "\n"));
    // The user is asked anew, and the session knows what was said before.
    caller.send(prompt(3, session, "write a.txt: hello")).await;
    let (_, question) = until(&mut caller, is_question).await;
    let options = question["params"]["options"].as_array().unwrap();
    let allow = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
    let outcome = json!({ "outcome": "selected", "optionId": allow["optionId"] });
    caller.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } })).await;
    let (_, answer) = until(&mut caller, is_answer(3)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap().trim_end(), "hello");
    caller.finish().await.unwrap();
    assert!(server.terminate().unwrap());
}

/// Sends a request to a server whose network is cut while the user is asked.
#[tokio::test]
async fn a_turn_goes_on_while_the_network_is_cut() {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let server = OwnServer::start(&bowline, &home, &project, "127.0.0.1:0", &[]).unwrap();
    let network = Balancer::start(server.address()).await;
    let mut caller = Caller::start_with_token(&format!("http://{}", network.address()), server.token());
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    caller.send(prompt(2, &opened["result"]["sessionId"], "write a.txt: hello")).await;
    let (_, question) = until(&mut caller, |message| message["method"] == "session/request_permission").await;
    network.switch_to(server.address());
    allow(&mut caller, &question).await;
    let (shown, answer) = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(!shown.iter().any(|line| line == "session/request_permission"), "not asked twice: {shown:?}");
    assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap().trim_end(), "hello");
    assert!(!caller.reports().is_empty(), "the interruption was noticed");
    caller.finish().await.unwrap();
    assert!(server.terminate().unwrap());
}

/// Returns the entries of the audit log about reads of `a.txt`, after a client without files has read it through a server
/// with this agent.
async fn audited_reads(agent: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("a.txt"), "one\n").unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let agent = agent(bowline.to_str().unwrap());
    let server = OwnServer::start(&bowline, &home, &project, "127.0.0.1:0", &agent).unwrap();
    let mut caller = Caller::start_with_token(&format!("http://{}", server.address()), server.token());
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    caller.send(prompt(2, &opened["result"]["sessionId"], "read a.txt")).await;
    let (_, answer) = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    caller.finish().await.unwrap();
    assert!(server.terminate().unwrap());
    audit(&bowline, &home, &project, &["--kind", "fs/read", "--path", "a.txt"])
}

/// Returns entries of the audit log of a server's workspace.
fn audit(bowline: &Path, home: &Path, project: &Path, filter: &[&str]) -> Vec<String> {
    run_program(bowline, home, project, &[&["audit", "show"], filter].concat())
}

/// Runs the program with the home of a server, and returns its lines.
fn run_program(bowline: &Path, home: &Path, project: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = std::process::Command::new(bowline);
    command.args(arguments).current_dir(project);
    command.env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    output.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_audit_log_names_the_admin_who_answered() {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let server = OwnServer::start(&bowline, &home, &project, "127.0.0.1:0", &[]).unwrap();
    let boss = run_program(&bowline, &home, &project, &["serve", "token", "add", "boss", "--role", "admin"]);
    let boss = boss.iter().find(|line| line.starts_with("bow_")).unwrap();
    let url = format!("http://{}", server.address());
    let mut caller = connect(&url, server.token()).await;
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    let directory = json!({ "cwd": project, "mcpServers": [] });
    caller.send(request(1, "session/new", directory.clone())).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    let session = &opened["result"]["sessionId"];
    caller.send(prompt(2, session, "write a.txt: hello")).await;
    let is_question = |message: &Value| message["method"] == "session/request_permission";
    until(&mut caller, is_question).await;
    let mut boss = connect(&url, boss).await;
    let mut load = directory;
    load["sessionId"] = session.clone();
    boss.send(request(1, "session/load", load)).await;
    let (_, question) = until(&mut boss, is_question).await;
    allow(&mut boss, &question).await;
    let (_, answer) = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    caller.finish().await.unwrap();
    drop(boss);
    assert!(server.terminate().unwrap());
    let lines = audit(&bowline, &home, &project, &["--path", "a.txt"]);
    let is_named = |line: &String| line.contains("by principal: boss") && line.contains("(for tester, ");
    assert!(lines.iter().any(is_named), "{lines:#?}");
}

/// Prompts a server whose users do not answer, and returns the denials in its audit log.
async fn unanswered_writes(agent: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let agent = agent(bowline.to_str().unwrap());
    let options = ["--listen", "127.0.0.1:0", "--question-timeout", "1"];
    let server = OwnServer::start_on(&bowline, &home, &project, &options, &agent, None).unwrap();
    let mut caller = Caller::start_with_token(&format!("http://{}", server.address()), server.token());
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    caller.send(prompt(2, &opened["result"]["sessionId"], "write a.txt: hello")).await;
    let (shown, answer) = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(shown.iter().any(|line| line == "$/cancel_request"), "the question is withdrawn: {shown:?}");
    assert!(!project.join("a.txt").exists());
    caller.finish().await.unwrap();
    assert!(server.terminate().unwrap());
    audit(&bowline, &home, &project, &["--denied"])
}

#[tokio::test]
async fn a_server_that_drains_waits_no_longer_than_its_option_says() {
    let place = tempfile::tempdir().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&project).unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    // The question would be denied, and the turn would end, long before the usual timeout.
    let options = ["--listen", "127.0.0.1:0", "--drain-timeout", "0", "--question-timeout", "10"];
    let server = OwnServer::start_on(&bowline, &home, &project, &options, &[], None).unwrap();
    let mut caller = Caller::start_with_token(&format!("http://{}", server.address()), server.token());
    let is_answer = |id: u64| move |message: &Value| message["method"].is_null() && message["id"] == id;
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller.send(request(1, "session/new", json!({ "cwd": project, "mcpServers": [] }))).await;
    let (_, opened) = until(&mut caller, is_answer(1)).await;
    caller.send(prompt(2, &opened["result"]["sessionId"], "write a.txt: hello")).await;
    until(&mut caller, |message| message["method"] == "session/request_permission").await;
    let ended = tokio::task::spawn_blocking(|| server.terminate());
    let (_, answer) = until(&mut caller, is_answer(2)).await;
    assert_eq!(answer["error"]["message"], "the server stopped", "{answer}");
    assert!(ended.await.unwrap().unwrap());
    assert!(!project.join("a.txt").exists());
    caller.vanish();
}

#[tokio::test]
async fn an_unanswered_question_is_recorded_as_such() {
    let own = unanswered_writes(|_| Vec::new()).await;
    assert!(
        !own.is_empty() && own.iter().all(|line| line.contains("no user answered within 1 s")),
        "{own:#?}"
    );
    assert!(own.iter().all(|line| line.contains("denied") && !line.contains("by client")), "{own:#?}");
}

#[tokio::test]
async fn the_audit_log_names_the_token() {
    let own = audited_reads(|_| Vec::new()).await;
    assert!(!own.is_empty() && own.iter().all(|line| line.contains("(for tester, session ")), "{own:#?}");
    // Another agent's reads are served and recorded by the proxy in front of it.
    let other = audited_reads(|bowline| vec![bowline.to_owned(), "agent".to_owned()]).await;
    assert!(other.iter().any(|line| line.contains("(for tester, session ")), "{other:#?}");
}
