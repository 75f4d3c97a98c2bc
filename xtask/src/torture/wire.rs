//! A minimal JSON-RPC connection with one message per line.
//!
//! The agent, the MCP client and the editor that torture Bowline use it, so that they share no code with Bowline.

use serde_json::{Value, json};
use std::io::{self, BufRead, ErrorKind, Write};

/// One end of a connection.
pub(super) struct JsonRpcConnection<R, W> {
    reader: R,
    writer: W,
    next_id: u64,
}

impl<R: BufRead, W: Write> JsonRpcConnection<R, W> {
    pub(super) fn new(reader: R, writer: W) -> Self {
        Self { reader, writer, next_id: 100 }
    }

    pub(super) fn send(&mut self, message: &Value) -> io::Result<()> {
        // One write per message, so that a kill of this process cuts no message in half.
        self.writer.write_all(format!("{message}\n").as_bytes())?;
        self.writer.flush()
    }

    /// Returns the next message, or `None` at the end of the stream and where a killed peer left half a line.
    pub(super) fn receive(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(serde_json::from_str(&line).ok())
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) -> io::Result<()> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    pub(super) fn answer(&mut self, request: &Value, result: &Value) -> io::Result<()> {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
    }

    pub(super) fn refuse(&mut self, request: &Value, code: i64, message: &str) -> io::Result<()> {
        let error = json!({ "code": code, "message": message });
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))
    }

    /// Sends a request and returns its id.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    /// Calls a method and waits for its response. Refuses requests of the other side meanwhile.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        let id = self.request(method, params)?;
        loop {
            let message = self.receive()?.ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?;
            if message["id"] == id && message.get("method").is_none() {
                return Ok(message);
            }
            if message.get("method").is_some() && message.get("id").is_some() {
                self.refuse(&message, -32601, "not now")?;
            }
        }
    }
}

/// Returns the text of an error response.
pub(super) fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or_default();
    match error.get("data") {
        Some(data) if data.get("hunks").is_some() => format!("conflict: {message}"),
        Some(data) => format!("{message} {data}"),
        None => message.to_owned(),
    }
}
