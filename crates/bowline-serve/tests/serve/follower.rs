//! A client that records what it sees of a session. The tests with servers in processes of their own use it, too.

use std::path::Path;

use serde_json::{Value, json};

use crate::checker::Record;
use crate::client::{Client, Stream, describe};

/// A client that records what it sees of a session.
pub(crate) struct Follower {
    pub(crate) client: Client,
    pub(crate) own: Stream,
    pub(crate) stream: Option<Stream>,
    pub(crate) record: Record,
}

impl Follower {
    pub(crate) async fn new(client: Client) -> Self {
        let own = client.stream(None, None).await;
        let record = Record {
            connections: vec![client.connection.clone()],
            after: 0,
            history_until: 0,
            seen: Vec::new(),
        };
        Self { client, own, stream: None, record }
    }

    pub(crate) fn last(&self) -> u64 {
        self.record.seen.last().map_or(self.record.after, |(seq, _)| *seq)
    }

    /// Returns what a client says when it connects to take over this one's connection.
    pub(crate) fn resumption(&self) -> Value {
        json!({ "bowline": { "resumes": self.client.connection } })
    }

    /// Goes on as another client, which has taken over this one's connection, after the last event that it saw.
    pub(crate) async fn continue_as(self, client: Client, session: &str) -> Self {
        let last = self.last();
        let mut record = self.record;
        record.connections.insert(0, client.connection.clone());
        let own = client.stream(None, None).await;
        let stream = Some(client.stream(Some(session), Some(last)).await);
        Self { client, own, stream, record }
    }

    /// Opens a session, and returns its id once its first update has come.
    pub(crate) async fn open(&mut self, cwd: &Path) -> String {
        self.client.request(1, "session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        let response = self.own.next().await.1;
        let session = response["result"]["sessionId"].as_str().unwrap().to_owned();
        self.stream = Some(self.client.stream(Some(&session), None).await);
        self.next().await;
        session
    }

    /// Loads a session that another client opened, and returns the response. `last_event` returns the number of the last
    /// event of the session.
    pub(crate) async fn load(
        &mut self,
        session: &str,
        cwd: &Path,
        last_event: impl FnOnce() -> u64,
    ) -> Value {
        self.stream = Some(self.client.stream(Some(session), None).await);
        let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
        self.client.request(1, "session/load", params).await;
        let response = self.own.next().await.1;
        self.record.history_until = last_event();
        response
    }

    pub(crate) async fn next(&mut self) -> Value {
        self.try_next().await.expect("the stream ended")
    }

    /// Returns the next message; `None` at the end of the stream.
    pub(crate) async fn try_next(&mut self) -> Option<Value> {
        let (seq, message) = self.stream.as_mut().unwrap().try_next().await?;
        if let Some(seq) = seq {
            self.record.seen.push((seq, message.clone()));
        }
        Some(message)
    }

    pub(crate) async fn until_response(&mut self, id: u64) -> Vec<String> {
        let mut shown = Vec::new();
        loop {
            let message = self.next().await;
            shown.push(describe(&message));
            if message["method"].is_null() && message["id"] == id {
                return shown;
            }
        }
    }

    pub(crate) async fn until(&mut self, text: &str) {
        while describe(&self.next().await) != text {}
    }

    pub(crate) async fn answer(&self, question: &Value, option: &str) {
        let outcome = json!({ "outcome": "selected", "optionId": option });
        self.client
            .send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } }))
            .await;
    }

    pub(crate) async fn cancel(&self, session: &str) {
        let params = json!({ "sessionId": session });
        self.client.send(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params })).await;
    }
}
