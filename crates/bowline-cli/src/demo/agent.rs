//! The agent of the demo: no model, but every operation of a real one, reported as a real one does.

use std::sync::atomic::{AtomicU32, Ordering};

use bowline_state::builders::{diff, start, start_edit, start_read, terminal};
use bowline_state::permission::{Ask, PermissionBroker, Verdict};
use bowline_state::tracker::ToolCallTracker;
use bowline_wire::schema::v1::{
    ContentBlock, ContentChunk, CreateTerminalRequest, Error, Implementation, InitializeRequest,
    InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReleaseTerminalRequest, SessionId, SessionUpdate, StopReason, TerminalOutputRequest,
    ToolCall, ToolCallStatus, ToolCallUpdateFields, ToolKind, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_wire::{Agent, AgentContext, CallError, ClientHandle, run_agent};

/// Serves the client on stdin and stdout until it is gone.
pub(crate) async fn run() -> std::io::Result<()> {
    run_agent(DemoAgent::default()).await
}

#[derive(Default)]
struct DemoAgent {
    sessions: AtomicU32,
}

impl Agent for DemoAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        let info = Implementation::new("bowline-demo", env!("CARGO_PKG_VERSION"));
        Ok(InitializeResponse::new(request.protocol_version).agent_info(info))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(NewSessionResponse::new(format!("demo-{number}")))
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        let text = match request.prompt.into_iter().next() {
            Some(ContentBlock::Text(text)) => text.text,
            _ => return Err(Error::invalid_params()),
        };
        let mut turn = Turn {
            client: cx.client().clone(),
            session: request.session_id,
            calls: ToolCallTracker::with_prefix(format!("{}-", cx.request_id())),
        };
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("show"), Some(path), None, None) => {
                turn.show(ReadTextFileRequest::new(turn.session.clone(), path)).await?
            }
            (Some("line"), Some(line), Some("of"), Some(path)) => {
                let line: u32 = line.parse().map_err(Error::into_internal_error)?;
                turn.show(ReadTextFileRequest::new(turn.session.clone(), path).line(line).limit(1)).await?;
            }
            (Some("bump"), Some(path), None, None) => turn.edit(path, BUMP).await?,
            (Some("rename"), Some(path), None, None) => turn.edit(path, RENAME).await?,
            (Some("run"), Some(_), ..) => turn.run(text["run".len()..].trim()).await?,
            (Some("wait"), ..) => {
                turn.say("I wait until you cancel.").await?;
                cx.cancelled().await;
                return Ok(PromptResponse::new(StopReason::Cancelled));
            }
            _ => {
                turn.say("I know: show PATH, line N of PATH, bump PATH, rename PATH, run COMMAND, wait.")
                    .await?
            }
        }
        Ok(PromptResponse::new(StopReason::EndTurn))
    }
}

/// What the agent can replace.
struct Edit {
    title: &'static str,
    why: &'static str,
    old: &'static str,
    new: &'static str,
    done: &'static str,
}

const BUMP: Edit = Edit {
    title: "Set the version to 2.0.0",
    why: "The next release is a major one.",
    old: "1.0.0",
    new: "2.0.0",
    done: "Done: the version is 2.0.0 now.",
};

const RENAME: Edit = Edit {
    title: "Call the version a release",
    why: "That is what users call it.",
    old: "\"version\"",
    new: "\"release\"",
    done: "Done: it is called release now.",
};

struct Turn {
    client: ClientHandle,
    session: SessionId,
    calls: ToolCallTracker,
}

impl Turn {
    /// Says something in small pieces, as a model does.
    async fn say(&self, text: &str) -> Result<(), CallError> {
        for piece in text.split_inclusive(' ') {
            let chunk = ContentChunk::new(piece.into());
            self.client.update(self.session.clone(), SessionUpdate::AgentMessageChunk(chunk)).await?;
        }
        Ok(())
    }

    async fn start(&mut self, name: &str, call: impl FnOnce(String) -> ToolCall) -> Result<(), Error> {
        let call = self.calls.start(name, |id| call(id.to_string())).map_err(Error::into_internal_error)?;
        Ok(self.client.update(self.session.clone(), call).await?)
    }

    async fn progress(&mut self, name: &str, fields: ToolCallUpdateFields) -> Result<(), Error> {
        match self.calls.progress(name, fields).map_err(Error::into_internal_error)? {
            Some(update) => Ok(self.client.update(self.session.clone(), update).await?),
            None => Ok(()),
        }
    }

