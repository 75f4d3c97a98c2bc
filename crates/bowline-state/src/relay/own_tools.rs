//! Whether an agent's permission request is for a tool of the MCP server that the proxy gave it.
//!
//! Such a tool asks the editor's user itself, with the diff or the command, or only looks at what the editor serves. An
//! agent that asks before it calls the tool makes two questions of one edit. So the proxy answers the agent's own with
//! the option that allows it once, and the user sees the one that shows more.
//!
//! What could be forged, and by whom: an agent that lies needs no permission from here, as it can write to the disk
//! without asking. But an honest agent repeats what a model or a repository made up: a title, a command, an input. If
//! that were taken for a call of our tool, the agent would do something else with our yes, and nobody would have been
//! asked. So a request counts as ours only by what the agent's own program says of it, in the shapes that agents are known
//! to have, and passes to the editor otherwise:
//! - The server's name is not enough. A repository may configure a server `bowline` of its own, and some agents then leave out
//!   ours. Whoever asks here has to know that the agent has met our server under its name.
//! - A file that holds secrets is asked about, by whatever tool it is read.
//! - What else a request has to say, agent by agent, is a table: `own_tools/shapes.rs`.

use std::collections::{BTreeMap, VecDeque};

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionId, PermissionOptionKind, ToolCallId, ToolCallStatus, ToolKind,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use self::shapes::{Check, InputAt, OMITTED, SHAPES, TITLE, ToolName, tool_in};
use super::ToolCallSeen;
use crate::paths::{Access, protecting};

mod shapes;

/// So many calls that may be ours are known of a session; the oldest go, and what is asked for those passes.
pub const MAX_CALLS: usize = 256;

/// A tool of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTool {
    /// Its name, as the server has it.
    pub name: &'static str,
    /// What it does before it acts.
    pub care: Care,
    /// The names of its arguments.
    pub arguments: Vec<String>,
}

/// What a tool does before it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// It asks the user, and then changes a file.
    AsksToWrite,
    /// It asks the user, and then runs a command.
    AsksToRun,
    /// It only looks, or ends what the user has allowed to run.
    Looks,
}

/// Whether rules were asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// There are none: whoever serves a tool that only looks decides.
    Off,
    /// They leave it to a person, so that one has to be asked: by a tool that does, else by the agent's request.
    LeaveOpen,
}

/// The tools of the server that one session was given.
#[derive(Debug)]
pub struct OwnTools {
    server: String,
    tools: Vec<OwnTool>,
    // The calls that are open and may be ours, oldest first. Invariant: at most `MAX_CALLS`, each once.
    calls: VecDeque<(ToolCallId, Announced)>,
}

/// What an agent has told of a call that may be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    /// A title that names server and tool; which, by its place among the tools.
    Titled(usize),
    /// Marked as the call of an MCP tool, with server and tool in its input.
    Marked(usize),
    /// Anything else; whether its input is known, and names no secret to read.
    Other { is_plain: bool },
}

/// A request of the agent that the proxy answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The tool that it is for.
    pub tool: &'static str,
    /// What that does before it acts.
    pub care: Care,
    /// The option that allows it once.
    pub option: PermissionOptionId,
}

impl OwnTools {
    /// Returns the tools of a server, by the name that the agent was given.
    #[must_use]
    pub fn new(server: String, tools: Vec<OwnTool>) -> Self {
        Self { server, tools, calls: VecDeque::new() }
    }

    /// Takes in what the agent tells of a call; `line` is the whole message.
    pub fn told(&mut self, seen: &ToolCallSeen, line: &[u8]) {
        let known = self.calls.iter().position(|(id, _)| *id == seen.call);
        if known.is_none() && !seen.is_new {
            return;
        }
        let was = known.and_then(|at| self.calls.remove(at)).map(|(_, call)| call);
        let has_ended = matches!(seen.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        let Some(told) = params::<Told<'_>>(line).map(|told| told.update).filter(|_| !has_ended) else {
            return;
        };
        let call = match was.filter(|_| !seen.is_new) {
            Some(was) => self.still(was, &told),
            None => self.announced(&told),
        };
        let Some(call) = call else { return };
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((seen.call.clone(), call));
    }

