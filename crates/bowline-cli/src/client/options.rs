//! The options of `run` and `chat` that are more than a word, read into what the host takes.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_host::Offer;
use bowline_state::failure::quote;
use bowline_state::mode::Mode;
use bowline_state::operation::Kind;
use bowline_state::paths::RootMode;
use bowline_state::policy::{Effect, Kinds, Lifetime, Matcher, Preset, Rule, RuleSpec, Source};
use bowline_state::schema::v1::{McpServer, McpServerHttp, McpServerStdio};
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::Confinement;
use bowline_workspace::terminals::supervisor::Confinable;
use clap::ValueEnum as _;

use super::agents;
use super::arguments::{Approve, ClientArguments};
use crate::ending::Ending;

/// Returns what the agent is told that it may ask for.
pub(super) fn offer(arguments: &ClientArguments) -> Offer {
    Offer {
        read: !arguments.no_fs,
        write: !arguments.no_fs && !arguments.read_only,
        terminal: !arguments.no_terminal && !arguments.read_only,
        elicitation: true,
        terminal_login: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
    }
}

/// Returns what holds where no rule matches.
pub(crate) fn preset(approve: Approve) -> Preset {
    match approve {
        Approve::All => Preset::Full,
        Approve::Edits => Preset::AcceptEdits,
        Approve::Reads => Preset::ReadOnly,
        Approve::Ask => Preset::Ask,
        Approve::None => Preset::Deny,
    }
}

/// Returns what holds where no rule matches, if an option says so. For Bowline's own agent `--mode` says the same as
/// `--approve` in other words.
pub(crate) fn level(arguments: &ClientArguments, is_own: bool) -> Option<Preset> {
    let mode = || arguments.mode.as_deref().filter(|_| is_own).and_then(Mode::of);
    arguments.approve.map(preset).or_else(|| mode().map(Mode::preset))
}

/// Which modes Bowline's own agent works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Modes {
    /// The one that it begins in, if one is named.
    pub(super) first: Option<Mode>,
    /// The widest that it can be switched to.
    pub(super) widest: Mode,
}

/// Returns the modes that Bowline's own agent works in.
///
/// What it is not offered it does by itself, on the same disk, and what its mode allows it does not ask about. So no mode
/// may be wider than what the other options allow.
pub(super) fn own_modes(arguments: &ClientArguments) -> Result<Modes, Ending> {
    let read = |mode: &String| {
        Mode::of(mode).ok_or_else(|| {
            let known = Mode::ALL.map(Mode::id).join(", ");
            Ending::Usage(format!("there is no mode {}: it has {known}", quote(mode)))
        })
    };
    let named = arguments.mode.as_ref().map(read).transpose()?;
    if let (Some(mode), Some(approve)) = (named, arguments.approve)
        && mode.preset() != preset(approve)
    {
        return Err(Ending::Usage(format!(
            "--mode {} and --approve {} contradict each other, as both set what Bowline's own agent may do: leave one of them out",
            mode.id(),
            approve.to_possible_value().as_ref().map_or("", |value| value.get_name())
        )));
    }
    // The agent's own word for what is approved, where it has one.
    let approved = match arguments.approve {
        Some(Approve::All) => Some(Mode::Full),
        Some(Approve::Edits) => Some(Mode::AcceptEdits),
        Some(Approve::Ask) => Some(Mode::Ask),
        Some(Approve::Reads | Approve::None) | None => None,
    };
    let first = named.or(approved);
    if arguments.read_only {
        return match named {
            None | Some(Mode::ReadOnly) => Ok(Modes { first: Some(Mode::ReadOnly), widest: Mode::ReadOnly }),
            Some(mode) => Err(Ending::Usage(format!(
                "--read-only and --mode {} contradict each other: leave one of them out",
                mode.id()
            ))),
        };
    }
    let acts_alone = arguments.no_fs || arguments.no_terminal;
    let Some(approve) = arguments.approve.filter(|_| acts_alone) else {
        return Ok(Modes { first, widest: Mode::Full });
    };
    let widest = match approve {
        Approve::All => Mode::Full,
        Approve::Edits => Mode::AcceptEdits,
        // Nobody is asked about what the agent reads by itself.
        Approve::None if arguments.no_fs => {
            return Err(Ending::Usage(
                "--approve none cannot be kept with --no-fs, as the agent reads by itself: leave one of them out"
                    .to_owned(),
            ));
        }
        // In this mode it asks, and is told no.
        Approve::Ask | Approve::Reads | Approve::None => Mode::Ask,
    };
    Ok(Modes { first, widest })
}

