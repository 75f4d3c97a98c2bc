//! The list of changes, by session and turn.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use bowline_history::changes::{Change, ChangeId, ChangeSource, FileState};
use bowline_history::undo::ChangeSelection;
use bowline_storage::clock::format_iso8601;
use bowline_text::diff;
use bowline_text::time::Timestamp;
use bowline_workspace::workspace::{ListedChange, Workspace};
use serde_json::{Value, json};

use super::failed;
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, escape_lines, pluralize};
use bowline_client::common::names::SessionNames;
use bowline_client::common::times::{format_age, format_time};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::error::CliError;

/// The maximum number of lines shown per hunk.
const MAX_HUNK_LINES: usize = 12;
/// The maximum number of changes listed per turn, unless all are requested.
const MAX_LISTED: usize = 20;

/// How a list is formatted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeListOptions {
    /// Whether each hunk is shown.
    pub(crate) show_hunks: bool,
    /// Whether every change is listed.
    pub(crate) is_full: bool,
    pub(crate) style: OutputStyle,
    pub(crate) now: Timestamp,
}

/// The changes to list.
pub(crate) struct ChangeList {
    // Groups are ordered by their newest change, the changes of a group by id.
    turns: Vec<TurnChanges>,
    // The number of changes not listed because they are undone.
    undone_count: usize,
    // Undone hunks of changes that are in effect.
    undone_hunks: HashMap<ChangeId, BTreeSet<usize>>,
    // Changes in effect whose text is no longer in their files.
    reverted_by_hand: HashSet<ChangeId>,
}

/// The changes of one turn.
struct TurnChanges {
    session: Option<String>,
    turn: Option<u64>,
    /// Whether these changes are undos or redos made outside any session.
    is_undo: bool,
    changes: Vec<ListedChange>,
}

