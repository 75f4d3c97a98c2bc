//! `bowline setup`: the configuration that an editor or another MCP client needs to start Bowline.

mod editors;
mod installed;
mod jsonc;
mod writing;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::client::agents;
use crate::ending::Ending;
use crate::records::showing::print;
use editors::{Editor, Home, Launch, Role};
pub(crate) use installed::{Installed, installed};
use jsonc::Edited;

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct SetupArguments {
    /// The editor, or another MCP client
    #[arg(value_enum, value_name = "EDITOR")]
    editor: Editor,
    /// Puts Bowline between the editor and another agent, given by its command
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["mcp", "model", "no_shell"])]
    proxy: Option<String>,
    /// Adds Bowline as an MCP server, for the editor's own assistant; for MCP clients that is always so
    #[arg(long)]
    mcp: bool,
    /// Adds the configuration to the editor's own file. All that is there stays, comments too; a copy of the file as it
    /// was is left beside it
    #[arg(long)]
    write: bool,
    /// Removes from the editor's file what --write added
    #[arg(long, conflicts_with = "write")]
    remove: bool,
    /// Shows what --write or --remove would change, and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// The model that the agent should use, as `bowline agent --model` takes it. Without it: the one of your
    /// configuration, else the first that has a key, else the offline one
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How the editor calls the agent or server. Without it: Bowline; with --proxy the agent's name as well
    #[arg(long, value_name = "NAME")]
    agent_name: Option<String>,
    /// Does not let the agent or the MCP client run commands
    #[arg(long)]
    no_shell: bool,
    /// The project of an MCP client that has none of its own (claude-desktop) or keeps its servers there (cursor), if it
    /// is not the current directory
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// The editor's file, if it is not where it usually is
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  bowline setup zed                              what to put where
  bowline setup zed --dry-run                    what --write would change
  bowline setup zed --write
  bowline setup zed --write --proxy 'opencode acp'
  bowline setup vscode --write --model anthropic/claude-sonnet-4-5
  bowline setup vscode --write --file ~/.config/VSCodium/User/settings.json
  bowline setup claude-code --write              as an MCP server
  bowline setup zed --remove

Keys do not belong in an editor's file: `bowline agent --login` stores one for you alone.";

/// No name is longer, in characters.
const MAX_NAME: usize = 60;

