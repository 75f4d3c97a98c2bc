//! What a turn came to: the files that it changed and how to take that back, and what was refused and what would have
//! allowed it.

use std::collections::BTreeMap;

use bowline_host::{Host, NO_ALLOW_OPTION, ONLY_ALLOW_ALWAYS, Session};
use bowline_state::audit::{Action, By, Decision, Subject};
use bowline_state::changes::{Change, ContentHash, FileState, Source};
use bowline_state::diff;
use bowline_state::display;
use bowline_state::policy::Preset;
use bowline_state::question::Item;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::audit::Filter;
use bowline_workspace::workspace::{Changed, Workspace};

use serde_json::{Value, json};

use super::front::Refusal;

use super::paint::Paint;
use crate::changes::patching;
use crate::policy::hint::{self, Hint};
use crate::records::names::shortened;

/// So many files are listed.
const MAX_FILES: usize = 50;
/// So many refusals are listed.
const MAX_REFUSED: usize = 10;
/// So many of the last entries of the log are looked through.
const MAX_ENTRIES: usize = 2000;

/// A file that was changed.
struct ChangedFile {
    // The change that came first, and the one that came last.
    first: Change,
    last: Change,
    // How it is known, if nobody wrote it through Bowline.
    found: Option<&'static str>,
    // Whether somebody else changed it between two of the changes.
    shared: bool,
    // Whether every text is kept that it takes to take it back.
    kept: bool,
}

/// Tells which files a turn changed, and how to take that back; nothing if there are none. `cwd` is how the workspace has
/// to be named, if it is not the current directory.
pub(super) fn changes(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    cwd: Option<&str>,
    paint: Paint,
) -> anyhow::Result<String> {
    let files = changed_files(workspace, session, turn)?;
    if files.is_empty() {
        return Ok(String::new());
    }
    let many = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
    let mut text = format!("{}\n", paint.bold(&format!("Changed {many}:")));
    let prefix = format!("{}/", workspace.roots().cwd());
    for (path, file) in files.iter().take(MAX_FILES) {
        let shown = display::line(path.strip_prefix(&prefix).unwrap_or(path), 500);
        let what = match (file.first.before, file.last.after) {
            (None, _) => " (new)".to_owned(),
            (_, None) => " (deleted)".to_owned(),
            (Some(before), Some(after)) if before.mode != after.mode => {
                format!(" (mode {:o}, was {:o})", after.mode & 0o7777, before.mode & 0o7777)
            }
            _ => String::new(),
        };
        let found = file.found.map(|how| paint.dim(&format!(" ({how})"))).unwrap_or_default();
        let counted = match (file.kept, file.shared) {
            (false, _) => NOT_KEPT.to_owned(),
            (true, true) => counted_apart(workspace, session, turn, path, paint)?,
            (true, false) => counted(workspace, file, paint),
        };
        text += &format!("  {shown}  {counted}{what}{found}\n");
    }
    if files.len() > MAX_FILES {
        text += &format!("  and {} more\n", files.len() - MAX_FILES);
    }
    text += &format!("To undo: {}\n", undo_command(workspace, cwd, session, turn)?);
    // What a command did is most often what it was run for.
    if files.values().any(|file| file.found == Some(AFTER_TURN)) {
        text += "What was found may be your own work, saved meanwhile: it stays, unless you add --found\n";
    }
    Ok(text)
}

