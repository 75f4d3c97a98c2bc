//! A server in this process with a scripted agent.

use std::any::Any;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_serve::http::{Access, AccessOptions, Endpoint, ListenerOptions, serve};
use bowline_serve::metrics::Metrics;
use bowline_serve::store::{
    PostgresOptions, PostgresServerStore, PostgresUrl, ServerStore, SqliteServerStore,
};
use bowline_serve::token::{Role, StoredToken};
use bowline_serve::{AgentLauncher, AgentStreams, Hub, HubOptions};
use bowline_storage::clock::now;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use test_support::background_runtime::BackgroundRuntime;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::client::{Client, http_client};

/// A lease that does not end during a test, unless the test ends it.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(100);

/// An agent that does what prompts say: `count N`, `blob BYTES`, `usage TOKENS`, `ask`, `read PATH`, `wait`, `bytes`, `die`, `deaf`.
#[derive(Debug)]
pub(crate) struct ScriptedLauncher {
    pub(crate) starts: AtomicUsize,
    /// The names of the agents that were started; the usual one's is empty.
    pub(crate) names: Mutex<Vec<String>>,
    /// The agents of principals named `slow…` answer `initialize` when they get a permit.
    pub(crate) slow_starts: Arc<Semaphore>,
    sessions: Arc<AtomicU64>,
    pub(crate) prompts: Arc<AtomicUsize>,
    pub(crate) loads: Arc<AtomicUsize>,
    /// Whether `session/load` is left unanswered.
    pub(crate) ignores_loads: Arc<AtomicBool>,
    /// Whether agents offer `session/close`. They answer it when they get a permit.
    pub(crate) offers_close: Arc<AtomicBool>,
    pub(crate) closes: Arc<Semaphore>,
}

impl Default for ScriptedLauncher {
    fn default() -> Self {
        Self {
            starts: AtomicUsize::default(),
            names: Mutex::default(),
            slow_starts: Arc::new(Semaphore::new(0)),
            sessions: Arc::default(),
            prompts: Arc::default(),
            loads: Arc::default(),
            ignores_loads: Arc::default(),
            offers_close: Arc::default(),
            closes: Arc::new(Semaphore::new(0)),
        }
    }
}

