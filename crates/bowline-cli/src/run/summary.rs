//! The summary of a turn: the changed files and how to undo them, and the denials and what would have allowed them.

use std::collections::BTreeMap;

use bowline_access::audit::AuditFilter;
use bowline_history::changes::{Change, ChangeSource, FileState};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_host::{Host, HostSession, NO_ALLOW_OPTION, ONLY_ALLOW_ALWAYS};
use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject, DecisionSource};
use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionItem;
use bowline_text::diff;
use bowline_text::display;
use bowline_text::hash::ContentHash;
use bowline_workspace::workspace::{ListedChange, Workspace};

use serde_json::{Value, json};

use super::front_end::UnattendedDenial;

use crate::changes::patch;
use crate::policy::hint::{self, PolicyHint};
use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_client::common::names::shorten_id;

/// The maximum number of files listed.
const MAX_FILES: usize = 50;
/// The maximum number of denials listed.
const MAX_LISTED_DENIALS: usize = 10;
/// The maximum number of recent log entries examined.
const MAX_ENTRIES: usize = 2000;

/// A file that was changed.
struct TurnFileChange {
    // The first change, and the last one.
    first: Change,
    last: Change,
    // How the change was discovered, if it was not written through Bowline.
    discovery: Option<&'static str>,
    // Whether another author changed it between two of the changes.
    has_foreign_changes: bool,
    // Whether every text that an undo needs is kept.
    is_restorable: bool,
}

/// Describes which files a turn changed, and how to undo that; empty if there are none. `cwd` names the workspace if it
/// is not the current directory.
pub(super) fn describe_changes(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    cwd: Option<&str>,
    style: OutputStyle,
) -> anyhow::Result<String> {
    let files = changed_files(workspace, session, turn)?;
    if files.is_empty() {
        return Ok(String::new());
    }
    let count = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
    let mut text = format!("{}\n", style.paint(TextStyle::Heading, &format!("Changed {count}:")));
    let prefix = format!("{}/", workspace.roots().cwd());
    for (path, file) in files.iter().take(MAX_FILES) {
        let name = display::escape_line(path.strip_prefix(&prefix).unwrap_or(path), 500);
        let note = match (file.first.before, file.last.after) {
            (None, _) => " (new)".to_owned(),
            (_, None) => " (deleted)".to_owned(),
            (Some(before), Some(after)) if before.mode != after.mode => {
                format!(" (mode {:o}, was {:o})", after.mode & 0o7777, before.mode & 0o7777)
            }
            _ => String::new(),
        };
        let discovery = file
            .discovery
            .map(|discovery| style.paint(TextStyle::Faint, &format!(" ({discovery})")))
            .unwrap_or_default();
        let counts = match (file.is_restorable, file.has_foreign_changes) {
            (false, _) => NOT_RESTORABLE.to_owned(),
            (true, true) => count_lines_apart(workspace, session, turn, path, style)?,
            (true, false) => count_lines(workspace, file, style),
        };
        text += &format!("  {name}  {counts}{note}{discovery}\n");
    }
    if files.len() > MAX_FILES {
        text += &format!("  and {} more\n", files.len() - MAX_FILES);
    }
    text += &format!("To undo: {}\n", undo_command(workspace, cwd, session, turn)?);
    // Only changes found on disk may be the user's: a command's effects are usually intended.
    if files.values().any(|file| file.discovery == Some(FOUND_ON_DISK)) {
        text += "What was found may be your own work, saved meanwhile: it stays, unless you add --found\n";
    }
    Ok(text)
}

/// Returns the files that a turn changed, for programs, and the command that undoes them.
pub(super) fn changes_as_json(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    cwd: Option<&str>,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let files = changed_files(workspace, session, turn)?;
    let mut objects = Vec::new();
    for (path, file) in &files {
        let selection = ChangeSelection { path: Some(path.clone()), ..ChangeSelection::turn(session, turn) };
        let lines = file.is_restorable.then(|| workspace.diff(&selection)).transpose()?;
        let lines = lines.filter(|patch| !patch::is_binary(patch)).map(|patch| patch::count_lines(&patch));
        let result = match (file.first.before, file.last.after) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "edited",
        };
        objects.push(json!({
            "path": path,
            "result": result,
            "added": lines.map(|(added, _)| added),
            "removed": lines.map(|(_, removed)| removed),
            "found": file.discovery,
            "can_undo": file.is_restorable,
        }));
    }
    let undo = (!files.is_empty()).then(|| undo_command(workspace, cwd, session, turn)).transpose()?;
    Ok((objects, undo))
}

