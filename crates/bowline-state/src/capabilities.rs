//! What one side may ask of the other: the methods and the parts of requests that `initialize` opened.
//!
//! Everything optional in the protocol is closed until the other side advertised it, and before `initialize` nothing
//! is open at all. A gate is made from what a side advertised. The other side asks it before each message it sends,
//! and the side itself may ask it about each message it gets.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentCapabilities, AuthMethod, CLIENT_METHOD_NAMES, ClientCapabilities, ContentBlock,
    ElicitationMode, McpServer, Meta, SessionConfigKind, SessionConfigOption, SessionUpdate,
};

/// Why a message may not be sent, or is refused by the side that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdvertised {
    /// The two sides have not agreed on anything yet.
    #[error("{what} may not be used before initialize")]
    BeforeInitialize {
        /// The method or the part of a message.
        what: &'static str,
    },
    /// The side that would serve the method did not advertise it.
    #[error("{method} needs {capability}, which was not advertised")]
    Method {
        /// The method's name on the wire.
        method: &'static str,
        /// The capability as it is spelled in `initialize`.
        capability: &'static str,
    },
    /// The method is served, but not with everything that is in the message.
    #[error("{part} needs {capability}, which was not advertised")]
    Part {
        /// What the message may not hold.
        part: &'static str,
        /// The capability as it is spelled in `initialize`.
        capability: &'static str,
    },
    /// The message holds what this build has no capability for, so that nobody can have advertised it.
    #[error("{part} is not known here")]
    Unknown {
        /// What the message may not hold.
        part: &'static str,
    },
}

/// A method of a client, split where the protocol asks for different capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientMethod {
    /// `session/update` with an update that every client takes.
    Update,
    /// `session/update` with a notice.
    Notice,
    /// `session/update` with a compaction or a chunk of its summary.
    Compaction,
    /// `session/request_permission`.
    RequestPermission,
    /// `fs/read_text_file`.
    ReadTextFile,
    /// `fs/write_text_file`.
    WriteTextFile,
    /// `terminal/create`.
    CreateTerminal,
    /// `terminal/output`.
    TerminalOutput,
    /// `terminal/release`.
    ReleaseTerminal,
    /// `terminal/wait_for_exit`.
    WaitForTerminalExit,
    /// `terminal/kill`.
    KillTerminal,
    /// `elicitation/create` with a form.
    ElicitForm,
    /// `elicitation/create` with a URL.
    ElicitUrl,
    /// `elicitation/complete`, which ends an elicitation with a URL.
    CompleteElicitation,
}

impl ClientMethod {
    /// Every method, in the order of the variants.
    pub const ALL: [Self; 14] = [
        Self::Update,
        Self::Notice,
        Self::Compaction,
        Self::RequestPermission,
        Self::ReadTextFile,
        Self::WriteTextFile,
        Self::CreateTerminal,
        Self::TerminalOutput,
        Self::ReleaseTerminal,
        Self::WaitForTerminalExit,
        Self::KillTerminal,
        Self::ElicitForm,
        Self::ElicitUrl,
        Self::CompleteElicitation,
    ];

    /// Returns the method's name on the wire.
    #[must_use]
    pub fn wire_name(self) -> &'static str {
        let names = CLIENT_METHOD_NAMES;
        match self {
            Self::Update | Self::Notice | Self::Compaction => names.session_update,
            Self::RequestPermission => names.session_request_permission,
            Self::ReadTextFile => names.fs_read_text_file,
            Self::WriteTextFile => names.fs_write_text_file,
            Self::CreateTerminal => names.terminal_create,
            Self::TerminalOutput => names.terminal_output,
            Self::ReleaseTerminal => names.terminal_release,
            Self::WaitForTerminalExit => names.terminal_wait_for_exit,
            Self::KillTerminal => names.terminal_kill,
            Self::ElicitForm | Self::ElicitUrl => names.elicitation_create,
            Self::CompleteElicitation => names.elicitation_complete,
        }
    }
}

/// What an agent may ask of its client.
///
/// The default is the gate before `initialize`: closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientGate {
    advertised: Option<ClientCapabilities>,
}

impl ClientGate {
    /// Opens what the client advertised in its `initialize` request.
    #[must_use]
    pub fn new(advertised: ClientCapabilities) -> Self {
        Self { advertised: Some(advertised) }
    }

