//! `bowline audit`: shows and verifies the record of what agents did here.

mod archive;
mod entries;

use std::io::{self, BufWriter, Write as _};

use bowline_access::audit::{self, AuditFilter};
use bowline_policy::audit::FoldedEntries;
use clap::{Args, Subcommand};

use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{
    OutputStyle, escape_line, ignore_broken_pipe, pluralize, print, print_note,
};
use bowline_client::common::pager::print_paged;
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::{CliError, failed};
use entries::EntryQuery;

/// What is asked for: entries are listed if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    show_arguments: AuditShowArguments,
}

const EXAMPLES: &str = "\
Without a command, the entries are listed.

Exit status: 0 success; 1 failure, or the log is missing or was tampered with; 2 wrong usage.

Examples:
  bowline audit --last 20
  bowline audit --denied
  bowline audit verify
  bowline audit archive                 after damage, archive the log and start a new one";

const SHOW_EXAMPLES: &str = "\
Each line is one entry: its number, time, decision, request and target, then who decided, how long \
it took, how it ended, and its session, turn and tool call. The log has hashes instead of file \
contents and only the names of environment variables; secrets in commands are left out.

Kinds: fs/read, fs/write, fs/delete, fetch, terminal/create, terminal/exit, terminal/kill, \
terminal/release, permission, elicitation, undo, observed, session/start, session/end, turn/start, \
turn/end, log/repair. The part before the slash selects the whole group: --kind fs.

Examples:
  bowline audit show --denied              show denied requests
  bowline audit show --kind terminal       show which commands ran
  bowline audit show --since 2h --path .env
  bowline audit show --json | jq .decision";

const VERIFY_EXAMPLES: &str = "\
Every entry has the hash of the entry before it, and an anchor, stored elsewhere, marks the end of \
the log. So verify finds entries that were changed, removed, inserted, moved or cut off. Anyone who \
can write both the log and the anchor can forge both.

Damage is reported every time, until `bowline audit archive` archives the log and starts a new one.

Exit status: 0 the log is intact or was only cut short by a crash, 1 it is not.

Examples:
  bowline audit verify
  bowline audit verify --cwd ~/project --json";

#[derive(Subcommand, Debug)]
enum AuditCommand {
    /// List the requests of agents, the decisions and the results
    ///
    /// This is what `bowline audit` alone does.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(AuditShowArguments),
    /// Move the log to an archive, damaged or not, and start a new one
    #[command(after_help = archive::EXAMPLES)]
    Archive(archive::ArchiveArguments),
    /// Check that the log is intact, and report where it is not
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(AuditVerifyArguments),
}

/// What to list.
#[derive(Args, Debug)]
struct AuditShowArguments {
    /// Show entries of one session: its id or a prefix of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show entries of one turn, by its number in the session
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// Show entries of one kind, such as fs/write, or of a group, such as fs
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Show entries whose file, command or address contains this text
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// Show entries since a date, such as 2027-01-31, or for a span, such as 2h
    ///
    /// A date can have a time, such as 2027-01-31T12:00:00Z. A span is in minutes, hours or days, such as 30m, 2h or
    /// 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show entries of denied requests
    #[arg(long)]
    denied: bool,
    /// Show only the newest N entries
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Print one JSON object per line, for every entry
    ///
    /// This includes the entries that are written before an operation begins.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// What to verify.
#[derive(Args, Debug)]
struct AuditVerifyArguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: AuditArguments) -> Result<(), CliError> {
    match arguments.command.unwrap_or(AuditCommand::Show(arguments.show_arguments)) {
        AuditCommand::Show(arguments) => show_entries(&arguments),
        AuditCommand::Verify(arguments) => verify_log(&arguments),
        AuditCommand::Archive(arguments) => archive::archive_log(&arguments),
    }
}

