//! Several servers on one database, each in its own process, with one killed or suspended during a turn.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::own_server::OwnServer;
use test_support::postgres::TestPostgres;
use test_support::wait::wait_until_async;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::checker::check_history;
use crate::programs::build_program;

/// Two servers with one database and one project.
struct Cluster {
    postgres: TestPostgres,
    database: String,
    place: tempfile::TempDir,
    bowline: PathBuf,
}

impl Cluster {
    fn start() -> Option<Self> {
        let postgres = TestPostgres::start()?;
        let database = postgres.create_database();
        let place = tempfile::tempdir().unwrap();
        for name in ["home", "project"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
        Some(Self { postgres, database, place, bowline })
    }

    fn project(&self) -> PathBuf {
        self.place.path().join("project")
    }

    fn server(&self) -> OwnServer {
        let (home, store) = (self.place.path().join("home"), self.postgres.url(&self.database));
        OwnServer::start_shared(&self.bowline, &home, &self.project(), &store).unwrap()
    }

    fn query(&self, sql: &str) -> String {
        self.postgres.run(&self.database, sql)
    }
}

/// Forwards connections to one server at a time, as a load balancer does.
struct Balancer {
    address: String,
    target: Arc<Mutex<(String, JoinSet<()>)>>,
}

impl Balancer {
    async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let target = Arc::new(Mutex::new((target.to_owned(), JoinSet::new())));
        let shared = Arc::clone(&target);
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut state = shared.lock().unwrap();
                let target = state.0.clone();
                state.1.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(target).await {
                        tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
                    }
                });
            }
        });
        Self { address, target }
    }

    /// Cuts all connections, and forwards new ones to another server.
    fn switch_to(&self, target: &str) {
        *self.target.lock().unwrap() = (target.to_owned(), JoinSet::new());
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

async fn until(caller: &mut Caller, is_last: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = caller.next().await;
        if is_last(&message) {
            return message;
        }
    }
}

fn is_answer(id: u64) -> impl Fn(&Value) -> bool {
    move |message| message["method"].is_null() && message["id"] == id
}

fn is_method(method: &str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}

async fn connect(url: &str, token: &str) -> Caller {
    let mut caller = Caller::start_with_token(url, token);
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    until(&mut caller, is_answer(0)).await;
    caller
}

/// Returns the environments of the agents whose home is in a directory; there is at least one.
fn agent_environments(place: &Path) -> Vec<String> {
    let read = |process: &Path, file: &str| {
        String::from_utf8_lossy(&std::fs::read(process.join(file)).unwrap_or_default()).into_owned()
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let agents = processes.filter(|process| read(process, "cmdline").contains("bowline\0agent\0"));
    let environments = agents.map(|process| read(&process, "environ"));
    let own: Vec<String> =
        environments.filter(|environment| environment.contains(place.to_str().unwrap())).collect();
    assert!(!own.is_empty(), "there is no agent");
    own
}

/// Asks for a file to be written, and waits for the question.
async fn ask_to_write(caller: &mut Caller, id: u64, session: &Value, file: &str) -> Value {
    let prompt = json!([{ "type": "text", "text": format!("write {file}: hello") }]);
    caller.send(request(id, "session/prompt", json!({ "sessionId": session, "prompt": prompt }))).await;
    let title = format!("Write {file}");
    let is_question = is_method("session/request_permission");
    until(caller, |message| is_question(message) && message["params"]["toolCall"]["title"] == title).await
}

async fn allow(caller: &mut Caller, question: &Value) {
    let options = question["params"]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
    let outcome = json!({ "outcome": "selected", "optionId": option["optionId"] });
    caller.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } })).await;
}

