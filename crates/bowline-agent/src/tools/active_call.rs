//! A tool call in progress: its reports to the client, and its result for the model.

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_conversation::conversation::{ToolResult, ToolUse, ToolUseInput};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation;
use bowline_policy::paths::{LexicalPath, PathError};
use bowline_policy::question::QuestionItem;
use bowline_protocol::builders;
use bowline_protocol::schema::v1::{
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdateFields, ToolKind,
};
use bowline_text::display;
use bowline_tools::tools::input::ToolInputFields;
use bowline_workspace::files::Requester;
use serde_json::Value;

use super::{CallContext, ToolCallOutcome, ToolboxInner};
use crate::permission::{Denial, OperationRequest};
use crate::reporter::ReportError;
use crate::runtime::{Backend, SessionRuntime};

/// The longest title of a call, in bytes.
const MAX_TITLE_BYTES: usize = 200;

/// The longest result shown to the user as text, in bytes: the model gets more.
const MAX_CONTENT_BYTES: usize = 16 << 10;

/// A call in progress.
pub(crate) struct ActiveCall<'w> {
    pub(crate) toolbox: &'w ToolboxInner,
    pub(crate) call: &'w ToolUse,
    pub(crate) cx: &'w CallContext,
    is_started: AtomicBool,
    // Whether the client has been sent content.
    has_content: AtomicBool,
}

/// The output of a call.
#[derive(Debug, Default)]
pub(crate) struct ToolOutput {
    /// What the model reads.
    pub(crate) text: String,
    /// Whether the call failed.
    pub(crate) failed: bool,
    /// The new content for the client; `None` leaves the present content.
    pub(crate) content: Option<Vec<ToolCallContent>>,
    /// Where the call worked, if more precise than announced.
    pub(crate) locations: Option<Vec<ToolCallLocation>>,
    /// The raw output.
    pub(crate) raw_output: Option<Value>,
    /// Images for the model.
    pub(crate) images: Vec<(String, std::sync::Arc<str>)>,
}

/// Why a call ends early.
#[derive(Debug)]
pub(crate) enum CallStop {
    /// The turn is cancelled.
    Cancelled,
    /// It failed.
    Failed(Box<ToolOutput>),
}

impl From<Denial> for CallStop {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Cancelled => Self::Cancelled,
            Denial::Denied { model_message, user_message: None } => model_message.into(),
            Denial::Denied { model_message, user_message: Some(user_message) } => {
                // The location of rules is for the user, who sees the call, and not for the model.
                let content =
                    Some(vec![builders::text(display::escape_line(&user_message, MAX_CONTENT_BYTES))]);
                Self::Failed(Box::new(ToolOutput {
                    text: model_message,
                    failed: true,
                    content,
                    ..ToolOutput::default()
                }))
            }
        }
    }
}

impl From<String> for CallStop {
    fn from(text: String) -> Self {
        Self::Failed(Box::new(ToolOutput { text, failed: true, ..ToolOutput::default() }))
    }
}

impl CallStop {
    /// Keeps the content that the client shows, so that a refused change stays visible.
    pub(crate) fn with_content(self, content: Vec<ToolCallContent>) -> Self {
        match self {
            Self::Failed(mut output) => {
                let message =
                    || vec![builders::text(display::escape_block(&output.text, 400, MAX_CONTENT_BYTES).text)];
                let message = output.content.take().unwrap_or_else(message);
                output.content = Some(content.into_iter().chain(message).collect());
                Self::Failed(output)
            }
            stop => stop,
        }
    }
}

impl<'w> ActiveCall<'w> {
    pub(crate) fn new(tools: &'w ToolboxInner, call: &'w ToolUse, cx: &'w CallContext) -> Self {
        Self {
            toolbox: tools,
            call,
            cx,
            is_started: AtomicBool::new(false),
            has_content: AtomicBool::new(false),
        }
    }

