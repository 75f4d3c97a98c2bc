//! `bowline audit`: the record of what agents did here, to read and to verify.

mod archive;
mod entries;
mod fold;

use std::io::{self, BufWriter, Write as _};

use bowline_workspace::audit::{self, Filter};
use clap::{Args, Subcommand};

use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::pager::page;
use crate::records::showing::{Look, count, note, print, safe, written};
use entries::Wanted;
use fold::Folded;

/// What is asked for: entries are listed if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: ShowArguments,
}

const EXAMPLES: &str = "\
Without a command, the entries are listed.

Exit status: 0 done, 1 failed, or the log is missing or not as it was written; 2 wrong usage.

Examples:
  bowline audit --last 20
  bowline audit --denied
  bowline audit verify
  bowline audit archive                 after damage: puts the log aside and begins a new one";

const SHOW_EXAMPLES: &str = "\
Each line is one entry: its number, when, what was decided, what was asked for, on what; then who decided, how long it took,
how it ended, and of which session, turn and tool call it is. Of file contents the log has only hashes, of environment
variables only names, and secrets in commands are left out.

Kinds: fs/read, fs/write, fs/delete, fetch, terminal/create, terminal/exit, terminal/kill, terminal/release, permission,
elicitation, undo, observed, session/start, session/end, turn/start, turn/end, log/repair. The part before the / means all
of them: --kind fs.

Examples:
  bowline audit show --denied              what agents wanted and did not get
  bowline audit show --kind terminal       which commands ran
  bowline audit show --since 2h --path .env
  bowline audit show --json | jq .decision";

const VERIFY_EXAMPLES: &str = "\
Every entry has the hash of the one before, and the end of the log is known in an anchor that lies elsewhere. So it is found
if an entry was changed, removed, put in, moved or cut off. Who can write both the log and the anchor can forge both. Up to 63
reads at the end may not be in the anchor yet while an agent works.

What was found stays found: `bowline audit archive` puts the log aside and begins a new one.

Exit status: 0 if the log is as it was written, or was only cut short by a crash; 1 if not.

Examples:
  bowline audit verify
  bowline audit verify --cwd ~/project --json";

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists what agents asked for, what was decided, by whom, and what became of it, as `bowline audit` alone does
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// Puts the log aside, damaged or not, and begins a new one
    #[command(after_help = archive::EXAMPLES)]
    Archive(archive::ArchiveArguments),
    /// Says whether the log is as it was written, and if not, where it was changed, cut or reordered
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
}

/// What to list.
#[derive(Args, Debug)]
struct ShowArguments {
    /// Entries of one session: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Entries of one turn, by its number in its session
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// Entries of one kind, such as fs/write, or of all that begin so, such as fs
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Entries whose file, command or address contains this text
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// Entries since a date, such as 2027-01-31 or 2027-01-31T12:00:00Z, or for a span, such as 30m, 2h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Entries of what was denied
    #[arg(long)]
    denied: bool,
    /// At most so many: the newest
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Prints one JSON object a line: every entry, also the one that is written before an operation begins
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What to verify.
#[derive(Args, Debug)]
struct VerifyArguments {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// Does it.
pub(crate) fn run(arguments: AuditArguments) -> Result<(), Ending> {
    match arguments.command.unwrap_or(Command::Show(arguments.show)) {
        Command::Show(arguments) => show(&arguments),
        Command::Verify(arguments) => verify(&arguments),
        Command::Archive(arguments) => archive::archive(&arguments),
    }
}

fn show(arguments: &ShowArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.place.cwd.as_deref(), Sign::Log)?;
    let wanted = Wanted::of(arguments)?;
    if !here.known {
        note(&nothing_yet(&here));
        return Ok(());
    }
    if let Some(why) = missing(&here) {
        return Err(failed(anyhow::anyhow!(why)));
    }
    let filter = Filter { operation: arguments.kind.clone(), ..Filter::default() };
    let mut folded = Folded::default();
    if !arguments.json {
        for record in audit::entries(&here.log(), filter.clone()).map_err(failed)? {
            folded.add(&record.map_err(failed)?);
        }
    }
    let found = audit::entries(&here.log(), filter).map_err(failed)?;
    let look = Look::of_stdout();
    if look.terminal {
        let mut text = Vec::new();
        wanted.write(found, &folded, &here, look, &mut text)?;
        return page(&String::from_utf8_lossy(&text));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    wanted.write(found, &folded, &here, look, &mut out)?;
    written(out.flush())
}

fn verify(arguments: &VerifyArguments) -> Result<(), Ending> {
    let here = Here::find(arguments.place.cwd.as_deref(), Sign::Log)?;
    if !here.known {
        note(&nothing_yet(&here));
        return Ok(());
    }
    let report = audit::verify(&here.log(), &here.anchor).map_err(failed)?;
    if arguments.json {
        let finding = |finding: &bowline_state::audit::Finding| {
            serde_json::json!({
                "file": finding.place.as_ref().map(|place| &place.file),
                "line": finding.place.as_ref().map(|place| place.line),
                "fault": finding.fault.to_string(),
                "of_a_crash": finding.fault.is_of_a_crash(),
            })
        };
        let told = serde_json::json!({
            "workspace": here.root,
            "log": here.log(),
            "anchor": here.anchor,
            "intact": report.is_intact(),
            "unharmed": report.is_unharmed(),
            "files": report.files,
            "entries": report.entries,
            "first": report.range.map(|range| range.0),
            "last": report.range.map(|range| range.1),
            "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
            "more": report.more,
            "notes": report.notes.iter().map(|note| serde_json::json!({"entry": note.seq, "text": note.text})).collect::<Vec<_>>(),
        });
        print(&format!("{told}\n"))?;
    } else {
        print(&entries::verified(&report, &here.log(), Look::of_stdout()))?;
    }
    if report.is_unharmed() {
        return Ok(());
    }
    let faults = report.findings.len() + usize::try_from(report.more).unwrap_or(usize::MAX);
    Err(failed(anyhow::anyhow!(
        "the audit log is not as it was written: {}",
        count(faults, "fault", "faults")
    )))
}

/// Says that a log is gone of which the anchor knows entries, if that is so.
pub(crate) fn missing(here: &Here) -> Option<String> {
    let log = here.log();
    let has_files = std::fs::read_dir(&log).is_ok_and(|mut files| files.next().is_some());
    if has_files || !here.anchor.exists() {
        return None;
    }
    // One that cannot be read is told of by those who read it.
    let report = audit::verify(&log, &here.anchor).ok()?;
    (!report.is_unharmed()).then(|| {
        let log = safe(&log.to_string_lossy());
        format!(
            "the audit log {log} is missing, and its anchor knows that it had entries: `bowline audit verify` tells more, \
             `bowline audit archive` begins a new one"
        )
    })
}

fn nothing_yet(here: &Here) -> String {
    format!("no agent has done anything in {} yet: there is no audit log", safe(&here.root))
}

fn failed(error: impl Into<anyhow::Error>) -> Ending {
    Ending::Failed(error.into())
}