/// Prints the configuration, writes it, or removes it.
pub(crate) fn run(arguments: SetupArguments) -> Result<(), Ending> {
    let home = Home::of(|name| std::env::var_os(name));
    let search = std::env::var_os("PATH");
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let program = text(lasting(program, search.as_ref()))?;
    let project = std::path::absolute(arguments.cwd.as_deref().unwrap_or(Path::new(".")))
        .context("the current directory is gone: name another with --cwd")?;
    let launch = launch(&arguments, program, &project, search.as_ref())?;
    let file = arguments.file.clone().or_else(|| arguments.editor.file(&home, launch.role, &project));
    let told = told(&arguments, &launch, file.as_deref());
    if !arguments.write && !arguments.dry_run && !arguments.remove {
        return print(&told);
    }
    let wanted = match arguments.editor.entry(&launch) {
        Some(wanted) => wanted,
        None => {
            let (editor, what) = (arguments.editor.title(), arguments.editor.language());
            let by_hand = if arguments.remove {
                format!("remove what bowline setup {} prints", arguments.editor.word())
            } else {
                print(&told)?;
                "add what is above".to_owned()
            };
            let why = anyhow!(
                "{editor} is configured by a program in {what}, which only you can change safely: {by_hand}"
            );
            return Err(why.into());
        }
    };
    let file = file.context("set HOME to an absolute path, or name the editor's file with --file")?;
    let refused = |why: String| {
        let why = Ending::from(anyhow!("nothing was written to {}: {why}", file.display()));
        if arguments.remove { why } else { print(&told).err().unwrap_or(why) }
    };
    let before = writing::read(&file).map_err(|error| refused(error.to_string()))?;
    let text = before.as_ref().map_or("", |before| before.text.as_str());
    if arguments.remove && installed::starts_another_program(text, wanted.group, &launch.name) {
        let name = &launch.name;
        return Err(refused(format!(
            "\"{name}\" starts another program: remove it by hand, or name Bowline's entry with --agent-name"
        )));
    }
    let edited = match arguments.remove {
        true => jsonc::remove(text, wanted.group, &launch.name),
        false => jsonc::add(text, wanted.group, &launch.name, &wanted.value),
    };
    let after = match edited {
        Ok(Edited::Text(after)) => after,
        Ok(Edited::Same) => {
            let has =
                if arguments.remove { format!("has no {}", launch.name) } else { "has it already".into() };
            return print(&format!("Nothing to do: {} {has}.\n", file.display()));
        }
        Err(why) => return Err(refused(why.to_string())),
    };
    if arguments.dry_run {
        let before = before.as_ref().map(|before| before.text.as_str());
        return print(&writing::difference(&file, before, &after));
    }
    let kept =
        writing::replace(&file, before.as_ref(), &after).map_err(|error| refused(format!("{error:#}")))?;
    let what = if arguments.remove { "Removed" } else { "Added" };
    let to = if arguments.remove { "from" } else { "to" };
    let mut done = format!("{what} {} {to} {}\n", launch.name, file.display());
    if let Some(kept) = kept {
        // Writing to a string cannot fail.
        writeln!(done, "As it was: {}", kept.display()).unwrap_or_default();
    }
    if !arguments.remove {
        writeln!(done, "{}", arguments.editor.next(&launch)).unwrap_or_default();
    }
    print(&done)
}

/// Returns the name by which an editor should start this program: the one in PATH if that leads to it, for a link there
/// stays when the program behind it is replaced by a newer one elsewhere.
fn lasting(own: PathBuf, search: Option<&OsString>) -> PathBuf {
    let named = agents::find("bowline", search).filter(|named| named.is_absolute());
    let is_own = |named: &PathBuf| named.canonicalize().ok() == own.canonicalize().ok();
    named.filter(is_own).unwrap_or(own)
}

fn text(path: PathBuf) -> Result<String, Ending> {
    let as_text = path.into_os_string().into_string();
    as_text.map_err(|path| anyhow!("{} is not UTF-8: move it elsewhere", path.display()).into())
}

fn launch(
    arguments: &SetupArguments,
    program: String,
    project: &Path,
    search: Option<&OsString>,
) -> Result<Launch, Ending> {
    let editor = arguments.editor;
    let is_server = arguments.mcp || !editor.takes(Role::Agent);
    let role = if is_server { Role::McpServer } else { Role::Agent };
    if !editor.takes(role) {
        let (title, word) = (editor.title(), editor.word());
        return Err(Ending::Usage(format!(
            "--mcp is not for {title}, where Bowline is an agent: use `bowline setup {word}`"
        )));
    }
    if is_server && let Some(option) = agents_only(arguments) {
        let title = editor.title();
        return Err(Ending::Usage(format!(
            "{option} is for editors that start agents; {title} is an MCP client"
        )));
    }
    let mut usual_name = if is_server { "bowline" } else { "Bowline" }.to_owned();
    let args = match (&arguments.proxy, role) {
        (Some(command), _) => {
            let (name, command) = agent_behind(command, search)?;
            usual_name = format!("{name} via Bowline");
            ["proxy", "--"].map(str::to_owned).into_iter().chain(command).collect()
        }
        (None, Role::Agent) => agent_arguments(arguments)?,
        (None, Role::McpServer) => {
            let project = text(project.to_owned())?;
            let directory =
                editor.server_directory(&project).map(|directory| ["--cwd".to_owned(), directory]);
            let mut args = vec!["mcp".to_owned()];
            args.extend(directory.into_iter().flatten());
            args.extend(["--approve", "edits"].map(str::to_owned));
            args.extend(arguments.no_shell.then(|| "--no-terminal".to_owned()));
            args
        }
    };
    let name = arguments.agent_name.as_ref().map_or(usual_name, |name| name.trim().to_owned());
    let fits = !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    if !fits {
        return Err(Ending::Usage(format!("--agent-name takes one line of at most {MAX_NAME} characters")));
    }
    Ok(Launch { role, name, program, args })
}

