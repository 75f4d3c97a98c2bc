//! Capability gates: which methods and request parts one side may use with the other after `initialize`.
//!
//! Every optional part of the protocol is closed until the other side advertises it, and everything is closed before
//! `initialize`. A gate is built from one side's advertised capabilities. The other side consults it before each
//! message it sends; the advertising side may consult it for each message it receives.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentCapabilities, AuthMethod, CLIENT_METHOD_NAMES, ClientCapabilities, ContentBlock,
    ElicitationMode, McpServer, Meta, SessionConfigKind, SessionConfigOption, SessionUpdate,
};

use crate::file_extension::{self, FileCapabilities};

/// Why a message may not be sent, or is refused by its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// `initialize` has not completed yet.
    #[error("{subject} may not be used before initialize")]
    BeforeInitialize {
        /// The method or the part of a message.
        subject: &'static str,
    },
    /// The serving side did not advertise the method.
    #[error("{method} needs {capability}, which was not advertised")]
    MethodNotAdvertised {
        /// The method's name on the wire.
        method: &'static str,
        /// The capability as it is spelled in `initialize`.
        capability: &'static str,
    },
    /// The method is supported, but not with every part of the message.
    #[error("{part} needs {capability}, which was not advertised")]
    PartNotAdvertised {
        /// The unsupported part.
        part: &'static str,
        /// The capability as it is spelled in `initialize`.
        capability: &'static str,
    },
    /// The message contains a part for which this build knows no capability, so it cannot have been advertised.
    #[error("{part} is not known here")]
    UnknownPart {
        /// The unknown part.
        part: &'static str,
    },
}

/// A client method, split where the protocol requires different capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientMethod {
    /// `session/update` with an update that every client accepts.
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
    /// `elicitation/complete`, which ends a URL elicitation.
    CompleteElicitation,
    /// `_bowline/fs/list`.
    ListDirectory,
    /// `_bowline/fs/stat`.
    StatFile,
    /// `_bowline/fs/read`.
    ReadFile,
    /// `_bowline/fs/write`.
    WriteFile,
    /// `_bowline/fs/batch`.
    BatchFiles,
    /// `_bowline/fs/watch`.
    WatchFiles,
    /// `_bowline/fs/unwatch`.
    UnwatchFiles,
}

impl ClientMethod {
    /// Every method, in the order of the variants.
    pub const ALL: [Self; 21] = [
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
        Self::ListDirectory,
        Self::StatFile,
        Self::ReadFile,
        Self::WriteFile,
        Self::BatchFiles,
        Self::WatchFiles,
        Self::UnwatchFiles,
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
            Self::ListDirectory => file_extension::LIST_METHOD,
            Self::StatFile => file_extension::STAT_METHOD,
            Self::ReadFile => file_extension::READ_METHOD,
            Self::WriteFile => file_extension::WRITE_METHOD,
            Self::BatchFiles => file_extension::BATCH_METHOD,
            Self::WatchFiles => file_extension::WATCH_METHOD,
            Self::UnwatchFiles => file_extension::UNWATCH_METHOD,
        }
    }
}

/// The methods and parts that an agent may use with its client.
///
/// The default is the gate before `initialize`: closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCapabilityGate {
    advertised: Option<ClientCapabilities>,
    // Invariant: as `advertised` describes them in its `_meta`.
    files: FileCapabilities,
}

impl ClientCapabilityGate {
    /// Opens the capabilities that the client advertised in its `initialize` request.
    #[must_use]
    pub fn new(advertised: ClientCapabilities) -> Self {
        let files = advertised.meta.as_ref().map(FileCapabilities::from_meta).unwrap_or_default();
        Self { advertised: Some(advertised), files }
    }

    /// Returns what the client offers of the file extension.
    #[must_use]
    pub fn file_capabilities(&self) -> &FileCapabilities {
        &self.files
    }

