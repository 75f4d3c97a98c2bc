//! A gate between `genai` and a provider: what comes through is counted and timed.
//!
//! `genai` reads answers without a bound: an error page to its end, an event until it is complete, looking through all of
//! it again with each piece. Nothing in it or in its HTTP client lets a caller count the bytes. So it is given an
//! address on this machine's loopback, good for one request and only with a secret in its path, and the request is
//! passed on from there: with deadlines, a cap on the answer and on each event in it, no redirects, and with failures
//! told by their status and headers. It lives inside of the reply: when that is dropped, the port is closed.

use std::error::Error as _;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bowline_state::retry::{self, Trouble};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    LOCATION, RETRY_AFTER,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Failure;
use crate::keys::Key;

/// No reply is longer, in bytes.
pub const MAX_REPLY: usize = 64 << 20;
/// No event of a reply is longer, in bytes.
pub const MAX_EVENT: usize = 1 << 20;
/// No more of an error is read, and no more of it is told.
const MAX_ERROR: usize = 64 << 10;
const MAX_TOLD: usize = 600;
/// No request is longer: a conversation with many pictures.
const MAX_REQUEST: u64 = 512 << 20;
const MAX_HEAD: u64 = 64 << 10;
/// So many strangers may knock; then something is wrong with this machine.
const MAX_STRANGERS: usize = 64;

/// How one request passes.
#[derive(Debug)]
pub(super) struct Gate {
    /// Talks to the provider.
    pub(super) client: reqwest::Client,
    /// Where the provider is.
    pub(super) base: Url,
    /// What is sent as authorization.
    pub(super) authorization: Authorization,
    /// The window that Ollama is told to have. It cuts conversations to a small one without a word, unless it is told,
    /// and `genai` does not.
    pub(super) window: Option<u64>,
    /// How long until an answer begins.
    pub(super) headers: Duration,
    /// How long until there is something in it.
    pub(super) first: Duration,
    /// How long from one byte to the next.
    pub(super) idle: Duration,
    /// Whether each line is an event, and not what is between blank lines.
    pub(super) lines: bool,
}

/// What is sent as authorization.
#[derive(Debug)]
pub(super) enum Authorization {
    /// What `genai` made of the key.
    AsAsked,
    /// Nothing: there is no key.
    Nothing,
    /// The key, of which `genai` makes nothing.
    Bearer(Key),
}

/// A request as it passes: ends when the answer does, and says whether that was well.
pub(super) type Passing = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

impl Gate {
    /// Opens the gate: returns the base URL to be used instead of the provider's, and the work of passing the request on,
    /// which must be polled beside the one who makes it.
    pub(super) async fn open(self) -> Result<(String, Passing), Failure> {
        let here = |error: std::io::Error| {
            Failure::new(Trouble::Unreachable, format!("no port on loopback: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(here)?;
        let port = listener.local_addr().map_err(here)?.port();
        let secret = secret()?;
        let query = self.base.query().map(|query| format!("?{query}")).unwrap_or_default();
        let url = format!("http://127.0.0.1:{port}/{secret}{}{query}", self.base.path());
        Ok((url, Box::pin(self.pass(listener, format!("/{secret}")))))
    }

    async fn pass(self, listener: TcpListener, secret: String) -> Result<(), Failure> {
        let (asked, stream) = knock(&listener, &secret).await?;
        drop(listener);
        let response = self.send(asked).await?;
        self.answer(response, stream).await
    }

    /// Passes the request on and returns the answer, if it is one.
    async fn send(&self, mut asked: Asked) -> Result<Response, Failure> {
        match &self.authorization {
            Authorization::AsAsked => (),
            Authorization::Nothing => drop(asked.headers.remove(AUTHORIZATION)),
            Authorization::Bearer(key) => {
                if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.reveal())) {
                    value.set_sensitive(true);
                    asked.headers.insert(AUTHORIZATION, value);
                }
            }
        }
        if let Some(window) = self.window
            && let Ok(mut body) = serde_json::from_slice::<Value>(&asked.body)
            && body.is_object()
        {
            body["options"]["num_ctx"] = window.into();
            asked.body = body.to_string().into_bytes();
        }
        let mut url = self.base.clone();
        let (path, query) = match asked.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (asked.target.as_str(), None),
        };
        url.set_path(path);
        url.set_query(query);
        let sent = self.client.post(url).headers(asked.headers).body(asked.body).send();
        let sent = timeout(self.headers, sent).await;
        let late = |_| Failure::new(Trouble::TimedOut, format!("no answer within {:?}", self.headers));
        let response = sent.map_err(late)?.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let encoding = header(CONTENT_ENCODING);
        if !matches!(encoding, "" | "identity") {
            return Err(Failure::new(
                Trouble::Unusable,
                format!("it is compressed ({encoding}), which was not asked for"),
            ));
        }
        if header(CONTENT_TYPE).starts_with("text/html") {
            let why = format!("{} answers with a web page: is the base URL right?", place(&self.base));
            return Err(Failure::new(Trouble::Unusable, why));
        }
        if !self.lines && header(CONTENT_TYPE).starts_with("application/json") {
            let why = format!("{} answers without streaming, which it was asked for", place(&self.base));
            return Err(Failure::new(Trouble::Unusable, why));
        }
        Ok(response)
    }