/// Returns the files that a turn changed.
fn changed_files(
    workspace: &Workspace,
    session: &str,
    turn: u64,
) -> anyhow::Result<BTreeMap<String, TurnFileChange>> {
    let mut files: BTreeMap<String, TurnFileChange> = BTreeMap::new();
    let changed = workspace.changes(&ChangeSelection::turn(session, turn))?;
    // Changes that were undone meanwhile are left out.
    for change in changed.into_iter().filter(|changed| changed.is_in_effect).map(|changed| changed.change) {
        let discovery = describe_discovery(&change);
        let is_restorable = change.source != ChangeSource::Observed || workspace.has_change_texts(&change)?;
        files
            .entry(change.path.clone())
            .and_modify(|file| {
                file.discovery = discovery.or(file.discovery);
                file.has_foreign_changes |=
                    content_identity(file.last.after) != content_identity(change.before);
                file.is_restorable &= is_restorable;
                file.last = change.clone();
            })
            .or_insert_with(|| TurnFileChange {
                first: change.clone(),
                last: change,
                discovery,
                has_foreign_changes: false,
                is_restorable,
            });
    }
    files.retain(|_, file| content_identity(file.first.before) != content_identity(file.last.after));
    Ok(files)
}

/// The note on a file that an undo leaves unchanged.
const NOT_RESTORABLE: &str = "too large or too many to be kept, cannot be taken back";

/// Returns an identity of a file's content and mode, for comparison.
fn content_identity(state: Option<FileState>) -> Option<(ContentHash, u32)> {
    state.map(|state| (state.hash, state.mode))
}

/// Counts the lines that the turn added and removed in a file that another author changed meanwhile.
fn count_lines_apart(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    path: &str,
    style: OutputStyle,
) -> anyhow::Result<String> {
    let selection = ChangeSelection { path: Some(path.to_owned()), ..ChangeSelection::turn(session, turn) };
    let (added, removed) = patch::count_lines(&workspace.diff(&selection)?);
    Ok(format_line_counts(added, removed, style))
}

/// The discovery of a change that no command accounts for.
const FOUND_ON_DISK: &str = "found on disk";

/// Describes how a change was discovered, if it did not go through Bowline.
fn describe_discovery(change: &Change) -> Option<&'static str> {
    match (change.source, &change.origin.command) {
        (ChangeSource::Written, _) => None,
        (ChangeSource::Observed, Some(_)) => Some("after a command"),
        (ChangeSource::Observed, None) => Some(FOUND_ON_DISK),
        (ChangeSource::Claimed, _) => Some("as the agent says"),
    }
}

/// Returns the command that undoes a turn: the plain one, if the turn is the last with changes.
fn undo_command(
    workspace: &Workspace,
    cwd: Option<&str>,
    session: &str,
    turn: u64,
) -> anyhow::Result<String> {
    let history =
        workspace.changes(&ChangeSelection { owner: ChangeOwner::Agents, ..ChangeSelection::default() })?;
    let is_edit = |changed: &&ListedChange| changed.is_in_effect && changed.change.reverses.is_empty();
    let newest = history.iter().rfind(is_edit).map(|changed| &changed.change.origin);
    if newest.is_some_and(|origin| origin.session.as_deref() == Some(session) && origin.turn == Some(turn)) {
        return Ok(format!("bowline undo{}", cwd_option(cwd)));
    }
    let sessions = history.iter().filter_map(|changed| changed.change.origin.session.as_deref());
    Ok(undo_turn_command(cwd, shorten_id(session, sessions), turn))
}

fn cwd_option(cwd: Option<&str>) -> String {
    cwd.map(|cwd| format!(" --cwd {}", display::escape_line(&shell_quote(cwd), 4096))).unwrap_or_default()
}

/// Returns the command that undoes a certain turn. It is displayed on a terminal and copied from there, and agents
/// choose the names of their sessions, so unsafe names are replaced.
fn undo_turn_command(cwd: Option<&str>, session: &str, turn: u64) -> String {
    let is_plain = |session: &str| {
        !session.is_empty()
            && session.len() <= 100
            && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
    };
    let session = match session {
        // A leading `~` would be expanded by a shell.
        session if !is_plain(session) || session.starts_with('~') => " --session last".to_owned(),
        session if session.starts_with('-') => format!(" --session={session}"),
        session => format!(" --session {session}"),
    };
    format!("bowline undo{}{session} --turn {turn}", cwd_option(cwd))
}

/// Describes how many lines were added and removed, if known.
fn count_lines(workspace: &Workspace, file: &TurnFileChange, style: OutputStyle) -> String {
    let texts = (workspace.change_texts(file.first.id), workspace.change_texts(file.last.id));
    let (Ok((before, _)), Ok((_, after))) = texts else { return String::new() };
    let is_known =
        before.is_some() == file.first.before.is_some() && after.is_some() == file.last.after.is_some();
    if !is_known {
        return "not text".to_owned();
    }
    let stat = diff::compute_stat(&before.unwrap_or_default(), &after.unwrap_or_default());
    format_line_counts(stat.added, stat.removed, style)
}

fn format_line_counts(added: usize, removed: usize, style: OutputStyle) -> String {
    format!(
        "{} {}",
        style.paint(TextStyle::Good, &format!("+{added}")),
        style.paint(TextStyle::Bad, &format!("−{removed}"))
    )
}