impl ChangeList {
    /// Selects the changes to list; with `includes_kept_texts`, includes texts that only the journal has.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn load(
        workspace: &Workspace,
        history: &[ListedChange],
        selection: &ChangeSelection,
        show_all: bool,
        includes_kept_texts: bool,
    ) -> Result<Self, CliError> {
        let mut groups: Vec<TurnChanges> = Vec::new();
        let mut group_indexes: HashMap<(Option<String>, Option<u64>, bool), usize> = HashMap::new();
        let mut undone_count = 0;
        let kept_texts =
            history.iter().filter(|changed| includes_kept_texts && changed.change.is_kept_text()).cloned();
        for changed in workspace.changes(selection).map_err(failed)?.into_iter().chain(kept_texts) {
            let is_edit = changed.change.reverses.is_empty();
            // A change that is named by its id is always listed.
            if !show_all && selection.change.is_none() && !(is_edit && changed.is_in_effect) {
                undone_count += usize::from(is_edit);
                continue;
            }
            let origin = &changed.change.origin;
            let (session, turn) = (origin.session.clone(), origin.turn);
            let is_undo = session.is_none() && !is_edit;
            let index = group_indexes.entry((session.clone(), turn, is_undo)).or_insert_with(|| {
                groups.push(TurnChanges { session, turn, is_undo, changes: Vec::new() });
                groups.len() - 1
            });
            groups[*index].changes.push(changed);
        }
        groups.sort_by_key(|group| group.changes.last().map(|changed| changed.change.id));
        let mut undone_hunks: HashMap<ChangeId, BTreeSet<usize>> = HashMap::new();
        for undo in history.iter().filter(|changed| changed.is_in_effect) {
            for reversal in &undo.change.reverses {
                let hunks = reversal.hunks.iter().flatten().copied();
                undone_hunks.entry(reversal.change).or_default().extend(hunks);
            }
        }
        undone_hunks.retain(|_, hunks| !hunks.is_empty());
        Ok(Self {
            turns: groups,
            undone_count,
            undone_hunks,
            reverted_by_hand: workspace.find_manual_reverts(history),
        })
    }

    /// Returns whether there is nothing to list.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Formats the list for people.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn to_text(
        &self,
        workspace: &Workspace,
        location: &WorkspaceLocation,
        names: &SessionNames,
        options: ChangeListOptions,
    ) -> Result<String, CliError> {
        let style = options.style;
        let mut text = String::new();
        let mut last_heading = None;
        for group in &self.turns {
            let heading = (&group.session, group.is_undo);
            if last_heading != Some(heading) {
                let title = match &group.session {
                    None if group.is_undo => "undone and redone with bowline".to_owned(),
                    None => "beside the agents: you, or other programs".to_owned(),
                    Some(session) => format!("session {}", names.session(session)),
                };
                let separator = if text.is_empty() { "" } else { "\n" };
                // Writing to a string cannot fail.
                _ = writeln!(text, "{separator}{}", style.paint(TextStyle::Heading, &title));
            }
            last_heading = Some(heading);
            self.write_turn(&mut text, group, workspace, location, names, options)?;
        }
        let count = self.turns.iter().map(|group| group.changes.len()).sum();
        let separator = if text.is_empty() { "" } else { "\n" };
        let more = match self.undone_count {
            0 => String::new(),
            undone => format!("; {undone} more {} undone (--all)", if undone == 1 { "is" } else { "are" }),
        };
        let edits = self.turns.iter().flat_map(|group| &group.changes);
        let edits = edits.filter(|changed| changed.is_in_effect && changed.change.reverses.is_empty());
        let newest = edits.map(|changed| changed.change.id).max();
        let hint = newest.map_or_else(String::new, |id| {
            format!("; bowline undo takes the last turn back, bowline undo --change {id} one change")
        });
        _ = writeln!(text, "{separator}{}{more}{hint}", pluralize(count, "change", "changes"));
        Ok(text)
    }

    fn write_turn(
        &self,
        text: &mut String,
        group: &TurnChanges,
        workspace: &Workspace,
        location: &WorkspaceLocation,
        names: &SessionNames,
        options: ChangeListOptions,
    ) -> Result<(), CliError> {
        let style = options.style;
        let Some(last) = group.changes.last() else { return Ok(()) };
        if let Some(turn) = group.turn {
            let title = group.session.as_deref().and_then(|session| names.title(session, turn));
            let title = title.map(|title| format!("{title} · ")).unwrap_or_default();
            let when =
                format!("{} ({})", format_time(last.change.at), format_age(last.change.at, options.now));
            _ = writeln!(text, "  turn {turn} · {title}{}", style.paint(TextStyle::Faint, &when));
        }
        let listed = if options.is_full { group.changes.len() } else { MAX_LISTED };
        let listed = &group.changes[..listed.min(group.changes.len())];
        let files: Vec<String> =
            listed.iter().map(|changed| escape_line(location.relative_name(&changed.change.path))).collect();
        let width = files.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let digits = last.change.id.to_string().len();
        let mut command = None;
        for (changed, name) in listed.iter().zip(&files) {
            let change = &changed.change;
            if command != Some((&change.origin.command, &change.origin.call))
                && let Some(line) = &change.origin.command
            {
                let call = change.origin.call.as_ref().map(|call| format!("  call {}", escape_line(call)));
                _ = writeln!(
                    text,
                    "    $ {}{}",
                    escape_line(line),
                    style.paint(TextStyle::Faint, &call.unwrap_or_default())
                );
            }
            command = Some((&change.origin.command, &change.origin.call));
            let hunks = change_hunks(workspace, change)?;
            let mut line = format!(
                "    {:>digits$} {:8} {name:width$} {}",
                change.id.0,
                describe_change(change),
                format_line_counts(hunks.as_deref(), change, style)
            );
            if let Some(more) =
                self.describe_status(changed, hunks.map_or(0, |hunks| hunks.len()), location, style)
            {
                line = format!("{}  {more}", line.trim_end());
            }
            if group.turn.is_none() {
                line = format!(
                    "{}  {}",
                    line.trim_end(),
                    style.paint(TextStyle::Faint, &format_time(change.at))
                );
            }
            _ = writeln!(text, "{}", line.trim_end());
            if options.show_hunks {
                self.write_hunks(text, change, workspace, style)?;
            }
        }
        let more = group.changes.len() - listed.len();
        if more > 0 {
            _ = writeln!(text, "    … and {more} more (--full)");
        }
        Ok(())
    }

    /// Returns additional remarks on a change.
    fn describe_status(
        &self,
        changed: &ListedChange,
        hunks: usize,
        location: &WorkspaceLocation,
        style: OutputStyle,
    ) -> Option<String> {
        let change = &changed.change;
        let mut notes = Vec::new();
        let numbers = |hunks: &mut dyn Iterator<Item = usize>| {
            hunks.map(|hunk| (hunk + 1).to_string()).collect::<Vec<_>>().join(", ")
        };
        let reversed = change.reverses.iter().map(|reversal| match &reversal.hunks {
            Some(hunks) => format!("{} (hunks {})", reversal.change, numbers(&mut hunks.iter().copied())),
            None => reversal.change.to_string(),
        });
        let reversed: Vec<String> = reversed.collect();
        if let Some(from) = &change.moved_from {
            notes.push(format!("from {}", escape_line(location.relative_name(from))));
        }
        if !reversed.is_empty() {
            notes.push(format!("takes back {}", reversed.join(", ")));
        }
        if let (Some(before), Some(after)) = (change.before, change.after)
            && before.mode != after.mode
        {
            notes.push(format!("mode {:o}, was {:o}", after.mode & 0o7777, before.mode & 0o7777));
        }
        match change.source {
            ChangeSource::Written if change.is_pruned() => notes.push("pruned".to_owned()),
            ChangeSource::Written => {}
            ChangeSource::Observed if change.is_kept_text() => {
                notes.push(format!("kept, not in the file: bowline restore {}", change.id));
            }
            ChangeSource::Observed => notes.push("observed".to_owned()),
            ChangeSource::Claimed => notes.push("claimed".to_owned()),
        }
        // The changes that a command made are listed below it.
        if let (None, Some(call), false) =
            (&change.origin.command, &change.origin.call, change.is_kept_text())
        {
            notes.push(format!("call {}", escape_line(call)));
        }
        if changed.is_uncertain {
            notes.push("was interrupted; its outcome is unknown".to_owned());
        }
        let mut status = style.paint(TextStyle::Faint, &notes.join(", "));
        let undone = match self.undone_hunks.get(&change.id) {
            _ if !changed.is_in_effect => "undone".to_owned(),
            Some(undone_hunks) if undone_hunks.len() >= hunks => "undone, hunk by hunk".to_owned(),
            Some(hunks) => format!("undone in part (hunks {})", numbers(&mut hunks.iter().copied())),
            None if self.reverted_by_hand.contains(&change.id) => "reverted by hand".to_owned(),
            None => String::new(),
        };
        if !undone.is_empty() {
            let separator = if status.is_empty() { "" } else { ", " };
            status = format!("{status}{separator}{}", style.paint(TextStyle::Highlight, &undone));
        }
        (!status.is_empty()).then_some(status)
    }

    fn write_hunks(
        &self,
        text: &mut String,
        change: &Change,
        workspace: &Workspace,
        style: OutputStyle,
    ) -> Result<(), CliError> {
        let (before, after) = workspace.change_texts(change.id).map_err(failed)?;
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let new: Vec<&str> = after.split_inclusive('\n').collect();
        for (number, hunk) in diff::compute_hunks(&before, &after).iter().enumerate() {
            let undone = self.undone_hunks.get(&change.id).is_some_and(|hunks| hunks.contains(&number));
            let undone = if undone { ", undone" } else { "" };
            let heading = format!("hunk {}, line {}{undone}", number + 1, hunk.new.start + 1);
            _ = writeln!(text, "         {}", style.paint(TextStyle::Highlight, &heading));
            let removed = old.get(hunk.old.clone()).unwrap_or_default();
            let added = new.get(hunk.new.clone()).unwrap_or_default();
            let lines = removed.iter().map(|line| (TextStyle::Bad, '-', line));
            let lines: Vec<_> = lines.chain(added.iter().map(|line| (TextStyle::Good, '+', line))).collect();
            for (text_style, sign, line) in lines.iter().take(MAX_HUNK_LINES) {
                let line = escape_lines(line.trim_end_matches(['\n', '\r']));
                _ = writeln!(text, "         {}", style.paint(*text_style, &format!("{sign}{line}")));
            }
            if lines.len() > MAX_HUNK_LINES {
                _ = writeln!(
                    text,
                    "         … {} more",
                    pluralize(lines.len() - MAX_HUNK_LINES, "line", "lines")
                );
            }
        }
        Ok(())
    }

    /// Formats the list for programs: one JSON object per line.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn to_json_lines(
        &self,
        workspace: &Workspace,
        location: &WorkspaceLocation,
    ) -> Result<String, CliError> {
        let mut text = String::new();
        for changed in self.turns.iter().flat_map(|group| &group.changes) {
            let change = &changed.change;
            let origin = &change.origin;
            let lines = change_hunks(workspace, change)?.map(|hunks| count_lines(&hunks));
            let reverses: Vec<Value> = change
                .reverses
                .iter()
                .map(|reversal| json!({"change": reversal.change.0, "hunks": reversal.hunks.as_ref().map(|hunks| one_based(hunks.iter()))}))
                .collect();
            let source = match change.source {
                ChangeSource::Written => "written",
                ChangeSource::Observed => "observed",
                ChangeSource::Claimed => "claimed",
            };
            let line = json!({
                "change": change.id.0,
                "at": format_iso8601(change.at),
                "workspace": location.root,
                "session": origin.session,
                "turn": origin.turn,
                "call": origin.call,
                "command": origin.command,
                "source": source,
                "path": change.path,
                "moved_from": change.moved_from,
                "before": file_state_to_json(change.before),
                "after": file_state_to_json(change.after),
                "added": lines.map(|lines| lines.added),
                "removed": lines.map(|lines| lines.removed),
                "reverses": reverses,
                "undone_hunks": one_based(self.undone_hunks.get(&change.id).into_iter().flatten()),
                "in_effect": changed.is_in_effect,
                "reverted_by_hand": self.reverted_by_hand.contains(&change.id),
                "uncertain": changed.is_uncertain,
                "pruned": change.is_pruned(),
                "kept_text": change.is_kept_text(),
            });
            _ = writeln!(text, "{line}");
        }
        Ok(text)
    }
}

