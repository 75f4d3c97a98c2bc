//! How agents ask before they call a tool of an MCP server: one row for each agent, from what was recorded of it.
//!
//! A row says what only that agent's program could have written, where the tool is named in it, and what else has to hold so
//! that no text of a model or a repository can pass for it. A request that no row fits is the editor's.

use agent_client_protocol_schema::v1::ToolKind;

use super::{Asked, Care};

/// How one agent asks.
pub(super) struct RequestShape {
    /// The agent.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test has a recording of each"))]
    pub(super) agent: &'static str,
    /// The versions that were recorded.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test has a recording of each"))]
    pub(super) versions: &'static [&'static str],
    /// What tells its requests from those of others. The first row whose mark is there counts, and no other.
    pub(super) mark: Mark,
    /// Where the tool is named. The first that names one of ours counts.
    pub(super) names: &'static [ToolName],
    /// Where the tool's input is told.
    pub(super) input: InputAt,
    /// What else has to hold.
    pub(super) checks: &'static [Check],
}

/// What tells an agent's requests from others.
pub(super) enum Mark {
    /// `claudeCode` in the `_meta` of the call.
    ClaudeCode,
    /// `toolName` in the `_meta` of the call, and no `_meta` of the request.
    ToolName,
    /// `is_mcp_tool_approval` in the `_meta` of the request, and no `_meta` of the call.
    McpToolApproval,
    /// No `_meta`, and these options among others.
    Options(&'static [&'static str]),
    /// No `_meta`, and just these options, in this order.
    OnlyOptions(&'static [&'static str]),
    /// No `_meta`.
    Nothing,
}

/// Where a tool is named.
pub(super) enum ToolName {
    /// In a text of this form: `{server}` and `{tool}` stand for the two names, `{id}` for anything that ends the text.
    Text {
        /// The text.
        at: TextAt,
        /// Its form.
        form: &'static str,
        /// The tools that are named so, by what they do.
        tools: &'static [Care],
    },
    /// In the input of the call that was announced, which is marked as that of an MCP tool.
    AnnouncedInput,
}

/// A text of a request.
pub(super) enum TextAt {
    /// `_meta.claudeCode.toolName` of the call.
    ClaudeToolName,
    /// `_meta.toolName` of the call.
    ToolName,
    /// The title of the call.
    Title,
    /// The id of the call.
    CallId,
}

/// Where the input of a tool is told.
pub(super) enum InputAt {
    /// `rawInput` of the request.
    RawInput,
    /// The one text among the content of the request: the input as JSON, or the names of its arguments if it is long.
    Content,
    /// The call that was announced.
    Announcement,
}