/// Returns which files a turn changed, for programs, and how to take that back.
pub(super) fn objects(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    cwd: Option<&str>,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let files = changed_files(workspace, session, turn)?;
    let mut objects = Vec::new();
    for (path, file) in &files {
        let of_file = Selection { path: Some(path.clone()), ..Selection::turn(session, turn) };
        let lines = file.kept.then(|| workspace.diff(&of_file)).transpose()?;
        let lines = lines.filter(|patch| !patching::is_binary(patch)).map(|patch| patching::lines(&patch));
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
            "found": file.found,
            "can_undo": file.kept,
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
) -> anyhow::Result<BTreeMap<String, ChangedFile>> {
    let mut files: BTreeMap<String, ChangedFile> = BTreeMap::new();
    let changed = workspace.changes(&Selection::turn(session, turn))?;
    // What was taken back meanwhile need not be.
    for change in changed.into_iter().filter(|changed| changed.in_effect).map(|changed| changed.change) {
        let found = found(&change);
        let kept = change.source != Source::Observed || workspace.keeps(&change)?;
        files
            .entry(change.path.clone())
            .and_modify(|file| {
                file.found = found.or(file.found);
                file.shared |= became(file.last.after) != became(change.before);
                file.kept &= kept;
                file.last = change.clone();
            })
            .or_insert_with(|| ChangedFile {
                first: change.clone(),
                last: change,
                found,
                shared: false,
                kept,
            });
    }
    files.retain(|_, file| became(file.first.before) != became(file.last.after));
    Ok(files)
}

/// What is said of a file that an undo leaves as it is.
const NOT_KEPT: &str = "too large or too many to be kept, cannot be taken back";

/// Returns what a file was, to be told from what it was at another time.
fn became(state: Option<FileState>) -> Option<(ContentHash, u32)> {
    state.map(|state| (state.hash, state.mode))
}

/// Says how many lines the turn added and removed in a file that somebody else changed meanwhile.
fn counted_apart(
    workspace: &Workspace,
    session: &str,
    turn: u64,
    path: &str,
    paint: Paint,
) -> anyhow::Result<String> {
    let of_file = Selection { path: Some(path.to_owned()), ..Selection::turn(session, turn) };
    let (added, removed) = patching::lines(&workspace.diff(&of_file)?);
    Ok(lines(added, removed, paint))
}

/// How a change is known that no command accounts for.
const AFTER_TURN: &str = "found on disk";

/// Returns how a change is known, if it did not go through Bowline.
fn found(change: &Change) -> Option<&'static str> {
    match (change.source, &change.origin.command) {
        (Source::Written, _) => None,
        (Source::Observed, Some(_)) => Some("after a command"),
        (Source::Observed, None) => Some(AFTER_TURN),
        (Source::Claimed, _) => Some("as the agent says"),
    }
}

/// Returns the command that takes a turn back: the plain one, if the turn is the last that changed something.
fn undo_command(
    workspace: &Workspace,
    cwd: Option<&str>,
    session: &str,
    turn: u64,
) -> anyhow::Result<String> {
    let history = workspace.changes(&Selection { who: Who::Agents, ..Selection::default() })?;
    let is_edit = |changed: &&Changed| changed.in_effect && changed.change.reverses.is_empty();
    let newest = history.iter().rfind(is_edit).map(|changed| &changed.change.origin);
    if newest.is_some_and(|origin| origin.session.as_deref() == Some(session) && origin.turn == Some(turn)) {
        return Ok(format!("bowline undo{}", in_directory(cwd)));
    }
    let known = history.iter().filter_map(|changed| changed.change.origin.session.as_deref());
    Ok(undo(cwd, shortened(session, known), turn))
}

fn in_directory(cwd: Option<&str>) -> String {
    cwd.map(|cwd| format!(" --cwd {}", display::line(&quoted(cwd), 4096))).unwrap_or_default()
}

/// Returns the command that takes a certain turn back. It is shown on a terminal and copied from there, and agents name their
/// sessions as they like.
fn undo(cwd: Option<&str>, session: &str, turn: u64) -> String {
    let is_plain = |session: &str| {
        !session.is_empty()
            && session.len() <= 100
            && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
    };
    let session = match session {
        // A `~` that a shell would expand.
        session if !is_plain(session) || session.starts_with('~') => " --session last".to_owned(),
        session if session.starts_with('-') => format!(" --session={session}"),
        session => format!(" --session {session}"),
    };
    format!("bowline undo{}{session} --turn {turn}", in_directory(cwd))
}

/// Says how many lines were added and removed, if that is known.
fn counted(workspace: &Workspace, file: &ChangedFile, paint: Paint) -> String {
    let texts = (workspace.texts(file.first.id), workspace.texts(file.last.id));
    let (Ok((before, _)), Ok((_, after))) = texts else { return String::new() };
    let is_known =
        before.is_some() == file.first.before.is_some() && after.is_some() == file.last.after.is_some();
    if !is_known {
        return "not text".to_owned();
    }
    let stat = diff::stat(&before.unwrap_or_default(), &after.unwrap_or_default());
    lines(stat.added, stat.removed, paint)
}