    /// Checks that the client serves `method`.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: ClientMethod) -> Result<(), CapabilityError> {
        let name = method.wire_name();
        let client = self.require_initialized(name)?;
        let notices = client.session.as_ref().is_some_and(|session| session.notices.is_some());
        let compaction = client.session.as_ref().is_some_and(|session| session.compaction.is_some());
        let form = client.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some());
        let url = client.elicitation.as_ref().is_some_and(|elicitation| elicitation.url.is_some());
        match method {
            ClientMethod::Update | ClientMethod::RequestPermission => Ok(()),
            ClientMethod::Notice => require_part(notices, "a notice", "clientCapabilities.session.notices"),
            ClientMethod::Compaction => {
                require_part(compaction, "a compaction", "clientCapabilities.session.compaction")
            }
            ClientMethod::ReadTextFile => {
                require_method(client.fs.read_text_file, name, "clientCapabilities.fs.readTextFile")
            }
            ClientMethod::WriteTextFile => {
                require_method(client.fs.write_text_file, name, "clientCapabilities.fs.writeTextFile")
            }
            ClientMethod::CreateTerminal
            | ClientMethod::TerminalOutput
            | ClientMethod::ReleaseTerminal
            | ClientMethod::WaitForTerminalExit
            | ClientMethod::KillTerminal => {
                require_method(client.terminal, name, "clientCapabilities.terminal")
            }
            ClientMethod::ElicitForm => {
                let capability = "clientCapabilities.elicitation.form";
                require_method(form || url, name, capability)?;
                require_part(form, "an elicitation by form", capability)
            }
            ClientMethod::ElicitUrl => {
                let capability = "clientCapabilities.elicitation.url";
                require_method(form || url, name, capability)?;
                require_part(url, "an elicitation by URL", capability)
            }
            ClientMethod::CompleteElicitation => {
                require_method(url, name, "clientCapabilities.elicitation.url")
            }
            ClientMethod::ListDirectory => {
                require_method(self.files.list.is_some(), name, "clientCapabilities._meta.bowline.fs.list")
            }
            ClientMethod::StatFile => {
                require_method(self.files.stat.is_some(), name, "clientCapabilities._meta.bowline.fs.stat")
            }
            ClientMethod::ReadFile => {
                require_method(self.files.read.is_some(), name, "clientCapabilities._meta.bowline.fs.read")
            }
            ClientMethod::WriteFile => {
                require_method(self.files.write.is_some(), name, "clientCapabilities._meta.bowline.fs.write")
            }
            ClientMethod::BatchFiles => {
                require_method(self.files.batch.is_some(), name, "clientCapabilities._meta.bowline.fs.batch")
            }
            ClientMethod::WatchFiles | ClientMethod::UnwatchFiles => {
                require_method(self.files.watch.is_some(), name, "clientCapabilities._meta.bowline.fs.watch")
            }
        }
    }

    /// Checks a whole `session/update`, including the options that it offers.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_update(&self, update: &SessionUpdate) -> Result<(), CapabilityError> {
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
            // A kind added by a newer schema is closed until its capability is added here.
            _ => reject_unknown_part("an update of another kind"),
        }
    }

    /// Checks the config options that an agent is about to offer, in any message.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_config_options(&self, options: &[SessionConfigOption]) -> Result<(), CapabilityError> {
        let client = self.require_initialized("a config option")?;
        let boolean =
            client.session.as_ref().and_then(|session| session.config_options.as_ref()?.boolean.as_ref());
        options.iter().try_for_each(|option| match option.kind {
            SessionConfigKind::Select(_) => Ok(()),
            SessionConfigKind::Boolean(_) => require_part(
                boolean.is_some(),
                "a boolean config option",
                "clientCapabilities.session.configOptions.boolean",
            ),
            // A kind added by a newer schema is closed until its capability is added here.
            _ => reject_unknown_part("a config option of another kind"),
        })
    }

    /// Checks that the client supports this elicitation mode.
    ///
    /// # Errors
    /// Returns the capability that is missing. A mode outside the protocol is never open.
    pub fn check_elicitation(&self, mode: &ElicitationMode) -> Result<(), CapabilityError> {
        match mode {
            ElicitationMode::Form(_) => self.check(ClientMethod::ElicitForm),
            ElicitationMode::Url(_) => self.check(ClientMethod::ElicitUrl),
            // Custom modes, and modes added by a newer schema.
            _ => reject_unknown_part("an elicitation of another mode"),
        }
    }

    /// Checks the authentication methods that an agent is about to offer in its `initialize` response.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_auth_methods(&self, methods: &[AuthMethod]) -> Result<(), CapabilityError> {
        let client = self.require_initialized("an authentication method")?;
        methods.iter().try_for_each(|method| match method {
            AuthMethod::Agent(_) => Ok(()),
            AuthMethod::Terminal(_) => require_part(
                client.auth.terminal,
                "a terminal authentication method",
                "clientCapabilities.auth.terminal",
            ),
            // A kind added by a newer schema is closed until its capability is added here.
            _ => reject_unknown_part("an authentication method of another kind"),
        })
    }

    /// Returns whether the client authorises and records every operation that it serves, as
    /// [`authorizes_operations_meta`] declares.
    #[must_use]
    pub fn authorizes_operations(&self) -> bool {
        let meta = self.advertised.as_ref().and_then(|client| client.meta.as_ref());
        meta.and_then(|meta| meta.get("bowline")?.get("decides")?.as_bool()).unwrap_or(false)
    }

    fn require_initialized(&self, subject: &'static str) -> Result<&ClientCapabilities, CapabilityError> {
        self.advertised.as_ref().ok_or(CapabilityError::BeforeInitialize { subject })
    }
}

/// Returns the `_meta` with which a client declares that it authorises and records every operation that it serves. An
/// agent that sees it need not request permission first.
#[must_use]
pub fn authorizes_operations_meta() -> Meta {
    Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "decides": true }))])
}

/// A method of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentMethod {
    /// `initialize`, the only method allowed first.
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

/// The methods and parts that a client may use with its agent.
///
/// The default is the gate before the response to `initialize`: closed except for `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCapabilityGate {
    advertised: Option<AgentCapabilities>,
}

impl AgentCapabilityGate {
    /// Opens the capabilities that the agent advertised in its `initialize` response.
    #[must_use]
    pub fn new(advertised: AgentCapabilities) -> Self {
        Self { advertised: Some(advertised) }
    }

