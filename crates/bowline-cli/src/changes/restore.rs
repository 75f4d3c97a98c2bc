//! `bowline restore`: texts of yours that are only in the journal.

use std::io::Write as _;

use anyhow::Context as _;
use bowline_state::changes::{Change, ChangeId};
use bowline_workspace::workspace::Workspace;
use clap::Args;

use super::{Where, failed, undoing};
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::showing::{count, print, safe};
use crate::records::times::at;

const EXAMPLES: &str = "\
If you save a file at the moment in which Bowline replaces it, both changes are merged. Where that cannot be, your text is
kept in the journal, and you are told its number. Without a number, all such texts are listed.

To restore a text is to undo the change that it is listed as: if the file is still what it was when the text was kept, the
file becomes your text; if it was edited since, the two are merged; if that is not possible, it is refused, and --print gives you
the text. What the file held before stays in the journal: `bowline redo` brings it back.

Exit status: 0; 1 if there is no such text or it cannot be restored; 2 for wrong usage.

Examples:
  bowline restore                  lists them
  bowline restore 12 --print       shows one
  bowline restore 12 --print > saved.txt
  bowline restore 12               puts it into its file";

/// Which text.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArguments {
    /// The number of the text, as you were told it and as `bowline changes` shows it
    #[arg(value_name = "ID")]
    id: Option<i64>,
    /// Prints the text, byte for byte, and changes nothing
    #[arg(long, requires = "id")]
    print: bool,
    #[command(flatten)]
    place: Where,
}

/// Lists, prints or restores texts that only the journal has.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.place.cwd.as_deref(), Sign::Journal)?;
    let Some(id) = arguments.id.map(ChangeId) else { return list(&here) };
    let none = || failed(anyhow::anyhow!("there is no kept text {id} here: `bowline restore` lists them"));
    if !here.known {
        return Err(none());
    }
    let workspace = here.open(&[])?;
    let Ok(Some(bytes)) = workspace.kept_text(id) else { return Err(none()) };
    if !arguments.print {
        return undoing::restore(&here, workspace, id);
    }
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(&bytes).and_then(|()| out.flush());
    printed.context("cannot print the text").map_err(Ending::from)
}

fn list(here: &Here) -> Result<(), Ending> {
    let texts = if here.known { texts(here, &here.open(&[])?)? } else { Vec::new() };
    let mut text: String = texts.concat();
    text.push_str(&match texts.len() {
        0 => "no text is only in the journal\n".to_owned(),
        number => {
            let is = if number == 1 { "is" } else { "are" };
            format!(
                "{} {is} only in the journal; bowline restore ID puts it into its file\n",
                count(number, "text", "texts")
            )
        }
    });
    print(&text)
}

fn texts(here: &Here, workspace: &Workspace) -> Result<Vec<String>, Ending> {
    let line = |change: &Change| {
        let size = change.before.map_or(0, |before| before.size);
        format!("{} {}  {size} bytes  {}\n", change.id, safe(here.name(&change.path)), at(change.at))
    };
    Ok(workspace.kept_texts().map_err(failed)?.iter().map(line).collect())
}
