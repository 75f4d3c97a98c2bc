//! `bowline setup`: the configuration that an editor needs to start Bowline.

mod editors;
mod jsonc;
mod writing;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::client::agents;
use crate::ending::Ending;
use crate::records::showing::print;
use editors::{Editor, Home, Launch};
use jsonc::Added;

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct SetupArguments {
    /// The editor
    #[arg(value_enum)]
    editor: Editor,
    /// Adds the configuration to the editor's own file. All that is there stays, comments too; a copy of the file as it
    /// was is left beside it
    #[arg(long)]
    write: bool,
    /// Shows what --write would change, and changes nothing
    #[arg(long)]
    dry_run: bool,
    /// The model that the agent should use, as `bowline agent --model` takes it. Without it: the first that has a key,
    /// else the offline one
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How the editor calls the agent
    #[arg(long, value_name = "NAME", default_value = "Bowline")]
    agent_name: String,
    /// Does not let the agent run commands
    #[arg(long)]
    no_shell: bool,
    /// The editor's file, if it is not where it usually is
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  bowline setup zed                       what to put where
  bowline setup zed --dry-run             what --write would change
  bowline setup zed --write
  bowline setup vscode --write --model anthropic/claude-sonnet-4-5
  bowline setup vscode --write --file ~/.config/VSCodium/User/settings.json

Keys do not belong in an editor's file: `bowline agent --login` stores one for you alone.";

/// No name is longer, in characters.
const MAX_NAME: usize = 60;

/// Prints the configuration, or writes it.
pub(crate) fn run(arguments: SetupArguments) -> Result<(), Ending> {
    let home = Home::of(|name| std::env::var_os(name));
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let program = lasting(program, std::env::var_os("PATH"));
    let program =
        program.to_str().context("the path of the bowline program is not UTF-8: move it elsewhere")?;
    let launch = launch(&arguments, program)?;
    let file = arguments.file.clone().or_else(|| arguments.editor.file(&home));
    let told = told(&arguments, &launch, file.as_deref());
    if !arguments.write && !arguments.dry_run {
        return print(&told);
    }
    let wanted = match arguments.editor.entry(&launch) {
        Some(wanted) => wanted,
        None => {
            print(&told)?;
            let (editor, what) = (arguments.editor.title(), arguments.editor.language());
            let why = anyhow!(
                "{editor} is configured by a program in {what}, which only you can change safely: add what is above"
            );
            return Err(why.into());
        }
    };
    let file = file.context("set HOME to an absolute path, or name the editor's file with --file")?;
    let refused = |why: String| {
        let why = Ending::from(anyhow!("nothing was written to {}: {why}", file.display()));
        print(&told).err().unwrap_or(why)
    };
    let before = writing::read(&file).map_err(|error| refused(error.to_string()))?;
    let text = before.as_ref().map_or("", |before| before.text.as_str());
    let added = match jsonc::add(text, wanted.group, &launch.name, &wanted.value) {
        Ok(added) => added,
        Err(why) => return Err(refused(why.to_string())),
    };
    let after = match added {
        Added::Same => {
            return print(&format!("Nothing to do: {} has it already.\n", file.display()));
        }
        Added::Text(after) => after,
    };
    if arguments.dry_run {
        let before = before.as_ref().map(|before| before.text.as_str());
        return print(&writing::difference(&file, before, &after));
    }
    let kept =
        writing::replace(&file, before.as_ref(), &after).map_err(|error| refused(format!("{error:#}")))?;
    let mut done = format!("Added {} to {}\n", launch.name, file.display());
    if let Some(kept) = kept {
        // Writing to a string cannot fail.
        writeln!(done, "As it was: {}", kept.display()).unwrap_or_default();
    }
    writeln!(done, "{}", arguments.editor.next(&launch)).unwrap_or_default();
    print(&done)
}

/// Returns the name by which an editor should start this program: the one in PATH if that leads to it, for a link there
/// stays when the program behind it is replaced by a newer one elsewhere.
fn lasting(own: PathBuf, search: Option<OsString>) -> PathBuf {
    let named = agents::find("bowline", search.as_ref()).filter(|named| named.is_absolute());
    let is_own = |named: &PathBuf| named.canonicalize().ok() == own.canonicalize().ok();
    named.filter(is_own).unwrap_or(own)
}

fn launch(arguments: &SetupArguments, program: &str) -> Result<Launch, Ending> {
    let name = arguments.agent_name.trim();
    let fits = !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    if !fits {
        return Err(Ending::Usage(format!("--agent-name takes one line of at most {MAX_NAME} characters")));
    }
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
    Ok(Launch { name: name.to_owned(), program: program.to_owned(), args })
}

/// Returns all that a person has to know to do it by hand.
fn told(arguments: &SetupArguments, launch: &Launch, file: Option<&std::path::Path>) -> String {
    let editor = arguments.editor;
    let place = file.map_or_else(|| editor.usual().to_owned(), |file| file.display().to_string());
    let mut text = format!("{}: {}\n\n", editor.title(), editor.belongs(&place));
    for snippet in editor.snippets(launch) {
        if let Some(title) = snippet.title {
            writeln!(text, "{title}\n").unwrap_or_default();
        }
        writeln!(text, "{}\n", snippet.text).unwrap_or_default();
    }
    if editor.entry(launch).is_some() && !arguments.write && !arguments.dry_run {
        writeln!(text, "To have it added: bowline setup {} --write", editor.word()).unwrap_or_default();
    }
    writeln!(text, "{}", editor.next(launch)).unwrap_or_default();
    text
}
