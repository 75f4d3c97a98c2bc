//! The connections, time limits and retries of models that providers serve.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_mcp::http::{self, Reaches, Settings};
use bowline_state::retry::Limits;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::{ModelError, base_url};

/// The largest answer that is no reply, in bytes.
const MAX_ANSWER: usize = 4 << 20;

/// How long a model may keep us waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until an answer begins.
    pub headers: Duration,
    /// Until an answer begins, and until there is something in it, of servers that people run themselves: those first
    /// read the whole conversation, slowly.
    pub local_headers: Duration,
    /// From one byte to the next.
    pub idle: Duration,
    /// From one piece of the reply to the next, with signs of life between them or not.
    pub silence: Duration,
    /// For all of it, with every attempt.
    pub overall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            headers: Duration::from_secs(120),
            local_headers: Duration::from_secs(900),
            idle: Duration::from_secs(120),
            silence: Duration::from_secs(600),
            overall: Duration::from_secs(3_600),
        }
    }
}

impl Timeouts {
    /// Returns the limits until there is something of a reply, of servers that people run themselves.
    pub(super) fn extended(self) -> Self {
        let [headers, idle, silence] =
            [self.headers, self.idle, self.silence].map(|usual| usual.max(self.local_headers));
        Self { headers, idle, silence, ..self }
    }
}

// A client, or why there is none.
type LazyClient = OnceLock<Result<Client, String>>;

/// The connections, time limits and retries that remote models share. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Net {
    // By whether the server is on this machine, which no proxy knows, and whether it is asked without TLS. Made when the
    // first one is needed: reading certificates takes its time.
    clients: Arc<[[LazyClient; 2]; 2]>,
    pub(super) timeouts: Timeouts,
    pub(super) retries: Limits,
}

impl Net {
    /// Returns what remote models share.
    #[must_use]
    pub fn new(timeouts: Timeouts, retries: Limits) -> Self {
        Self { clients: Arc::default(), timeouts, retries }
    }

    /// Returns a client for a server.
    pub(super) fn client(&self, base: &Url) -> Result<Client, ModelError> {
        let (is_local, is_plain) = (base_url::is_local(base), base.scheme() == "http");
        let client = self.clients[usize::from(is_local)][usize::from(is_plain)].get_or_init(|| {
            let connect_timeout = self.timeouts.connect;
            let settings = Settings { connect_timeout, system_proxy: !is_local, ..Settings::default() };
            let reaches = if is_plain { Reaches::Plain } else { Reaches::Secure };
            http::client(&settings, reaches).map_err(|error| error.to_string())
        });
        client.clone().map_err(ModelError::Unreachable)
    }
}

/// Returns the answer to a request that is no reply: `None` if the server does not answer in time, or has trouble.
pub(super) async fn fetch_json(request: RequestBuilder, limit: Duration) -> Option<Value> {
    let fetch = async {
        let response = request.send().await.ok()?;
        let is_ready = !response.status().is_server_error();
        Some(read_body(response, MAX_ANSWER, limit).await).filter(|_| is_ready)
    };
    let body = timeout(limit, fetch).await.ok()??;
    Some(serde_json::from_slice(&body).unwrap_or_default())
}

/// Returns a body as far as it comes, up to a size, with at most `idle` from one piece to the next.
pub(super) async fn read_body(mut response: Response, size: usize, idle: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < size
        && let Ok(Ok(Some(chunk))) = timeout(idle, response.chunk()).await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(size);
    body
}