fn lines(added: usize, removed: usize, paint: Paint) -> String {
    format!("{} {}", paint.green(&format!("+{added}")), paint.red(&format!("−{removed}")))
}

fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

/// Tells what was refused in a turn without a person having said no, and what would have allowed it; nothing if nothing
/// was.
pub(super) fn refused(
    host: &Host,
    session: &Session,
    turn: u64,
    refusals: &[Refusal],
    given: Option<Preset>,
) -> Option<String> {
    let here = format!("{}/", host.workspace().roots().cwd());
    let mut lines: Vec<String> = Vec::new();
    for refusal in refusals {
        // Of a command, where it would have run need not be said again.
        let what = refusal.operations.iter().filter_map(|operation| {
            Item::plain(operation.clone()).lines().first().map(|line| line.trim().replace(&here, ""))
        });
        let what = what.collect::<Vec<_>>().join(", ");
        let what =
            if what.is_empty() { display::line(&refusal.title, 300) } else { display::line(&what, 500) };
        let hint = Hint::of(host, &refusal.operations, session.name(), given);
        lines.push(format!("{what}: nobody is there to ask; {hint}"));
    }
    lines.extend(by_rules(host, session.name(), turn, given).into_iter().map(|line| line.replace(&here, "")));
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    let more = lines.len().saturating_sub(MAX_REFUSED);
    lines.truncate(MAX_REFUSED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    match lines.as_slice() {
        [] => None,
        [line] => Some(format!("denied: {line}")),
        lines => Some(format!("denied:\n  {}", lines.join("\n  "))),
    }
}

/// Tells what rules and presets denied.
fn by_rules(host: &Host, session: &str, turn: u64, given: Option<Preset>) -> Vec<String> {
    let newest = Filter { session: Some(session.to_owned()), newest: Some(MAX_ENTRIES), ..Filter::default() };
    // A log that cannot be read is told of by those who verify it.
    let Ok(entries) = host.approvals().audit().entries(newest) else { return Vec::new() };
    let mut denied = Vec::new();
    for entry in entries.filter_map(Result::ok).map(|record| record.entry) {
        match entry.action {
            // What was before belongs to another turn of that number: of a run before this one, or of another agent.
            Action::TurnStart if entry.turn == Some(turn) => denied.clear(),
            _ if entry.turn == Some(turn) && entry.decision == Decision::Denied => denied.push(entry),
            _ => {}
        }
    }
    denied
        .into_iter()
        .filter_map(|entry| {
            let subject = match &entry.subject {
                Subject::None => entry.action.word().to_owned(),
                Subject::Path { asked, .. } => asked.clone(),
                Subject::Command { line, .. } => line.clone(),
                Subject::Url(text) | Subject::Text(text) => text.clone(),
            };
            let verb = match entry.action {
                Action::Read => "read ",
                Action::Write => "write ",
                Action::Delete => "delete ",
                Action::TerminalCreate => "run ",
                Action::Fetch => "fetch ",
                _ => "",
            };
            let subject = display::line(&subject, 300);
            match &entry.by {
                _ if entry.reason.as_deref() == Some(ONLY_ALLOW_ALWAYS) => Some(format!(
                    "{verb}{subject}: the agent takes a yes for always only; {}",
                    hint::always_hint(host)
                )),
                _ if entry.reason.as_deref() == Some(NO_ALLOW_OPTION) => {
                    Some(format!("{verb}{subject}: {NO_ALLOW_OPTION}"))
                }
                By::Rule(rule) => Some(format!("{verb}{subject}: by {}", display::line(rule, 300))),
                By::Preset(preset) => {
                    let operations = hint::operation(host, &entry);
                    let hint = Hint::of(host, operations.as_slice(), session, given);
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
        let mut told = String::new();
        for session in sessions {
            told += &format!("{}\n", undo(None, session, 1));
        }
        told += &format!("{}\n", undo(Some("/a b/\u{1b}[31m"), "x", 2));
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
        .assert_eq(&told);
    }
}
