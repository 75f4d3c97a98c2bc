//! The floor's connection: lines in a reused buffer and a `RawValue` envelope, on one thread.
//!
//! This is what simple code gets from the schema's types, `serde_json` and blocking pipes. It has no
//! limits, no cancellation and no second thread: whoever writes more than a pipe holds (64 KiB) while the
//! peer does the same waits for ever, so it serves the benchmark's tasks and nothing else.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Where the reader's buffer starts, and how much the writer gathers before it writes: what a pipe holds.
const PIPE: usize = 64 * 1024;

/// The lines that come from a peer.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    // Invariant: start <= end <= buffer.len(); what lies between them is read and not yet returned.
    start: usize,
    end: usize,
}

impl<R: Read> Lines<R> {
    /// Reads lines from `source`.
    pub fn new(source: R) -> Self {
        Self { source, buffer: vec![0; PIPE], start: 0, end: 0 }
    }

    /// Returns the next line without its newline, `None` at the end.
    pub fn read(&mut self) -> Result<Option<&[u8]>> {
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

    /// Returns the next message, an error at the end.
    pub fn message(&mut self) -> Result<Message<'_>> {
        Message::parse(self.read()?.context("the peer has closed its output")?)
    }

    /// Tells whether a whole line is here already, so that nothing written yet needs to go out first.
    pub fn at_hand(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer[self.start..self.end]).is_some()
    }
}

/// One message, its payload not decoded yet.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    /// The id of a request or of an answer.
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    /// The method of a request or of a notification.
    pub method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// Reads the envelope of one line.
    pub fn parse(line: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(line).context("cannot read a message")
    }

    /// Decodes the parameters.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T> {
        let params = self.params.context("a message has no params")?;
        serde_json::from_str(params.get()).context("cannot read params")
    }

    /// Decodes the result of an answer.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T> {
        if let Some(error) = self.error {
            anyhow::bail!("the peer answered with the error {error}");
        }
        let result = self.result.context("an answer has no result")?;
        serde_json::from_str(result.get()).context("cannot read a result")
    }
}

/// The lines that go to a peer.
#[derive(Debug)]
pub struct Outbox<W> {
    sink: W,
    buffer: Vec<u8>,
}

impl<W: Write> Outbox<W> {
    /// Writes lines to `sink`.
    pub fn new(sink: W) -> Self {
        Self { sink, buffer: Vec::with_capacity(2 * PIPE) }
    }

    /// Adds a request.
    pub fn request<P: Serialize>(&mut self, id: usize, method: &str, params: &P) -> Result<()> {
        #[derive(Serialize)]
        struct Request<'a, P> {
            jsonrpc: &'a str,
            id: usize,
            method: &'a str,
            params: &'a P,
        }
        self.push(&Request { jsonrpc: "2.0", id, method, params })
    }

    /// Adds the answer to the request `id`.
    pub fn answer<R: Serialize>(&mut self, id: &RawValue, result: &R) -> Result<()> {
        #[derive(Serialize)]
        struct Answer<'a, R> {
            jsonrpc: &'a str,
            id: &'a RawValue,
            result: &'a R,
        }
        self.push(&Answer { jsonrpc: "2.0", id, result })
    }

    /// Adds a notification.
    pub fn notify<P: Serialize>(&mut self, method: &str, params: &P) -> Result<()> {
        #[derive(Serialize)]
        struct Notification<'a, P> {
            jsonrpc: &'a str,
            method: &'a str,
            params: &'a P,
        }
        self.push(&Notification { jsonrpc: "2.0", method, params })
    }

    /// Writes what was added.
    pub fn flush(&mut self) -> Result<()> {
        self.sink.write_all(&self.buffer).context("cannot write to the peer")?;
        self.buffer.clear();
        Ok(())
    }

    fn push(&mut self, message: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.buffer, message)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIPE { self.flush() } else { Ok(()) }
    }
}