    /// Checks that the client serves `method`.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: ClientMethod) -> Result<(), NotAdvertised> {
        let name = method.wire_name();
        let client = self.initialized(name)?;
        let notices = client.session.as_ref().is_some_and(|it| it.notices.is_some());
        let compaction = client.session.as_ref().is_some_and(|it| it.compaction.is_some());
        let form = client.elicitation.as_ref().is_some_and(|it| it.form.is_some());
        let url = client.elicitation.as_ref().is_some_and(|it| it.url.is_some());
        match method {
            ClientMethod::Update | ClientMethod::RequestPermission => Ok(()),
            ClientMethod::Notice => part(notices, "a notice", "clientCapabilities.session.notices"),
            ClientMethod::Compaction => {
                part(compaction, "a compaction", "clientCapabilities.session.compaction")
            }
            ClientMethod::ReadTextFile => {
                served(client.fs.read_text_file, name, "clientCapabilities.fs.readTextFile")
            }
            ClientMethod::WriteTextFile => {
                served(client.fs.write_text_file, name, "clientCapabilities.fs.writeTextFile")
            }
            ClientMethod::CreateTerminal
            | ClientMethod::TerminalOutput
            | ClientMethod::ReleaseTerminal
            | ClientMethod::WaitForTerminalExit
            | ClientMethod::KillTerminal => served(client.terminal, name, "clientCapabilities.terminal"),
            ClientMethod::ElicitForm => {
                let capability = "clientCapabilities.elicitation.form";
                served(form || url, name, capability)?;
                part(form, "an elicitation by form", capability)
            }
            ClientMethod::ElicitUrl => {
                let capability = "clientCapabilities.elicitation.url";
                served(form || url, name, capability)?;
                part(url, "an elicitation by URL", capability)
            }
            ClientMethod::CompleteElicitation => served(url, name, "clientCapabilities.elicitation.url"),
        }
    }

    /// Checks a whole `session/update`, down to the options that it offers.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_update(&self, update: &SessionUpdate) -> Result<(), NotAdvertised> {
        match update {
            SessionUpdate::Notice(_) => self.check(ClientMethod::Notice),
            SessionUpdate::CompactionUpdate(_) | SessionUpdate::CompactionSummaryChunk(_) => {
                self.check(ClientMethod::Compaction)
            }
            SessionUpdate::ConfigOptionUpdate(update) => self.check_config_options(&update.config_options),
            SessionUpdate::UserMessageChunk(_)
            | SessionUpdate::AgentMessageChunk(_)
            | SessionUpdate::AgentThoughtChunk(_)
            | SessionUpdate::ToolCall(_)
            | SessionUpdate::ToolCallUpdate(_)
            | SessionUpdate::Plan(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_)
            | SessionUpdate::UsageUpdate(_) => self.check(ClientMethod::Update),
            // A kind that a newer schema adds is closed until its capability is added here.
            _ => unknown("an update of another kind"),
        }
    }

    /// Checks the config options that an agent is about to offer, in whichever message.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_config_options(&self, options: &[SessionConfigOption]) -> Result<(), NotAdvertised> {
        let client = self.initialized("a config option")?;
        let boolean = client.session.as_ref().and_then(|it| it.config_options.as_ref()?.boolean.as_ref());
        options.iter().try_for_each(|option| match option.kind {
            SessionConfigKind::Select(_) => Ok(()),
            SessionConfigKind::Boolean(_) => part(
                boolean.is_some(),
                "a boolean config option",
                "clientCapabilities.session.configOptions.boolean",
            ),
            // A kind that a newer schema adds is closed until its capability is added here.
            _ => unknown("a config option of another kind"),
        })
    }

    /// Checks that the client can ask its user in this way.
    ///
    /// # Errors
    /// Returns the capability that is missing. A mode that is not in the protocol is never open.
    pub fn check_elicitation(&self, mode: &ElicitationMode) -> Result<(), NotAdvertised> {
        match mode {
            ElicitationMode::Form(_) => self.check(ClientMethod::ElicitForm),
            ElicitationMode::Url(_) => self.check(ClientMethod::ElicitUrl),
            // Custom modes, and those that a newer schema adds.
            _ => unknown("an elicitation of another mode"),
        }
    }

    /// Checks the authentication methods that an agent is about to offer in its answer to `initialize`.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_auth_methods(&self, methods: &[AuthMethod]) -> Result<(), NotAdvertised> {
        let client = self.initialized("an authentication method")?;
        methods.iter().try_for_each(|method| match method {
            AuthMethod::Agent(_) => Ok(()),
            AuthMethod::Terminal(_) => part(
                client.auth.terminal,
                "a terminal authentication method",
                "clientCapabilities.auth.terminal",
            ),
            // A kind that a newer schema adds is closed until its capability is added here.
            _ => unknown("an authentication method of another kind"),
        })
    }

    /// Says whether the client judges and records every operation that it serves, as [`decides_meta`] tells.
    #[must_use]
    pub fn decides(&self) -> bool {
        let meta = self.advertised.as_ref().and_then(|client| client.meta.as_ref());
        meta.and_then(|meta| meta.get("bowline")?.get("decides")?.as_bool()).unwrap_or(false)
    }

    fn initialized(&self, what: &'static str) -> Result<&ClientCapabilities, NotAdvertised> {
        self.advertised.as_ref().ok_or(NotAdvertised::BeforeInitialize { what })
    }
}

