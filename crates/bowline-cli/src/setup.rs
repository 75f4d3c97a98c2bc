//! `bowline setup`: the configuration that an editor or another MCP client needs to start Bowline.

mod config_file;
mod detect;
mod editors;
mod jsonc;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use bowline_client::agents;
use bowline_client::common::console::print;
use bowline_client::error::CliError;
use bowline_remote::endpoint::Endpoint;
pub(crate) use detect::{InstalledEditor, find_installed};
use editors::{ConfigDirs, EditorKind, LaunchConfig, LaunchRole};
use jsonc::JsoncEdit;

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SetupArguments {
    /// The editor or other MCP client
    #[arg(value_enum, value_name = "EDITOR")]
    editor: EditorKind,
    /// Put Bowline between the editor and another agent, given by its command
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["mcp", "model", "no_shell"])]
    proxy: Option<String>,
    /// Connect the editor to an agent on a server, as with `bowline connect`
    #[arg(long, value_name = "URL", conflicts_with_all = ["proxy", "mcp", "model", "no_shell"])]
    connect: Option<String>,
    /// The file with the server's token, for --connect
    #[arg(long, value_name = "FILE", requires = "connect")]
    token_file: Option<PathBuf>,
    /// Add Bowline as an MCP server, for the editor's own assistant
    ///
    /// For MCP clients, this is always the case.
    #[arg(long)]
    mcp: bool,
    /// Add the configuration to the editor's file
    ///
    /// Everything else in the file stays, including comments. A backup of the file is kept beside it.
    #[arg(long)]
    write: bool,
    /// Remove the configuration that --write added
    #[arg(long, conflicts_with = "write")]
    remove: bool,
    /// Show what --write or --remove would change, without changing it
    #[arg(long)]
    dry_run: bool,
    /// The model for the agent, as for `bowline agent --model`
    ///
    /// By default, the agent uses the model of your configuration, else the first with an API key, else the offline
    /// model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The name of the agent or server in the editor (default: Bowline)
    ///
    /// With --proxy, the default also has the agent's name, and with --connect the server's.
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Do not let the agent or the MCP client run commands
    #[arg(long)]
    no_shell: bool,
    /// The project directory, for some MCP clients (default: the current directory)
    ///
    /// Used for clients that have no project (claude-desktop) or keep their servers in it (cursor).
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// The editor's configuration file, if not in its usual place
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  bowline setup zed                              show what to add, and where
  bowline setup zed --dry-run                    show what --write would change
  bowline setup zed --write
  bowline setup zed --write --proxy 'opencode acp'
  bowline setup zed --write --connect https://host:8040 --token-file ~/.bowline-token
  bowline setup vscode --write --model anthropic/claude-sonnet-4-5
  bowline setup vscode --write --file ~/.config/VSCodium/User/settings.json
  bowline setup claude-code --write              add Bowline as an MCP server
  bowline setup zed --remove

Do not put API keys in an editor's file: `bowline agent --login` stores them readable by you only.";

/// The maximum length of a name, in characters.
const MAX_NAME: usize = 60;

