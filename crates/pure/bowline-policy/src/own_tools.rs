//! Recognition of permission requests for tools of the MCP server that the proxy gave the agent.
//!
//! Such a tool asks the editor's user itself, with the diff or the command, or only reads what the editor serves. An
//! agent that asks before it calls the tool turns one edit into two questions. So the proxy answers the agent's
//! request with the option that allows it once, and the user sees the question that shows more.
//!
//! The threat is not a lying agent, which can write to the disk without asking. But an honest agent repeats what a
//! model or a repository made up: a title, a command, an input. If that passed for a call of our tool, the agent
//! would use our approval for something else, and no user would have been asked. So a request counts as ours only by
//! what the agent's own program wrote, in the shapes that agents are known to use; all others pass to the editor:
//! - The server's name is not enough. A repository may configure its own server named `bowline`, and some agents then
//!   leave out ours. The caller has to know that the agent has connected to our server under its name.
//! - Reading a file that holds secrets is always asked about, regardless of the tool.
//! - The remaining conditions, agent by agent, are a table: `own_tools/request_shapes.rs`.

use std::collections::{BTreeMap, VecDeque};

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionId, PermissionOptionKind, ToolCallId, ToolCallStatus, ToolKind,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use self::request_shapes::{
    InputLocation, META_NAME_FORM, OMITTED_INPUT_PREFIX, REQUEST_SHAPES, RequestCheck, TITLE_FORM, ToolName,
    parse_tool_name,
};
use crate::paths::{Access, find_protected_components};
use bowline_protocol::relay::{ToolCallMessage, parse_params};

mod request_shapes;

/// The maximum number of calls tracked per session; the oldest are evicted, and requests for those pass to the
/// editor.
pub const MAX_CALLS: usize = 256;

/// The `effect_kind` of a call of vibe that uses neither a file nor a command of its own.
const TOOL_EFFECT: &str = "tool";

/// A tool of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTool {
    /// Its name on the server.
    pub name: &'static str,
    /// Whether it asks the user before it acts.
    pub prompt_behavior: PromptBehavior,
    /// The names of its arguments.
    pub arguments: Vec<String>,
}

/// Whether a tool asks the user before it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptBehavior {
    /// It asks the user, and then changes a file.
    BeforeWrite,
    /// It asks the user, and then runs a command.
    BeforeRun,
    /// It only reads, or stops something that the user has allowed to run.
    Never,
}

/// Whether a policy was consulted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyStatus {
    /// There is no policy: for a tool that only reads, its server decides.
    Off,
    /// The policy leaves the decision to a person, so one has to be asked: by the tool if it asks, else by the
    /// agent's request.
    Undecided,
}

/// The tools of the server that was given to one session.
#[derive(Debug)]
pub struct OwnTools {
    server: String,
    tools: Vec<OwnTool>,
    // The open calls that may be ours, oldest first. Invariant: at most `MAX_CALLS`, no duplicates.
    calls: VecDeque<(ToolCallId, AnnouncedCall)>,
}

/// An announced call that may be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnnouncedCall {
    /// By a title that names server and tool; the value is the tool's index.
    ByTitle(usize),
    /// Marked as the call of an MCP tool, with server and tool in its input.
    ByInput(usize),
    /// By the registered name of the tool in its `_meta`, with the tool's input.
    ByMeta(usize),
    /// Any other call; whether its input is known and names no secret file.
    Other { names_no_secret: bool },
}

/// The proxy's approval of an agent's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnToolApproval {
    /// The tool.
    pub tool: &'static str,
    /// Whether the tool asks the user before it acts.
    pub prompt_behavior: PromptBehavior,
    /// The option that allows it once.
    pub option: PermissionOptionId,
}

impl OwnTools {
    /// Creates the tools of a server, under the name that the agent was given.
    #[must_use]
    pub fn new(server: String, tools: Vec<OwnTool>) -> Self {
        Self { server, tools, calls: VecDeque::new() }
    }

