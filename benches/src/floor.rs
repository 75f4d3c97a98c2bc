//! The floor's connection: lines in a reused buffer and a `RawValue` envelope, on one thread.
//!
//! This is the speed of simple code with the schema's types, `serde_json` and blocking pipes. It has no limits, no
//! cancellation and no second thread: it deadlocks if both peers write more than a pipe holds (64 KiB) at the same
//! time, so it is fit only for the benchmark's tasks.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The initial size of the reader's buffer, and the amount that the writer gathers before it writes: the capacity of a
/// pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// The lines from a peer.
#[derive(Debug)]
pub struct FloorReader<R> {
    source: R,
    buffer: Vec<u8>,
    // Invariant: start <= end <= buffer.len(); the bytes between them are read and not yet returned.
    start: usize,
    end: usize,
}

impl<R: Read> FloorReader<R> {
    /// Reads lines from `source`.
    pub fn new(source: R) -> Self {
        Self { source, buffer: vec![0; PIPE_BYTES], start: 0, end: 0 }
    }

    /// Returns the next line without its newline, or `None` at the end.
    pub fn read_line(&mut self) -> Result<Option<&[u8]>> {
        let mut scanned = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[scanned..self.end]) {
                let line = self.start..scanned + at;
                self.start = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            scanned = self.end;
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(None),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read from the peer"),
            }
        }
    }

    /// Returns the next message. The end of the stream is an error.
    pub fn read_message(&mut self) -> Result<FloorMessage<'_>> {
        FloorMessage::parse(self.read_line()?.context("the peer has closed its output")?)
    }

    /// Returns whether a whole line is buffered, so that pending output need not be flushed first.
    pub fn has_line(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer[self.start..self.end]).is_some()
    }
}

/// One message with an undecoded payload.
#[derive(Debug, Deserialize)]
pub struct FloorMessage<'a> {
    /// The id of a request or response.
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    /// The method of a request or notification.
    pub method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> FloorMessage<'a> {
    /// Parses the envelope of one line.
    pub fn parse(line: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(line).context("cannot read a message")
    }

    /// Decodes the parameters.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T> {
        let params = self.params.context("a message has no params")?;
        serde_json::from_str(params.get()).context("cannot read params")
    }

    /// Decodes the result of a response.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T> {
        if let Some(error) = self.error {
            anyhow::bail!("the peer answered with the error {error}");
        }
        let result = self.result.context("an answer has no result")?;
        serde_json::from_str(result.get()).context("cannot read a result")
    }
}

/// The lines to a peer.
#[derive(Debug)]
pub struct FloorWriter<W> {
    sink: W,
    buffer: Vec<u8>,
}

impl<W: Write> FloorWriter<W> {
    /// Writes lines to `sink`.
    pub fn new(sink: W) -> Self {
        Self { sink, buffer: Vec::with_capacity(2 * PIPE_BYTES) }
    }

    /// Adds a request.
    pub fn request<P: Serialize>(&mut self, id: usize, method: &str, params: &P) -> Result<()> {
        #[derive(Serialize)]
        struct FloorRequest<'a, P> {
            jsonrpc: &'a str,
            id: usize,
            method: &'a str,
            params: &'a P,
        }
        self.push(&FloorRequest { jsonrpc: "2.0", id, method, params })
    }

    /// Adds the response to the request `id`.
    pub fn respond<R: Serialize>(&mut self, id: &RawValue, result: &R) -> Result<()> {
        #[derive(Serialize)]
        struct FloorResponse<'a, R> {
            jsonrpc: &'a str,
            id: &'a RawValue,
            result: &'a R,
        }
        self.push(&FloorResponse { jsonrpc: "2.0", id, result })
    }

    /// Adds a notification.
    pub fn notify<P: Serialize>(&mut self, method: &str, params: &P) -> Result<()> {
        #[derive(Serialize)]
        struct FloorNotification<'a, P> {
            jsonrpc: &'a str,
            method: &'a str,
            params: &'a P,
        }
        self.push(&FloorNotification { jsonrpc: "2.0", method, params })
    }

    /// Writes the added messages.
    pub fn flush(&mut self) -> Result<()> {
        self.sink.write_all(&self.buffer).context("cannot write to the peer")?;
        self.buffer.clear();
        Ok(())
    }

    fn push(&mut self, message: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.buffer, message)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIPE_BYTES { self.flush() } else { Ok(()) }
    }
}
