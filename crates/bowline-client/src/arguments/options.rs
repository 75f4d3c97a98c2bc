//! Parsing of the structured options of `run` and `chat` into the host's types.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_host::HostCapabilities;
use bowline_policy::mode::AgentMode;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::RootMode;
use bowline_policy::policy::{
    Effect, OperationKinds, Preset, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec,
};
use bowline_protocol::schema::v1::{McpServer, McpServerHttp, McpServerStdio};
use bowline_text::display::quote;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::Confinement;
use bowline_workspace::terminals::supervisor::ConfinementSupport;
use clap::ValueEnum as _;

use crate::agents;
use crate::arguments::{ApprovalLevel, ClientArguments};
use crate::error::CliError;

/// Returns the capabilities that the agent is offered.
pub fn offered_capabilities(arguments: &ClientArguments) -> HostCapabilities {
    HostCapabilities {
        read: !arguments.no_fs,
        write: !arguments.no_fs && !arguments.read_only,
        terminal: !arguments.no_terminal && !arguments.read_only,
        elicitation: true,
        terminal_login: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
    }
}

/// Returns the preset of an approval level.
pub fn approval_preset(approve: ApprovalLevel) -> Preset {
    match approve {
        ApprovalLevel::All => Preset::Full,
        ApprovalLevel::Edits => Preset::AcceptEdits,
        ApprovalLevel::Reads => Preset::ReadOnly,
        ApprovalLevel::Ask => Preset::Ask,
        ApprovalLevel::None => Preset::Deny,
    }
}

/// Returns the preset that an option requests for requests that no rule matches. For Bowline's own agent, `--mode` is
/// equivalent to `--approve`.
pub fn requested_preset(arguments: &ClientArguments, is_own: bool) -> Option<Preset> {
    let mode = || arguments.mode.as_deref().filter(|_| is_own).and_then(AgentMode::from_id);
    arguments.approve.map(approval_preset).or_else(|| mode().map(AgentMode::preset))
}

/// The modes of Bowline's own agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnAgentModes {
    /// The initial mode, if one is named.
    pub initial: Option<AgentMode>,
    /// The most permissive mode that it can be switched to.
    pub widest: AgentMode,
}

/// Returns the modes of Bowline's own agent.
///
/// The agent performs operations that are not offered to it itself, on the same disk, and does not ask about what its
/// mode allows. So no mode may allow more than the other options do.
pub fn own_agent_modes(arguments: &ClientArguments) -> Result<OwnAgentModes, CliError> {
    let parse_mode = |mode: &String| {
        AgentMode::from_id(mode).ok_or_else(|| {
            let known = AgentMode::ALL.map(AgentMode::id).join(", ");
            CliError::Usage(format!("there is no mode {}: it has {known}", quote(mode)))
        })
    };
    let requested = arguments.mode.as_ref().map(parse_mode).transpose()?;
    if let (Some(mode), Some(approve)) = (requested, arguments.approve)
        && mode.preset() != approval_preset(approve)
    {
        return Err(CliError::Usage(format!(
            "--mode {} and --approve {} contradict each other, as both set what Bowline's own agent may do: leave one of them out",
            mode.id(),
            approve.to_possible_value().as_ref().map_or("", |value| value.get_name())
        )));
    }
    // The agent's mode for the approval level, where it has one.
    let approved = match arguments.approve {
        Some(ApprovalLevel::All) => Some(AgentMode::Full),
        Some(ApprovalLevel::Edits) => Some(AgentMode::AcceptEdits),
        Some(ApprovalLevel::Ask) => Some(AgentMode::Ask),
        Some(ApprovalLevel::Reads | ApprovalLevel::None) | None => None,
    };
    let initial = requested.or(approved);
    if arguments.read_only {
        return match requested {
            None | Some(AgentMode::ReadOnly) => {
                Ok(OwnAgentModes { initial: Some(AgentMode::ReadOnly), widest: AgentMode::ReadOnly })
            }
            Some(mode) => Err(CliError::Usage(format!(
                "--read-only and --mode {} contradict each other: leave one of them out",
                mode.id()
            ))),
        };
    }
    let acts_alone = arguments.no_fs || arguments.no_terminal;
    let Some(approve) = arguments.approve.filter(|_| acts_alone) else {
        return Ok(OwnAgentModes { initial, widest: AgentMode::Full });
    };
    let widest = match approve {
        ApprovalLevel::All => AgentMode::Full,
        ApprovalLevel::Edits => AgentMode::AcceptEdits,
        // The agent reads by itself without asking.
        ApprovalLevel::None if arguments.no_fs => {
            return Err(CliError::Usage(
                "--approve none cannot be kept with --no-fs, as the agent reads by itself: leave one of them out"
                    .to_owned(),
            ));
        }
        // In this mode the agent asks, and the answer is no.
        ApprovalLevel::Ask | ApprovalLevel::Reads | ApprovalLevel::None => AgentMode::Ask,
    };
    Ok(OwnAgentModes { initial, widest })
}