    /// Returns how a permission request is answered; none if it is the editor's. `line` is the whole message.
    #[must_use]
    pub fn answer(&self, line: &[u8], rules: Rules) -> Option<Once> {
        let asked: Asked<'_> = params(line)?;
        let shape = SHAPES.iter().find(|shape| shape.mark.is_on(&asked))?;
        let at = shape.names.iter().find_map(|name| self.named(name, &asked))?;
        let tool = self.tools.get(at)?;
        let input = self.input_of(&shape.input, at, &asked.tool_call);
        if !shape.checks.iter().all(|check| self.holds(check, at, &asked, &input)) {
            return None;
        }
        if tool.care == Care::Looks && (rules == Rules::LeaveOpen || !input.is_plain()) {
            return None;
        }
        let mut once = asked.options.iter().filter(|option| option.kind == PermissionOptionKind::AllowOnce);
        let option = once.next()?.option_id.clone();
        // Of two that allow it once nobody knows which one means just that.
        once.next().is_none().then_some(Once { tool: tool.name, care: tool.care, option })
    }

    fn call(&self, id: &ToolCallId) -> Option<Announced> {
        self.calls.iter().find(|(known, _)| known == id).map(|(_, call)| *call)
    }

    fn tool(&self, name: &str) -> Option<usize> {
        self.tools.iter().position(|tool| tool.name == name)
    }

    fn titled(&self, title: &str) -> Option<usize> {
        let name = tool_in(TITLE, &self.server, title)?;
        self.tool(name).filter(|at| self.tools[*at].care != Care::AsksToRun)
    }

    fn input(&self, input: Option<&RawValue>) -> Option<usize> {
        let McpInput { server, tool, arguments } = serde_json::from_str(input?.get()).ok()?;
        let tool = self.tool(&tool).filter(|_| server == self.server);
        tool.filter(|at| self.is_open(*at, arguments))
    }

    /// Says whether a tool may be used with an input and nobody asked beside it: one that only looks not at secrets.
    fn is_open(&self, at: usize, input: Option<&RawValue>) -> bool {
        self.tools.get(at).is_none_or(|tool| tool.care != Care::Looks) || is_plain(input)
    }

    fn announced(&self, told: &Call<'_>) -> Option<Announced> {
        if told.meta.as_ref().and_then(|meta| meta.is_mcp_tool_call) == Some(true) {
            return self.input(told.raw_input).map(Announced::Marked);
        }
        let titled = told.title.as_deref().and_then(|title| self.titled(title));
        let titled = titled.filter(|_| told.kind != Some(ToolKind::Execute));
        Some(titled.map_or(Announced::Other { is_plain: is_plain(told.raw_input) }, Announced::Titled))
    }

    /// Returns what is known of a call after more is told of it; none if that does not fit what was told before. A title may
    /// have how far it is behind it.
    fn still(&self, was: Announced, told: &Call<'_>) -> Option<Announced> {
        let is_still = match was {
            Announced::Marked(at) => told.raw_input.is_none() || self.input(told.raw_input) == Some(at),
            Announced::Titled(at) => {
                let title = told.title.as_deref().and_then(|title| title.split(' ').next());
                told.kind != Some(ToolKind::Execute)
                    && title.is_none_or(|title| self.titled(title) == Some(at))
            }
            Announced::Other { .. } if told.raw_input.is_some() => {
                return Some(Announced::Other { is_plain: is_plain(told.raw_input) });
            }
            Announced::Other { .. } => true,
        };
        is_still.then_some(was)
    }

    /// Returns the tool that a request names in one way.
    fn named(&self, name: &ToolName, asked: &Asked<'_>) -> Option<usize> {
        match name {
            ToolName::Text { at, form, tools } => {
                let tool = self.tool(tool_in(form, &self.server, at.of(asked)?)?)?;
                tools.contains(&self.tools.get(tool)?.care).then_some(tool)
            }
            ToolName::AnnouncedInput => match self.call(&asked.tool_call.tool_call_id)? {
                Announced::Marked(at) => Some(at),
                Announced::Titled(_) | Announced::Other { .. } => None,
            },
        }
    }

    /// Returns what is known of the input of the tool that a request names.
    fn input_of<'a>(&self, place: &InputAt, at: usize, call: &'a Call<'_>) -> ToolInput<'a> {
        match place {
            InputAt::RawInput => call.raw_input.map_or(ToolInput::Unknown, ToolInput::Whole),
            InputAt::Content => match call.content.as_slice() {
                [Content { content: Some(Text { text }) }] => ToolInput::of_text(text),
                _ => ToolInput::Unknown,
            },
            InputAt::Announcement => match self.call(&call.tool_call_id) {
                // Its input was looked at when it was announced.
                Some(Announced::Marked(marked)) if marked == at => ToolInput::Plain,
                Some(Announced::Other { is_plain: true }) => ToolInput::Plain,
                _ => ToolInput::Unknown,
            },
        }
    }