/// Prints the configuration, writes it, or removes it.
pub(crate) fn run(arguments: SetupArguments) -> Result<(), CliError> {
    let config_dirs = ConfigDirs::from_env(|name| std::env::var_os(name));
    let search = std::env::var_os("PATH");
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let program = path_to_string(stable_program_path(program, search.as_ref()))?;
    let project = std::path::absolute(arguments.cwd.as_deref().unwrap_or(Path::new(".")))
        .context("the current directory is gone: name another with --cwd")?;
    let launch = build_launch(&arguments, program, &project, search.as_ref())?;
    let file =
        arguments.file.clone().or_else(|| arguments.editor.config_file(&config_dirs, launch.role, &project));
    let instructions = instructions(&arguments, &launch, file.as_deref());
    if !arguments.write && !arguments.dry_run && !arguments.remove {
        return print(&instructions);
    }
    let entry = match arguments.editor.config_entry(&launch) {
        Some(entry) => entry,
        None => {
            let (editor, language) = (arguments.editor.title(), arguments.editor.config_language());
            let by_hand = if arguments.remove {
                format!("remove what bowline setup {} prints", arguments.editor.cli_name())
            } else {
                print(&instructions)?;
                "add what is above".to_owned()
            };
            let error = anyhow!(
                "{editor} is configured by a program in {language}, which only you can change safely: {by_hand}"
            );
            return Err(error.into());
        }
    };
    let file = file.context("set HOME to an absolute path, or name the editor's file with --file")?;
    let refuse = |reason: String| {
        let error = CliError::from(anyhow!("nothing was written to {}: {reason}", file.display()));
        if arguments.remove { error } else { print(&instructions).err().unwrap_or(error) }
    };
    let before = config_file::read(&file).map_err(|error| refuse(error.to_string()))?;
    let text = before.as_ref().map_or("", |before| before.text.as_str());
    if arguments.remove && detect::starts_another_program(text, entry.group, &launch.name) {
        let name = &launch.name;
        return Err(refuse(format!(
            "\"{name}\" starts another program: remove it by hand, or name Bowline's entry with --agent-name"
        )));
    }
    let edited = match arguments.remove {
        true => jsonc::remove(text, entry.group, &launch.name),
        false => jsonc::add(text, entry.group, &launch.name, &entry.value),
    };
    let after = match edited {
        Ok(JsoncEdit::Changed(after)) => after,
        Ok(JsoncEdit::Unchanged) => {
            let status =
                if arguments.remove { format!("has no {}", launch.name) } else { "has it already".into() };
            return print(&format!("Nothing to do: {} {status}.\n", file.display()));
        }
        Err(error) => return Err(refuse(error.to_string())),
    };
    if arguments.dry_run {
        let before = before.as_ref().map(|before| before.text.as_str());
        return print(&config_file::diff(&file, before, &after));
    }
    let backup =
        config_file::replace(&file, before.as_ref(), &after).map_err(|error| refuse(format!("{error:#}")))?;
    let verb = if arguments.remove { "Removed" } else { "Added" };
    let preposition = if arguments.remove { "from" } else { "to" };
    let mut message = format!("{verb} {} {preposition} {}\n", launch.name, file.display());
    if let Some(backup) = backup {
        // Writing to a string cannot fail.
        writeln!(message, "As it was: {}", backup.display()).unwrap_or_default();
    }
    if !arguments.remove {
        writeln!(message, "{}", arguments.editor.next_step(&launch)).unwrap_or_default();
    }
    print(&message)
}

/// Returns the path by which an editor should start this program: the one in PATH if it leads here, because a link
/// there survives an update that installs the program elsewhere.
fn stable_program_path(program: PathBuf, search: Option<&OsString>) -> PathBuf {
    let candidate = agents::find_program("bowline", search).filter(|candidate| candidate.is_absolute());
    let is_same = |candidate: &PathBuf| candidate.canonicalize().ok() == program.canonicalize().ok();
    candidate.filter(is_same).unwrap_or(program)
}

fn path_to_string(path: PathBuf) -> Result<String, CliError> {
    let as_text = path.into_os_string().into_string();
    as_text.map_err(|path| anyhow!("{} is not UTF-8: move it elsewhere", path.display()).into())
}

fn build_launch(
    arguments: &SetupArguments,
    program: String,
    project: &Path,
    search: Option<&OsString>,
) -> Result<LaunchConfig, CliError> {
    let editor = arguments.editor;
    let is_server = arguments.mcp || !editor.supports(LaunchRole::Agent);
    let role = if is_server { LaunchRole::McpServer } else { LaunchRole::Agent };
    if !editor.supports(role) {
        let (title, cli_name) = (editor.title(), editor.cli_name());
        return Err(CliError::Usage(format!(
            "--mcp is not for {title}, where Bowline is an agent: use `bowline setup {cli_name}`"
        )));
    }
    if is_server && let Some(option) = agent_only_option(arguments) {
        let title = editor.title();
        return Err(CliError::Usage(format!(
            "{option} is for editors that start agents; {title} is an MCP client"
        )));
    }
    let mut default_name = if is_server { "bowline" } else { "Bowline" }.to_owned();
    let args = match (&arguments.proxy, role) {
        (Some(command), _) => {
            let (name, command) = resolve_proxied_agent(command, search)?;
            default_name = format!("{name} via Bowline");
            ["proxy", "--"].map(str::to_owned).into_iter().chain(command).collect()
        }
        (None, LaunchRole::Agent) => match &arguments.connect {
            None => agent_arguments(arguments)?,
            Some(url) => {
                let endpoint = Endpoint::parse(url);
                let endpoint = endpoint.map_err(|error| CliError::Usage(format!("--connect: {error}")))?;
                default_name = format!("Bowline at {}", endpoint.host());
                connect_arguments(endpoint.as_str(), arguments.token_file.as_deref())?
            }
        },
        (None, LaunchRole::McpServer) => {
            let project = path_to_string(project.to_owned())?;
            let directory =
                editor.server_directory(&project).map(|directory| ["--cwd".to_owned(), directory]);
            let mut args = vec!["mcp".to_owned()];
            args.extend(directory.into_iter().flatten());
            args.extend(["--approve", "edits"].map(str::to_owned));
            args.extend(arguments.no_shell.then(|| "--no-terminal".to_owned()));
            args
        }
    };
    let name = arguments.agent_name.as_ref().map_or(default_name, |name| name.trim().to_owned());
    let is_valid =
        !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    if !is_valid {
        return Err(CliError::Usage(format!("--agent-name takes one line of at most {MAX_NAME} characters")));
    }
    Ok(LaunchConfig { role, name, program, args })
}

