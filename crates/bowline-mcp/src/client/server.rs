//! The task that owns one server: connects, lists its tools, notices its end, and starts it anew.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_state::mcp_tools::{self, Listed, MAX_SERVER_TOOLS};
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::call::Link;
use super::connection::{Connection, unreachable};
use super::error::{Again, Failure, chain};
use super::restarts::Restarts;
use super::ring::Ring;
use super::servers::State;
use super::settings::Settings;
use super::spec::ServerSpec;

/// So many pages of a list of tools are read.
const MAX_PAGES: usize = 64;
/// How long a server that failed again and again is left alone before it is tried once more.
const LATER: Duration = Duration::from_secs(60);
/// How long a list of tools holds at least, however often a server says that it changed.
const QUIET: Duration = Duration::from_secs(1);

/// A server as others see it.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) state: State,
    /// Its tools. They stay while it is started anew.
    pub(super) tools: Arc<[Listed]>,
    /// How many tools were left out.
    pub(super) left_out: usize,
    /// The names of those among them that are nested too deep.
    pub(super) too_deep: Arc<[String]>,
    pub(super) version: Option<String>,
    /// How it is called, when it is ready.
    pub(super) link: Option<Link>,
}

impl Snapshot {
    pub(super) fn new() -> Self {
        Self {
            state: State::Starting,
            tools: Arc::default(),
            left_out: 0,
            too_deep: Arc::default(),
            version: None,
            link: None,
        }
    }
}

/// What owns a server.
pub(super) struct Owner {
    pub(super) spec: ServerSpec,
    pub(super) settings: Arc<Settings>,
    pub(super) ring: Arc<Ring>,
    pub(super) snapshot: watch::Sender<Snapshot>,
    pub(super) stop: watch::Receiver<bool>,
    /// Somebody wants it started anew.
    pub(super) again: Arc<Notify>,
}

/// Why a server does not live any more.
enum Ended {
    /// It was told to stop.
    Stopped,
    /// It is to be started anew.
    Again,
    /// It did not come to live, or ended.
    Failed(Failure),
}

impl Owner {
    /// Keeps the server running until it is told to stop.
    pub(super) async fn run(mut self) {
        let mut restarts = Restarts::default();
        loop {
            let failure = match self.live().await {
                Ended::Stopped => break,
                Ended::Again => {
                    restarts = Restarts::default();
                    continue;
                }
                Ended::Failed(failure) => failure,
            };
            self.ring.note(&format!("({})", failure.why));
            let pause = if failure.again == Again::Soon { restarts.next(Instant::now()) } else { None };
            let Some(pause) = pause else {
                self.snapshot.send_modify(|snapshot| {
                    *snapshot = Snapshot { state: State::Failed(failure.why), ..Snapshot::new() };
                });
                // A network that comes back, say. What is wrong in itself stays so.
                let later = async {
                    match failure.again {
                        Again::Never => std::future::pending().await,
                        Again::Later | Again::Soon => sleep(LATER).await,
                    }
                };
                tokio::select! {
                    () = stopped(&mut self.stop) => break,
                    () = later => continue,
                    () = self.again.notified() => {
                        restarts = Restarts::default();
                        self.snapshot.send_replace(Snapshot::new());
                        continue;
                    }
                }
            };
            self.snapshot.send_modify(|snapshot| {
                snapshot.link = None;
                snapshot.state = State::Restarting(failure.why);
            });
            tokio::select! {
                () = stopped(&mut self.stop) => break,
                () = self.again.notified() => restarts = Restarts::default(),
                () = sleep(pause) => {}
            }
        }
        self.snapshot.send_replace(Snapshot { state: State::Stopped, ..Snapshot::new() });
    }

