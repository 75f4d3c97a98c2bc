//! The HTTP clients, timeouts and retries of remote models.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_conversation::retry::RetryLimits;
use bowline_mcp::http::{self, HttpClientOptions, HttpScheme};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::{ModelError, base_url};

/// The largest JSON answer, in bytes.
const MAX_JSON_BYTES: usize = 4 << 20;

/// The timeouts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// Until the answer begins.
    pub headers: Duration,
    /// Until the answer begins and until its first content, for self-hosted servers: those first process the whole
    /// conversation, slowly.
    pub local_headers: Duration,
    /// From one byte to the next.
    pub idle: Duration,
    /// From one piece of the reply to the next, regardless of keep-alives between them.
    pub silence: Duration,
    /// For the whole request, with all attempts.
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
    /// Returns the timeouts until the first content of a self-hosted server's reply.
    pub(super) fn extended_for_self_hosted(self) -> Self {
        let [headers, idle, silence] =
            [self.headers, self.idle, self.silence].map(|timeout| timeout.max(self.local_headers));
        Self { headers, idle, silence, ..self }
    }
}

// A client, or the reason why it could not be built.
type LazyClient = OnceLock<Result<Client, String>>;

/// The HTTP clients, timeouts and retries that remote models share. Clones share the connections.
#[derive(Debug, Clone)]
pub struct HttpClients {
    // Indexed by whether the server is on this machine, where no proxy applies, and whether it is used without TLS.
    // Built on first use: reading certificates takes time.
    clients: Arc<[[LazyClient; 2]; 2]>,
    pub(super) timeouts: Timeouts,
    pub(super) retry_limits: RetryLimits,
}

impl HttpClients {
    /// Returns clients with these limits.
    #[must_use]
    pub fn new(timeouts: Timeouts, retries: RetryLimits) -> Self {
        Self { clients: Arc::default(), timeouts, retry_limits: retries }
    }

    /// Returns a client for a server.
    pub(super) fn client(&self, base: &Url) -> Result<Client, ModelError> {
        let (is_local, is_plain) = (base_url::is_local(base), base.scheme() == "http");
        let client = self.clients[usize::from(is_local)][usize::from(is_plain)].get_or_init(|| {
            let connect_timeout = self.timeouts.connect;
            let options = HttpClientOptions {
                connect_timeout,
                system_proxy: !is_local,
                ..HttpClientOptions::default()
            };
            let scheme = if is_plain { HttpScheme::Http } else { HttpScheme::Https };
            http::build_client(&options, scheme).map_err(|error| error.to_string())
        });
        client.clone().map_err(ModelError::Unreachable)
    }
}

/// Fetches JSON: `None` if the server does not answer in time, or fails.
pub(super) async fn fetch_json(request: RequestBuilder, limit: Duration) -> Option<Value> {
    let fetch = async {
        let response = request.send().await.ok()?;
        let is_ready = !response.status().is_server_error();
        Some(read_body(response, MAX_JSON_BYTES, limit).await).filter(|_| is_ready)
    };
    let body = timeout(limit, fetch).await.ok()??;
    Some(serde_json::from_slice(&body).unwrap_or_default())
}

/// Reads a body as far as it comes, up to a size, with at most `idle` between two chunks.
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
