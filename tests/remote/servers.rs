//! Several servers on one database, each in its own process, with one killed or suspended during a turn.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::model_server::{ModelReply, ModelServer};
use test_support::own_server::OwnServer;
use test_support::postgres::TestPostgres;
use test_support::wait::wait_until_async;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::checker::check_history;
use crate::programs::build_program;

/// Servers with one database and one project, each with a state directory of its own.
pub(crate) struct Cluster {
    servers: std::cell::Cell<usize>,
    pub(crate) postgres: TestPostgres,
    pub(crate) database: String,
    place: tempfile::TempDir,
    bowline: PathBuf,
}

impl Cluster {
    pub(crate) fn start() -> Option<Self> {
        let postgres = TestPostgres::start()?;
        let database = postgres.create_database();
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("project")).unwrap();
        let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
        Some(Self { servers: std::cell::Cell::new(0), postgres, database, place, bowline })
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.place.path().join("project")
    }

    pub(crate) fn server(&self) -> OwnServer {
        let (home, store) = (self.new_home(), self.postgres.url(&self.database));
        OwnServer::start_shared(&self.bowline, &home, &self.project(), &store).unwrap()
    }

    fn server_with_model(&self, model: &ModelServer) -> OwnServer {
        let (home, store) = (self.new_home(), self.postgres.url(&self.database));
        OwnServer::start_shared_with_model(&self.bowline, &home, &self.project(), &store, model).unwrap()
    }

    /// Returns the home directory of the next server, with the token of the first.
    fn new_home(&self) -> PathBuf {
        let number = self.servers.get();
        self.servers.set(number + 1);
        let home = |number: usize| self.place.path().join(format!("home{number}"));
        std::fs::create_dir(home(number)).unwrap();
        if number > 0 {
            std::fs::copy(OwnServer::token_file(&home(0)), OwnServer::token_file(&home(number))).unwrap();
        }
        home(number)
    }

    pub(crate) fn query(&self, sql: &str) -> String {
        self.postgres.run(&self.database, sql)
    }
}

/// Forwards connections to one server at a time, as a load balancer does.
pub(crate) struct Balancer {
    address: String,
    target: Arc<Mutex<(String, JoinSet<()>)>>,
}

impl Balancer {
    pub(crate) async fn start(target: &str) -> Self {
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

    /// Returns the address for clients.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Forwards new connections to a server. Open ones go on.
    pub(crate) fn redirect_to(&self, target: &str) {
        target.clone_into(&mut self.target.lock().unwrap().0);
    }

    /// Cuts all connections, and forwards new ones to a server.
    pub(crate) fn switch_to(&self, target: &str) {
        *self.target.lock().unwrap() = (target.to_owned(), JoinSet::new());
    }
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) async fn until(caller: &mut Caller, is_last: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = caller.next().await;
        if is_last(&message) {
            return message;
        }
    }
}

pub(crate) fn is_answer(id: u64) -> impl Fn(&Value) -> bool {
    move |message| message["method"].is_null() && message["id"] == id
}

pub(crate) fn is_method(method: &str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}

pub(crate) async fn connect(url: &str, token: &str) -> Caller {
    initialize(Caller::start_with_token(url, token)).await
}

pub(crate) async fn initialize(mut caller: Caller) -> Caller {
    caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
    let answer = until(&mut caller, is_answer(0)).await;
    assert!(answer["error"].is_null(), "{answer}");
    caller
}

/// A process of Bowline's agent.
struct AgentProcess {
    command: String,
    environment: String,
}

/// Returns the agents whose home is in a directory; there is at least one.
fn agent_processes(place: &Path) -> Vec<AgentProcess> {
    let read = |process: &Path, file: &str| {
        String::from_utf8_lossy(&std::fs::read(process.join(file)).unwrap_or_default()).into_owned()
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let agents = processes.map(|process| AgentProcess {
        command: read(&process, "cmdline"),
        environment: read(&process, "environ"),
    });
    let own: Vec<AgentProcess> = agents
        .filter(|agent| agent.command.contains("bowline\0agent\0"))
        .filter(|agent| agent.environment.contains(place.to_str().unwrap()))
        .collect();
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

pub(crate) async fn allow(caller: &mut Caller, question: &Value) {
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

/// Bowline's own agent keeps its conversations in the database: the model of the next server knows them.
#[tokio::test]
async fn the_conversation_of_a_killed_server_is_known_at_another() {
    let Some(cluster) = Cluster::start() else { return };
    let env = json!({ "command": "env; cat /proc/self/environ" });
    let script = vec![ModelReply::call("execute", env), ModelReply::text("It is a teal one.")];
    let model = ModelServer::start(script).await.unwrap();
    let (a, b) = (cluster.server_with_model(&model), cluster.server_with_model(&model));
    let balancer = Balancer::start(a.address()).await;
    let mut caller = connect(&format!("http://{}", balancer.address), a.token()).await;
    caller.send(request(1, "session/new", json!({ "cwd": cluster.project(), "mcpServers": [] }))).await;
    let session = until(&mut caller, is_answer(1)).await["result"]["sessionId"].clone();
    let prompt = |id: u64, text: &str| {
        let prompt = json!([{ "type": "text", "text": text }]);
        request(id, "session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    };
    caller.send(prompt(2, "which kettle")).await;
    let question = until(&mut caller, is_method("session/request_permission")).await;
    allow(&mut caller, &question).await;
    assert_eq!(until(&mut caller, is_answer(2)).await["result"]["stopReason"], "end_turn");
    // The agent knows the database; its commands do not, and neither do their arguments.
    let agents = agent_processes(cluster.place.path());
    assert!(agents.iter().all(|agent| agent.environment.contains("BOWLINE_SESSION_STORE=postgres")));
    assert!(agents.iter().all(|agent| !agent.command.contains("postgres")));
    let said = model.requests().last().unwrap().to_string();
    assert!(said.contains("HOME=") && !said.contains("BOWLINE_S"), "{said}");

    // As `kill -9`.
    drop(a);
    balancer.switch_to(b.address());
    caller.send(prompt(3, "and now")).await;
    let answer = until(&mut caller, is_answer(3)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let known = model.requests().last().unwrap()["messages"].to_string();
    for text in ["which kettle", "It is a teal one.", "and now"] {
        assert!(known.contains(text), "{text}: {known}");
    }
    assert!(!cluster.place.path().join("home1/state/bowline/sessions.db").exists(), "nothing is kept here");
    assert_eq!(cluster.query("SELECT generation > 1 FROM agent_sessions"), "t");
    caller.send(request(4, "session/delete", json!({ "sessionId": session }))).await;
    until(&mut caller, is_answer(4)).await;
    assert_eq!(cluster.query("SELECT count(*) FROM agent_sessions, agent_records"), "0");
    caller.finish().await.unwrap();
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
    let registrations = || cluster.query("SELECT count(*) FROM servers").parse::<u32>().unwrap();
    wait_until_async("the new registration", || registrations() > 2).await;
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
