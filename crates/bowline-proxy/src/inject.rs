//! Injection of one extra MCP server into each session: its tools use the editor's files, terminals and permission
//! prompts.
//!
//! The request that opens a session gains an entry for a server that only this session knows. An agent may connect
//! before it has answered with the session id, so the server's tools wait for the id; the connection does not. The
//! server ends with the session.

use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_access::approvals::BoxFuture;
use bowline_mcp::server::{
    HttpServer, HttpServerOptions, McpServerOptions, McpWorkspaceServer, OfferedTools, WorkspaceBackend,
    serve,
};
use bowline_policy::own_tools::PolicyStatus;
use bowline_protocol::capabilities::ClientCapabilityGate;
use bowline_protocol::relay::mcp_servers::{EditorTools, McpTransport, choose_server_name, insert_server};
use bowline_protocol::relay::{Method, ProxySide, RelayEvent, SessionOpening};
use bowline_protocol::schema::v1::{AgentCapabilities, ClientCapabilities, RequestId, SessionId};
use bowline_wire::ClientHandle;
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::editor_backend::{BackendSession, EditorBackend, SessionApprovals};
use crate::engine_interceptor::{CallerSlot, EngineSessions};
use crate::interceptor::{Disposition, InterceptDecision, InterceptedMessage, Interceptor};
use crate::mcp_over_acp::{McpOverAcpService, McpTunnel};
use crate::permission_dedup::PermissionDedup;

/// The most sessions with a server at once; later ones get none.
const MAX_SERVERS: usize = 256;

/// The most open connections to the socket of one session; further ones are closed.
const MAX_CONNECTIONS: usize = 16;

/// How long an HTTP session may be idle before it ends. It ends with the ACP session in any case.
const IDLE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// How injected servers are reached and named.
pub struct InjectorOptions {
    /// The transport, if not the best available one.
    pub transport: Option<McpTransport>,
    /// The version that servers report.
    pub version: String,
    /// Generates an unguessable secret.
    pub generate_secret: Box<dyn Fn() -> io::Result<String> + Send>,
    /// The bridge program for agents that start servers themselves, and its arguments before the socket path.
    pub bridge_command: (PathBuf, Vec<String>),
    /// Creates and returns the directory for sockets, which only the user can access.
    pub socket_dir: Box<dyn Fn() -> io::Result<PathBuf> + Send>,
    /// The sessions with an engine, which records the tools' writes and serves what the editor lacks.
    pub engine_sessions: EngineSessions,
    /// Whether rules judge the agent's permission requests before they arrive here.
    pub rules: PolicyStatus,
}

/// The interceptor that injects servers into sessions.
pub struct ServerInjector {
    options: InjectorOptions,
    shared: Arc<InjectorState>,
    editor_capabilities: Option<Box<ClientCapabilities>>,
    agent_capabilities: Option<(Box<AgentCapabilities>, bool)>,
    // The number of servers injected so far.
    server_count: u64,
}

/// The running servers, and the caller for requests to the editor.
pub(crate) struct InjectorState {
    pub(crate) caller: CallerSlot,
    servers: Mutex<Vec<InjectedServer>>,
}

/// The server of one session.
struct InjectedServer {
    // The request that opens the session, until it is answered.
    request: Option<RequestId>,
    // Its server id, which the agent uses if it is reached over ACP.
    id: String,
    session: watch::Sender<Option<SessionId>>,
    transport: TransportServer,
    approvals: Arc<SessionApprovals>,
    permission_dedup: PermissionDedup,
}

/// The running transport of a server.
enum TransportServer {
    Acp(Arc<McpTunnel>),
    Http(Option<HttpServer>),
    Stdio(watch::Sender<bool>, Option<JoinHandle<()>>, PathBuf),
}

impl Drop for TransportServer {
    fn drop(&mut self) {
        match self {
            Self::Acp(_) => {}
            Self::Http(server) => {
                if let (Some(server), Ok(runtime)) = (server.take(), tokio::runtime::Handle::try_current()) {
                    runtime.spawn(server.stop());
                }
            }
            Self::Stdio(stop, _, socket) => {
                // The serving task sees this and ends its connections.
                stop.send_replace(true);
                // If this fails, the socket is removed with its directory.
                std::fs::remove_file(socket).unwrap_or_default();
            }
        }
    }
}

