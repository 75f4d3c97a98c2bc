//! An MCP server more in each session: its tools reach the editor's files, terminals and permission prompts.
//!
//! The request that opens a session gets an entry for a server that only this session knows. An agent may connect before
//! it has answered which session it is, so the server's tools wait for that, not the connection. The server ends with the
//! session.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bowline_mcp::server::{HttpServer, HttpSettings, Offer, Server, Settings, serve};
use bowline_state::capabilities::ClientGate;
use bowline_state::relay::own_tools::Rules;
use bowline_state::relay::servers::{Serves, Transport, free_name, with_server};
use bowline_state::relay::{Fact, Method, Opening, Side};
use bowline_state::schema::v1::{AgentCapabilities, ClientCapabilities, RequestId, SessionId};
use bowline_wire::{Caller, ClientHandle};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::beside::Sessions;
use crate::between::{Between, Decision, Deed, Passing};
use crate::editor::{Allowed, Editor, Known};
use crate::once::{Met, Once};
use crate::over_acp::{Carrier, OverAcp};

/// So many sessions have a server at once; later ones have none.
const MAX_SEATS: usize = 256;

/// So many connections to the socket of one session are open at once; others are closed.
const MAX_CONNECTIONS: usize = 16;

/// A session over HTTP that nothing is heard of for so long ends. It ends with the ACP session in any case.
const IDLE: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// How servers are reached and called.
pub struct InjectSettings {
    /// The way, where not the best one is to be taken.
    pub transport: Option<Transport>,
    /// The version that servers present themselves with.
    pub version: String,
    /// Makes a secret that nobody can guess.
    pub secret: Box<dyn Fn() -> io::Result<String> + Send>,
    /// The program that connects an agent which starts servers itself, and what it is told before the socket.
    pub bridge: (PathBuf, Vec<String>),
    /// Returns where sockets are made: a directory of the user's alone, which is there from then on.
    pub sockets: Box<dyn Fn() -> io::Result<PathBuf> + Send>,
    /// The sessions that an engine is beside: what the tools write is recorded there, and what the editor lacks done.
    pub beside: Sessions,
    /// Whether rules are asked before the agent's permission requests come here.
    pub rules: Rules,
}

/// Whoever adds servers to sessions.
pub struct Inject {
    settings: InjectSettings,
    shared: Arc<Shared>,
    editor: Option<Box<ClientCapabilities>>,
    agent: Option<(Box<AgentCapabilities>, bool)>,
    // How many servers there were.
    count: u64,
}

/// The servers that there are, and the way to the editor.
pub(crate) struct Shared {
    pub(crate) caller: OnceLock<Caller>,
    seats: Mutex<Vec<Seat>>,
}

/// The server of one session.
struct Seat {
    // The request that opens the session, until it is answered.
    request: Option<RequestId>,
    // Its id, if it is reached over ACP.
    server: String,
    session: watch::Sender<Option<SessionId>>,
    serving: Serving,
    allowed: Arc<Allowed>,
    once: Once,
}

/// How a server is served.
enum Serving {
    Acp(Arc<Carrier>),
    Http(Option<HttpServer>),
    Stdio(watch::Sender<bool>, Option<JoinHandle<()>>, PathBuf),
}

impl Drop for Serving {
    fn drop(&mut self) {
        match self {
            Self::Acp(_) => {}
            Self::Http(server) => {
                if let (Some(server), Ok(runtime)) = (server.take(), tokio::runtime::Handle::try_current()) {
                    runtime.spawn(server.stop());
                }
            }
            Self::Stdio(stop, _, socket) => {
                // Whoever serves hears of it, and ends what it began.
                stop.send_replace(true);
                // The socket goes with its directory at the latest.
                std::fs::remove_file(socket).unwrap_or_default();
            }
        }
    }
}

/// The way from the servers to the editor.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

impl Link {
    /// Gives the servers the way to the editor: what [`Proxy::new`](crate::Proxy::new) returned.
    pub fn connect(&self, caller: Caller) {
        // There is one proxy.
        self.0.caller.set(caller).unwrap_or_default();
    }

    /// Ends all servers, so that what they run at the editor is given up.
    pub async fn close(&self) {
        let seats = std::mem::take(&mut *self.0.seats());
        for mut seat in seats {
            match &mut seat.serving {
                Serving::Acp(carrier) => carrier.end().await,
                Serving::Http(server) => {
                    if let Some(server) = server.take() {
                        server.stop().await;
                    }
                }
                Serving::Stdio(stop, serving, _) => {
                    stop.send_replace(true);
                    if let Some(serving) = serving.take() {
                        // One that ended early has nothing left to end.
                        serving.await.unwrap_or_default();
                    }
                }
            }
        }
    }
}