impl AgentLauncher for ScriptedLauncher {
    fn launch(&self, principal: &str, name: Option<&str>) -> BoxFuture<'_, Result<AgentStreams, String>> {
        if let Some(name) = name.filter(|name| *name != "other") {
            let why = format!("this server has no agent {name}");
            return Box::pin(async { Err(why) });
        }
        self.starts.fetch_add(1, Ordering::SeqCst);
        self.names.lock().unwrap().push(name.unwrap_or_default().to_owned());
        let (input, agent_input) = tokio::io::duplex(1 << 16);
        let (agent_output, output) = tokio::io::duplex(1 << 16);
        let agent = ScriptedAgent {
            slow_start: principal.starts_with("slow").then(|| Arc::clone(&self.slow_starts)),
            sessions: Arc::clone(&self.sessions),
            prompts: Arc::clone(&self.prompts),
            loads: Arc::clone(&self.loads),
            ignores_loads: Arc::clone(&self.ignores_loads),
            offers_close: Arc::clone(&self.offers_close),
            closes: Arc::clone(&self.closes),
            output: Arc::new(tokio::sync::Mutex::new(agent_output)),
            pending: Arc::default(),
            cancels: Arc::default(),
            last: Arc::default(),
        };
        let task = AbortOnDrop(tokio::spawn(agent.run(agent_input)));
        Box::pin(async move {
            Ok(AgentStreams {
                reader: Box::new(output),
                writer: Box::new(input),
                exit: Box::pin(async { "the agent ended".to_owned() }),
                process: Box::new(task) as Box<dyn Any + Send>,
            })
        })
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Waiting<T> = Arc<Mutex<HashMap<String, oneshot::Sender<T>>>>;

#[derive(Clone)]
struct ScriptedAgent {
    slow_start: Option<Arc<Semaphore>>,
    sessions: Arc<AtomicU64>,
    prompts: Arc<AtomicUsize>,
    loads: Arc<AtomicUsize>,
    ignores_loads: Arc<AtomicBool>,
    offers_close: Arc<AtomicBool>,
    closes: Arc<Semaphore>,
    output: Arc<tokio::sync::Mutex<DuplexStream>>,
    pending: Waiting<Value>,
    cancels: Waiting<()>,
    last: Arc<AtomicU64>,
}

impl ScriptedAgent {
    async fn run(self, input: DuplexStream) {
        let mut tasks = tokio::task::JoinSet::new();
        let mut lines = BufReader::new(input).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let params = &message["params"];
            let result = match message["method"].as_str() {
                Some("initialize") => {
                    if let Some(start) = &self.slow_start {
                        start.acquire().await.unwrap().forget();
                    }
                    let mut offered = json!({ "loadSession": true, "sessionCapabilities": { "fork": {} } });
                    if self.offers_close.load(Ordering::SeqCst) {
                        offered["sessionCapabilities"]["close"] = json!({});
                    }
                    json!({ "protocolVersion": 1, "agentCapabilities": offered })
                }
                Some("session/new") => {
                    let id = format!("s{}", self.sessions.fetch_add(1, Ordering::SeqCst) + 1);
                    // Before the response, as some agents do.
                    self.update(
                        &id,
                        json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] }),
                    )
                    .await;
                    json!({ "sessionId": id, "modes": { "currentModeId": "ask", "availableModes": [] } })
                }
                Some("session/fork") => {
                    json!({ "sessionId": format!("s{}", self.sessions.fetch_add(1, Ordering::SeqCst) + 1) })
                }
                Some("session/load") => {
                    let id = params["sessionId"].as_str().unwrap();
                    self.loads.fetch_add(1, Ordering::SeqCst);
                    if self.ignores_loads.load(Ordering::SeqCst) {
                        continue;
                    }
                    self.chunk(id, "replayed by the agent").await;
                    json!({})
                }
                Some("session/set_mode") => json!({}),
                Some("session/close") => {
                    self.closes.acquire().await.unwrap().forget();
                    json!({})
                }
                Some("session/prompt") => {
                    self.prompts.fetch_add(1, Ordering::SeqCst);
                    let agent = self.clone();
                    match params["prompt"][0]["text"].as_str().unwrap() {
                        "die" => return,
                        "deaf" => std::future::pending::<()>().await,
                        _ => {}
                    }
                    tasks.spawn(async move { agent.prompt(message).await });
                    continue;
                }
                Some("session/cancel") => {
                    let waiting = self.cancels.lock().unwrap().remove(params["sessionId"].as_str().unwrap());
                    if let Some(waiting) = waiting {
                        waiting.send(()).unwrap();
                    }
                    continue;
                }
                Some("$/cancel_request") => {
                    for (_, waiting) in self.cancels.lock().unwrap().drain() {
                        waiting.send(()).unwrap();
                    }
                    continue;
                }
                Some(_) => continue,
                None => {
                    let waiting = self.pending.lock().unwrap().remove(message["id"].as_str().unwrap());
                    waiting.unwrap().send(message).unwrap();
                    continue;
                }
            };
            self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
        }
    }

    async fn prompt(self, message: Value) {
        let session = message["params"]["sessionId"].as_str().unwrap();
        let text = message["params"]["prompt"][0]["text"].as_str().unwrap();
        let mut stop_reason = "end_turn";
        match text.split_once(' ').unwrap_or((text, "")) {
            ("count", count) => {
                for number in 1..=count.parse::<u32>().unwrap() {
                    self.chunk(session, &number.to_string()).await;
                }
            }
            ("blob", bytes) => self.chunk(session, &"x".repeat(bytes.parse().unwrap())).await,
            ("bytes", _) => {
                let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": session,
                    "update": { "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "a?b" } } } });
                let mut line = line.to_string().replace(":{", ":\r{").into_bytes();
                let mark = line.iter().rposition(|byte| *byte == b'?').unwrap();
                line[mark] = 0xff;
                line.push(b'\n');
                self.output.lock().await.write_all(&line).await.unwrap();
            }
            ("usage", used) => {
                let used: u64 = used.parse().unwrap();
                self.update(session, json!({ "sessionUpdate": "usage_update", "used": used, "size": 100 }))
                    .await;
            }
            ("ask", _) => {
                let options = json!([{ "optionId": "yes", "kind": "allow_once", "name": "Yes" },
                    { "optionId": "no", "kind": "reject_once", "name": "No" }]);
                let params =
                    json!({ "sessionId": session, "options": options, "toolCall": { "toolCallId": "t" } });
                let answer = self.call("session/request_permission", params).await;
                self.chunk(session, &answer["result"]["outcome"].to_string()).await;
            }
            ("read", path) => {
                self.chunk(session, "reading").await;
                let answer =
                    self.call("fs/read_text_file", json!({ "sessionId": session, "path": path })).await;
                let text = answer["result"]["content"].as_str().or(answer["error"]["message"].as_str());
                self.chunk(session, text.unwrap_or("?")).await;
            }
            ("wait", _) => {
                let (sender, cancelled) = oneshot::channel();
                self.cancels.lock().unwrap().insert(session.to_owned(), sender);
                self.chunk(session, "waiting").await;
                cancelled.await.unwrap();
                stop_reason = "cancelled";
            }
            other => panic!("{other:?}"),
        }
        let result = json!({ "stopReason": stop_reason });
        self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        let id = format!("agent-{}", self.last.fetch_add(1, Ordering::SeqCst));
        let (sender, answer) = oneshot::channel();
        self.pending.lock().unwrap().insert(id.clone(), sender);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        answer.await.unwrap()
    }

    async fn chunk(&self, session: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.update(session, json!({ "sessionUpdate": "agent_message_chunk", "content": content })).await;
    }

    async fn update(&self, session: &str, update: Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })).await;
    }

    async fn send(&self, message: &Value) {
        let line = message.to_string() + "\n";
        // The server may have ended.
        self.output.lock().await.write_all(line.as_bytes()).await.ok();
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    pub(crate) launcher: Arc<ScriptedLauncher>,
    pub(crate) url: String,
    // Its own, so that everything of it can end at once.
    runtime: BackgroundRuntime,
}