/// The handle that ends the servers.
#[derive(Clone)]
pub struct InjectorHandle(Arc<InjectorState>);

impl InjectorHandle {
    /// Ends all servers, which abandons the requests they have open at the editor.
    pub async fn close(&self) {
        let servers = std::mem::take(&mut *self.0.servers());
        for mut server in servers {
            match &mut server.transport {
                TransportServer::Acp(tunnel) => tunnel.stop().await,
                TransportServer::Http(server) => {
                    if let Some(server) = server.take() {
                        server.stop().await;
                    }
                }
                TransportServer::Stdio(stop, task, _) => {
                    stop.send_replace(true);
                    if let Some(task) = task.take() {
                        // A task that panicked has nothing left to end.
                        task.await.unwrap_or_default();
                    }
                }
            }
        }
    }
}

impl InjectorState {
    fn servers(&self) -> MutexGuard<'_, Vec<InjectedServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the newest server of a session, if it has one.
    fn with_server_of<T>(&self, session: &SessionId, f: impl FnOnce(&mut InjectedServer) -> T) -> Option<T> {
        let mut servers = self.servers();
        servers.iter_mut().rev().find(|server| server.session.borrow().as_ref() == Some(session)).map(f)
    }

    /// Returns the tunnel to a server that is reached over ACP.
    pub(crate) fn find_tunnel(&self, server: &str) -> Option<Arc<McpTunnel>> {
        let servers = self.servers();
        let injected = servers.iter().find(|injected| injected.id == server)?;
        match &injected.transport {
            TransportServer::Acp(tunnel) => Some(tunnel.clone()),
            TransportServer::Http(_) | TransportServer::Stdio(..) => None,
        }
    }
}

impl ServerInjector {
    /// Returns the interceptor, the service for MCP over ACP, and the handle that ends the servers. They call the editor
    /// through `caller`.
    #[must_use]
    pub fn new(settings: InjectorOptions, caller: CallerSlot) -> (Self, McpOverAcpService, InjectorHandle) {
        let shared = Arc::new(InjectorState { caller, servers: Mutex::default() });
        let inject = Self {
            options: settings,
            shared: shared.clone(),
            editor_capabilities: None,
            agent_capabilities: None,
            server_count: 0,
        };
        (inject, McpOverAcpService::new(shared.clone()), InjectorHandle(shared))
    }

