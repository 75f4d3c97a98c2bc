//! One call of a tool on its way: what the client is told of it, and what the model gets back.

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_state::audit::Action;
use bowline_state::conversation::{Input, ToolResult, ToolUse};
use bowline_state::display;
use bowline_state::paths::{LexicalPath, PathFault};
use bowline_state::question::Item;
use bowline_state::schema::v1::{
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdateFields, ToolKind,
};
use bowline_state::tooling::input::Fields;
use bowline_state::{builders, operation};
use bowline_workspace::files::Asker;
use serde_json::Value;

use super::{Calling, Inner, Ran};
use crate::permission::{No, Wish};
use crate::reporter::ReportError;
use crate::runtime::{Runtimes, Server};

/// The longest title of a call, in bytes.
const MAX_TITLE: usize = 200;

/// As much of a result is shown to the user as text, in bytes: the model gets more.
const MAX_CONTENT: usize = 16 << 10;

/// A call on its way.
pub(crate) struct Work<'w> {
    pub(crate) tools: &'w Inner,
    pub(crate) call: &'w ToolUse,
    pub(crate) cx: &'w Calling,
    started: AtomicBool,
    // The client shows something of it.
    shows: AtomicBool,
}

/// What a call came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// What the model reads.
    pub(crate) text: String,
    /// Whether the call failed.
    pub(crate) failed: bool,
    /// What the client shows from now on; nothing leaves what it shows as it is.
    pub(crate) content: Option<Vec<ToolCallContent>>,
    /// Where it was done, if that is known better by now.
    pub(crate) locations: Option<Vec<ToolCallLocation>>,
    /// The raw output.
    pub(crate) output: Option<Value>,
    /// Pictures for the model.
    pub(crate) images: Vec<(String, std::sync::Arc<str>)>,
}

/// Why a call goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The turn is cancelled.
    Cancelled,
    /// It failed.
    Failed(Box<Done>),
}

impl From<No> for Stop {
    fn from(no: No) -> Self {
        match no {
            No::Cancelled => Self::Cancelled,
            No::Denied { told, why: None } => told.into(),
            No::Denied { told, why: Some(why) } => {
                // Where rules lie concerns their owner, who sees the call, and not the model.
                let content = Some(vec![builders::text(display::line(&why, MAX_CONTENT))]);
                Self::Failed(Box::new(Done { text: told, failed: true, content, ..Done::default() }))
            }
        }
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Failed(Box::new(Done { text, failed: true, ..Done::default() }))
    }
}

impl Stop {
    /// Returns the same with what the client goes on showing, so that what was refused can still be seen.
    pub(crate) fn showing(self, shown: Vec<ToolCallContent>) -> Self {
        match self {
            Self::Failed(mut done) => {
                let why = || vec![builders::text(display::block(&done.text, 400, MAX_CONTENT).text)];
                let why = done.content.take().unwrap_or_else(why);
                done.content = Some(shown.into_iter().chain(why).collect());
                Self::Failed(done)
            }
            stop => stop,
        }
    }
}

impl<'w> Work<'w> {
    pub(crate) fn new(tools: &'w Inner, call: &'w ToolUse, cx: &'w Calling) -> Self {
        Self { tools, call, cx, started: AtomicBool::new(false), shows: AtomicBool::new(false) }
    }

