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
//! - `claude-agent-acp` names the server and where its definition is from in `_meta`: only one that came with the session
//!   is ours, not one of the project's or the user's settings.
//! - `codex-acp` names only a call, and marks the request and the call as those of an MCP tool. The call has told server and
//!   tool in its input, which for a command is the command.
//! - A file that holds secrets is asked about, by whatever tool it is read.
//! - `fast-agent` has nothing but a title. A command could carry it: `bowline/edit_text_file` may be a program in the
//!   project. So the call must have been announced under the title, be none that runs something, by its kind as well as
//!   by the tool, and have an input of nothing but the tool's arguments.
//! - `gemini` titles a call of an MCP tool with the tool's and the server's name, unless the input has a `command`, which a model
//!   chooses: then that is the title. So the options have to be those that only MCP tools are asked about with, and the input,
//!   which the content tells, must have nothing but the tool's arguments. Our tool that runs something has a `command`: it is
//!   known by the call's id, which begins with the registered name of the tool. Another server's tool can only have that name
//!   if the server is called `mcp_bowline`, and a program that can configure that is run already.
//! - `qwen` names the registered tool in `_meta`. A project can have a tool of its own under any name, so the options have to be
//!   those for an MCP tool, which name the tool as its server does.
//! - `kimi-code` titles its requests with the registered name of the tool, whatever the model said, and gives them neither kind
//!   nor input. Its options tell that the request is kimi's. What is read is known from the call that it announced.

