//! The shapes of agents' permission requests for MCP tools: one row for each agent, from recordings.
//!
//! A row names what only that agent's program can have written, where the request names the tool, and the further
//! conditions that keep text of a model or a repository from passing for it. A request that fits no row is for the
//! editor.

use agent_client_protocol_schema::v1::ToolKind;

use super::{PermissionRequestParams, PromptBehavior};

/// The shape of one agent's requests.
pub(super) struct RequestShape {
    /// The agent.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test has a recording of each"))]
    pub(super) agent: &'static str,
    /// The recorded versions.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers; a test has a recording of each"))]
    pub(super) versions: &'static [&'static str],
    /// What distinguishes its requests from other agents'. Only the first row whose mark is present counts.
    pub(super) mark: RequestMark,
    /// Where the tool is named. The first that names one of ours counts.
    pub(super) names: &'static [ToolName],
    /// Where the tool's input is found.
    pub(super) input: InputLocation,
    /// The further conditions.
    pub(super) checks: &'static [RequestCheck],
}

/// What distinguishes an agent's requests from others.
pub(super) enum RequestMark {
    /// `claudeCode` in the `_meta` of the call.
    ClaudeCode,
    /// `toolName` in the `_meta` of the call, and no `_meta` of the request.
    ToolName,
    /// `is_mcp_tool_approval` in the `_meta` of the request, and no `_meta` of the call.
    McpToolApproval,
    /// No `_meta`, and these options among others.
    Options(&'static [&'static str]),
    /// No `_meta`, and exactly these options, in this order.
    OnlyOptions(&'static [&'static str]),
    /// No `_meta`.
    NoMeta,
}

/// Where a tool is named.
pub(super) enum ToolName {
    /// In a text of this form: `{server}` and `{tool}` stand for the two names, `{id}` for anything that ends the text.
    Text {
        /// The text.
        at: TextLocation,
        /// Its form.
        form: &'static str,
        /// The tools that are named this way, by their behaviour.
        tools: &'static [PromptBehavior],
    },
    /// In the input of the announced call, which is marked as an MCP tool call.
    AnnouncedInput,
    /// In the `_meta` of the announced call.
    AnnouncedMeta,
}

/// A text of a request.
pub(super) enum TextLocation {
    /// `_meta.claudeCode.toolName` of the call.
    ClaudeToolName,
    /// `_meta.toolName` of the call.
    ToolName,
    /// The title of the call.
    Title,
    /// The id of the call.
    CallId,
}

/// Where the input of a tool is found.
pub(super) enum InputLocation {
    /// `rawInput` of the request.
    RawInput,
    /// The only text in the content of the request: the input as JSON, or the names of its arguments if it is long.
    Content,
    /// The announced call.
    Announcement,
}