    /// Returns the session's backends.
    pub(crate) fn runtime(&self) -> &'w SessionRuntime {
        &self.toolbox.runtime
    }

    /// Returns the fields of the tool's input.
    pub(crate) fn fields(&self) -> Result<ToolInputFields<'w>, CallStop> {
        Ok(ToolInputFields::from_input(&self.call.input)?)
    }

    /// Resolves a path given by the model.
    pub(crate) fn resolve_path(&self, path: &str) -> Result<LexicalPath, CallStop> {
        self.runtime().resolve_path(path).map_err(|error| {
            let advice = match error {
                PathError::HomeRelative(_) => ": ~ is not expanded here",
                PathError::FileUrl(_) => ": give the path alone",
                _ => "",
            };
            CallStop::from(format!("{error}{advice}"))
        })
    }

    /// Returns a path for display.
    pub(crate) fn display_path<'p>(&self, path: &'p LexicalPath) -> &'p str {
        self.runtime().display_path(path.as_str())
    }

    /// Returns the requester, as recorded in the journal.
    pub(crate) fn asker(&self) -> Requester {
        let call = self.cx.reporter.wire_id(&self.call.id).ok().map(|id| id.0.to_string());
        Requester { turn: Some(self.cx.turn), call }
    }

    /// Announces the call to the client. It is pending until it is allowed.
    pub(crate) async fn announce(
        &self,
        title: &str,
        kind: ToolKind,
        build: impl FnOnce(ToolCall) -> ToolCall,
    ) -> Result<(), CallStop> {
        self.is_started.store(true, Ordering::Relaxed);
        let title = display::escape_line(title, MAX_TITLE_BYTES);
        let name = self.call.name.clone();
        let started = self
            .cx
            .reporter
            .start_call(&self.call.id, |id| build(ToolCall::new(id, title).kind(kind).name(name)));
        match started.await {
            Err(ReportError::Call(error)) => Err(CallStop::from(format!("the call was not made: {error}"))),
            // A disconnected client cannot be notified; the next request to it will fail.
            Ok(()) | Err(ReportError::Client(_)) => Ok(()),
        }
    }

    /// Updates the call at the client.
    pub(crate) async fn update(&self, fields: ToolCallUpdateFields) {
        self.has_content.fetch_or(fields.content.is_some(), Ordering::Relaxed);
        // As above.
        self.cx.reporter.update_call(&self.call.id, fields).await.ok();
    }

    /// Reports to the client that the call is running.
    pub(crate) async fn mark_running(&self) {
        self.update(ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await;
    }

    /// Reports the end of the call to the client, and returns the result for the model.
    pub(crate) async fn finish(&self, outcome: Result<ToolOutput, CallStop>) -> ToolCallOutcome {
        let output = match outcome {
            Ok(output) => output,
            Err(CallStop::Failed(output)) => *output,
            Err(CallStop::Cancelled) => return ToolCallOutcome::Cancelled,
        };
        if !self.is_started.load(Ordering::Relaxed) && !output.failed {
            // Tools that are not shown as calls were never announced.
            return ToolCallOutcome::Result(ToolResult::success(self.call, output.text));
        }
        if !self.is_started.load(Ordering::Relaxed) {
            let input = match &self.call.input {
                ToolUseInput::Value(input) => Some(input.clone()),
                ToolUseInput::Broken { .. } => None,
            };
            let title = if self.call.name.is_empty() { "a tool without a name" } else { &self.call.name };
            if let Err(CallStop::Failed(failure)) =
                self.announce(title, ToolKind::Other, |call| call.raw_input(input)).await
            {
                return ToolCallOutcome::Result(ToolResult::failure(self.call, failure.text));
            }
        }
        let status = if output.failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let lacks_content = !self.has_content.load(Ordering::Relaxed);
        let content = output.content.or_else(|| {
            (output.failed && lacks_content).then(|| {
                vec![builders::text(display::escape_block(&output.text, 400, MAX_CONTENT_BYTES).text)]
            })
        });
        let fields = ToolCallUpdateFields::new()
            .content(content)
            .locations(output.locations)
            .raw_output(output.raw_output.unwrap_or_else(|| Value::String(output.text.clone())));
        self.cx.reporter.finish_call(&self.call.id, status, fields).await.ok();
        let result = if output.failed {
            ToolResult::failure(self.call, output.text)
        } else {
            ToolResult::success(self.call, output.text)
        };
        ToolCallOutcome::Result(ToolResult { images: output.images, ..result })
    }

    /// Returns a file operation as the policy judges it.
    pub(crate) async fn file_operation(
        &self,
        kind: operation::OperationKind,
        path: &LexicalPath,
    ) -> Result<operation::Operation, CallStop> {
        let operation = self.runtime().file_operation(kind, path).await;
        operation.map_err(|failure| CallStop::from(format!("{}: {failure}", self.display_path(path))))
    }

    /// Returns a read as the policy judges it and the user is asked about it.
    pub(crate) async fn read_request(
        &self,
        backend: Backend,
        path: &LexicalPath,
        title: &str,
    ) -> Result<OperationRequest, CallStop> {
        let item = QuestionItem::new(self.file_operation(operation::OperationKind::Read, path).await?);
        let request =
            OperationRequest { action: AuditAction::Read, title: title.to_owned(), items: vec![item] };
        match self.toolbox.explain_out_of_reach(backend, &request).await {
            Some(message) => {
                Err(self.toolbox.permissions.record_refusal(self.cx, &request, message).await.into())
            }
            None => Ok(request),
        }
    }
}

/// Returns a location for the client.
pub(crate) fn location(path: &LexicalPath, line: Option<u64>) -> ToolCallLocation {
    let line = line.map(|line| u32::try_from(line).unwrap_or(u32::MAX));
    ToolCallLocation::new(path.as_str()).line(line)
}

/// Returns a result's text as the client shows it.
pub(crate) fn excerpt(text: &str) -> Vec<ToolCallContent> {
    vec![builders::text(display::escape_block(&text.replace("\r\n", "\n"), 1000, MAX_CONTENT_BYTES).text)]
}

/// Returns raw input without its null fields.
pub(crate) fn without_nulls(mut input: Value) -> Value {
    if let Value::Object(fields) = &mut input {
        fields.retain(|_, value| !value.is_null());
    }
    input
}