/// Returns a given option that only applies to agents.
fn agent_only_option(arguments: &SetupArguments) -> Option<&'static str> {
    let proxy = arguments.proxy.as_ref().map(|_| "--proxy");
    let proxy = proxy.or_else(|| arguments.connect.as_ref().map(|_| "--connect"));
    proxy.or_else(|| arguments.model.as_ref().map(|_| "--model"))
}

fn connect_arguments(url: &str, token_file: Option<&Path>) -> Result<Vec<String>, CliError> {
    let mut args = vec!["connect".to_owned(), url.to_owned()];
    if let Some(file) = token_file {
        // Editors start programs in other directories.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        args.extend(["--token-file".to_owned(), path_to_string(file)?]);
    }
    Ok(args)
}

fn agent_arguments(arguments: &SetupArguments) -> Result<Vec<String>, CliError> {
    let mut args = vec!["agent".to_owned()];
    if !arguments.no_shell {
        args.push("--shell".to_owned());
    }
    if let Some(model) = &arguments.model {
        if model.trim().is_empty() || model.chars().any(char::is_control) {
            return Err(CliError::Usage(
                "--model takes a name such as offline or anthropic/claude-sonnet-4-5".to_owned(),
            ));
        }
        args.extend(["--model".to_owned(), model.clone()]);
    }
    Ok(args)
}

/// Returns the name of an agent and its command, with the absolute path of its program: editors have other search paths
/// than shells.
fn resolve_proxied_agent(
    command: &str,
    search: Option<&OsString>,
) -> Result<(String, Vec<String>), CliError> {
    if command.chars().any(char::is_control) {
        return Err(CliError::Usage("--proxy takes a command of one line".to_owned()));
    }
    let mut words = agents::split_command_line(command)?;
    let path = match words[0].contains('/') {
        true => std::path::absolute(&words[0]).ok().filter(|path| path.is_file()),
        false => agents::find_program(&words[0], search),
    };
    let Some(path) = path else {
        let missing = &words[0];
        return Err(anyhow!("there is no program {missing:?}: install it first, or give its path").into());
    };
    let name = path.file_name().map_or_else(|| words[0].clone(), |name| name.to_string_lossy().into_owned());
    words[0] = path_to_string(path)?;
    Ok((name, words))
}

/// Returns the instructions for a setup by hand.
fn instructions(arguments: &SetupArguments, launch: &LaunchConfig, file: Option<&Path>) -> String {
    let editor = arguments.editor;
    let location =
        file.map_or_else(|| editor.usual_location(launch.role).to_owned(), |file| file.display().to_string());
    let mut text = format!("{}: {}\n\n", editor.title(), editor.placement_hint(&location, launch.role));
    for snippet in editor.snippets(launch) {
        if let Some(title) = snippet.title {
            writeln!(text, "{title}\n").unwrap_or_default();
        }
        writeln!(text, "{}\n", snippet.text).unwrap_or_default();
    }
    if editor.config_entry(launch).is_some() && !arguments.write && !arguments.dry_run {
        writeln!(text, "To have it added: {}", write_command(arguments)).unwrap_or_default();
    }
    writeln!(text, "{}", editor.next_step(launch)).unwrap_or_default();
    text
}

/// Returns the given command with `--write`.
fn write_command(arguments: &SetupArguments) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let values = [
        ("--proxy", arguments.proxy.clone()),
        ("--connect", arguments.connect.clone()),
        ("--token-file", path(&arguments.token_file)),
        ("--model", arguments.model.clone()),
        ("--agent-name", arguments.agent_name.clone()),
        ("--cwd", path(&arguments.cwd)),
        ("--file", path(&arguments.file)),
    ];
    let mut words = vec!["bowline".to_owned(), "setup".to_owned(), arguments.editor.cli_name()];
    words.push("--write".to_owned());
    words.extend(arguments.mcp.then(|| "--mcp".to_owned()));
    words.extend(arguments.no_shell.then(|| "--no-shell".to_owned()));
    for (option, value) in values {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