    /// Records an agent's announcement or update of a call; `line` is the whole message.
    pub fn record_tool_call(&mut self, message: &ToolCallMessage, line: &[u8]) {
        let known = self.calls.iter().position(|(id, _)| *id == message.call);
        if known.is_none() && !message.is_new {
            return;
        }
        let previous = known.and_then(|at| self.calls.remove(at)).map(|(_, call)| call);
        let has_ended = matches!(message.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        let Some(fields) =
            parse_params::<ToolCallUpdateParams<'_>>(line).map(|params| params.update).filter(|_| !has_ended)
        else {
            return;
        };
        let call = match previous.filter(|_| !message.is_new) {
            Some(previous) => self.update_announcement(previous, &fields),
            None => self.classify_announcement(&fields),
        };
        let Some(call) = call else { return };
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((message.call.clone(), call));
    }

    /// Returns the answer to a permission request; `None` if it is for the editor. `line` is the whole message.
    #[must_use]
    pub fn answer_permission_request(&self, line: &[u8], rules: PolicyStatus) -> Option<OwnToolApproval> {
        let request: PermissionRequestParams<'_> = parse_params(line)?;
        let shape = REQUEST_SHAPES.iter().find(|shape| shape.mark.is_in(&request))?;
        let at = shape.names.iter().find_map(|name| self.named_tool(name, &request))?;
        let tool = self.tools.get(at)?;
        let input = self.tool_input(&shape.input, at, &request.tool_call);
        if !shape.checks.iter().all(|check| self.passes_check(check, at, &request, &input)) {
            return None;
        }
        if tool.prompt_behavior == PromptBehavior::Never
            && (rules == PolicyStatus::Undecided || !input.names_no_secret())
        {
            return None;
        }
        let mut allow_once =
            request.options.iter().filter(|option| option.kind == PermissionOptionKind::AllowOnce);
        let option = allow_once.next()?.option_id.clone();
        // If two options allow it once, it is unclear which one means only that.
        allow_once.next().is_none().then_some(OwnToolApproval {
            tool: tool.name,
            prompt_behavior: tool.prompt_behavior,
            option,
        })
    }

    fn announced_call(&self, id: &ToolCallId) -> Option<AnnouncedCall> {
        self.calls.iter().find(|(known, _)| known == id).map(|(_, call)| *call)
    }

    fn tool_index(&self, name: &str) -> Option<usize> {
        self.tools.iter().position(|tool| tool.name == name)
    }

    fn tool_from_title(&self, title: &str) -> Option<usize> {
        let name = parse_tool_name(TITLE_FORM, &self.server, title)?;
        self.tool_index(name).filter(|at| self.tools[*at].prompt_behavior != PromptBehavior::BeforeRun)
    }

    fn tool_from_input(&self, input: Option<&RawValue>) -> Option<usize> {
        let McpInput { server, tool, arguments } = serde_json::from_str(input?.get()).ok()?;
        let tool = self.tool_index(&tool).filter(|_| server == self.server);
        tool.filter(|at| self.may_skip_prompt(*at, arguments))
    }

    fn tool_from_meta(&self, fields: &ToolCallFields<'_>) -> Option<usize> {
        let meta = fields.meta.as_ref().filter(|meta| meta.effect_kind.as_deref() == Some(TOOL_EFFECT))?;
        let name = parse_tool_name(META_NAME_FORM, &self.server, meta.registered_name.as_deref()?)?;
        self.tool_index(name)
    }

    /// Returns whether a tool may be used with an input without a separate question: it asks itself, or the input
    /// names no secret file.
    fn may_skip_prompt(&self, at: usize, input: Option<&RawValue>) -> bool {
        self.tools.get(at).is_none_or(|tool| tool.prompt_behavior != PromptBehavior::Never)
            || names_no_secret(input)
    }

    fn classify_announcement(&self, fields: &ToolCallFields<'_>) -> Option<AnnouncedCall> {
        if fields.meta.as_ref().and_then(|meta| meta.is_mcp_tool_call) == Some(true) {
            return self.tool_from_input(fields.raw_input).map(AnnouncedCall::ByInput);
        }
        if let Some(at) = self.tool_from_meta(fields) {
            return self.may_skip_prompt(at, fields.raw_input).then_some(AnnouncedCall::ByMeta(at));
        }
        let titled = fields.title.as_deref().and_then(|title| self.tool_from_title(title));
        let titled = titled.filter(|_| fields.kind != Some(ToolKind::Execute));
        Some(titled.map_or(
            AnnouncedCall::Other { names_no_secret: names_no_secret(fields.raw_input) },
            AnnouncedCall::ByTitle,
        ))
    }

    /// Returns the state of a call after an update; `None` if the update contradicts the earlier state. A title may
    /// be followed by the progress.
    fn update_announcement(
        &self,
        announced: AnnouncedCall,
        fields: &ToolCallFields<'_>,
    ) -> Option<AnnouncedCall> {
        let is_unchanged = match announced {
            AnnouncedCall::ByInput(at) => {
                fields.raw_input.is_none() || self.tool_from_input(fields.raw_input) == Some(at)
            }
            AnnouncedCall::ByMeta(at) => {
                (fields.meta.is_none() || self.tool_from_meta(fields) == Some(at))
                    && (fields.raw_input.is_none() || self.may_skip_prompt(at, fields.raw_input))
            }
            AnnouncedCall::ByTitle(at) => {
                let title = fields.title.as_deref().and_then(|title| title.split(' ').next());
                fields.kind != Some(ToolKind::Execute)
                    && title.is_none_or(|title| self.tool_from_title(title) == Some(at))
            }
            AnnouncedCall::Other { .. } if fields.raw_input.is_some() => {
                return Some(AnnouncedCall::Other { names_no_secret: names_no_secret(fields.raw_input) });
            }
            AnnouncedCall::Other { .. } => true,
        };
        is_unchanged.then_some(announced)
    }

    /// Returns the index of the tool that a request names in this way.
    fn named_tool(&self, name: &ToolName, request: &PermissionRequestParams<'_>) -> Option<usize> {
        match name {
            ToolName::Text { at, form, tools } => {
                let tool = self.tool_index(parse_tool_name(form, &self.server, at.text_in(request)?)?)?;
                tools.contains(&self.tools.get(tool)?.prompt_behavior).then_some(tool)
            }
            ToolName::AnnouncedInput => match self.announced_call(&request.tool_call.tool_call_id)? {
                AnnouncedCall::ByInput(at) => Some(at),
                AnnouncedCall::ByTitle(_) | AnnouncedCall::ByMeta(_) | AnnouncedCall::Other { .. } => None,
            },
            ToolName::AnnouncedMeta => match self.announced_call(&request.tool_call.tool_call_id)? {
                AnnouncedCall::ByMeta(at) => Some(at),
                AnnouncedCall::ByTitle(_) | AnnouncedCall::ByInput(_) | AnnouncedCall::Other { .. } => None,
            },
        }
    }

    /// Returns the known input of the tool that a request names.
    fn tool_input<'a>(
        &self,
        location: &InputLocation,
        at: usize,
        call: &'a ToolCallFields<'_>,
    ) -> ToolInput<'a> {
        match location {
            InputLocation::RawInput => call.raw_input.map_or(ToolInput::Unknown, ToolInput::Whole),
            InputLocation::Content => match call.content.as_slice() {
                [ToolCallContentItem { content: Some(ContentText { text }) }] => ToolInput::from_text(text),
                _ => ToolInput::Unknown,
            },
            InputLocation::Announcement => match self.announced_call(&call.tool_call_id) {
                // Its input was checked when it was announced.
                Some(AnnouncedCall::ByInput(marked) | AnnouncedCall::ByMeta(marked)) if marked == at => {
                    ToolInput::WithoutSecrets
                }
                Some(AnnouncedCall::Other { names_no_secret: true }) => ToolInput::WithoutSecrets,
                _ => ToolInput::Unknown,
            },
        }
    }

    fn passes_check(
        &self,
        check: &RequestCheck,
        at: usize,
        request: &PermissionRequestParams<'_>,
        input: &ToolInput<'_>,
    ) -> bool {
        let (Some(tool), call) = (self.tools.get(at), &request.tool_call) else { return false };
        match check {
            RequestCheck::ServerSource(source) => {
                let claude = call.meta.as_ref().and_then(|meta| meta.claude_code.as_ref());
                let server = claude.and_then(|claude| claude.mcp_server.as_ref());
                server.is_some_and(|server| server.name == self.server && server.source == *source)
            }
            RequestCheck::OptionNames(names) => names.iter().all(|(id, label)| {
                let mut options = request.options.iter().filter(|option| &*option.option_id.0 == *id);
                options.any(|option| option.name.strip_prefix(label) == Some(tool.name))
            }),
            RequestCheck::Kind(kind) => call.kind == Some(*kind),
            RequestCheck::NotExecute => call.kind.is_some_and(|kind| kind != ToolKind::Execute),
            RequestCheck::NoKindOrInput => call.kind.is_none() && call.raw_input.is_none(),
            RequestCheck::AnnouncedTitle => {
                self.announced_call(&call.tool_call_id) == Some(AnnouncedCall::ByTitle(at))
            }
            RequestCheck::OnlyArguments => input.argument_names().is_some_and(|names| {
                !names.is_empty() && names.iter().all(|name| tool.arguments.iter().any(|known| known == name))
            }),
        }
    }
}

