//! A scripted HTTP server: the test takes each request and decides what becomes of it, faults of the network included.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::TEST_TIMEOUT;

/// The maximum size of a request's body, and of a line of its head, in bytes.
const MAX_BODY_BYTES: u64 = 80 << 20;
const MAX_LINE_BYTES: u64 = 64 << 10;
/// The most requests that wait for the test.
const MAX_WAITING: usize = 64;

/// The server. When it is dropped, it takes no more connections; open ones belong to the test.
#[derive(Debug)]
pub struct ScriptedHttpServer {
    address: SocketAddr,
    posts: mpsc::Receiver<HttpExchange>,
    gets: mpsc::Receiver<HttpExchange>,
    others: mpsc::Receiver<HttpExchange>,
    task: JoinHandle<()>,
}

/// A request that waits for its response. Dropping it closes the connection without one.
#[derive(Debug)]
pub struct HttpExchange {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
    stream: BufReader<TcpStream>,
}

/// An event stream. Dropping it ends the stream without an end of the response, like a lost connection.
#[derive(Debug)]
pub struct EventSender {
    stream: BufReader<TcpStream>,
}

impl ScriptedHttpServer {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// Fails if no port is available.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (posts, post_queue) = mpsc::channel(MAX_WAITING);
        let (gets, get_queue) = mpsc::channel(MAX_WAITING);
        let (others, other_queue) = mpsc::channel(MAX_WAITING);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (posts, gets, others) = (posts.clone(), gets.clone(), others.clone());
                tokio::spawn(async move {
                    // A client may drop a connection before it has sent a request.
                    if let Ok(exchange) = HttpExchange::read(stream).await {
                        let queue = match exchange.method.as_str() {
                            "POST" => posts,
                            "GET" => gets,
                            _ => others,
                        };
                        // The test has ended if nothing takes it.
                        queue.send(exchange).await.ok();
                    }
                });
            }
        });
        Ok(Self { address, posts: post_queue, gets: get_queue, others: other_queue, task })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server and returns its address, which is free then.
    pub async fn stop(mut self) -> SocketAddr {
        self.task.abort();
        // It was aborted.
        (&mut self.task).await.ok();
        self.address
    }

    /// Returns the next POST request.
    ///
    /// # Errors
    /// Fails if none comes.
    pub async fn next_post(&mut self) -> Result<HttpExchange> {
        next(&mut self.posts, "POST").await
    }

    /// Returns the next GET request.
    ///
    /// # Errors
    /// Fails if none comes.
    pub async fn next_get(&mut self) -> Result<HttpExchange> {
        next(&mut self.gets, "GET").await
    }

    /// Returns the next request with another method.
    ///
    /// # Errors
    /// Fails if none comes.
    pub async fn next_other(&mut self) -> Result<HttpExchange> {
        next(&mut self.others, "other").await
    }
}

async fn next(queue: &mut mpsc::Receiver<HttpExchange>, kind: &str) -> Result<HttpExchange> {
    let next =
        timeout(TEST_TIMEOUT, queue.recv()).await.with_context(|| format!("no {kind} request came"))?;
    next.context("the server has ended")
}

impl Drop for ScriptedHttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpExchange {
    pub(crate) async fn read(stream: TcpStream) -> Result<Self> {
        let mut stream = BufReader::new(stream);
        let first = read_line(&mut stream).await?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = BTreeMap::new();
        loop {
            let line = read_line(&mut stream).await?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length: u64 = headers.get("content-length").map_or(Ok(0), |length| length.parse())?;
        if length > MAX_BODY_BYTES {
            bail!("the body has {length} bytes");
        }
        let mut body = Vec::new();
        (&mut stream).take(length).read_to_end(&mut body).await?;
        Ok(Self { method, path, headers, body: String::from_utf8(body)?, stream })
    }

    /// Returns a header, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the body as JSON.
    ///
    /// # Errors
    /// Fails if it is something else.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| self.body.clone())
    }

    /// Answers the request and closes the connection.
    ///
    /// # Errors
    /// Fails if the client is gone.
    pub async fn respond(mut self, status: u16, headers: &[(&str, &str)], body: &str) -> Result<()> {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.write_all(body.as_bytes()).await?;
        self.stream.shutdown().await?;
        Ok(())
    }

    /// Accepts a message, as servers of ACP do.
    ///
    /// # Errors
    /// Fails if the client is gone.
    pub async fn accept(self) -> Result<()> {
        self.respond(202, &[], "").await
    }

    /// Answers with an event stream.
    ///
    /// # Errors
    /// Fails if the client is gone.
    pub async fn send_events(mut self) -> Result<EventSender> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.flush().await?;
        Ok(EventSender { stream: self.stream })
    }
}

impl EventSender {
    /// Sends an event.
    ///
    /// # Errors
    /// Fails if the client is gone.
    pub async fn send(&mut self, id: Option<u64>, message: &Value) -> Result<()> {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.send_raw(&format!("{id}data: {message}\n\n")).await
    }

    /// Sends a part of the stream as it is.
    ///
    /// # Errors
    /// Fails if the client is gone.
    pub async fn send_raw(&mut self, text: &str) -> Result<()> {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.stream.write_all(chunk.as_bytes()).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Waits until the client has closed the connection.
    ///
    /// # Errors
    /// Fails if it does not.
    pub async fn wait_for_close(mut self) -> Result<()> {
        let mut rest = Vec::new();
        let closed = timeout(TEST_TIMEOUT, self.stream.read_to_end(&mut rest)).await;
        // A connection that was reset is closed as well.
        closed.context("the client does not close the stream")?.map_or(Ok(()), |_| Ok(()))
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    stream.take(MAX_LINE_BYTES).read_line(&mut line).await?;
    if line.is_empty() {
        bail!("the connection was closed");
    }
    Ok(line.trim_end().to_owned())
}