impl Server {
    pub(crate) async fn start(place: &Path) -> Self {
        Self::start_with(
            place,
            HubOptions::default(),
            AccessOptions { is_loopback: true, ..AccessOptions::default() },
        )
        .await
    }

    /// Returns the parts of a server that does not run yet.
    pub(crate) fn build(
        place: &Path,
        options: HubOptions,
        access: AccessOptions,
    ) -> (Arc<Hub>, Arc<ScriptedLauncher>, axum::Router) {
        let store = Arc::new(SqliteServerStore::open_for_server(&place.join("store")).unwrap());
        let launcher = Arc::new(ScriptedLauncher::default());
        let (hub, router) = Self::build_on(store, &launcher, place, options, access);
        (hub, launcher, router)
    }

    fn build_on(
        store: Arc<dyn ServerStore>,
        launcher: &Arc<ScriptedLauncher>,
        place: &Path,
        options: HubOptions,
        access: AccessOptions,
    ) -> (Arc<Hub>, axum::Router) {
        let roots = vec![place.canonicalize().unwrap()];
        let options = HubOptions { roots, ..options };
        let agents = Arc::clone(launcher) as Arc<dyn AgentLauncher>;
        let hub = Hub::new(store, agents, Arc::new(Metrics::default()), options);
        let router = Endpoint { hub: Arc::clone(&hub), access: Access::new(access).unwrap() }.router();
        (hub, router)
    }

    pub(crate) async fn start_with(place: &Path, options: HubOptions, access: AccessOptions) -> Self {
        Self::start_on(place, options, access, None).await
    }

