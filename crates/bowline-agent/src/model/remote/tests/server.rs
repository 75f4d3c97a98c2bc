//! A provider that misbehaves as scripted, byte by byte.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A step on a connection, after the request was read.
#[derive(Debug, Clone)]
pub(super) enum ConnectionStep {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Repeats this text until a number of bytes were sent or the client disconnects.
    Flood(String, usize),
    /// Waits until the client disconnects.
    Stall,
    /// Resets the connection.
    Reset,
}

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) path: String,
    pub(super) headers: Vec<String>,
    pub(super) body: Value,
}

/// The server. It stops when dropped.
#[derive(Debug)]
pub(super) struct MisbehavingServer {
    pub(super) url: String,
    pub(super) state: Arc<Mutex<State>>,
    /// Notified each time that the client disconnects while the server stalls.
    pub(super) disconnected: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    answers: VecDeque<Vec<ConnectionStep>>,
    pub(super) requests: Vec<ReceivedRequest>,
    pub(super) flooded_bytes: usize,
}

impl MisbehavingServer {
    /// Starts a server with an answer for each connection; later connections are closed at once.
    pub(super) async fn start(answers: impl IntoIterator<Item = Vec<ConnectionStep>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state =
            Arc::new(Mutex::new(State { answers: answers.into_iter().collect(), ..State::default() }));
        let disconnected = Arc::new(Notify::new());
        let (task_state, task_disconnected) = (state.clone(), disconnected.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (task_state, task_disconnected) = (task_state.clone(), task_disconnected.clone());
                tokio::spawn(async move {
                    // A disconnected client is what some tests are about.
                    let _result = serve(stream, &task_state, &task_disconnected).await;
                });
            }
        });
        Self { url, state, disconnected, task }
    }

    /// Returns the received requests.
    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.state.lock().unwrap().requests.clone()
    }
}

impl Drop for MisbehavingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>, disconnected: &Notify) -> std::io::Result<()> {
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
    let request =
        ReceivedRequest { path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) };
    let answer = {
        let mut state = state.lock().unwrap();
        state.requests.push(request);
        state.answers.pop_front().unwrap_or_default()
    };
    let mut stream = reader.into_inner();
    for step in answer {
        match step {
            ConnectionStep::Send(bytes) => stream.write_all(&bytes).await?,
            ConnectionStep::Flood(bytes, total) => {
                let bytes = bytes.repeat((64 << 10) / bytes.len());
                let mut sent = 0;
                while sent < total && stream.write_all(bytes.as_bytes()).await.is_ok() {
                    sent += bytes.len();
                    state.lock().unwrap().flooded_bytes = sent;
                }
            }
            ConnectionStep::Stall => {
                let mut buffer = [0; 64];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                disconnected.notify_one();
            }
            ConnectionStep::Reset => {
                stream.set_zero_linger()?;
                return Ok(());
            }
        }
    }
    stream.shutdown().await
}

/// Returns a successful answer that ends with the connection.
pub(super) fn streaming_answer(body: impl AsRef<[u8]>) -> Vec<ConnectionStep> {
    vec![ConnectionStep::Send(streaming_bytes(body))]
}

/// Returns the bytes of a successful answer.
pub(super) fn streaming_bytes(body: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    bytes.extend_from_slice(body.as_ref());
    bytes
}

/// Returns an answer with this status, these headers and this body.
pub(super) fn status_answer(status: &str, headers: &str, body: &str) -> Vec<ConnectionStep> {
    let length = body.len();
    let response =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}");
    vec![ConnectionStep::Send(response.into_bytes())]
}