/// What has to hold of a request.
pub(super) enum Check {
    /// `_meta.claudeCode.mcpServer` names our server, and this as the source of its definition.
    ServerSource(&'static str),
    /// Options with these ids have these names, with the tool's own behind them.
    OptionNames(&'static [(&'static str, &'static str)]),
    /// The call is of this kind.
    Kind(ToolKind),
    /// The call has a kind, and runs nothing.
    NoCommand,
    /// The call has neither kind nor input.
    Bare,
    /// The call was announced under the same title.
    AnnouncedTitle,
    /// The input has arguments of the tool, and nothing else.
    OnlyArguments,
}

const ALL: &[Care] = &[Care::AsksToWrite, Care::AsksToRun, Care::Looks];
const COMMANDS: &[Care] = &[Care::AsksToRun];
const NO_COMMANDS: &[Care] = &[Care::AsksToWrite, Care::Looks];

/// The name by which most agents register a tool. No tool of ours has two underscores in its name, so none of another server
/// can be called so.
const REGISTERED: &str = "mcp__{server}__{tool}";

/// How fast-agent titles a call.
pub(super) const TITLE: &str = "{server}/{tool}";

/// What gemini tells of an input that is too long to be told.
pub(super) const OMITTED: &str = "[Payload omitted due to length with parameters: ";

/// The agents that are known.
pub(super) const SHAPES: &[RequestShape] = &[
    // Names the server, and where its definition is from: only one that came with the session is ours, not one of the
    // project's or the user's settings.
    RequestShape {
        agent: "claude-agent-acp",
        versions: &["0.99.0"],
        mark: Mark::ClaudeCode,
        names: &[ToolName::Text { at: TextAt::ClaudeToolName, form: REGISTERED, tools: ALL }],
        input: InputAt::RawInput,
        checks: &[Check::ServerSource("dynamic")],
    },
    // A project can have a tool of its own under any name, so the options have to be those for an MCP tool, which name the
    // tool as its server does.
    RequestShape {
        agent: "qwen",
        versions: &["0.24.4"],
        mark: Mark::ToolName,
        names: &[ToolName::Text { at: TextAt::ToolName, form: REGISTERED, tools: ALL }],
        input: InputAt::RawInput,
        checks: &[Check::OptionNames(&[
            ("proceed_always_project", "Always Allow in project: "),
            ("proceed_always_user", "Always Allow for user: "),
        ])],
    },
    // Names only a call. The call has told server and tool in its input, which for a command is the command.
    RequestShape {
        agent: "codex-acp",
        versions: &["2.6.0"],
        mark: Mark::McpToolApproval,
        names: &[ToolName::AnnouncedInput],
        input: InputAt::Announcement,
        checks: &[],
    },
    // Asks with these options about MCP tools only. If the input has a `command`, which a model chooses, that is the title: so
    // the input must have nothing but the tool's arguments, and our tool that has a `command` is known by the call's id, which
    // begins with the tool's registered name. Another server's tool can only have that name if the server is called
    // `mcp_bowline`, and a program that can configure that is run already.
    RequestShape {
        agent: "gemini",
        versions: &["0.61.0"],
        mark: Mark::Options(&["proceed_always_server", "proceed_always_tool"]),
        names: &[
            ToolName::Text { at: TextAt::Title, form: "{tool} ({server} MCP Server)", tools: NO_COMMANDS },
            ToolName::Text { at: TextAt::CallId, form: "mcp_{server}_{tool}__{id}", tools: COMMANDS },
        ],
        input: InputAt::Content,
        checks: &[Check::Kind(ToolKind::Other), Check::OnlyArguments],
    },
    // Titles its requests with the registered name, whatever the model said. What is read is known from the announcement.
    RequestShape {
        agent: "kimi-code",
        versions: &["2.1.0"],
        mark: Mark::OnlyOptions(&["approve_once", "approve_always", "reject"]),
        names: &[ToolName::Text { at: TextAt::Title, form: REGISTERED, tools: ALL }],
        input: InputAt::Announcement,
        checks: &[Check::Bare],
    },
    // Has nothing but a title, which a command could have as well: `bowline/edit_text_file` may be a program in the project. So
    // the call must have been announced under the title, be none that runs something, by its kind as well as by the tool, and
    // have an input of nothing but the tool's arguments.
    RequestShape {
        agent: "fast-agent",
        versions: &["0.10.46"],
        mark: Mark::Nothing,
        names: &[ToolName::Text { at: TextAt::Title, form: TITLE, tools: NO_COMMANDS }],
        input: InputAt::RawInput,
        checks: &[Check::AnnouncedTitle, Check::NoCommand, Check::OnlyArguments],
    },
];

impl Mark {
    /// Says whether a request has it.
    pub(super) fn is_on(&self, asked: &Asked<'_>) -> bool {
        let (call, request) = (asked.tool_call.meta.as_ref(), asked.meta.as_ref());
        let is_bare = call.is_none() && request.is_none();
        let ids = || asked.options.iter().map(|option| &*option.option_id.0);
        match self {
            Self::ClaudeCode => call.is_some_and(|meta| meta.claude_code.is_some()),
            Self::ToolName => call.is_some_and(|meta| meta.tool_name.is_some()) && request.is_none(),
            Self::McpToolApproval => {
                call.is_none() && request.and_then(|meta| meta.is_mcp_tool_approval) == Some(true)
            }
            Self::Options(some) => is_bare && some.iter().all(|id| ids().any(|known| known == *id)),
            Self::OnlyOptions(all) => is_bare && ids().eq(all.iter().copied()),
            Self::Nothing => is_bare,
        }
    }
}

impl TextAt {
    /// Returns the text of a request.
    pub(super) fn of<'a>(&self, asked: &'a Asked<'_>) -> Option<&'a str> {
        let call = &asked.tool_call;
        let meta = call.meta.as_ref();
        match self {
            Self::ClaudeToolName => meta.and_then(|meta| Some(meta.claude_code.as_ref()?.tool_name.as_str())),
            Self::ToolName => meta.and_then(|meta| meta.tool_name.as_deref()),
            Self::Title => call.title.as_deref(),
            Self::CallId => Some(&call.tool_call_id.0),
        }
    }
}

/// Returns the tool that a text of a form names.
pub(super) fn tool_in<'a>(form: &str, server: &str, text: &'a str) -> Option<&'a str> {
    let (before, after) = form.split_once("{tool}")?;
    let rest = text.strip_prefix(&before.replace("{server}", server))?;
    match after.strip_suffix("{id}") {
        // A name that goes on after the first separator is that of another tool.
        Some(separator) => {
            let (tool, id) = rest.split_once(separator)?;
            (!id.is_empty() && !id.contains(separator)).then_some(tool)
        }
        None => rest.strip_suffix(&after.replace("{server}", server)),
    }
}