use std::collections::{BTreeMap, VecDeque};

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionId, PermissionOptionKind, ToolCallId, ToolCallStatus, ToolKind,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::ToolCallSeen;
use crate::paths::{Access, protecting};

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
        let call = &asked.tool_call;
        let at = match (&call.meta, &asked.meta) {
            (Some(Meta { claude_code: Some(claude), .. }), _) => self.by_claude(claude, call)?,
            (Some(Meta { tool_name: Some(name), .. }), None) => self.by_qwen(name, &asked)?,
            (None, Some(meta)) if meta.is_mcp_tool_approval == Some(true) => {
                match self.call(&call.tool_call_id)? {
                    Announced::Marked(at) => at,
                    Announced::Titled(_) | Announced::Other { .. } => return None,
                }
            }
            (None, None) if asked.has_options(&GEMINI_OPTIONS) => self.by_gemini(call)?,
            (None, None) if asked.has_only(&KIMI_OPTIONS) => self.by_kimi(call)?,
            (None, None) => self.by_title(call)?,
            // A shape that is not known says nothing.
            _ => return None,
        };
        let tool = self.tools.get(at)?;
        if tool.care == Care::Looks && rules == Rules::LeaveOpen {
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
        let name = title.strip_prefix(&self.server)?.strip_prefix('/')?;
        self.tool(name).filter(|at| self.tools[*at].care != Care::AsksToRun)
    }

    fn input(&self, input: Option<&RawValue>) -> Option<usize> {
        let McpInput { server, tool, arguments } = serde_json::from_str(input?.get()).ok()?;
        let tool = self.tool(&tool).filter(|_| server == self.server);
        tool.filter(|at| self.is_open(*at, arguments))
    }

    /// Says whether a tool may be used with an input and nobody asked beside it: one that only looks not at secrets.
    fn is_open(&self, at: usize, input: Option<&RawValue>) -> bool {
        if self.tools.get(at).is_none_or(|tool| tool.care != Care::Looks) {
            return true;
        }
        is_plain(input)
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

    fn by_claude(&self, claude: &Claude, call: &Call<'_>) -> Option<usize> {
        let server = claude.mcp_server.as_ref()?;
        if server.name != self.server || server.source != "dynamic" {
            return None;
        }
        self.registered(&claude.tool_name).filter(|at| self.is_open(*at, call.raw_input))
    }

    /// Returns the tool that agents register by this name. No tool has two underscores in its name, so none of another server
    /// can be called so.
    fn registered(&self, name: &str) -> Option<usize> {
        self.tool(name.strip_prefix("mcp__")?.strip_prefix(&self.server)?.strip_prefix("__")?)
    }

    fn by_qwen(&self, name: &str, asked: &Asked<'_>) -> Option<usize> {
        let at = self.registered(name)?;
        let tool = self.tools.get(at)?.name;
        let is_mcp = QWEN_OPTIONS.iter().all(|(id, label)| {
            asked
                .options
                .iter()
                .any(|option| &*option.option_id.0 == *id && option.name.strip_prefix(label) == Some(tool))
        });
        (is_mcp && self.is_open(at, asked.tool_call.raw_input)).then_some(at)
    }

    fn by_kimi(&self, call: &Call<'_>) -> Option<usize> {
        let at = self.registered(call.title.as_deref()?)?;
        let is_bare = call.kind.is_none() && call.raw_input.is_none();
        let is_open = match self.tools.get(at)?.care {
            Care::Looks => self.call(&call.tool_call_id) == Some(Announced::Other { is_plain: true }),
            Care::AsksToWrite | Care::AsksToRun => true,
        };
        (is_bare && is_open).then_some(at)
    }

    fn by_gemini(&self, call: &Call<'_>) -> Option<usize> {
        let at = self.gemini_title(call).or_else(|| self.gemini_command(call))?;
        let tool = self.tools.get(at)?;
        let [Content { content: Some(Text { text }) }] = call.content.as_slice() else { return None };
        let fits = |names: &[&str]| {
            !names.is_empty() && names.iter().all(|name| tool.arguments.iter().any(|known| known == name))
        };
        let fits_and_is_open = match text.strip_prefix(GEMINI_OMITTED) {
            // Of a long input only the names are told. What is read is not.
            Some(names) => {
                let names: Vec<&str> = names.strip_suffix(']')?.split(", ").collect();
                tool.care != Care::Looks && fits(&names)
            }
            None => {
                let input: BTreeMap<String, IgnoredAny> = serde_json::from_str(text).ok()?;
                let input_text: &RawValue = serde_json::from_str(text).ok()?;
                let names: Vec<&str> = input.keys().map(String::as_str).collect();
                fits(&names) && self.is_open(at, Some(input_text))
            }
        };
        (fits_and_is_open && call.kind == Some(ToolKind::Other)).then_some(at)
    }

    /// Returns the tool that gemini names in a title. A tool that runs something is titled otherwise.
    fn gemini_title(&self, call: &Call<'_>) -> Option<usize> {
        let title = call.title.as_deref()?.strip_suffix(" MCP Server)")?;
        let at = self.tool(title.strip_suffix(&self.server)?.strip_suffix(" (")?)?;
        self.tools.get(at).filter(|tool| tool.care != Care::AsksToRun).map(|_| at)
    }

    /// Returns the tool that runs something, if gemini names it in the id of a call: `mcp_SERVER_TOOL__ID`.
    fn gemini_command(&self, call: &Call<'_>) -> Option<usize> {
        let registered = call.tool_call_id.0.strip_prefix("mcp_")?;
        let (name, id) = registered.strip_prefix(&self.server)?.strip_prefix('_')?.split_once("__")?;
        // A name that goes on after the first two underscores is that of another tool.
        let at = self.tool(name).filter(|_| !id.is_empty() && !id.contains("__"))?;
        self.tools.get(at).filter(|tool| tool.care == Care::AsksToRun).map(|_| at)
    }

    fn by_title(&self, call: &Call<'_>) -> Option<usize> {
        let at = self.titled(call.title.as_deref()?)?;
        let is_announced = self.call(&call.tool_call_id) == Some(Announced::Titled(at));
        let runs = call.kind.is_none_or(|kind| kind == ToolKind::Execute);
        let input: BTreeMap<String, IgnoredAny> = serde_json::from_str(call.raw_input?.get()).ok()?;
        let arguments = &self.tools.get(at)?.arguments;
        let fits = !input.is_empty() && input.keys().all(|name| arguments.contains(name));
        (is_announced && !runs && fits && self.is_open(at, call.raw_input)).then_some(at)
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

/// Only about MCP tools gemini asks with these.
const GEMINI_OPTIONS: [&str; 2] = ["proceed_always_server", "proceed_always_tool"];

/// What gemini tells of an input that is too long to be told.
const GEMINI_OMITTED: &str = "[Payload omitted due to length with parameters: ";

/// The options of qwen for MCP tools, and what stands in their names before the tool's own.
const QWEN_OPTIONS: [(&str, &str); 2] = [
    ("proceed_always_project", "Always Allow in project: "),
    ("proceed_always_user", "Always Allow for user: "),
];

/// The options of kimi-code.
const KIMI_OPTIONS: [&str; 3] = ["approve_once", "approve_always", "reject"];

impl Asked<'_> {
    fn has_options(&self, ids: &[&str]) -> bool {
        ids.iter().all(|id| self.options.iter().any(|option| &*option.option_id.0 == *id))
    }

    fn has_only(&self, ids: &[&str]) -> bool {
        self.options.iter().map(|option| &*option.option_id.0).eq(ids.iter().copied())
    }
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