/// Returns an option that was given and that only agents have.
fn agents_only(arguments: &SetupArguments) -> Option<&'static str> {
    let proxy = arguments.proxy.as_ref().map(|_| "--proxy");
    proxy.or_else(|| arguments.model.as_ref().map(|_| "--model"))
}

fn agent_arguments(arguments: &SetupArguments) -> Result<Vec<String>, Ending> {
    let mut args = vec!["agent".to_owned()];
    if !arguments.no_shell {
        args.push("--shell".to_owned());
    }
    if let Some(model) = &arguments.model {
        if model.trim().is_empty() || model.chars().any(char::is_control) {
            return Err(Ending::Usage(
                "--model takes a name such as offline or anthropic/claude-sonnet-4-5".to_owned(),
            ));
        }
        args.extend(["--model".to_owned(), model.clone()]);
    }
    Ok(args)
}

/// Returns the name of an agent and its command, with the path of its program: editors search elsewhere than shells.
fn agent_behind(command: &str, search: Option<&OsString>) -> Result<(String, Vec<String>), Ending> {
    if command.chars().any(char::is_control) {
        return Err(Ending::Usage("--proxy takes a command of one line".to_owned()));
    }
    let mut words = agents::words(command)?;
    let path = match words[0].contains('/') {
        true => std::path::absolute(&words[0]).ok().filter(|path| path.is_file()),
        false => agents::find(&words[0], search),
    };
    let Some(path) = path else {
        let missing = &words[0];
        return Err(anyhow!("there is no program {missing:?}: install it first, or give its path").into());
    };
    let name = path.file_name().map_or_else(|| words[0].clone(), |name| name.to_string_lossy().into_owned());
    words[0] = text(path)?;
    Ok((name, words))
}

/// Returns all that a person has to know to do it by hand.
fn told(arguments: &SetupArguments, launch: &Launch, file: Option<&Path>) -> String {
    let editor = arguments.editor;
    let place = file.map_or_else(|| editor.usual(launch.role).to_owned(), |file| file.display().to_string());
    let mut text = format!("{}: {}\n\n", editor.title(), editor.belongs(&place, launch.role));
    for snippet in editor.snippets(launch) {
        if let Some(title) = snippet.title {
            writeln!(text, "{title}\n").unwrap_or_default();
        }
        writeln!(text, "{}\n", snippet.text).unwrap_or_default();
    }
    if editor.entry(launch).is_some() && !arguments.write && !arguments.dry_run {
        writeln!(text, "To have it added: {}", command_to_write(arguments)).unwrap_or_default();
    }
    writeln!(text, "{}", editor.next(launch)).unwrap_or_default();
    text
}

/// Returns the command that was given, with --write.
fn command_to_write(arguments: &SetupArguments) -> String {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let values = [
        ("--proxy", arguments.proxy.clone()),
        ("--model", arguments.model.clone()),
        ("--agent-name", arguments.agent_name.clone()),
        ("--cwd", path(&arguments.cwd)),
        ("--file", path(&arguments.file)),
    ];
    let mut words = vec!["bowline".to_owned(), "setup".to_owned(), arguments.editor.word().to_owned()];
    words.push("--write".to_owned());
    words.extend(arguments.mcp.then(|| "--mcp".to_owned()));
    words.extend(arguments.no_shell.then(|| "--no-shell".to_owned()));
    for (option, value) in values {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