/// A condition on a request.
pub(super) enum RequestCheck {
    /// `_meta.claudeCode.mcpServer` names our server, and this source of its definition.
    ServerSource(&'static str),
    /// Options with these ids have these names, followed by the tool's own.
    OptionNames(&'static [(&'static str, &'static str)]),
    /// The call is of this kind.
    Kind(ToolKind),
    /// The call has a kind other than execute.
    NotExecute,
    /// The call has neither kind nor input.
    NoKindOrInput,
    /// The call was announced under the same title.
    AnnouncedTitle,
    /// The input has only arguments of the tool.
    OnlyArguments,
}

const ALL_TOOLS: &[PromptBehavior] =
    &[PromptBehavior::BeforeWrite, PromptBehavior::BeforeRun, PromptBehavior::Never];
const COMMAND_TOOLS: &[PromptBehavior] = &[PromptBehavior::BeforeRun];
const NON_COMMAND_TOOLS: &[PromptBehavior] = &[PromptBehavior::BeforeWrite, PromptBehavior::Never];

/// The name under which most agents register a tool. None of our tools has two underscores in its name, so no tool of
/// another server can have the same name.
const REGISTERED_NAME_FORM: &str = "mcp__{server}__{tool}";

/// The name that vibe gives a tool of an MCP server in the `_meta` of a call.
pub(super) const META_NAME_FORM: &str = "mcp_{server}.{tool}";

/// The title that fast-agent gives a call.
pub(super) const TITLE_FORM: &str = "{server}/{tool}";

/// Gemini's replacement for an input that is too long to show.
pub(super) const OMITTED_INPUT_PREFIX: &str = "[Payload omitted due to length with parameters: ";

/// The known agents.
pub(super) const REQUEST_SHAPES: &[RequestShape] = &[
    // Names the server and the source of its definition: only a server that came with the session is ours, not one
    // from the project's or the user's settings.
    RequestShape {
        agent: "claude-agent-acp",
        versions: &["0.99.0"],
        mark: RequestMark::ClaudeCode,
        names: &[ToolName::Text {
            at: TextLocation::ClaudeToolName,
            form: REGISTERED_NAME_FORM,
            tools: ALL_TOOLS,
        }],
        input: InputLocation::RawInput,
        checks: &[RequestCheck::ServerSource("dynamic")],
    },
    // A project can have its own tool under any name, so the options have to be those for an MCP tool, which give the
    // server's name for the tool.
    RequestShape {
        agent: "qwen",
        versions: &["0.24.4"],
        mark: RequestMark::ToolName,
        names: &[ToolName::Text { at: TextLocation::ToolName, form: REGISTERED_NAME_FORM, tools: ALL_TOOLS }],
        input: InputLocation::RawInput,
        checks: &[RequestCheck::OptionNames(&[
            ("proceed_always_project", "Always Allow in project: "),
            ("proceed_always_user", "Always Allow for user: "),
        ])],
    },
    // Names only a call. The announced call gives server and tool in its input; for a command the input is the
    // command.
    RequestShape {
        agent: "codex-acp",
        versions: &["2.6.0"],
        mark: RequestMark::McpToolApproval,
        names: &[ToolName::AnnouncedInput],
        input: InputLocation::Announcement,
        checks: &[],
    },
    // Uses these options only for MCP tools. If the input has a `command`, which a model chooses, that is the title.
    // So the input must have only the tool's arguments, and our tool that has a `command` is recognised by the call's
    // id, which begins with the tool's registered name. Another server's tool can only have that name if the server
    // is called `mcp_bowline`, and a program that can configure that can already run code.
    RequestShape {
        agent: "gemini",
        versions: &["0.61.0"],
        mark: RequestMark::Options(&["proceed_always_server", "proceed_always_tool"]),
        names: &[
            ToolName::Text {
                at: TextLocation::Title,
                form: "{tool} ({server} MCP Server)",
                tools: NON_COMMAND_TOOLS,
            },
            ToolName::Text {
                at: TextLocation::CallId,
                form: "mcp_{server}_{tool}__{id}",
                tools: COMMAND_TOOLS,
            },
        ],
        input: InputLocation::Content,
        checks: &[RequestCheck::Kind(ToolKind::Other), RequestCheck::OnlyArguments],
    },
    // Titles its requests with the registered name, regardless of the model's text. The file read is known from the
    // announcement.
    RequestShape {
        agent: "kimi-code",
        versions: &["2.1.0"],
        mark: RequestMark::OnlyOptions(&["approve_once", "approve_always", "reject"]),
        names: &[ToolName::Text { at: TextLocation::Title, form: REGISTERED_NAME_FORM, tools: ALL_TOOLS }],
        input: InputLocation::Announcement,
        checks: &[RequestCheck::NoKindOrInput],
    },
    // Names only a call, and asks about everything with these options. The announced call has the tool's registered
    // name in its `_meta`: the server is a group of tools, and vibe renames a group if its name is taken.
    RequestShape {
        agent: "vibe",
        versions: &["3.0.2"],
        mark: RequestMark::OnlyOptions(&[
            "allow_once", "allow_always", "allow_always_permanent", "reject_once",
        ]),
        names: &[ToolName::AnnouncedMeta],
        input: InputLocation::Announcement,
        checks: &[RequestCheck::NoKindOrInput],
    },
    // Has only a title, which a command could have as well: `bowline/edit_text_file` may be a program in the project.
    // So the call must have been announced under the title, must not run anything, by its kind as well as by the
    // tool, and must have only the tool's arguments as input.
    RequestShape {
        agent: "fast-agent",
        versions: &["0.10.46"],
        mark: RequestMark::NoMeta,
        names: &[ToolName::Text { at: TextLocation::Title, form: TITLE_FORM, tools: NON_COMMAND_TOOLS }],
        input: InputLocation::RawInput,
        checks: &[RequestCheck::AnnouncedTitle, RequestCheck::NotExecute, RequestCheck::OnlyArguments],
    },
];

impl RequestMark {
    /// Returns whether a request has this mark.
    pub(super) fn is_in(&self, request: &PermissionRequestParams<'_>) -> bool {
        let (call_meta, request_meta) = (request.tool_call.meta.as_ref(), request.meta.as_ref());
        let is_bare = call_meta.is_none() && request_meta.is_none();
        let ids = || request.options.iter().map(|option| &*option.option_id.0);
        match self {
            Self::ClaudeCode => call_meta.is_some_and(|meta| meta.claude_code.is_some()),
            Self::ToolName => {
                call_meta.is_some_and(|meta| meta.tool_name.is_some()) && request_meta.is_none()
            }
            Self::McpToolApproval => {
                call_meta.is_none() && request_meta.and_then(|meta| meta.is_mcp_tool_approval) == Some(true)
            }
            Self::Options(some) => is_bare && some.iter().all(|id| ids().any(|known| known == *id)),
            Self::OnlyOptions(all) => is_bare && ids().eq(all.iter().copied()),
            Self::NoMeta => is_bare,
        }
    }
}

impl TextLocation {
    /// Returns this text of a request.
    pub(super) fn text_in<'a>(&self, request: &'a PermissionRequestParams<'_>) -> Option<&'a str> {
        let call = &request.tool_call;
        let meta = call.meta.as_ref();
        match self {
            Self::ClaudeToolName => meta.and_then(|meta| Some(meta.claude_code.as_ref()?.tool_name.as_str())),
            Self::ToolName => meta.and_then(|meta| meta.tool_name.as_deref()),
            Self::Title => call.title.as_deref(),
            Self::CallId => Some(&call.tool_call_id.0),
        }
    }
}

/// Returns the tool that a text of this form names.
pub(super) fn parse_tool_name<'a>(form: &str, server: &str, text: &'a str) -> Option<&'a str> {
    let (before, after) = form.split_once("{tool}")?;
    let rest = text.strip_prefix(&before.replace("{server}", server))?;
    match after.strip_suffix("{id}") {
        // A name with another separator belongs to another tool.
        Some(separator) => {
            let (tool, id) = rest.split_once(separator)?;
            (!id.is_empty() && !id.contains(separator)).then_some(tool)
        }
        None => rest.strip_suffix(&after.replace("{server}", server)),
    }
}