    /// Returns why the provider refuses.
    async fn refused(&self, mut response: Response) -> Failure {
        let status = response.status();
        let retry_after = asked_wait(response.headers());
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| self.base.join(to).ok()).map(|to| place(&to)).unwrap_or_default();
            let why = format!(
                "it redirects to {to}, where the key is not sent: if that is right, make it the base URL"
            );
            return Failure::new(Trouble::Refused, why);
        }
        let mut body = Vec::new();
        while body.len() < MAX_ERROR
            && let Ok(Ok(Some(chunk))) = timeout(self.idle, response.chunk()).await
        {
            body.extend_from_slice(&chunk);
        }
        body.truncate(MAX_ERROR);
        let body = String::from_utf8_lossy(&body);
        let trouble = retry::judge_status(status.as_u16(), &body);
        let said = message(&body);
        let why = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        Failure { retry_after, ..Failure::new(trouble, why) }
    }

    /// Gives the answer to whoever asked, as it comes.
    async fn answer(&self, mut response: Response, mut stream: TcpStream) -> Result<(), Failure> {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
            kind.unwrap_or("text/event-stream"),
        );
        let gone = |error: std::io::Error| Failure::new(Trouble::CutShort, error.to_string());
        stream.set_nodelay(true).map_err(gone)?;
        stream.write_all(head.as_bytes()).await.map_err(gone)?;
        let mut count = Count::new(self.lines);
        // Signs of life, which come before the model has read the conversation, are none yet.
        let mut begun = false;
        loop {
            let limit = if begun { self.idle } else { self.first };
            let next = timeout(limit, response.chunk()).await;
            let late = |_| Failure::new(Trouble::TimedOut, format!("nothing came for {limit:?}"));
            let cut = |error: reqwest::Error| Failure::new(Trouble::CutShort, chain(&error.without_url()));
            let Some(chunk) = next.map_err(late)?.map_err(cut)? else { break };
            count.take(&chunk)?;
            begun |=
                if self.lines { !chunk.is_empty() } else { chunk.windows(5).any(|word| word == b"data:") };
            if chunk.is_empty() {
                continue;
            }
            // In one piece: small ones would wait for each other.
            let mut piece = format!("{:x}\r\n", chunk.len()).into_bytes();
            piece.extend_from_slice(&chunk);
            piece.extend_from_slice(b"\r\n");
            stream.write_all(&piece).await.map_err(gone)?;
        }
        stream.write_all(b"0\r\n\r\n").await.map_err(gone)?;
        stream.shutdown().await.map_err(gone)
    }
}

/// Counts the bytes of a reply and of the event that is open.
#[derive(Debug)]
struct Count {
    all: usize,
    event: usize,
    // So many line ends follow each other before an event is complete.
    needed: u8,
    seen: u8,
}

