//! `bowline restore`: the user's texts that exist only in the journal.

use std::io::Write as _;

use anyhow::Context as _;
use bowline_history::changes::{Change, ChangeId};
use bowline_workspace::workspace::Workspace;
use clap::Args;

use super::{WorkspaceArguments, failed, undo};
use bowline_client::common::console::{escape_line, pluralize, print};
use bowline_client::common::times::format_time;
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::CliError;

const EXAMPLES: &str = "\
If you save a file at the moment Bowline replaces it, both changes are merged. If they cannot be \
merged, your text is kept in the journal and you are told its number. Without a number, all such \
texts are listed.

Restoring a text undoes the change with its number. If the file has not changed since, it gets your \
text; if it has, the two are merged. If they cannot be merged, the restore is refused, and --print \
shows the text. The earlier content of the file stays in the journal: `bowline redo` restores it.

Exit status: 0 success, 1 no such text or it cannot be restored, 2 wrong usage.

Examples:
  bowline restore                  list the texts
  bowline restore 12 --print       show one text
  bowline restore 12 --print > saved.txt
  bowline restore 12               restore one text to its file";

/// Which text.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArguments {
    /// The number of the text, as `bowline changes` shows it
    #[arg(value_name = "ID")]
    id: Option<i64>,
    /// Print the text byte for byte and change nothing
    #[arg(long, requires = "id")]
    print: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// Lists, prints or restores texts that only the journal has.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.workspace.cwd.as_deref(), WorkspaceMarker::Journal)?;
    let Some(id) = arguments.id.map(ChangeId) else { return list_kept_texts(&location) };
    let not_found =
        || failed(anyhow::anyhow!("there is no kept text {id} here: `bowline restore` lists them"));
    if !location.has_records {
        return Err(not_found());
    }
    let workspace = location.open(&[])?;
    let Ok(Some(bytes)) = workspace.kept_text(id) else { return Err(not_found()) };
    if !arguments.print {
        return undo::restore_text(&location, workspace, id);
    }
    let mut out = std::io::stdout().lock();
    let result = out.write_all(&bytes).and_then(|()| out.flush());
    result.context("cannot print the text").map_err(CliError::from)
}

fn list_kept_texts(location: &WorkspaceLocation) -> Result<(), CliError> {
    let texts =
        if location.has_records { kept_text_lines(location, &location.open(&[])?)? } else { Vec::new() };
    let mut text: String = texts.concat();
    text.push_str(&match texts.len() {
        0 => "no text is only in the journal\n".to_owned(),
        number => {
            let verb = if number == 1 { "is" } else { "are" };
            format!(
                "{} {verb} only in the journal; bowline restore ID puts it into its file\n",
                pluralize(number, "text", "texts")
            )
        }
    });
    print(&text)
}

fn kept_text_lines(location: &WorkspaceLocation, workspace: &Workspace) -> Result<Vec<String>, CliError> {
    let line = |change: &Change| {
        let size = change.before.map_or(0, |before| before.size);
        format!(
            "{} {}  {size} bytes  {}\n",
            change.id,
            escape_line(location.relative_name(&change.path)),
            format_time(change.at)
        )
    };
    Ok(workspace.kept_texts().map_err(failed)?.iter().map(line).collect())
}
