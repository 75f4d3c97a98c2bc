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

/// Declares an enum of methods, with their names on the wire.
macro_rules! methods {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $wire_name:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every method, in the order of the variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the method's name on the wire.
            #[must_use]
            pub fn wire_name(self) -> &'static str {
                match self {
                    $(Self::$variant => $wire_name,)*
                }
            }
        }
    };
}

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

methods! {
    /// A client method, split where the protocol requires different capabilities.
    ClientMethod {
        /// `session/update` with an update that every client accepts.
        Update = CLIENT_METHOD_NAMES.session_update,
        /// `session/update` with a notice.
        Notice = CLIENT_METHOD_NAMES.session_update,
        /// `session/update` with a compaction or a chunk of its summary.
        Compaction = CLIENT_METHOD_NAMES.session_update,
        /// `session/request_permission`.
        RequestPermission = CLIENT_METHOD_NAMES.session_request_permission,
        /// `fs/read_text_file`.
        ReadTextFile = CLIENT_METHOD_NAMES.fs_read_text_file,
        /// `fs/write_text_file`.
        WriteTextFile = CLIENT_METHOD_NAMES.fs_write_text_file,
        /// `terminal/create`.
        CreateTerminal = CLIENT_METHOD_NAMES.terminal_create,
        /// `terminal/output`.
        TerminalOutput = CLIENT_METHOD_NAMES.terminal_output,
        /// `terminal/release`.
        ReleaseTerminal = CLIENT_METHOD_NAMES.terminal_release,
        /// `terminal/wait_for_exit`.
        WaitForTerminalExit = CLIENT_METHOD_NAMES.terminal_wait_for_exit,
        /// `terminal/kill`.
        KillTerminal = CLIENT_METHOD_NAMES.terminal_kill,
        /// `elicitation/create` with a form.
        ElicitForm = CLIENT_METHOD_NAMES.elicitation_create,
        /// `elicitation/create` with a URL.
        ElicitUrl = CLIENT_METHOD_NAMES.elicitation_create,
        /// `elicitation/complete`, which ends a URL elicitation.
        CompleteElicitation = CLIENT_METHOD_NAMES.elicitation_complete,
        /// `_bowline/fs/list`.
        ListDirectory = file_extension::LIST_METHOD,
        /// `_bowline/fs/stat`.
        StatFile = file_extension::STAT_METHOD,
        /// `_bowline/fs/read`.
        ReadFile = file_extension::READ_METHOD,
        /// `_bowline/fs/write`.
        WriteFile = file_extension::WRITE_METHOD,
        /// `_bowline/fs/batch`.
        BatchFiles = file_extension::BATCH_METHOD,
        /// `_bowline/fs/watch`.
        WatchFiles = file_extension::WATCH_METHOD,
        /// `_bowline/fs/unwatch`.
        UnwatchFiles = file_extension::UNWATCH_METHOD,
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
        let (client, files) = (self.require_initialized(name)?, &self.files);
        let notices = client.session.as_ref().is_some_and(|session| session.notices.is_some());
        let compaction = client.session.as_ref().is_some_and(|session| session.compaction.is_some());
        let form = client.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some());
        let url = client.elicitation.as_ref().is_some_and(|elicitation| elicitation.url.is_some());
        let (is_open, capability) = match method {
            ClientMethod::Update | ClientMethod::RequestPermission => return Ok(()),
            ClientMethod::Notice => {
                return require_part(notices, "a notice", "clientCapabilities.session.notices");
            }
            ClientMethod::Compaction => {
                return require_part(compaction, "a compaction", "clientCapabilities.session.compaction");
            }
            ClientMethod::ReadTextFile => (client.fs.read_text_file, "clientCapabilities.fs.readTextFile"),
            ClientMethod::WriteTextFile => (client.fs.write_text_file, "clientCapabilities.fs.writeTextFile"),
            ClientMethod::CreateTerminal
            | ClientMethod::TerminalOutput
            | ClientMethod::ReleaseTerminal
            | ClientMethod::WaitForTerminalExit
            | ClientMethod::KillTerminal => (client.terminal, "clientCapabilities.terminal"),
            ClientMethod::ElicitForm => {
                let capability = "clientCapabilities.elicitation.form";
                require_method(form || url, name, capability)?;
                return require_part(form, "an elicitation by form", capability);
            }
            ClientMethod::ElicitUrl => {
                let capability = "clientCapabilities.elicitation.url";
                require_method(form || url, name, capability)?;
                return require_part(url, "an elicitation by URL", capability);
            }
            ClientMethod::CompleteElicitation => (url, "clientCapabilities.elicitation.url"),
            ClientMethod::ListDirectory => (files.list.is_some(), "clientCapabilities._meta.bowline.fs.list"),
            ClientMethod::StatFile => (files.stat.is_some(), "clientCapabilities._meta.bowline.fs.stat"),
            ClientMethod::ReadFile => (files.read.is_some(), "clientCapabilities._meta.bowline.fs.read"),
            ClientMethod::WriteFile => (files.write.is_some(), "clientCapabilities._meta.bowline.fs.write"),
            ClientMethod::BatchFiles => (files.batch.is_some(), "clientCapabilities._meta.bowline.fs.batch"),
            ClientMethod::WatchFiles | ClientMethod::UnwatchFiles => {
                (files.watch.is_some(), "clientCapabilities._meta.bowline.fs.watch")
            }
        };
        require_method(is_open, name, capability)
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

methods! {
    /// A method of an agent.
    AgentMethod {
        /// `initialize`, the only method allowed first.
        Initialize = AGENT_METHOD_NAMES.initialize,
        /// `authenticate`.
        Authenticate = AGENT_METHOD_NAMES.authenticate,
        /// `logout`.
        Logout = AGENT_METHOD_NAMES.logout,
        /// `session/new`.
        NewSession = AGENT_METHOD_NAMES.session_new,
        /// `session/load`.
        LoadSession = AGENT_METHOD_NAMES.session_load,
        /// `session/resume`.
        ResumeSession = AGENT_METHOD_NAMES.session_resume,
        /// `session/fork`.
        ForkSession = AGENT_METHOD_NAMES.session_fork,
        /// `session/list`.
        ListSessions = AGENT_METHOD_NAMES.session_list,
        /// `session/delete`.
        DeleteSession = AGENT_METHOD_NAMES.session_delete,
        /// `session/close`.
        CloseSession = AGENT_METHOD_NAMES.session_close,
        /// `session/set_mode`.
        SetMode = AGENT_METHOD_NAMES.session_set_mode,
        /// `session/set_config_option`.
        SetConfigOption = AGENT_METHOD_NAMES.session_set_config_option,
        /// `session/prompt`.
        Prompt = AGENT_METHOD_NAMES.session_prompt,
        /// `session/cancel`.
        Cancel = AGENT_METHOD_NAMES.session_cancel,
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
        let (is_open, capability) = match method {
            AgentMethod::Initialize
            | AgentMethod::Authenticate
            | AgentMethod::NewSession
            | AgentMethod::SetMode
            | AgentMethod::SetConfigOption
            | AgentMethod::Prompt
            | AgentMethod::Cancel => return Ok(()),
            AgentMethod::Logout => (agent.auth.logout.is_some(), "agentCapabilities.auth.logout"),
            AgentMethod::LoadSession => (agent.load_session, "agentCapabilities.loadSession"),
            AgentMethod::ResumeSession => {
                (session.resume.is_some(), "agentCapabilities.sessionCapabilities.resume")
            }
            AgentMethod::ForkSession => {
                (session.fork.is_some(), "agentCapabilities.sessionCapabilities.fork")
            }
            AgentMethod::ListSessions => {
                (session.list.is_some(), "agentCapabilities.sessionCapabilities.list")
            }
            AgentMethod::DeleteSession => {
                (session.delete.is_some(), "agentCapabilities.sessionCapabilities.delete")
            }
            AgentMethod::CloseSession => {
                (session.close.is_some(), "agentCapabilities.sessionCapabilities.close")
            }
        };
        require_method(is_open, name, capability)
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