    /// Reads through the client, as a tool call. A failure is reported and told, and the turn goes on.
    async fn read(&mut self, request: ReadTextFileRequest) -> Result<Option<String>, Error> {
        let path = request.path.clone();
        self.start("read", |id| start_read(id, format!("Read {}", path.display()), &path)).await?;
        let read = self.client.read_text_file(request).await;
        let status = if read.is_ok() { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        self.progress("read", ToolCallUpdateFields::new().status(status)).await?;
        match read {
            Ok(read) => Ok(Some(read.content)),
            Err(CallError::Closed) => Err(CallError::Closed.into()),
            Err(error) => {
                self.say(&format!("I cannot read it: {error}")).await?;
                Ok(None)
            }
        }
    }

    async fn show(&mut self, request: ReadTextFileRequest) -> Result<(), Error> {
        if let Some(text) = self.read(request).await? {
            self.say(&text).await?;
        }
        Ok(())
    }

    /// Replaces something in a file, if the user agrees.
    async fn edit(&mut self, path: &str, edit: Edit) -> Result<(), Error> {
        let Some(old) = self.read(ReadTextFileRequest::new(self.session.clone(), path)).await? else {
            return Ok(());
        };
        let new = old.replace(edit.old, edit.new);
        let change = vec![diff(path, Some(&old), &new)];
        self.start("edit", |id| start_edit(id, edit.title, path, new.clone()).content(change)).await?;

        let approved = self.asks("edit", edit.why).await?;
        if !approved {
            self.progress("edit", ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
            self.say("You said no, so I left it as it is.").await?;
            return Ok(());
        }
        self.progress("edit", ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await?;
        match self.client.write_text_file(WriteTextFileRequest::new(self.session.clone(), path, new)).await {
            Ok(_) => {
                self.progress("edit", ToolCallUpdateFields::new().status(ToolCallStatus::Completed)).await?;
                self.say(edit.done).await?;
            }
            Err(error) => {
                self.progress("edit", ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
                self.say(&format!("I cannot write it: {error}")).await?;
            }
        }
        Ok(())
    }

    /// Asks for permission to go on with a tool call.
    async fn asks(&mut self, name: &str, why: &str) -> Result<bool, Error> {
        let broker = PermissionBroker::new(self.session.clone());
        let ask = Ask { description: Some(why.to_owned()), ..Ask::default() };
        let request = broker.request_for(&self.calls, name, ask).map_err(Error::into_internal_error)?;
        let options = request.options.clone();
        let answer = self.client.request_permission(request).await?;
        Ok(Verdict::of(&options, &answer.outcome).is_ok_and(|verdict| verdict.is_approved()))
    }

    /// Runs a command in a terminal of the client, if the user agrees.
    async fn run(&mut self, command: &str) -> Result<(), Error> {
        let input = serde_json::json!({ "command": command });
        let title = format!("Run {command}");
        self.start("run", |id| start(id, title).kind(ToolKind::Execute).raw_input(input)).await?;
        if !self.asks("run", "To see what it says.").await? {
            self.progress("run", ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
            return Ok(self.say("I may not, so I did not.").await?);
        }
        let created =
            self.client.create_terminal(CreateTerminalRequest::new(self.session.clone(), command)).await;
        let id = match created {
            Ok(created) => created.terminal_id,
            Err(error) => {
                self.progress("run", ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
                return Ok(self.say(&format!("I cannot run it: {error}")).await?);
            }
        };
        let running = ToolCallUpdateFields::new()
            .status(ToolCallStatus::InProgress)
            .content(vec![terminal(id.clone())]);
        self.progress("run", running).await?;
        let wait = WaitForTerminalExitRequest::new(self.session.clone(), id.clone());
        let exit = self.client.wait_for_terminal_exit(wait).await?.exit_status;
        let output =
            self.client.terminal_output(TerminalOutputRequest::new(self.session.clone(), id.clone())).await?;
        self.client.release_terminal(ReleaseTerminalRequest::new(self.session.clone(), id)).await?;
        let succeeded = exit.exit_code == Some(0);
        let status = if succeeded { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        self.progress("run", ToolCallUpdateFields::new().status(status)).await?;
        let said = if output.output.is_empty() { "It said nothing." } else { &output.output };
        Ok(self.say(said).await?)
    }
}
