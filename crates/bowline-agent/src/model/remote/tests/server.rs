//! A provider that misbehaves as it is told, byte by byte.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What is done with a connection, after the request was read.
#[derive(Debug, Clone)]
pub(super) enum Do {
    /// Bytes are sent.
    Send(Vec<u8>),
    /// These bytes are sent again and again, until so many bytes were sent or nobody takes them.
    Flood(String, usize),
    /// Nothing happens until the other side is gone.
    Stall,
    /// The connection is reset.
    Reset,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) path: String,
    pub(super) headers: Vec<String>,
    pub(super) body: Value,
}

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) state: Arc<Mutex<State>>,
    /// Told each time that the other side has gone while the server stalled.
    pub(super) left: Arc<Notify>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    answers: VecDeque<Vec<Do>>,
    pub(super) heard: Vec<Heard>,
    pub(super) flooded: usize,
}

impl Server {
    /// Starts a server with an answer for each connection; those that follow are closed at once.
    pub(super) async fn start(answers: impl IntoIterator<Item = Vec<Do>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state =
            Arc::new(Mutex::new(State { answers: answers.into_iter().collect(), ..State::default() }));
        let left = Arc::new(Notify::new());
        let (its, its_left) = (state.clone(), left.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (its, its_left) = (its.clone(), its_left.clone());
                tokio::spawn(async move {
                    // That the other side has gone is what some tests are about.
                    let _gone = serve(stream, &its, &its_left).await;
                });
            }
        });
        Self { url, state, left, serving }
    }

    /// Returns what was asked.
    pub(super) fn heard(&self) -> Vec<Heard> {
        self.state.lock().unwrap().heard.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>, left: &Notify) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        let header = line.trim().to_owned();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        headers.push(header);
    }
    let mut body = Vec::new();
    (&mut reader).take(length).read_to_end(&mut body).await?;
    let heard = Heard { path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) };
    let answer = {
        let mut state = state.lock().unwrap();
        state.heard.push(heard);
        state.answers.pop_front().unwrap_or_default()
    };
    let mut stream = reader.into_inner();
    for step in answer {
        match step {
            Do::Send(bytes) => stream.write_all(&bytes).await?,
            Do::Flood(bytes, total) => {
                let bytes = bytes.repeat((64 << 10) / bytes.len());
                let mut sent = 0;
                while sent < total && stream.write_all(bytes.as_bytes()).await.is_ok() {
                    sent += bytes.len();
                    state.lock().unwrap().flooded = sent;
                }
            }
            Do::Stall => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                left.notify_one();
            }
            Do::Reset => {
                stream.set_zero_linger()?;
                return Ok(());
            }
        }
    }
    stream.shutdown().await
}

/// Returns an answer that begins well and whose end is the end of the connection.
pub(super) fn open(body: impl AsRef<[u8]>) -> Vec<Do> {
    vec![Do::Send(begun(body))]
}

/// Returns the bytes of a good beginning.
pub(super) fn begun(body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend_from_slice(body.as_ref());
    bytes
}

/// Returns an answer with this status, these headers and this body.
pub(super) fn status(status: &str, headers: &str, body: &str) -> Vec<Do> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}");
    vec![Do::Send(head.into_bytes())]
}