fn show_entries(arguments: &AuditShowArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.workspace.cwd.as_deref(), WorkspaceMarker::AuditLog)?;
    let query = EntryQuery::from_arguments(arguments)?;
    if !location.has_records {
        print_note(&no_log_message(&location));
        return Ok(());
    }
    if let Some(reason) = describe_missing_log(&location) {
        return Err(failed(anyhow::anyhow!(reason)));
    }
    let filter = AuditFilter { operation: arguments.kind.clone(), ..AuditFilter::default() };
    let mut folded = FoldedEntries::default();
    if !arguments.json {
        for record in audit::read_entries(&location.audit_log_dir(), filter.clone()).map_err(failed)? {
            folded.add(&record.map_err(failed)?);
        }
    }
    let entries = audit::read_entries(&location.audit_log_dir(), filter).map_err(failed)?;
    let style = OutputStyle::for_stdout();
    if style.is_terminal {
        let mut text = Vec::new();
        query.write_entries(entries, &folded, &location, style, &mut text)?;
        return print_paged(&String::from_utf8_lossy(&text));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    query.write_entries(entries, &folded, &location, style, &mut out)?;
    ignore_broken_pipe(out.flush())
}

fn verify_log(arguments: &AuditVerifyArguments) -> Result<(), CliError> {
    let location = WorkspaceLocation::find(arguments.workspace.cwd.as_deref(), WorkspaceMarker::AuditLog)?;
    if !location.has_records {
        print_note(&no_log_message(&location));
        return Ok(());
    }
    let report = audit::verify(&location.audit_log_dir(), &location.anchor).map_err(failed)?;
    if arguments.json {
        let finding = |finding: &bowline_policy::audit::AuditFinding| {
            serde_json::json!({
                "file": finding.position.as_ref().map(|position| &position.file),
                "line": finding.position.as_ref().map(|position| position.line),
                "fault": finding.defect.to_string(),
                "of_a_crash": finding.defect.is_crash_artifact(),
            })
        };
        let output = serde_json::json!({
            "workspace": location.root,
            "log": location.audit_log_dir(),
            "anchor": location.anchor,
            "intact": report.is_intact(),
            "unharmed": report.has_only_crash_artifacts(),
            "files": report.files,
            "entries": report.entries,
            "first": report.range.map(|range| range.0),
            "last": report.range.map(|range| range.1),
            "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
            "more": report.omitted_findings,
            "notes": report.notes.iter().map(|note| serde_json::json!({"entry": note.seq, "text": note.text})).collect::<Vec<_>>(),
        });
        print(&format!("{output}\n"))?;
    } else {
        print(&entries::format_verification(&report, &location.audit_log_dir(), OutputStyle::for_stdout()))?;
    }
    if report.has_only_crash_artifacts() {
        return Ok(());
    }
    let faults = report.findings.len() + usize::try_from(report.omitted_findings).unwrap_or(usize::MAX);
    Err(failed(anyhow::anyhow!(
        "the audit log is not as it was written: {}",
        pluralize(faults, "fault", "faults")
    )))
}

/// Returns a message if the anchor knows entries of a log that is missing.
pub(crate) fn describe_missing_log(location: &WorkspaceLocation) -> Option<String> {
    let log = location.audit_log_dir();
    let has_files = std::fs::read_dir(&log).is_ok_and(|mut files| files.next().is_some());
    if has_files || !location.anchor.exists() {
        return None;
    }
    // An unreadable log is reported by the code that reads it.
    let report = audit::verify(&log, &location.anchor).ok()?;
    (!report.has_only_crash_artifacts()).then(|| {
        let log = escape_line(&log.to_string_lossy());
        format!(
            "the audit log {log} is missing, and its anchor knows that it had entries: `bowline audit verify` tells more, \
             `bowline audit archive` begins a new one"
        )
    })
}

fn no_log_message(location: &WorkspaceLocation) -> String {
    format!("no agent has done anything in {} yet: there is no audit log", escape_line(&location.root))
}