#[tokio::test]
async fn a_session_of_a_killed_server_goes_on_at_another() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.server(), cluster.server());
    let balancer = Balancer::start(a.address()).await;
    let mut first = connect(&format!("http://{}", balancer.address), a.token()).await;
    let new = json!({ "cwd": cluster.project(), "mcpServers": [] });
    first.send(request(1, "session/new", new.clone())).await;
    let session = until(&mut first, is_answer(1)).await["result"]["sessionId"].clone();
    for environment in agent_environments(cluster.place.path()) {
        assert!(!environment.contains("BOWLINE_STORE"), "agents do not know the store: {environment}");
    }
    let mut second = connect(&format!("ws://{}", b.address()), b.token()).await;
    let mut load = new;
    load["sessionId"] = session.clone();
    second.send(request(1, "session/load", load)).await;
    until(&mut second, is_answer(1)).await;
    let question = ask_to_write(&mut first, 2, &session, "a.txt").await;
    assert_eq!(until(&mut second, is_method("session/request_permission")).await, question);

    // As `kill -9`, while users are asked.
    drop(a);
    balancer.switch_to(b.address());
    let error = until(&mut first, is_answer(2)).await;
    let interrupted =
        "the server stopped during this request; what the agent did until then is in the session";
    assert_eq!(error["error"]["message"], interrupted);
    let withdrawn = until(&mut second, is_method("$/cancel_request")).await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);

    // The other server has the session now, with what was said before.
    ask_to_write(&mut first, 3, &session, "a.txt").await;
    let question = until(&mut second, is_method("session/request_permission")).await;
    allow(&mut second, &question).await;
    let answer = until(&mut first, is_answer(3)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(std::fs::read_to_string(cluster.project().join("a.txt")).unwrap().trim_end(), "hello");
    check_history(&cluster.postgres, &cluster.database, session.as_str().unwrap(), &[]);
    assert_eq!(cluster.query("SELECT count(DISTINCT generation) > 1 FROM events"), "t");
    first.finish().await.unwrap();
    drop(second);
    assert!(b.terminate().unwrap());
    assert_eq!(cluster.query("SELECT count(*) FROM servers WHERE lease_until > now()"), "0", "it left");
}

#[tokio::test]
async fn a_server_that_was_suspended_beyond_its_lease_is_fenced() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.server(), cluster.server());
    let mut first = connect(&format!("http://{}", a.address()), a.token()).await;
    let new = json!({ "cwd": cluster.project(), "mcpServers": [] });
    first.send(request(1, "session/new", new.clone())).await;
    let session = until(&mut first, is_answer(1)).await["result"]["sessionId"].clone();
    let mut second = connect(&format!("http://{}", b.address()), b.token()).await;
    let mut load = new;
    load["sessionId"] = session.clone();
    second.send(request(1, "session/load", load)).await;
    until(&mut second, is_answer(1)).await;
    let question = ask_to_write(&mut first, 2, &session, "a.txt").await;

    a.signal(Signal::STOP).unwrap();
    let withdrawn = until(&mut second, is_method("$/cancel_request")).await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    a.signal(Signal::CONT).unwrap();
    // It notices, and registers anew.
    wait_until_async("the new registration", || cluster.query("SELECT count(*) FROM servers") == "3").await;
    // An answer to what was asked before has no effect.
    allow(&mut first, &question).await;
    let error = until(&mut first, is_answer(2)).await;
    assert!(error["error"]["message"].as_str().unwrap().starts_with("the server stopped"), "{error}");
    // The session goes on at the other server, also for clients of the first.
    let question = ask_to_write(&mut second, 3, &session, "b.txt").await;
    allow(&mut second, &question).await;
    assert_eq!(until(&mut second, is_answer(3)).await["result"]["stopReason"], "end_turn");
    let question = ask_to_write(&mut first, 4, &session, "c.txt").await;
    allow(&mut first, &question).await;
    assert_eq!(until(&mut first, is_answer(4)).await["result"]["stopReason"], "end_turn");
    let project = cluster.project();
    assert_eq!(["a.txt", "b.txt", "c.txt"].map(|name| project.join(name).exists()), [false, true, true]);
    check_history(&cluster.postgres, &cluster.database, session.as_str().unwrap(), &[]);
    first.finish().await.unwrap();
    drop(second);
    assert!(a.terminate().unwrap());
    assert!(b.terminate().unwrap());
}