    /// Adds a server to a request. Returns `None` if there are no tools to offer, or the server cannot be added.
    fn add_server(&mut self, request: &RequestId, opening: &SessionOpening, line: &[u8]) -> Option<Vec<u8>> {
        let editor = self.editor_capabilities.as_ref()?;
        let editor_tools = EditorTools::from_capabilities(editor);
        // If a host serves here, the methods that the editor lacks are available as well.
        let served_tools =
            if self.options.engine_sessions.options.serve_as_host { EditorTools::ALL } else { editor_tools };
        if served_tools.is_empty() || self.shared.servers().len() >= MAX_SERVERS {
            return None;
        }
        let client = ClientHandle::from_caller(
            self.shared.caller.caller()?.clone(),
            ClientCapabilityGate::new((**editor).clone()),
        );
        let (session_sender, session) = watch::channel(None);
        let session_and_tools =
            (BackendSession::new(session, self.options.engine_sessions.clone()), editor_tools);
        let additional: Vec<String> =
            opening.additional_directories.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        self.server_count += 1;
        let id = format!("{}mcp-server-{}", bowline_protocol::relay::PROXY_ID_PREFIX, self.server_count);
        let backend = EditorBackend::new(
            client,
            id.clone(),
            session_and_tools,
            &opening.cwd.to_string_lossy(),
            &additional,
        )
        .ok()?;
        let settings = McpServerOptions {
            name: "bowline".to_owned(),
            version: self.options.version.clone(),
            offered_tools: offered_tools(served_tools),
            advise_denial: None,
        };
        let (name, approvals, is_connected) =
            (choose_server_name(line), backend.approvals.clone(), Arc::new(AtomicBool::new(false)));
        let permission_dedup = PermissionDedup::new(&name, settings.offered_tools, is_connected.clone());
        let open = move |_| -> BoxFuture<'static, Result<Box<dyn WorkspaceBackend>, String>> {
            is_connected.store(true, Ordering::Relaxed);
            let backend: Box<dyn WorkspaceBackend> = Box::new(backend.clone());
            Box::pin(ready(Ok(backend)))
        };
        let server = McpWorkspaceServer::new(settings, Arc::new(open));
        let transport = self.options.transport.unwrap_or_else(|| {
            let agent = self.agent_capabilities.as_ref();
            agent
                .map_or(McpTransport::Stdio, |(agent, acp)| McpTransport::best(&agent.mcp_capabilities, *acp))
        });
        let (transport_server, entry) = self.start_server(transport, server, &id, &name).ok()?;
        let line = insert_server(line, &entry)?;
        let injected = InjectedServer {
            request: Some(request.clone()),
            id,
            session: session_sender,
            transport: transport_server,
            approvals,
            permission_dedup,
        };
        self.shared.servers().push(injected);
        Some(line)
    }

    /// Starts a server, and returns its entry for the agent.
    fn start_server(
        &self,
        transport: McpTransport,
        server: McpWorkspaceServer,
        id: &str,
        name: &str,
    ) -> io::Result<(TransportServer, Value)> {
        Ok(match transport {
            McpTransport::Acp => {
                let tunnel = McpTunnel::start(server, id.to_owned(), self.shared.caller.caller().cloned());
                let entry = json!({ "type": "acp", "name": name, "serverId": id });
                (TransportServer::Acp(Arc::new(tunnel)), entry)
            }
            McpTransport::Http => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
                listener.set_nonblocking(true)?;
                let token = (self.options.generate_secret)()?;
                let settings =
                    HttpServerOptions { token: token.clone(), hosts: Vec::new(), idle_timeout: IDLE_TIMEOUT };
                let http = HttpServer::start(server, TcpListener::from_std(listener)?, settings)?;
                let header = json!({ "name": "Authorization", "value": format!("Bearer {token}") });
                let entry = json!({ "type": "http", "name": name, "url": http.url(), "headers": [header] });
                (TransportServer::Http(Some(http)), entry)
            }
            McpTransport::Stdio => {
                let socket = (self.options.socket_dir)()?.join(format!("{}.sock", self.server_count));
                let listener = UnixListener::bind(&socket)?;
                let (program, words) = &self.options.bridge_command;
                let socket_path = socket.to_string_lossy().into_owned();
                let args: Vec<&str> =
                    words.iter().map(String::as_str).chain([socket_path.as_str()]).collect();
                let entry = json!({ "name": name, "command": program, "args": args, "env": [] });
                let (stop, stopped) = watch::channel(false);
                let task = bowline_task::spawn(accept_connections(server, listener, stopped));
                (TransportServer::Stdio(stop, Some(task), socket), entry)
            }
        })
    }

    /// Binds the server of a request to the opened session, or drops it. If a session is opened again, only its new
    /// server stays.
    fn bind_session(&self, request: Option<&RequestId>, session_id: Option<&SessionId>) {
        let Some(request) = request else { return };
        let mut servers = self.shared.servers();
        let Some(at) = servers.iter().position(|injected| injected.request.as_ref() == Some(request)) else {
            return;
        };
        match session_id {
            Some(session) => {
                // A later request may reuse the id.
                servers[at].request = None;
                servers[at].session.send_replace(Some(session.clone()));
                let server = servers[at].id.clone();
                servers.retain(|injected| {
                    injected.id == server || injected.session.borrow().as_ref() != Some(session)
                });
            }
            // `remove` keeps the order: the newest server of a session is the one that its agent uses.
            None => drop(servers.remove(at)),
        }
    }
}

