//! The floor's agent: the tasks `read` and `stream` of `tests/peers/README.md`, as fast as simple code gets.

use std::fs::File;
use std::os::fd::AsFd;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, ContentBlock, ContentChunk, Implementation, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReadTextFileResponse, SessionId, SessionNotification, SessionUpdate, StopReason,
};
use anyhow::{Context, Result, bail};
use bowline_benches::floor::{FloorMessage, FloorReader, FloorWriter};
use test_support::contract::PeerTask;

fn main() -> Result<()> {
    let mut agent = FloorAgent {
        lines: FloorReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?)),
        outbox: FloorWriter::new(File::from(std::io::stdout().as_fd().try_clone_to_owned()?)),
        sessions: 0,
    };
    while agent.serve_next()? {}
    Ok(())
}

struct FloorAgent {
    lines: FloorReader<File>,
    outbox: FloorWriter<File>,
    sessions: usize,
}

impl FloorAgent {
    /// Answers the client's next request. Returns `false` if the client has closed our input.
    fn serve_next(&mut self) -> Result<bool> {
        let Some(line) = self.lines.read_line()? else { return Ok(false) };
        let message = FloorMessage::parse(line)?;
        let (Some(method), Some(id)) = (message.method, message.id) else {
            bail!("the floor takes requests only");
        };
        if method == AGENT_METHOD_NAMES.initialize {
            let request: InitializeRequest = message.params()?;
            let info = Implementation::new("floor", env!("CARGO_PKG_VERSION"));
            self.outbox.respond(id, &InitializeResponse::new(request.protocol_version).agent_info(info))?;
        } else if method == AGENT_METHOD_NAMES.session_new {
            let _: NewSessionRequest = message.params()?;
            self.sessions += 1;
            self.outbox.respond(id, &NewSessionResponse::new(format!("session_{}", self.sessions)))?;
        } else if method == AGENT_METHOD_NAMES.session_prompt {
            let (id, prompt) = (id.to_owned(), message.params()?);
            self.turn(prompt)?;
            self.outbox.respond(&id, &PromptResponse::new(StopReason::EndTurn))?;
        } else {
            bail!("the floor does not serve {method}");
        }
        self.outbox.flush()?;
        Ok(true)
    }

    fn turn(&mut self, prompt: PromptRequest) -> Result<()> {
        let Some(ContentBlock::Text(text)) = prompt.prompt.first() else { bail!("the prompt has no text") };
        match PeerTask::from_text(&text.text).context("the floor echoes nothing")? {
            PeerTask::Read { path, count, inflight } => self.read(&prompt.session_id, &path, count, inflight),
            PeerTask::Stream { count, size } => {
                let text = "x".repeat(size);
                (0..count).try_for_each(|_| self.chunk(&prompt.session_id, text.clone()))
            }
            PeerTask::Flow { .. } | PeerTask::Wait => bail!("the floor serves read and stream only"),
        }
    }

    fn read(&mut self, session: &SessionId, path: &str, count: usize, inflight: usize) -> Result<()> {
        let (mut sent, mut bytes) = (0, 0);
        for received in 0..count {
            while sent < count && sent - received < inflight {
                let request = ReadTextFileRequest::new(session.clone(), path);
                self.outbox.request(sent, CLIENT_METHOD_NAMES.fs_read_text_file, &request)?;
                sent += 1;
            }
            if !self.lines.has_line() {
                self.outbox.flush()?;
            }
            let answer: ReadTextFileResponse = self.lines.read_message()?.result()?;
            bytes += answer.content.len();
        }
        self.chunk(session, format!(r#"{{"reads":{count},"bytes":{bytes}}}"#))
    }

    fn chunk(&mut self, session: &SessionId, text: String) -> Result<()> {
        let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        let notification = SessionNotification::new(session.clone(), update);
        self.outbox.notify(CLIENT_METHOD_NAMES.session_update, &notification)
    }
}