fn shell_quote(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

/// Describes what was denied in a turn without the user's decision, and what would have allowed it; `None` if nothing
/// was.
pub(super) fn describe_denials(
    host: &Host,
    session: &HostSession,
    turn: u64,
    refusals: &[UnattendedDenial],
    current_preset: Option<Preset>,
) -> Option<String> {
    let root_prefix = format!("{}/", host.workspace().roots().cwd());
    let mut lines: Vec<String> = Vec::new();
    for refusal in refusals {
        // The directory of a command need not be named again.
        let description = refusal.operations.iter().filter_map(|operation| {
            QuestionItem::new(operation.clone())
                .lines()
                .first()
                .map(|line| line.trim().replace(&root_prefix, ""))
        });
        let description = description.collect::<Vec<_>>().join(", ");
        let description = if description.is_empty() {
            display::escape_line(&refusal.title, 300)
        } else {
            display::escape_line(&description, 500)
        };
        let hint = PolicyHint::find(host, &refusal.operations, session.name(), current_preset);
        lines.push(format!("{description}: the user cannot be asked; {hint}"));
    }
    lines.extend(
        describe_rule_denials(host, session.name(), turn, current_preset)
            .into_iter()
            .map(|line| line.replace(&root_prefix, "")),
    );
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    let more = lines.len().saturating_sub(MAX_LISTED_DENIALS);
    lines.truncate(MAX_LISTED_DENIALS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    match lines.as_slice() {
        [] => None,
        [line] => Some(format!("denied: {line}")),
        lines => Some(format!("denied:\n  {}", lines.join("\n  "))),
    }
}

/// Describes what rules and presets denied.
fn describe_rule_denials(
    host: &Host,
    session: &str,
    turn: u64,
    current_preset: Option<Preset>,
) -> Vec<String> {
    let filter = AuditFilter {
        session: Some(session.to_owned()),
        newest: Some(MAX_ENTRIES),
        ..AuditFilter::default()
    };
    // An unreadable log is reported by the commands that verify it.
    let Ok(entries) = host.approvals().audit().entries(filter) else { return Vec::new() };
    let mut denied = Vec::new();
    for entry in entries.filter_map(Result::ok).map(|record| record.entry) {
        match entry.action {
            // Earlier entries belong to another turn of the same number: of an earlier run, or of another agent.
            AuditAction::TurnStart if entry.turn == Some(turn) => denied.clear(),
            _ if entry.turn == Some(turn) && entry.decision == AuditDecision::Denied => denied.push(entry),
            _ => {}
        }
    }
    denied
        .into_iter()
        .filter_map(|entry| {
            let subject = match &entry.subject {
                AuditSubject::None => entry.action.as_str().to_owned(),
                AuditSubject::Path { requested, .. } => requested.clone(),
                AuditSubject::Command { line, .. } => line.clone(),
                AuditSubject::Url(text) | AuditSubject::Text(text) => text.clone(),
            };
            let verb = match entry.action {
                AuditAction::Read => "read ",
                AuditAction::Write => "write ",
                AuditAction::Delete => "delete ",
                AuditAction::TerminalCreate => "run ",
                AuditAction::Fetch => "fetch ",
                _ => "",
            };
            let subject = display::escape_line(&subject, 300);
            match &entry.decided_by {
                _ if entry.reason.as_deref() == Some(ONLY_ALLOW_ALWAYS) => Some(format!(
                    "{verb}{subject}: the agent takes a yes for always only; {}",
                    hint::always_hint(host)
                )),
                _ if entry.reason.as_deref() == Some(NO_ALLOW_OPTION) => {
                    Some(format!("{verb}{subject}: {NO_ALLOW_OPTION}"))
                }
                DecisionSource::Rule(rule) => {
                    Some(format!("{verb}{subject}: by {}", display::escape_line(rule, 300)))
                }
                DecisionSource::Preset(preset) => {
                    let operations = hint::entry_operation(host, &entry);
                    let hint = PolicyHint::find(host, operations.as_slice(), session, current_preset);
                    Some(format!("{verb}{subject}: by the preset {preset}; {hint}"))
                }
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_command_that_takes_a_turn_back_can_be_copied() {
        let sessions =
            ["0a1b", "s1~2", "-all", "--all", "s\u{1b}[2J\n--yes; rm -rf '$(x)'", "~x", "a b", "", "last"];
        let mut output = String::new();
        for session in sessions {
            output += &format!("{}\n", undo_turn_command(None, session, 1));
        }
        output += &format!("{}\n", undo_turn_command(Some("/a b/\u{1b}[31m"), "x", 2));
        expect![[r#"
            bowline undo --session 0a1b --turn 1
            bowline undo --session s1~2 --turn 1
            bowline undo --session=-all --turn 1
            bowline undo --session=--all --turn 1
            bowline undo --session last --turn 1
            bowline undo --session last --turn 1
            bowline undo --session last --turn 1
            bowline undo --session last --turn 1
            bowline undo --session last --turn 1
            bowline undo --cwd '/a b/\u{1b}[31m' --session x --turn 2
        "#]]
        .assert_eq(&output);
    }
}