/// The input of a tool, as far as a request reveals it.
enum ToolInput<'a> {
    /// Nothing.
    Unknown,
    /// It names no secret file.
    WithoutSecrets,
    /// The names of its arguments.
    ArgumentNames(&'a str),
    /// All of it.
    Whole(&'a RawValue),
}

impl<'a> ToolInput<'a> {
    /// Parses a text that describes the input.
    fn from_text(text: &'a str) -> Self {
        match text.strip_prefix(OMITTED_INPUT_PREFIX) {
            Some(names) => names.strip_suffix(']').map_or(Self::Unknown, Self::ArgumentNames),
            None => serde_json::from_str(text).map_or(Self::Unknown, Self::Whole),
        }
    }

    /// Returns whether it is known to name no secret file.
    fn names_no_secret(&self) -> bool {
        match self {
            Self::Unknown | Self::ArgumentNames(_) => false,
            Self::WithoutSecrets => true,
            Self::Whole(input) => names_no_secret(Some(input)),
        }
    }

    /// Returns the names of its arguments, if they are known.
    fn argument_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Unknown | Self::WithoutSecrets => None,
            Self::ArgumentNames(names) => Some(names.split(", ").map(str::to_owned).collect()),
            Self::Whole(input) => {
                let input: BTreeMap<String, IgnoredAny> = serde_json::from_str(input.get()).ok()?;
                Some(input.into_keys().collect())
            }
        }
    }
}