impl Count {
    fn new(lines: bool) -> Self {
        Self { all: 0, event: 0, needed: if lines { 1 } else { 2 }, seen: 0 }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let too_long =
            |what, limit| Failure::new(Trouble::Unusable, format!("{what} has more than {limit} bytes"));
        self.all = self.all.saturating_add(chunk.len());
        if self.all > MAX_REPLY {
            return Err(too_long("the reply", MAX_REPLY));
        }
        for &byte in chunk {
            self.event += 1;
            self.seen = match byte {
                b'\n' => self.seen + 1,
                b'\r' => self.seen,
                _ => 0,
            };
            if self.seen >= self.needed {
                (self.event, self.seen) = (0, 0);
            }
            if self.event > MAX_EVENT {
                return Err(too_long("an event of the reply", MAX_EVENT));
            }
        }
        Ok(())
    }
}

/// A request of `genai`.
#[derive(Debug)]
struct Asked {
    target: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Waits for the one who knows the secret.
async fn knock(listener: &TcpListener, secret: &str) -> Result<(Asked, TcpStream), Failure> {
    for _ in 0..MAX_STRANGERS {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // A stranger who says nothing must not keep the one who was invited out.
        if let Ok(Ok(Some(asked))) = timeout(Duration::from_secs(10), read(stream, secret)).await {
            return Ok(asked);
        }
    }
    Err(Failure::new(Trouble::Unreachable, "strangers keep knocking on loopback"))
}

async fn read(stream: TcpStream, secret: &str) -> std::io::Result<Option<(Asked, TcpStream)>> {
    let mut reader = BufReader::new(stream);
    let request = line(&mut reader).await?;
    let target = request.split(' ').nth(1).and_then(|target| target.strip_prefix(secret));
    let Some(target) = target.filter(|target| target.starts_with('/')).map(str::to_owned) else {
        return Ok(None);
    };
    let mut headers = HeaderMap::new();
    let mut length = 0;
    let mut read = 0;
    loop {
        let header = line(&mut reader).await?;
        read += header.len() as u64;
        if header.is_empty() || read > MAX_HEAD {
            break;
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value.trim())) else {
            continue;
        };
        if name == CONTENT_LENGTH {
            length = value.to_str().ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        } else if ![HOST, CONNECTION, ACCEPT_ENCODING].contains(&name) {
            headers.append(name, value);
        }
    }
    if length > MAX_REQUEST {
        return Ok(None);
    }
    let mut body = Vec::new();
    (&mut reader).take(length).read_to_end(&mut body).await?;
    Ok(Some((Asked { target, headers, body }, reader.into_inner())))
}

async fn line(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    reader.take(MAX_HEAD).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| Failure::new(Trouble::Unreachable, "this machine has no randomness"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unreachable(error: reqwest::Error) -> Failure {
    let trouble = if error.is_timeout() { Trouble::TimedOut } else { Trouble::Unreachable };
    Failure::new(trouble, chain(&error.without_url()))
}

/// Returns how long a provider wants to be left alone.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(milliseconds) = text("retry-after-ms").and_then(|value| value.trim().parse().ok()) {
        return Some(Duration::from_millis(milliseconds));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    retry::retry_after(text(RETRY_AFTER.as_str())?, now)
}

/// Returns what a body says to a person: its message, if it is JSON that has one, and not much more than a line.
pub(super) fn message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let places = ["/error/message", "/message", "/error", "/0/error/message", "/detail"];
    let said = places.iter().find_map(|place| value.pointer(place)?.as_str());
    let said = said.unwrap_or(body).trim();
    // A page is for browsers.
    let said = if said.starts_with('<') { "" } else { said };
    let end = said.floor_char_boundary(MAX_TOLD);
    let cut = if end < said.len() { "…" } else { "" };
    format!("{}{cut}", said[..end].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns an error with the reasons behind it.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !told.contains(&next) {
            told.push_str(": ");
            told.push_str(&next);
        }
        source = error.source();
    }
    told
}

/// Returns where a server is, without what may be secret in its address.
pub(super) fn place(url: &Url) -> String {
    url.origin().ascii_serialization()
}