/// Returns the `_meta` by which a client tells that it judges and records every operation that it serves: an agent that knows
/// this need not ask before it.
#[must_use]
pub fn decides_meta() -> Meta {
    Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "decides": true }))])
}

/// A method of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentMethod {
    /// `initialize`, the only one that may come first.
    Initialize,
    /// `authenticate`.
    Authenticate,
    /// `logout`.
    Logout,
    /// `session/new`.
    NewSession,
    /// `session/load`.
    LoadSession,
    /// `session/resume`.
    ResumeSession,
    /// `session/fork`.
    ForkSession,
    /// `session/list`.
    ListSessions,
    /// `session/delete`.
    DeleteSession,
    /// `session/close`.
    CloseSession,
    /// `session/set_mode`.
    SetMode,
    /// `session/set_config_option`.
    SetConfigOption,
    /// `session/prompt`.
    Prompt,
    /// `session/cancel`.
    Cancel,
}

impl AgentMethod {
    /// Every method, in the order of the variants.
    pub const ALL: [Self; 14] = [
        Self::Initialize,
        Self::Authenticate,
        Self::Logout,
        Self::NewSession,
        Self::LoadSession,
        Self::ResumeSession,
        Self::ForkSession,
        Self::ListSessions,
        Self::DeleteSession,
        Self::CloseSession,
        Self::SetMode,
        Self::SetConfigOption,
        Self::Prompt,
        Self::Cancel,
    ];

    /// Returns the method's name on the wire.
    #[must_use]
    pub fn wire_name(self) -> &'static str {
        let names = AGENT_METHOD_NAMES;
        match self {
            Self::Initialize => names.initialize,
            Self::Authenticate => names.authenticate,
            Self::Logout => names.logout,
            Self::NewSession => names.session_new,
            Self::LoadSession => names.session_load,
            Self::ResumeSession => names.session_resume,
            Self::ForkSession => names.session_fork,
            Self::ListSessions => names.session_list,
            Self::DeleteSession => names.session_delete,
            Self::CloseSession => names.session_close,
            Self::SetMode => names.session_set_mode,
            Self::SetConfigOption => names.session_set_config_option,
            Self::Prompt => names.session_prompt,
            Self::Cancel => names.session_cancel,
        }
    }
}

/// What a client may ask of its agent.
///
/// The default is the gate before `initialize` was answered: closed but for `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentGate {
    advertised: Option<AgentCapabilities>,
}

impl AgentGate {
    /// Opens what the agent advertised in its answer to `initialize`.
    #[must_use]
    pub fn new(advertised: AgentCapabilities) -> Self {
        Self { advertised: Some(advertised) }
    }