/// Returns hunk numbers counted from 1, as people count.
fn one_based<'h>(hunks: impl Iterator<Item = &'h usize>) -> Vec<usize> {
    hunks.map(|hunk| hunk + 1).collect()
}

fn file_state_to_json(state: Option<FileState>) -> Value {
    state.map_or(Value::Null, |state| {
        json!({"sha256": state.hash.to_string(), "size": state.size, "mode": format!("{:o}", state.mode)})
    })
}

fn describe_change(change: &Change) -> &'static str {
    match (change.before, change.after) {
        _ if change.moved_from.is_some() => "moved",
        (None, Some(_)) => "created",
        (Some(_), None) => "deleted",
        // The content is no longer known.
        (Some(_), Some(_)) if change.is_pruned() => "edited",
        (Some(before), Some(after)) if before.hash == after.hash && before.mode != after.mode => "mode",
        (Some(before), Some(after)) if before.hash == after.hash => "as it was",
        (Some(_), Some(_)) => "edited",
        (None, None) if change.reverses.is_empty() => "directory",
        (None, None) => "absent",
    }
}

/// Returns the hunks of a change; `None` if either side is not text or is no longer kept.
fn change_hunks(workspace: &Workspace, change: &Change) -> Result<Option<Vec<diff::Hunk>>, CliError> {
    let (before, after) = workspace.change_texts(change.id).map_err(failed)?;
    let is_known = before.is_some() == change.before.is_some() && after.is_some() == change.after.is_some();
    Ok(is_known.then(|| diff::compute_hunks(&before.unwrap_or_default(), &after.unwrap_or_default())))
}

fn count_lines(hunks: &[diff::Hunk]) -> diff::DiffStat {
    let sum = |range: fn(&diff::Hunk) -> usize| hunks.iter().map(range).sum();
    diff::DiffStat { added: sum(|hunk| hunk.new.len()), removed: sum(|hunk| hunk.old.len()) }
}

fn format_line_counts(hunks: Option<&[diff::Hunk]>, change: &Change, style: OutputStyle) -> String {
    let Some(lines) = hunks.map(count_lines) else {
        let size = |state: Option<FileState>| state.map_or(0, |state| state.size);
        return format!("{} → {} bytes", size(change.before), size(change.after));
    };
    let mut parts = Vec::new();
    if lines.added > 0 {
        parts.push(style.paint(TextStyle::Good, &format!("+{}", lines.added)));
    }
    if lines.removed > 0 {
        parts.push(style.paint(TextStyle::Bad, &format!("−{}", lines.removed)));
    }
    parts.join(" ")
}