    /// Starts the server with a certificate.
    pub(crate) async fn start_with_tls(place: &Path, tls: Arc<rustls::ServerConfig>) -> Self {
        let access = AccessOptions { is_loopback: true, is_secure: true, ..AccessOptions::default() };
        Self::start_on(place, HubOptions::default(), access, Some(tls)).await
    }

    async fn start_on(
        place: &Path,
        options: HubOptions,
        access: AccessOptions,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let (hub, launcher, router) = Self::build(place, options, access);
        Self::serve_on(BackgroundRuntime::start().unwrap(), hub, launcher, router, tls).await
    }

    /// Starts one of several servers on a database. They have the agents in common.
    pub(crate) async fn start_shared(
        url: &PostgresUrl,
        launcher: &Arc<ScriptedLauncher>,
        place: &Path,
        lease: Duration,
        heartbeat: Duration,
    ) -> Self {
        // Its own, so that everything of it can end at once.
        let runtime = BackgroundRuntime::start().unwrap();
        let (url, options) = (url.clone(), PostgresOptions { name: "test".to_owned(), lease, heartbeat });
        let store = runtime.spawn(async move { PostgresServerStore::open_for_server(&url, options).await });
        let store = Arc::new(store.await.unwrap().unwrap());
        let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
        let (hub, router) = Self::build_on(store, launcher, place, HubOptions::default(), access);
        Self::serve_on(runtime, hub, Arc::clone(launcher), router, None).await
    }

    async fn serve_on(
        runtime: BackgroundRuntime,
        hub: Arc<Hub>,
        launcher: Arc<ScriptedLauncher>,
        router: axum::Router,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let listening = ListenerOptions { tls, max_connections: 1000 };
        runtime.spawn(Arc::clone(&hub).run());
        let listener = listener.into_std().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            serve(listener, router, listening, std::future::pending()).await;
        });
        Self { hub, launcher, url, runtime }
    }

    pub(crate) async fn token(&self, name: &str, role: Role) -> String {
        let (token, text) = StoredToken::generate(name, role, now(), None).unwrap();
        self.hub.store().add_token(token).await.unwrap();
        text
    }

    /// Connects a client without capabilities of its own.
    pub(crate) async fn client(&self, token: &str) -> Client {
        self.client_with(token, json!({}), json!(null)).await
    }

    pub(crate) async fn client_with(&self, token: &str, capabilities: Value, meta: Value) -> Client {
        self.connect(http_client(reqwest::Client::builder()), token, capabilities, meta).await
    }

    /// Connects a client with its own way of HTTP.
    pub(crate) async fn connect(
        &self,
        http: reqwest::Client,
        token: &str,
        capabilities: Value,
        meta: Value,
    ) -> Client {
        Client::connect(http, &self.url, token, capabilities, meta).await
    }

    /// Sends `initialize`, and returns what is answered.
    pub(crate) async fn initialize(&self, token: &str, capabilities: Value) -> Value {
        let http = http_client(reqwest::Client::builder());
        let (url, token) = (format!("{}/acp", self.url), token.to_owned());
        let client = Client { http, url, token, connection: String::new() };
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        serde_json::from_str(&client.post(&message).await.text().await.unwrap()).unwrap()
    }

    /// Returns the status of a path that needs no token.
    pub(crate) async fn status(&self, path: &str) -> u16 {
        let http = http_client(reqwest::Client::builder());
        http.get(format!("{}{path}", self.url)).send().await.unwrap().status().as_u16()
    }

    /// Runs something beside the server.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        action: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(action)
    }

    /// Runs something on the server's only thread: nothing else of the server runs meanwhile.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Arc<Hub>) -> T + Send + 'static,
    ) -> T {
        let hub = Arc::clone(&self.hub);
        self.spawn(async move { action(&hub) }).await.unwrap()
    }

    /// Ends the server as a crash would: nothing is told to anyone. Returns once the store is free.
    pub(crate) async fn crash(self) {
        let Self { runtime, .. } = self;
        tokio::task::spawn_blocking(move || runtime.shut_down()).await.unwrap();
    }
}