    /// Returns what serves the session.
    pub(crate) fn runtimes(&self) -> &'w Runtimes {
        &self.tools.runtimes
    }

    /// Returns the fields that the tool is called with.
    pub(crate) fn fields(&self) -> Result<Fields<'w>, Stop> {
        Ok(Fields::of(&self.call.input)?)
    }

    /// Returns the path that the model means.
    pub(crate) fn resolve(&self, path: &str) -> Result<LexicalPath, Stop> {
        self.runtimes().resolve(path).map_err(|fault| {
            let advice = match fault {
                PathFault::Home(_) => ": ~ is not expanded here",
                PathFault::FileUrl(_) => ": give the path alone",
                _ => "",
            };
            Stop::from(format!("{fault}{advice}"))
        })
    }

    /// Returns a path as it is told.
    pub(crate) fn shown<'p>(&self, path: &'p LexicalPath) -> &'p str {
        self.runtimes().shown(path.as_str())
    }

    /// Returns who does something, as the journal has it.
    pub(crate) fn asker(&self) -> Asker {
        let call = self.cx.reporter.id(&self.call.id).ok().map(|id| id.0.to_string());
        Asker { turn: Some(self.cx.turn), call }
    }

    /// Tells the client that the call begins. It is pending until it is allowed.
    pub(crate) async fn start(
        &self,
        title: &str,
        kind: ToolKind,
        build: impl FnOnce(ToolCall) -> ToolCall,
    ) -> Result<(), Stop> {
        self.started.store(true, Ordering::Relaxed);
        let title = display::line(title, MAX_TITLE);
        let name = self.call.name.clone();
        let started =
            self.cx.reporter.start(&self.call.id, |id| build(ToolCall::new(id, title).kind(kind).name(name)));
        match started.await {
            Err(ReportError::Call(error)) => Err(Stop::from(format!("the call was not made: {error}"))),
            // A client that is gone need not be told; what is asked of it will say so.
            Ok(()) | Err(ReportError::Client(_)) => Ok(()),
        }
    }

    /// Tells the client more of the call.
    pub(crate) async fn show(&self, fields: ToolCallUpdateFields) {
        self.shows.fetch_or(fields.content.is_some(), Ordering::Relaxed);
        // As above.
        self.cx.reporter.progress(&self.call.id, fields).await.ok();
    }

    /// Tells the client that the call is being carried out.
    pub(crate) async fn runs(&self) {
        self.show(ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await;
    }

    /// Tells the client how the call ended, and returns what the model is told.
    pub(crate) async fn finish(&self, outcome: Result<Done, Stop>) -> Ran {
        let done = match outcome {
            Ok(done) => done,
            Err(Stop::Failed(done)) => *done,
            Err(Stop::Cancelled) => return Ran::Cancelled,
        };
        if !self.started.load(Ordering::Relaxed) && !done.failed {
            // Not every tool does something that a client shows as a call.
            return Ran::Result(ToolResult::done(self.call, done.text));
        }
        if !self.started.load(Ordering::Relaxed) {
            let input = match &self.call.input {
                Input::Value(input) => Some(input.clone()),
                Input::Broken { .. } => None,
            };
            let title = if self.call.name.is_empty() { "a tool without a name" } else { &self.call.name };
            if let Err(Stop::Failed(other)) =
                self.start(title, ToolKind::Other, |call| call.raw_input(input)).await
            {
                return Ran::Result(ToolResult::failed(self.call, other.text));
            }
        }
        let status = if done.failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let is_bare = !self.shows.load(Ordering::Relaxed);
        let content = done.content.or_else(|| {
            (done.failed && is_bare)
                .then(|| vec![builders::text(display::block(&done.text, 400, MAX_CONTENT).text)])
        });
        let fields = ToolCallUpdateFields::new()
            .content(content)
            .locations(done.locations)
            .raw_output(done.output.unwrap_or_else(|| Value::String(done.text.clone())));
        self.cx.reporter.finish(&self.call.id, status, fields).await.ok();
        let result = if done.failed {
            ToolResult::failed(self.call, done.text)
        } else {
            ToolResult::done(self.call, done.text)
        };
        Ran::Result(ToolResult { images: done.images, ..result })
    }

    /// Returns a file operation as rules judge it.
    pub(crate) async fn operation(
        &self,
        kind: operation::Kind,
        path: &LexicalPath,
    ) -> Result<operation::Operation, Stop> {
        let judged = self.runtimes().operation(kind, path).await;
        judged.map_err(|failure| Stop::from(format!("{}: {failure}", self.shown(path))))
    }

    /// Returns what is to be looked at, as rules judge it and a person is asked about it.
    pub(crate) async fn looks(&self, by: Server, path: &LexicalPath, title: &str) -> Result<Wish, Stop> {
        let item = Item::plain(self.operation(operation::Kind::Read, path).await?);
        let wish = Wish { action: Action::Read, title: title.to_owned(), item };
        match self.tools.out_of_reach(by, &wish.item.operation).await {
            Some(told) => Err(self.tools.permissions.refuse(self.cx, &wish, told).await.into()),
            None => Ok(wish),
        }
    }
}

/// Returns where a call works.
pub(crate) fn location(path: &LexicalPath, line: Option<u64>) -> ToolCallLocation {
    let line = line.map(|line| u32::try_from(line).unwrap_or(u32::MAX));
    ToolCallLocation::new(path.as_str()).line(line)
}

/// Returns a result's text as a client shows it.
pub(crate) fn excerpt(text: &str) -> Vec<ToolCallContent> {
    vec![builders::text(display::block(&text.replace("\r\n", "\n"), 1000, MAX_CONTENT).text)]
}

/// Returns raw input without what was not said.
pub(crate) fn without_nulls(mut input: Value) -> Value {
    if let Value::Object(fields) = &mut input {
        fields.retain(|_, value| !value.is_null());
    }
    input
}