/// Returns whether an input is known and names no secret file.
fn names_no_secret(input: Option<&RawValue>) -> bool {
    let input: Option<PathInput> = input.and_then(|input| serde_json::from_str(input.get()).ok());
    input.is_some_and(|input| {
        input.path.is_none_or(|path| find_protected_components(&path, Access::Read).is_empty())
    })
}

#[derive(Deserialize)]
struct ToolCallUpdateParams<'a> {
    #[serde(borrow)]
    update: ToolCallFields<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionRequestParams<'a> {
    #[serde(borrow)]
    tool_call: ToolCallFields<'a>,
    options: Vec<PermissionOption>,
    #[serde(default, rename = "_meta")]
    meta: Option<ToolCallMeta>,
}

/// A tool call, announced or in a permission request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallFields<'a> {
    tool_call_id: ToolCallId,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    kind: Option<ToolKind>,
    #[serde(borrow, default)]
    raw_input: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "content")]
    content: Vec<ToolCallContentItem>,
    #[serde(default, rename = "_meta")]
    meta: Option<ToolCallMeta>,
}

/// The content of a call, as far as it is text.
#[derive(Deserialize)]
struct ToolCallContentItem {
    #[serde(default)]
    content: Option<ContentText>,
}

#[derive(Deserialize)]
struct ContentText {
    #[serde(default)]
    text: String,
}

/// Deserialises content; content of an unknown form becomes empty.
fn content<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ToolCallContentItem>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[derive(Deserialize)]
struct ToolCallMeta {
    #[serde(default, rename = "claudeCode")]
    claude_code: Option<ClaudeMeta>,
    #[serde(default, rename = "toolName")]
    tool_name: Option<String>,
    #[serde(default, rename = "tool_name")]
    registered_name: Option<String>,
    #[serde(default)]
    effect_kind: Option<String>,
    #[serde(default)]
    is_mcp_tool_call: Option<bool>,
    #[serde(default)]
    is_mcp_tool_approval: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeMeta {
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    mcp_server: Option<ClaudeMcpServer>,
}

#[derive(Deserialize)]
struct ClaudeMcpServer {
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
struct PathInput {
    #[serde(default)]
    path: Option<String>,
}

#[cfg(test)]
mod tests;