    /// Connects, and stays connected as long as the server does.
    async fn live(&mut self) -> Ended {
        let Self { spec, settings, ring, snapshot, stop, again } = self;
        let open = async {
            let connection = Connection::open(&spec.reach, settings, ring).await?;
            let listing = list(&connection).await.map_err(|why| not_listed(&why))?;
            Ok((connection, listing))
        };
        let opened = tokio::select! {
            biased;
            () = stopped(stop) => return Ended::Stopped,
            opened = timeout(settings.start_timeout, open) => opened,
        };
        let (mut connection, mut listing) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(failure)) => return Ended::Failed(failure),
            Err(_) => {
                let seconds = settings.start_timeout.as_secs();
                return Ended::Failed(Failure::slow(format!("it was not ready within {seconds} seconds")));
            }
        };
        let handler = connection.handler();
        let link = Link::new(connection.peer(), Arc::clone(&handler));
        let version = connection.version();
        loop {
            snapshot.send_replace(Snapshot {
                state: State::Ready,
                tools: listing.tools.into(),
                left_out: listing.left_out,
                too_deep: listing.too_deep.into(),
                version: version.clone(),
                link: Some(link.clone()),
            });
            let changed = async {
                sleep(QUIET).await;
                loop {
                    handler.tools_changed.notified().await;
                    match timeout(settings.start_timeout, pages(link.peer())).await {
                        Ok(Ok(listing)) => return listing,
                        Ok(Err(why)) => {
                            ring.note(&format!("(its tools changed, but were not listed: {})", chain(&why)))
                        }
                        Err(_) => ring.note("(its tools changed, but it did not list them)"),
                    }
                    sleep(QUIET).await;
                }
            };
            let ended = tokio::select! {
                biased;
                () = stopped(stop) => Err(Ended::Stopped),
                () = again.notified() => Err(Ended::Again),
                why = connection.ended() => Ok(why),
                changed = changed => {
                    listing = changed;
                    continue;
                }
            };
            let why = match ended {
                Ok(why) => why,
                Err(ended) => {
                    // From here on it cannot be called.
                    let state = if matches!(ended, Ended::Again) { State::Starting } else { State::Stopped };
                    snapshot.send_modify(|snapshot| (snapshot.link, snapshot.state) = (None, state));
                    connection.close().await;
                    return ended;
                }
            };
            // Whoever waits for an answer hears of it before what is left of the server is cleaned up.
            snapshot.send_modify(|snapshot| {
                snapshot.link = None;
                snapshot.state = State::Restarting(why.clone());
            });
            connection.clean_up().await;
            return Ended::Failed(Failure::passing(why));
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Whoever could say so may be gone, which means the same.
    drop(stop.wait_for(|stop| *stop).await);
}

/// The tools of a server.
#[derive(Default)]
struct Listing {
    tools: Vec<Listed>,
    left_out: usize,
    // Invariant: at most `MAX_SERVER_TOOLS`.
    too_deep: Vec<String>,
}

async fn list(connection: &Connection) -> Result<Listing, ServiceError> {
    if connection.has_tools() { pages(&connection.peer()).await } else { Ok(Listing::default()) }
}

/// Lists the tools of a server, page by page.
async fn pages(peer: &Peer<RoleClient>) -> Result<Listing, ServiceError> {
    let mut listing = Listing::default();
    let mut names = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { method: Default::default(), params, extensions: Default::default() };
        let result = peer.send_request(ClientRequest::ListToolsRequest(request)).await?;
        // Whatever the SDK took it for: one tool that cannot be read must not cost the others.
        let page = serde_json::to_value(&result).unwrap_or_default();
        let page = mcp_tools::read_page(&page);
        listing.left_out += page.unusable;
        listing.too_deep.extend(page.too_deep);
        listing.too_deep.truncate(MAX_SERVER_TOOLS);
        for tool in page.tools {
            if listing.tools.len() < MAX_SERVER_TOOLS && names.insert(tool.tool.clone()) {
                listing.tools.push(tool);
            } else {
                listing.left_out += 1;
            }
        }
        cursor = page.next;
        if cursor.is_none() || listing.tools.len() == MAX_SERVER_TOOLS {
            break;
        }
    }
    Ok(listing)
}

fn not_listed(why: &ServiceError) -> Failure {
    match why {
        ServiceError::TransportSend(error) => unreachable(&*error.error),
        ServiceError::TransportClosed => Failure::passing("it ended before it had listed its tools"),
        why => Failure::lasting(format!("it does not list its tools: {}", chain(why))),
    }
}
