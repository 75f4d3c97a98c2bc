//! The methods that matter to a proxy.

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, PROTOCOL_LEVEL_METHOD_NAMES,
};

use crate::file_extension;

/// The start of the file extension's names.
const FILE_EXTENSION_PREFIX: &str = "_bowline/fs/";

/// A method that matters to a proxy. Messages of all others are forwarded unparsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `initialize`.
    Initialize,
    /// `session/new`.
    New,
    /// `session/load`.
    Load,
    /// `session/resume`.
    Resume,
    /// `session/fork`.
    Fork,
    /// `session/close`.
    Close,
    /// `session/delete`.
    Delete,
    /// `session/prompt`.
    Prompt,
    /// `session/cancel`.
    Cancel,
    /// `$/cancel_request`.
    CancelRequest,
    /// `session/update`.
    Update,
    /// `session/request_permission`.
    Permission,
    /// `fs/read_text_file`.
    Read,
    /// `fs/write_text_file`.
    Write,
    /// `terminal/create`.
    CreateTerminal,
    /// `terminal/output`, `terminal/wait_for_exit`, `terminal/kill` or `terminal/release`.
    Terminal,
    /// `mcp/message`, and every other method that begins with `mcp/`.
    Mcp,
    /// `_bowline/diagnostics`.
    Diagnostics,
    /// A request of the file extension, `_bowline/fs/…`.
    FileExtension,
}

impl Method {
    /// Returns the method for a name on the wire; `None` if it does not matter.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found =
            Self::known_names().into_iter().find(|(known, _)| *known == name).map(|(_, method)| method);
        found
            .or_else(|| name.starts_with("terminal/").then_some(Self::Terminal))
            .or_else(|| name.starts_with("mcp/").then_some(Self::Mcp))
            .or_else(|| name.starts_with(FILE_EXTENSION_PREFIX).then_some(Self::FileExtension))
    }

    /// Returns whether a lenient parser might read a name as another one: a name with anything but plain ASCII, or
    /// one that differs from a known method's only in case and punctuation.
    ///
    /// No protocol has such names. Code that evaluates messages by name must not let them pass as something else.
    #[must_use]
    pub fn is_lookalike(name: &str) -> bool {
        // Blanks, control and invisible characters, letters of other scripts, and characters that decode to others.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\' | b'&');
        let letters = |byte: u8| byte.is_ascii_alphanumeric().then(|| byte.to_ascii_lowercase());
        let is_like = |known: &str| known.bytes().filter_map(letters).eq(name.bytes().filter_map(letters));
        let names = Self::known_names().map(|(known, _)| known);
        !names.contains(&name) && (!name.bytes().all(is_plain) || names.into_iter().any(is_like))
    }

    fn known_names() -> [(&'static str, Self); 23] {
        let (agent, client) = (AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES);
        [
            (client.session_update, Self::Update),
            (agent.initialize, Self::Initialize),
            (agent.session_new, Self::New),
            (agent.session_load, Self::Load),
            (agent.session_resume, Self::Resume),
            (agent.session_fork, Self::Fork),
            (agent.session_close, Self::Close),
            (agent.session_delete, Self::Delete),
            (agent.session_prompt, Self::Prompt),
            (agent.session_cancel, Self::Cancel),
            (PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, Self::CancelRequest),
            (client.session_request_permission, Self::Permission),
            (client.fs_read_text_file, Self::Read),
            (client.fs_write_text_file, Self::Write),
            (client.terminal_create, Self::CreateTerminal),
            (crate::diagnostics::DIAGNOSTICS_METHOD, Self::Diagnostics),
            (file_extension::LIST_METHOD, Self::FileExtension),
            (file_extension::STAT_METHOD, Self::FileExtension),
            (file_extension::READ_METHOD, Self::FileExtension),
            (file_extension::WRITE_METHOD, Self::FileExtension),
            (file_extension::BATCH_METHOD, Self::FileExtension),
            (file_extension::WATCH_METHOD, Self::FileExtension),
            (file_extension::UNWATCH_METHOD, Self::FileExtension),
        ]
    }

    /// Returns whether a policy has to evaluate it: the agent uses it to access the editor's machine.
    #[must_use]
    pub fn needs_policy(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::CreateTerminal | Self::FileExtension)
    }
}

/// Returns whether a lenient parser might read the name of an object's member as one of the known ones: a parser that
/// ignores case and invisible characters, or ends a name at a control character.
#[must_use]
pub fn is_lookalike_member(name: &str, known: &[&str]) -> bool {
    if known.contains(&name) {
        return false;
    }
    let letters = || name.bytes().filter(u8::is_ascii_graphic).map(|byte| byte.to_ascii_lowercase());
    let is_like = |known: &&str| known.bytes().map(|byte| byte.to_ascii_lowercase()).eq(letters());
    name.contains(char::is_control) || known.iter().any(is_like)
}