    fn holds(&self, check: &Check, at: usize, asked: &Asked<'_>, input: &ToolInput<'_>) -> bool {
        let (Some(tool), call) = (self.tools.get(at), &asked.tool_call) else { return false };
        match check {
            Check::ServerSource(source) => {
                let claude = call.meta.as_ref().and_then(|meta| meta.claude_code.as_ref());
                let server = claude.and_then(|claude| claude.mcp_server.as_ref());
                server.is_some_and(|server| server.name == self.server && server.source == *source)
            }
            Check::OptionNames(names) => names.iter().all(|(id, label)| {
                let mut options = asked.options.iter().filter(|option| &*option.option_id.0 == *id);
                options.any(|option| option.name.strip_prefix(label) == Some(tool.name))
            }),
            Check::Kind(kind) => call.kind == Some(*kind),
            Check::NoCommand => call.kind.is_some_and(|kind| kind != ToolKind::Execute),
            Check::Bare => call.kind.is_none() && call.raw_input.is_none(),
            Check::AnnouncedTitle => self.call(&call.tool_call_id) == Some(Announced::Titled(at)),
            Check::OnlyArguments => input.names().is_some_and(|names| {
                !names.is_empty() && names.iter().all(|name| tool.arguments.iter().any(|known| known == name))
            }),
        }
    }
}

/// What a request tells of the input of a tool.
enum ToolInput<'a> {
    /// Nothing.
    Unknown,
    /// That no file with secrets is named in it.
    Plain,
    /// The names of its arguments.
    Names(&'a str),
    /// All of it.
    Whole(&'a RawValue),
}

impl<'a> ToolInput<'a> {
    /// Reads a text that tells it.
    fn of_text(text: &'a str) -> Self {
        match text.strip_prefix(OMITTED) {
            Some(names) => names.strip_suffix(']').map_or(Self::Unknown, Self::Names),
            None => serde_json::from_str(text).map_or(Self::Unknown, Self::Whole),
        }
    }

    /// Says whether it is known to name no file with secrets.
    fn is_plain(&self) -> bool {
        match self {
            Self::Unknown | Self::Names(_) => false,
            Self::Plain => true,
            Self::Whole(input) => is_plain(Some(input)),
        }
    }

    /// Returns the names of its arguments, if they are known.
    fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::Unknown | Self::Plain => None,
            Self::Names(names) => Some(names.split(", ").map(str::to_owned).collect()),
            Self::Whole(input) => {
                let input: BTreeMap<String, IgnoredAny> = serde_json::from_str(input.get()).ok()?;
                Some(input.into_keys().collect())
            }
        }
    }
}

#[derive(Deserialize)]
struct Message<T> {
    params: T,
}

fn params<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    serde_json::from_slice::<Message<T>>(line).ok().map(|message| message.params)
}

/// Says whether an input is known, and names no file that holds secrets.
fn is_plain(input: Option<&RawValue>) -> bool {
    let input: Option<Named> = input.and_then(|input| serde_json::from_str(input.get()).ok());
    input.is_some_and(|input| input.path.is_none_or(|path| protecting(&path, Access::Read).is_empty()))
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow)]
    update: Call<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(borrow)]
    tool_call: Call<'a>,
    options: Vec<PermissionOption>,
    #[serde(default, rename = "_meta")]
    meta: Option<Meta>,
}

/// A tool call, announced or asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    tool_call_id: ToolCallId,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    kind: Option<ToolKind>,
    #[serde(borrow, default)]
    raw_input: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "content")]
    content: Vec<Content>,
    #[serde(default, rename = "_meta")]
    meta: Option<Meta>,
}

/// What is shown of a call, as far as it is text.
#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    content: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default)]
    text: String,
}

/// Reads content; none that is known, if it has another form.
fn content<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Content>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default, rename = "claudeCode")]
    claude_code: Option<Claude>,
    #[serde(default, rename = "toolName")]
    tool_name: Option<String>,
    #[serde(default)]
    is_mcp_tool_call: Option<bool>,
    #[serde(default)]
    is_mcp_tool_approval: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claude {
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    mcp_server: Option<ClaudeServer>,
}

#[derive(Deserialize)]
struct ClaudeServer {
    name: String,
    #[serde(default)]
    source: String,
}

#[derive(Deserialize)]
struct McpInput<'a> {
    server: String,
    tool: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    path: Option<String>,
}

#[cfg(test)]
mod tests;