    /// Checks that the agent serves `method`.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check(&self, method: AgentMethod) -> Result<(), CapabilityError> {
        if method == AgentMethod::Initialize {
            return Ok(());
        }
        let name = method.wire_name();
        let agent = self.require_initialized(name)?;
        let session = &agent.session_capabilities;
        match method {
            AgentMethod::Initialize
            | AgentMethod::Authenticate
            | AgentMethod::NewSession
            | AgentMethod::SetMode
            | AgentMethod::SetConfigOption
            | AgentMethod::Prompt
            | AgentMethod::Cancel => Ok(()),
            AgentMethod::Logout => {
                require_method(agent.auth.logout.is_some(), name, "agentCapabilities.auth.logout")
            }
            AgentMethod::LoadSession => {
                require_method(agent.load_session, name, "agentCapabilities.loadSession")
            }
            AgentMethod::ResumeSession => {
                require_method(session.resume.is_some(), name, "agentCapabilities.sessionCapabilities.resume")
            }
            AgentMethod::ForkSession => {
                require_method(session.fork.is_some(), name, "agentCapabilities.sessionCapabilities.fork")
            }
            AgentMethod::ListSessions => {
                require_method(session.list.is_some(), name, "agentCapabilities.sessionCapabilities.list")
            }
            AgentMethod::DeleteSession => {
                require_method(session.delete.is_some(), name, "agentCapabilities.sessionCapabilities.delete")
            }
            AgentMethod::CloseSession => {
                require_method(session.close.is_some(), name, "agentCapabilities.sessionCapabilities.close")
            }
        }
    }

    /// Checks the content of a `session/prompt`. Text and resource links are open to every agent.
    ///
    /// # Errors
    /// Returns the missing capability of the first block that is not open.
    pub fn check_prompt(&self, prompt: &[ContentBlock]) -> Result<(), CapabilityError> {
        let open = &self.require_initialized(AgentMethod::Prompt.wire_name())?.prompt_capabilities;
        prompt.iter().try_for_each(|block| match block {
            ContentBlock::Text(_) | ContentBlock::ResourceLink(_) => Ok(()),
            ContentBlock::Image(_) => {
                require_part(open.image, "an image in a prompt", "agentCapabilities.promptCapabilities.image")
            }
            ContentBlock::Audio(_) => {
                require_part(open.audio, "audio in a prompt", "agentCapabilities.promptCapabilities.audio")
            }
            ContentBlock::Resource(_) => require_part(
                open.embedded_context,
                "an embedded resource in a prompt",
                "agentCapabilities.promptCapabilities.embeddedContext",
            ),
            // A kind added by a newer schema is closed until its capability is added here.
            _ => reject_unknown_part("content of another kind"),
        })
    }

    /// Checks the MCP servers of a new session. Servers over stdio are open to every agent.
    ///
    /// # Errors
    /// Returns the missing capability of the first server that is not open.
    pub fn check_mcp_servers(&self, servers: &[McpServer]) -> Result<(), CapabilityError> {
        let open = &self.require_initialized("an MCP server")?.mcp_capabilities;
        servers.iter().try_for_each(|server| match server {
            McpServer::Stdio(_) => Ok(()),
            McpServer::Http(_) => {
                require_part(open.http, "an http MCP server", "agentCapabilities.mcpCapabilities.http")
            }
            McpServer::Sse(_) => {
                require_part(open.sse, "an sse MCP server", "agentCapabilities.mcpCapabilities.sse")
            }
            McpServer::Acp(_) => {
                require_part(open.acp, "an acp MCP server", "agentCapabilities.mcpCapabilities.acp")
            }
            // A transport added by a newer schema is closed until its capability is added here.
            _ => reject_unknown_part("an MCP server of another kind"),
        })
    }

    /// Checks the additional directories of a new session. An empty list is open to every agent.
    ///
    /// # Errors
    /// Returns the capability that is missing.
    pub fn check_additional_directories(&self, directories: &[PathBuf]) -> Result<(), CapabilityError> {
        let subject = "additionalDirectories";
        let open = &self.require_initialized(subject)?.session_capabilities.additional_directories;
        require_part(
            open.is_some() || directories.is_empty(),
            subject,
            "agentCapabilities.sessionCapabilities.additionalDirectories",
        )
    }

    fn require_initialized(&self, subject: &'static str) -> Result<&AgentCapabilities, CapabilityError> {
        self.advertised.as_ref().ok_or(CapabilityError::BeforeInitialize { subject })
    }
}

fn require_method(open: bool, method: &'static str, capability: &'static str) -> Result<(), CapabilityError> {
    if open { Ok(()) } else { Err(CapabilityError::MethodNotAdvertised { method, capability }) }
}

fn require_part(open: bool, part: &'static str, capability: &'static str) -> Result<(), CapabilityError> {
    if open { Ok(()) } else { Err(CapabilityError::PartNotAdvertised { part, capability }) }
}

fn reject_unknown_part(part: &'static str) -> Result<(), CapabilityError> {
    Err(CapabilityError::UnknownPart { part })
}

#[cfg(test)]
mod tests;
pub mod version;