impl Interceptor for ServerInjector {
    fn intercept(&mut self, message: InterceptedMessage<'_>) -> InterceptDecision {
        match (message.from, message.fact) {
            (ProxySide::Editor, RelayEvent::Initialize(editor)) => {
                self.editor_capabilities = Some(editor.clone())
            }
            (ProxySide::Agent, RelayEvent::Initialized(agent)) => {
                self.agent_capabilities = Some((agent.clone(), supports_mcp_over_acp(message.line)));
            }
            (ProxySide::Editor, RelayEvent::SessionOpening(opening)) => {
                if let Some(line) = message.id.and_then(|id| self.add_server(id, opening, message.line)) {
                    return InterceptDecision::Now(Disposition::Replace(vec![line]));
                }
            }
            (ProxySide::Agent, RelayEvent::SessionOpened(opened)) => {
                self.bind_session(message.id, Some(&opened.session))
            }
            (ProxySide::Agent, RelayEvent::SessionNotOpened(_)) => self.bind_session(message.id, None),
            (ProxySide::Agent, RelayEvent::ToolCall(call)) => {
                self.shared.with_server_of(&call.session, |server| {
                    server.permission_dedup.update_tool_call(call, message.line)
                });
            }
            (ProxySide::Agent, RelayEvent::PermissionRequested(session, _)) => {
                let rules = self.options.rules;
                let answer = self.shared.with_server_of(session, |server| {
                    server.permission_dedup.answer_request(message.line, rules)
                });
                return answer.flatten().map_or(InterceptDecision::PASS, InterceptDecision::Now);
            }
            (ProxySide::Editor, RelayEvent::TurnCancelled(session)) => {
                let servers = self.shared.servers();
                let matching =
                    servers.iter().filter(|server| server.session.borrow().as_ref() == Some(session));
                matching.for_each(|server| server.approvals.cancel());
            }
            (ProxySide::Agent, RelayEvent::SessionClosed(_, session)) => {
                self.shared.servers().retain(|server| server.session.borrow().as_ref() != Some(session));
            }
            (ProxySide::Agent, RelayEvent::AgentRequest(Method::Mcp, ..)) => {
                let is_ours =
                    parse_server_id(message.line).is_some_and(|id| self.shared.find_tunnel(&id).is_some());
                if is_ours {
                    return InterceptDecision::Now(Disposition::HandleLocally);
                }
            }
            _ => {}
        }
        InterceptDecision::PASS
    }
}

/// Serves the clients that connect to a socket, which is in a directory that only the user can access.
async fn accept_connections(
    server: McpWorkspaceServer,
    listener: UnixListener,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => break,
            },
            _ = stop.changed() => break,
        };
        while connections.try_join_next().is_some() {}
        if !is_same_user(&stream) || connections.len() >= MAX_CONNECTIONS {
            continue;
        }
        let (reader, writer) = stream.into_split();
        let (server, mut stop) = (server.clone(), stop.clone());
        connections.spawn(async move {
            let stopped = async move { stop.changed().await.unwrap_or_default() };
            serve(server, reader, writer, stopped).await.unwrap_or_default();
        });
    }
    while connections.join_next().await.is_some() {}
}

/// Returns whether the peer of a socket is a process of the same user.
fn is_same_user(stream: &tokio::net::UnixStream) -> bool {
    let own_uid = stream.local_addr().ok().and_then(|address| {
        use std::os::unix::fs::MetadataExt as _;
        Some(std::fs::metadata(address.as_pathname()?).ok()?.uid())
    });
    own_uid.is_some() && stream.peer_cred().ok().map(|peer| peer.uid()) == own_uid
}

fn offered_tools(tools: EditorTools) -> OfferedTools {
    match (tools.can_read, tools.can_write, tools.can_run) {
        (true, true, true) => OfferedTools::Everything,
        (true, true, false) => OfferedTools::Files,
        (true, false, true) => OfferedTools::ReadOnlyAndCommands,
        (true, false, false) => OfferedTools::ReadOnly,
        (false, _, _) => OfferedTools::Commands,
    }
}

/// Returns whether an agent supports servers over ACP. That part of the schema is unstable, so it is read from the
/// JSON.
fn supports_mcp_over_acp(line: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(line).unwrap_or_default();
    answer["result"]["agentCapabilities"]["mcpCapabilities"]["acp"] == true
}

/// Returns the id of the server that an ACP message is addressed to.
fn parse_server_id(line: &[u8]) -> Option<String> {
    let message: HashMap<String, Value> = serde_json::from_slice(line).ok()?;
    Some(message.get("params")?.get("serverId")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests;