/// Returns the confinement of commands, if requested.
pub fn confinement(
    arguments: &ClientArguments,
    roots: &[RootSpec],
    detect_support: impl FnOnce() -> ConfinementSupport,
) -> Result<Option<Confinement>, CliError> {
    if !arguments.confine {
        return Ok(None);
    }
    let ConfinementSupport { files, network } = detect_support();
    if let Err(reason) = files.map(drop).and(network) {
        let message =
            "commands cannot be confined here: leave out --confine, or offer none with --no-terminal";
        return Err(CliError::Failed(anyhow::anyhow!("{}", quote(&reason)).context(message)));
    }
    let writable = roots.iter().filter(|root| root.mode == RootMode::Writable);
    let writable = writable.map(|root| PathBuf::from(&root.path)).collect();
    Ok(Some(Confinement { writable }))
}

/// Returns the rules that options add. `--read-only` denies everything but reads and overrides all other rules: an
/// agent with tools of its own asks before it uses them.
pub fn option_rules(arguments: &ClientArguments) -> anyhow::Result<Vec<Rule>> {
    if !arguments.read_only {
        return Ok(Vec::new());
    }
    let rule = Rule::new(RuleSpec {
        effect: Effect::Deny,
        kinds: [OperationKind::Write, OperationKind::Delete, OperationKind::Execute]
            .into_iter()
            .collect::<OperationKinds>(),
        matcher: RuleMatcher::Everything,
        lifetime: RuleLifetime::Always,
        expires: None,
        source: RuleSource::CommandLine,
        note: Some("--read-only".to_owned()),
    })?;
    Ok(vec![rule])
}

/// Parses `DIRECTORY` or `DIRECTORY:ro`.
pub fn parse_root(text: &str, current: &Path) -> RootSpec {
    match text.strip_suffix(":ro") {
        Some(path) => RootSpec::read_only(current.join(path).to_string_lossy()),
        None => RootSpec::writable(current.join(text).to_string_lossy()),
    }
}

/// Parses `FILE` or `FILE=TEXTFILE`: a file, and its unsaved text in the editor.
pub fn parse_open_document(
    text: &str,
    current: &Path,
    cwd: &Path,
) -> anyhow::Result<(PathBuf, Option<String>)> {
    // A file name may contain an equals sign.
    let (file, text_file) = match text.split_once('=') {
        Some((file, text_file)) if !cwd.join(text).exists() => (file, Some(text_file)),
        _ => (text, None),
    };
    let text = match text_file {
        None => None,
        Some(text_file) => {
            let path = current.join(text_file);
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8(bytes).with_context(|| format!("cannot use {}", path.display()))?;
            Some(text)
        }
    };
    Ok((cwd.join(file), text))
}

/// Returns whether a text can be a URL scheme. A command's argument may contain a URL, too.
fn is_url_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Parses `NAME=COMMAND` or `NAME=URL`.
pub fn parse_mcp_server(text: &str, search: Option<&OsString>) -> Result<McpServer, CliError> {
    let named = text.split_once('=').filter(|(name, target)| !name.is_empty() && !target.trim().is_empty());
    let Some((name, target)) = named else {
        let example = "write it as NAME=COMMAND or NAME=URL";
        return Err(CliError::Usage(format!("{} is no MCP server: {example}", quote(text))));
    };
    if target.starts_with("http://") || target.starts_with("https://") {
        return Ok(McpServer::Http(McpServerHttp::new(name, target)));
    }
    if let Some((scheme, _)) = target.split_once("://").filter(|(scheme, _)| is_url_scheme(scheme)) {
        return Err(CliError::Usage(format!(
            "the MCP server {} cannot be reached by {scheme}: its URL begins with https:// or http://",
            quote(name)
        )));
    }
    let mut words = agents::split_command_line(target)?.into_iter();
    let program = words.next().unwrap_or_default();
    // The protocol requires absolute paths, and an agent may have another PATH.
    let command = match agents::find_program(&program, search) {
        Some(path) if !program.contains('/') => path,
        None if !program.contains('/') => {
            let (name, program) = (quote(name), quote(&program));
            return Err(CliError::Usage(format!(
                "the MCP server {name}: there is no program {program} in PATH"
            )));
        }
        _ => PathBuf::from(program),
    };
    let command = std::path::absolute(&command).unwrap_or(command);
    if !command.is_file() {
        let (name, command) = (quote(name), quote(&command.to_string_lossy()));
        return Err(CliError::Usage(format!("the MCP server {name}: there is no program {command}")));
    }
    Ok(McpServer::Stdio(McpServerStdio::new(name, command).args(words.collect())))
}