impl Shared {
    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the newest server of a session, if it has one.
    fn of<T>(&self, session: &SessionId, act: impl FnOnce(&mut Seat) -> T) -> Option<T> {
        let mut seats = self.seats();
        seats.iter_mut().rev().find(|seat| seat.session.borrow().as_ref() == Some(session)).map(act)
    }

    /// Returns what carries messages to a server over ACP.
    pub(crate) fn carrier(&self, server: &str) -> Option<Arc<Carrier>> {
        let seats = self.seats();
        let seat = seats.iter().find(|seat| seat.server == server)?;
        match &seat.serving {
            Serving::Acp(carrier) => Some(carrier.clone()),
            Serving::Http(_) | Serving::Stdio(..) => None,
        }
    }
}

impl Inject {
    /// Returns what stands between, what serves MCP over ACP, and the way to connect both to the editor.
    #[must_use]
    pub fn new(settings: InjectSettings) -> (Self, OverAcp, Link) {
        let shared = Arc::new(Shared { caller: OnceLock::new(), seats: Mutex::default() });
        let inject = Self { settings, shared: shared.clone(), editor: None, agent: None, count: 0 };
        (inject, OverAcp::new(shared.clone()), Link(shared))
    }

    /// Adds a server to a request; nothing if there is nothing to offer, or it cannot be.
    fn add(&mut self, request: &RequestId, opening: &Opening, line: &[u8]) -> Option<Vec<u8>> {
        let editor = self.editor.as_ref()?;
        let its_own = Serves::of(editor);
        // With a host here, what the editor lacks is served all the same.
        let serves = if self.settings.beside.options.host { Serves::ALL } else { its_own };
        if serves.is_nothing() || self.shared.seats().len() >= MAX_SEATS {
            return None;
        }
        let client =
            ClientHandle::over(self.shared.caller.get()?.clone(), ClientGate::new((**editor).clone()));
        let (tell, session) = watch::channel(None);
        let known = (Known::new(session, self.settings.beside.clone()), its_own);
        let more: Vec<String> = opening.more.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        self.count += 1;
        let id = format!("{}mcp-server-{}", bowline_state::relay::PREFIX, self.count);
        let place = Editor::new(client, id.clone(), known, &opening.cwd.to_string_lossy(), &more).ok()?;
        let settings = Settings {
            name: "bowline".to_owned(),
            version: self.settings.version.clone(),
            offer: offer(serves),
            advise: None,
        };
        let (name, allowed, met) = (free_name(line), place.allowed.clone(), Met::default());
        let once = Once::new(&name, settings.offer, met.clone());
        let open = move |_| -> bowline_workspace::approvals::BoxFuture<'static, Result<Editor, String>> {
            met.now();
            Box::pin(std::future::ready(Ok(place.clone())))
        };
        let server = Server::new(settings, Arc::new(open));
        let transport = self.settings.transport.unwrap_or_else(|| {
            let agent = self.agent.as_ref();
            agent.map_or(Transport::Stdio, |(agent, acp)| Transport::best(&agent.mcp_capabilities, *acp))
        });
        let (serving, entry) = self.start(transport, server, &id, &name).ok()?;
        let line = with_server(line, &entry)?;
        let seat = Seat { request: Some(request.clone()), server: id, session: tell, serving, allowed, once };
        self.shared.seats().push(seat);
        Some(line)
    }

    /// Starts a server, and returns how the agent is told of it.
    fn start(
        &self,
        transport: Transport,
        server: Server<Editor>,
        id: &str,
        name: &str,
    ) -> io::Result<(Serving, Value)> {
        Ok(match transport {
            Transport::Acp => {
                let carrier = Carrier::start(server, id.to_owned(), self.shared.caller.get().cloned());
                let entry = json!({ "type": "acp", "name": name, "serverId": id });
                (Serving::Acp(Arc::new(carrier)), entry)
            }
            Transport::Http => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
                listener.set_nonblocking(true)?;
                let token = (self.settings.secret)()?;
                let settings = HttpSettings { token: token.clone(), hosts: Vec::new(), idle: IDLE };
                let http = HttpServer::start(server, TcpListener::from_std(listener)?, settings)?;
                let header = json!({ "name": "Authorization", "value": format!("Bearer {token}") });
                let entry = json!({ "type": "http", "name": name, "url": http.url(), "headers": [header] });
                (Serving::Http(Some(http)), entry)
            }
            Transport::Stdio => {
                let socket = (self.settings.sockets)()?.join(format!("{}.sock", self.count));
                let listener = UnixListener::bind(&socket)?;
                let (program, words) = &self.settings.bridge;
                let shown = socket.to_string_lossy().into_owned();
                let args: Vec<&str> = words.iter().map(String::as_str).chain([shown.as_str()]).collect();
                let entry = json!({ "name": name, "command": program, "args": args, "env": [] });
                let (stop, stopped) = watch::channel(false);
                let serving = tokio::spawn(accept(server, listener, stopped));
                (Serving::Stdio(stop, Some(serving), socket), entry)
            }
        })
    }

    /// Does with the seat of a request what became of the session. A session that is opened again has the new one alone.
    fn settle(&self, request: Option<&RequestId>, opened: Option<&SessionId>) {
        let Some(request) = request else { return };
        let mut seats = self.shared.seats();
        let Some(at) = seats.iter().position(|seat| seat.request.as_ref() == Some(request)) else { return };
        match opened {
            Some(session) => {
                // Another request may have the same id later.
                seats[at].request = None;
                seats[at].session.send_replace(Some(session.clone()));
                let server = seats[at].server.clone();
                seats.retain(|seat| seat.server == server || seat.session.borrow().as_ref() != Some(session));
            }
            // In their order: the newest of a session is the one that its agent has.
            None => drop(seats.remove(at)),
        }
    }
}