    /// Checks that the agent serves `method`.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: AgentMethod) -> Result<(), NotAdvertised> {
        if method == AgentMethod::Initialize {
            return Ok(());
        }
        let name = method.wire_name();
        let agent = self.initialized(name)?;
        let session = &agent.session_capabilities;
        match method {
            AgentMethod::Initialize
            | AgentMethod::Authenticate
            | AgentMethod::NewSession
            | AgentMethod::SetMode
            | AgentMethod::SetConfigOption
            | AgentMethod::Prompt
            | AgentMethod::Cancel => Ok(()),
            AgentMethod::Logout => served(agent.auth.logout.is_some(), name, "agentCapabilities.auth.logout"),
            AgentMethod::LoadSession => served(agent.load_session, name, "agentCapabilities.loadSession"),
            AgentMethod::ResumeSession => {
                served(session.resume.is_some(), name, "agentCapabilities.sessionCapabilities.resume")
            }
            AgentMethod::ForkSession => {
                served(session.fork.is_some(), name, "agentCapabilities.sessionCapabilities.fork")
            }
            AgentMethod::ListSessions => {
                served(session.list.is_some(), name, "agentCapabilities.sessionCapabilities.list")
            }
            AgentMethod::DeleteSession => {
                served(session.delete.is_some(), name, "agentCapabilities.sessionCapabilities.delete")
            }
            AgentMethod::CloseSession => {
                served(session.close.is_some(), name, "agentCapabilities.sessionCapabilities.close")
            }
        }
    }

    /// Checks the content of a `session/prompt`. Text and resource links are open to every agent.
    ///
    /// # Errors
    /// Returns the capability that is missing for the first block that is not open.
    pub fn check_prompt(&self, prompt: &[ContentBlock]) -> Result<(), NotAdvertised> {
        let open = &self.initialized(AgentMethod::Prompt.wire_name())?.prompt_capabilities;
        prompt.iter().try_for_each(|block| match block {
            ContentBlock::Text(_) | ContentBlock::ResourceLink(_) => Ok(()),
            ContentBlock::Image(_) => {
                part(open.image, "an image in a prompt", "agentCapabilities.promptCapabilities.image")
            }
            ContentBlock::Audio(_) => {
                part(open.audio, "audio in a prompt", "agentCapabilities.promptCapabilities.audio")
            }
            ContentBlock::Resource(_) => part(
                open.embedded_context,
                "an embedded resource in a prompt",
                "agentCapabilities.promptCapabilities.embeddedContext",
            ),
            // A kind that a newer schema adds is closed until its capability is added here.
            _ => unknown("content of another kind"),
        })
    }

    /// Checks the MCP servers that a session is set up with. Servers over stdio are open to every agent.
    ///
    /// # Errors
    /// Returns the capability that is missing for the first server that is not open.
    pub fn check_mcp_servers(&self, servers: &[McpServer]) -> Result<(), NotAdvertised> {
        let open = &self.initialized("an MCP server")?.mcp_capabilities;
        servers.iter().try_for_each(|server| match server {
            McpServer::Stdio(_) => Ok(()),
            McpServer::Http(_) => {
                part(open.http, "an http MCP server", "agentCapabilities.mcpCapabilities.http")
            }
            McpServer::Sse(_) => part(open.sse, "an sse MCP server", "agentCapabilities.mcpCapabilities.sse"),
            McpServer::Acp(_) => part(open.acp, "an acp MCP server", "agentCapabilities.mcpCapabilities.acp"),
            // A transport that a newer schema adds is closed until its capability is added here.
            _ => unknown("an MCP server of another kind"),
        })
    }

    /// Checks the additional directories that a session is set up with. None at all is open to every agent.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_additional_directories(&self, directories: &[PathBuf]) -> Result<(), NotAdvertised> {
        let what = "additionalDirectories";
        let open = &self.initialized(what)?.session_capabilities.additional_directories;
        part(
            open.is_some() || directories.is_empty(),
            what,
            "agentCapabilities.sessionCapabilities.additionalDirectories",
        )
    }

    fn initialized(&self, what: &'static str) -> Result<&AgentCapabilities, NotAdvertised> {
        self.advertised.as_ref().ok_or(NotAdvertised::BeforeInitialize { what })
    }
}

fn served(open: bool, method: &'static str, capability: &'static str) -> Result<(), NotAdvertised> {
    if open { Ok(()) } else { Err(NotAdvertised::Method { method, capability }) }
}

fn part(open: bool, part: &'static str, capability: &'static str) -> Result<(), NotAdvertised> {
    if open { Ok(()) } else { Err(NotAdvertised::Part { part, capability }) }
}

fn unknown(part: &'static str) -> Result<(), NotAdvertised> {
    Err(NotAdvertised::Unknown { part })
}

#[cfg(test)]
mod tests;