/// Returns what commands are confined to, if they should be.
pub(super) fn confinement(
    arguments: &ClientArguments,
    roots: &[RootSpec],
    confinable: impl FnOnce() -> Confinable,
) -> Result<Option<Confinement>, Ending> {
    if !arguments.confine {
        return Ok(None);
    }
    let Confinable { files, network } = confinable();
    if let Err(why) = files.map(drop).and(network) {
        let what = "commands cannot be confined here: leave out --confine, or offer none with --no-terminal";
        return Err(Ending::Failed(anyhow::anyhow!("{}", quote(&why)).context(what)));
    }
    let writable = roots.iter().filter(|root| root.mode == RootMode::Writable);
    let writable = writable.map(|root| PathBuf::from(&root.path)).collect();
    Ok(Some(Confinement { writable, network: false }))
}

/// Returns the rules that options make. What only reads is denied the rest, whatever else allows it: an agent that has
/// means of its own asks before it uses them.
pub(super) fn rules(arguments: &ClientArguments) -> anyhow::Result<Vec<Rule>> {
    if !arguments.read_only {
        return Ok(Vec::new());
    }
    let rule = Rule::new(RuleSpec {
        effect: Effect::Deny,
        kinds: [Kind::Write, Kind::Delete, Kind::Execute].into_iter().collect::<Kinds>(),
        matcher: Matcher::Everything,
        lifetime: Lifetime::Always,
        expires: None,
        source: Source::Flag,
        note: Some("--read-only".to_owned()),
    })?;
    Ok(vec![rule])
}

/// Reads `DIRECTORY` or `DIRECTORY:ro`.
pub(super) fn directory(text: &str, current: &Path) -> RootSpec {
    match text.strip_suffix(":ro") {
        Some(path) => RootSpec::read_only(current.join(path).to_string_lossy()),
        None => RootSpec::writable(current.join(text).to_string_lossy()),
    }
}

/// Reads `FILE` or `FILE=TEXTFILE`: a file, and the text that the editor shows of it.
pub(super) fn opened(text: &str, current: &Path, cwd: &Path) -> anyhow::Result<(PathBuf, Option<String>)> {
    // A name may have an equals sign in it.
    let (file, shown) = match text.split_once('=') {
        Some((file, shown)) if !cwd.join(text).exists() => (file, Some(shown)),
        _ => (text, None),
    };
    let text = match shown {
        None => None,
        Some(shown) => {
            let path = current.join(shown);
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8(bytes).with_context(|| format!("cannot use {}", path.display()))?;
            Some(text)
        }
    };
    Ok((cwd.join(file), text))
}

/// Says whether a text can be what a URL begins with. An argument of a command may have a URL in it, too.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one))
}

/// Reads `NAME=COMMAND` or `NAME=URL`.
pub(super) fn mcp_server(text: &str, search: Option<&OsString>) -> Result<McpServer, Ending> {
    let named = text.split_once('=').filter(|(name, what)| !name.is_empty() && !what.trim().is_empty());
    let Some((name, what)) = named else {
        let example = "write it as NAME=COMMAND or NAME=URL";
        return Err(Ending::Usage(format!("{} is no MCP server: {example}", quote(text))));
    };
    if what.starts_with("http://") || what.starts_with("https://") {
        return Ok(McpServer::Http(McpServerHttp::new(name, what)));
    }
    if let Some((scheme, _)) = what.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        return Err(Ending::Usage(format!(
            "the MCP server {} cannot be reached by {scheme}: its URL begins with https:// or http://",
            quote(name)
        )));
    }
    let mut words = agents::words(what)?.into_iter();
    let program = words.next().unwrap_or_default();
    // The protocol has whole names of programs, and an agent may have another PATH.
    let command = match agents::find(&program, search) {
        Some(found) if !program.contains('/') => found,
        None if !program.contains('/') => {
            let (name, program) = (quote(name), quote(&program));
            return Err(Ending::Usage(format!(
                "the MCP server {name}: there is no program {program} in PATH"
            )));
        }
        _ => PathBuf::from(program),
    };
    let command = std::path::absolute(&command).unwrap_or(command);
    if !command.is_file() {
        let (name, command) = (quote(name), quote(&command.to_string_lossy()));
        return Err(Ending::Usage(format!("the MCP server {name}: there is no program {command}")));
    }
    Ok(McpServer::Stdio(McpServerStdio::new(name, command).args(words.collect())))
}