impl Between for Inject {
    fn look(&mut self, passing: Passing<'_>) -> Decision {
        match (passing.from, passing.fact) {
            (Side::Editor, Fact::Initialize(editor)) => self.editor = Some(editor.clone()),
            (Side::Agent, Fact::Initialized(agent)) => {
                self.agent = Some((agent.clone(), speaks_over_acp(passing.line)));
            }
            (Side::Editor, Fact::Opening(opening)) => {
                if let Some(line) = passing.id.and_then(|id| self.add(id, opening, passing.line)) {
                    return Decision::Now(Deed::Instead(vec![line]));
                }
            }
            (Side::Agent, Fact::Opened(opened)) => self.settle(passing.id, Some(&opened.session)),
            (Side::Agent, Fact::NotOpened(_)) => self.settle(passing.id, None),
            (Side::Agent, Fact::ToolCall(seen)) => {
                self.shared.of(&seen.session, |seat| seat.once.told(seen, passing.line));
            }
            (Side::Agent, Fact::Permission(session, _)) => {
                let rules = self.settings.rules;
                let answer = self.shared.of(session, |seat| seat.once.answer(passing.line, rules));
                return answer.flatten().map_or(Decision::PASS, Decision::Now);
            }
            (Side::Editor, Fact::Cancelled(session)) => {
                let seats = self.shared.seats();
                let its = seats.iter().filter(|seat| seat.session.borrow().as_ref() == Some(session));
                its.for_each(|seat| seat.allowed.cancel());
            }
            (Side::Agent, Fact::Closed(_, session)) => {
                self.shared.seats().retain(|seat| seat.session.borrow().as_ref() != Some(session));
            }
            (Side::Agent, Fact::Asked(Method::Mcp, ..)) => {
                let ours = server_of(passing.line).is_some_and(|id| self.shared.carrier(&id).is_some());
                if ours {
                    return Decision::Now(Deed::Take);
                }
            }
            _ => {}
        }
        Decision::PASS
    }
}

/// Serves whoever connects to a socket. It lies in a directory of the user's alone.
async fn accept(server: Server<Editor>, listener: UnixListener, mut stop: watch::Receiver<bool>) {
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
        if !is_the_users(&stream) || connections.len() >= MAX_CONNECTIONS {
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

/// Says whether the other end of a socket is a process of the same user.
fn is_the_users(stream: &tokio::net::UnixStream) -> bool {
    let own = stream.local_addr().ok().and_then(|address| {
        use std::os::unix::fs::MetadataExt as _;
        Some(std::fs::metadata(address.as_pathname()?).ok()?.uid())
    });
    own.is_some() && stream.peer_cred().ok().map(|peer| peer.uid()) == own
}

fn offer(serves: Serves) -> Offer {
    match (serves.reading, serves.writing, serves.running) {
        (true, true, true) => Offer::Everything,
        (true, true, false) => Offer::Files,
        (true, false, true) => Offer::ReadingAndCommands,
        (true, false, false) => Offer::Reading,
        (false, _, _) => Offer::Commands,
    }
}

/// Says whether an agent takes servers over ACP. The schema has that as an unstable part, which is read by its name.
fn speaks_over_acp(line: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(line).unwrap_or_default();
    answer["result"]["agentCapabilities"]["mcpCapabilities"]["acp"] == true
}

/// Returns the server that a message over ACP is for.
fn server_of(line: &[u8]) -> Option<String> {
    let message: HashMap<String, Value> = serde_json::from_slice(line).ok()?;
    Some(message.get("params")?.get("serverId")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests;
