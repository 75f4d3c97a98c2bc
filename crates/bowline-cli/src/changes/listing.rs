//! The list of changes, by session and turn.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use bowline_state::changes::{Change, ChangeId, FileState, Moment, Source};
use bowline_state::diff;
use bowline_state::undo::Selection;
use bowline_workspace::clock::iso8601;
use bowline_workspace::workspace::{Changed, Workspace};
use serde_json::{Value, json};

use super::failed;
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::names::Names;
use crate::records::showing::{Ink, Look, count, safe, safe_lines};
use crate::records::times::{ago, at};

/// So many lines of a hunk are shown.
const HUNK_LINES: usize = 12;
/// So many changes of a turn are listed, unless all are wanted.
const MAX_LISTED: usize = 20;

/// How a list looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListOptions {
    /// Each place of a change is shown.
    pub(crate) hunks: bool,
    /// Every change is listed.
    pub(crate) full: bool,
    pub(crate) look: Look,
    pub(crate) now: Moment,
}

/// Changes to list.
pub(crate) struct List {
    // In order: the groups by their newest change, the changes of each by their number.
    groups: Vec<Group>,
    // How many are not listed because they are undone.
    undone: usize,
    // Hunks of changes in effect that were taken back.
    taken: HashMap<ChangeId, BTreeSet<usize>>,
    // Changes in effect that are not in their files any more.
    reverted: HashSet<ChangeId>,
}

/// The changes of one turn.
struct Group {
    session: Option<String>,
    turn: Option<u64>,
    /// Whether these take changes back, or bring them again, outside of any session.
    is_undo: bool,
    changes: Vec<Changed>,
}

impl List {
    /// Chooses what to list, with texts that only the journal has if `kept`.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn of(
        workspace: &Workspace,
        history: &[Changed],
        selection: &Selection,
        all: bool,
        kept: bool,
    ) -> Result<Self, Ending> {
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<(Option<String>, Option<u64>, bool), usize> = HashMap::new();
        let mut undone = 0;
        let texts = history.iter().filter(|changed| kept && changed.change.is_kept_text()).cloned();
        for changed in workspace.changes(selection).map_err(failed)?.into_iter().chain(texts) {
            let is_edit = changed.change.reverses.is_empty();
            // Who names one change means it.
            if !all && selection.change.is_none() && !(is_edit && changed.in_effect) {
                undone += usize::from(is_edit);
                continue;
            }
            let origin = &changed.change.origin;
            let (session, turn) = (origin.session.clone(), origin.turn);
            let is_undo = session.is_none() && !is_edit;
            let place = places.entry((session.clone(), turn, is_undo)).or_insert_with(|| {
                groups.push(Group { session, turn, is_undo, changes: Vec::new() });
                groups.len() - 1
            });
            groups[*place].changes.push(changed);
        }
        groups.sort_by_key(|group| group.changes.last().map(|changed| changed.change.id));
        let mut taken: HashMap<ChangeId, BTreeSet<usize>> = HashMap::new();
        for undo in history.iter().filter(|changed| changed.in_effect) {
            for reversal in &undo.change.reverses {
                let hunks = reversal.hunks.iter().flatten().copied();
                taken.entry(reversal.change).or_default().extend(hunks);
            }
        }
        taken.retain(|_, hunks| !hunks.is_empty());
        Ok(Self { groups, undone, taken, reverted: workspace.reverted_by_hand(history) })
    }

    /// Says whether there is nothing to list.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the list for people.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn text(
        &self,
        workspace: &Workspace,
        here: &Here,
        names: &Names,
        options: ListOptions,
    ) -> Result<String, Ending> {
        let look = options.look;
        let mut text = String::new();
        let mut head_of = None;
        for group in &self.groups {
            let heading = (&group.session, group.is_undo);
            if head_of != Some(heading) {
                let head = match &group.session {
                    None if group.is_undo => "undone and redone with bowline".to_owned(),
                    None => "beside the agents: you, or other programs".to_owned(),
                    Some(session) => format!("session {}", names.session(session)),
                };
                let gap = if text.is_empty() { "" } else { "\n" };
                // Writing to a string cannot fail.
                _ = writeln!(text, "{gap}{}", look.paint(Ink::Head, &head));
            }
            head_of = Some(heading);
            self.group(&mut text, group, workspace, here, names, options)?;
        }
        let shown = self.groups.iter().map(|group| group.changes.len()).sum();
        let gap = if text.is_empty() { "" } else { "\n" };
        let more = match self.undone {
            0 => String::new(),
            undone => format!("; {undone} more {} undone (--all)", if undone == 1 { "is" } else { "are" }),
        };
        let edits = self.groups.iter().flat_map(|group| &group.changes);
        let edits = edits.filter(|changed| changed.in_effect && changed.change.reverses.is_empty());
        let newest = edits.map(|changed| changed.change.id).max();
        let how = newest.map_or_else(String::new, |id| {
            format!("; bowline undo takes the last turn back, bowline undo --change {id} one change")
        });
        _ = writeln!(text, "{gap}{}{more}{how}", count(shown, "change", "changes"));
        Ok(text)
    }

    fn group(
        &self,
        text: &mut String,
        group: &Group,
        workspace: &Workspace,
        here: &Here,
        names: &Names,
        options: ListOptions,
    ) -> Result<(), Ending> {
        let look = options.look;
        let Some(last) = group.changes.last() else { return Ok(()) };
        if let Some(turn) = group.turn {
            let title = group.session.as_deref().and_then(|session| names.title(session, turn));
            let title = title.map(|title| format!("{title} · ")).unwrap_or_default();
            let when = format!("{} ({})", at(last.change.at), ago(last.change.at, options.now));
            _ = writeln!(text, "  turn {turn} · {title}{}", look.paint(Ink::Faint, &when));
        }
        let listed = if options.full { group.changes.len() } else { MAX_LISTED };
        let listed = &group.changes[..listed.min(group.changes.len())];
        let files: Vec<String> = listed.iter().map(|changed| safe(here.name(&changed.change.path))).collect();
        let width = files.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let digits = last.change.id.to_string().len();
        let mut command = None;
        for (changed, name) in listed.iter().zip(&files) {
            let change = &changed.change;
            if command != Some((&change.origin.command, &change.origin.call))
                && let Some(line) = &change.origin.command
            {
                let call = change.origin.call.as_ref().map(|call| format!("  call {}", safe(call)));
                _ = writeln!(
                    text,
                    "    $ {}{}",
                    safe(line),
                    look.paint(Ink::Faint, &call.unwrap_or_default())
                );
            }
            command = Some((&change.origin.command, &change.origin.call));
            let extent = extent(workspace, change)?;
            let mut line = format!(
                "    {:>digits$} {:8} {name:width$} {}",
                change.id.0,
                became(change),
                shown_extent(extent.as_deref(), change, look)
            );
            if let Some(more) = self.more(changed, extent.map_or(0, |hunks| hunks.len()), look) {
                line = format!("{}  {more}", line.trim_end());
            }
            if group.turn.is_none() {
                line = format!("{}  {}", line.trim_end(), look.paint(Ink::Faint, &at(change.at)));
            }
            _ = writeln!(text, "{}", line.trim_end());
            if options.hunks {
                self.hunks(text, change, workspace, look)?;
            }
        }
        let more = group.changes.len() - listed.len();
        if more > 0 {
            _ = writeln!(text, "    … and {more} more (--full)");
        }
        Ok(())
    }

    /// Returns what else there is to say of a change.
    fn more(&self, changed: &Changed, hunks: usize, look: Look) -> Option<String> {
        let change = &changed.change;
        let mut said = Vec::new();
        let numbers = |hunks: &mut dyn Iterator<Item = usize>| {
            hunks.map(|hunk| (hunk + 1).to_string()).collect::<Vec<_>>().join(", ")
        };
        let taken = change.reverses.iter().map(|reversal| match &reversal.hunks {
            Some(hunks) => format!("{} (hunks {})", reversal.change, numbers(&mut hunks.iter().copied())),
            None => reversal.change.to_string(),
        });
        let taken: Vec<String> = taken.collect();
        if !taken.is_empty() {
            said.push(format!("takes back {}", taken.join(", ")));
        }
        if let (Some(before), Some(after)) = (change.before, change.after)
            && before.mode != after.mode
        {
            said.push(format!("mode {:o}, was {:o}", after.mode & 0o7777, before.mode & 0o7777));
        }
        match change.source {
            Source::Written if change.is_pruned() => said.push("pruned".to_owned()),
            Source::Written => {}
            Source::Observed if change.is_kept_text() => {
                said.push(format!("kept, not in the file: bowline restore {}", change.id));
            }
            Source::Observed => said.push("observed".to_owned()),
            Source::Claimed => said.push("claimed".to_owned()),
        }
        // What a command did stands below it.
        if let (None, Some(call), false) =
            (&change.origin.command, &change.origin.call, change.is_kept_text())
        {
            said.push(format!("call {}", safe(call)));
        }
        if changed.uncertain {
            said.push("was interrupted, and nobody can tell whether it was done".to_owned());
        }
        let mut said = look.paint(Ink::Faint, &said.join(", "));
        let undone = match self.taken.get(&change.id) {
            _ if !changed.in_effect => "undone".to_owned(),
            Some(taken) if taken.len() >= hunks => "undone, hunk by hunk".to_owned(),
            Some(hunks) => format!("undone in part (hunks {})", numbers(&mut hunks.iter().copied())),
            None if self.reverted.contains(&change.id) => "reverted by hand".to_owned(),
            None => String::new(),
        };
        if !undone.is_empty() {
            let gap = if said.is_empty() { "" } else { ", " };
            said = format!("{said}{gap}{}", look.paint(Ink::Mark, &undone));
        }
        (!said.is_empty()).then_some(said)
    }

    fn hunks(
        &self,
        text: &mut String,
        change: &Change,
        workspace: &Workspace,
        look: Look,
    ) -> Result<(), Ending> {
        let (before, after) = workspace.texts(change.id).map_err(failed)?;
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let new: Vec<&str> = after.split_inclusive('\n').collect();
        for (number, hunk) in diff::hunks(&before, &after).iter().enumerate() {
            let undone = self.taken.get(&change.id).is_some_and(|taken| taken.contains(&number));
            let undone = if undone { ", undone" } else { "" };
            let place = format!("hunk {}, line {}{undone}", number + 1, hunk.new.start + 1);
            _ = writeln!(text, "         {}", look.paint(Ink::Mark, &place));
            let removed = old.get(hunk.old.clone()).unwrap_or_default();
            let added = new.get(hunk.new.clone()).unwrap_or_default();
            let lines = removed.iter().map(|line| (Ink::Bad, '-', line));
            let lines: Vec<_> = lines.chain(added.iter().map(|line| (Ink::Good, '+', line))).collect();
            for (ink, sign, line) in lines.iter().take(HUNK_LINES) {
                let line = safe_lines(line.trim_end_matches(['\n', '\r']));
                _ = writeln!(text, "         {}", look.paint(*ink, &format!("{sign}{line}")));
            }
            if lines.len() > HUNK_LINES {
                _ = writeln!(text, "         … {} more", count(lines.len() - HUNK_LINES, "line", "lines"));
            }
        }
        Ok(())
    }

    /// Returns the list for programs: one object a line.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub(crate) fn json(&self, workspace: &Workspace, here: &Here) -> Result<String, Ending> {
        let mut text = String::new();
        for changed in self.groups.iter().flat_map(|group| &group.changes) {
            let change = &changed.change;
            let origin = &change.origin;
            let lines = extent(workspace, change)?.map(|hunks| stat(&hunks));
            let reverses: Vec<Value> = change
                .reverses
                .iter()
                .map(|one| json!({"change": one.change.0, "hunks": one.hunks.as_ref().map(|hunks| counted(hunks.iter()))}))
                .collect();
            let source = match change.source {
                Source::Written => "written",
                Source::Observed => "observed",
                Source::Claimed => "claimed",
            };
            let line = json!({
                "change": change.id.0,
                "at": iso8601(change.at),
                "workspace": here.root,
                "session": origin.session,
                "turn": origin.turn,
                "call": origin.call,
                "command": origin.command,
                "source": source,
                "path": change.path,
                "before": state(change.before),
                "after": state(change.after),
                "added": lines.map(|lines| lines.added),
                "removed": lines.map(|lines| lines.removed),
                "reverses": reverses,
                "undone_hunks": counted(self.taken.get(&change.id).into_iter().flatten()),
                "in_effect": changed.in_effect,
                "reverted_by_hand": self.reverted.contains(&change.id),
                "uncertain": changed.uncertain,
                "pruned": change.is_pruned(),
                "kept_text": change.is_kept_text(),
            });
            _ = writeln!(text, "{line}");
        }
        Ok(text)
    }
}

/// Returns hunks as people count them.
fn counted<'h>(hunks: impl Iterator<Item = &'h usize>) -> Vec<usize> {
    hunks.map(|hunk| hunk + 1).collect()
}

fn state(state: Option<FileState>) -> Value {
    state.map_or(Value::Null, |state| {
        json!({"sha256": state.hash.to_string(), "size": state.size, "mode": format!("{:o}", state.mode)})
    })
}

fn became(change: &Change) -> &'static str {
    match (change.before, change.after) {
        (None, Some(_)) => "created",
        (Some(_), None) => "deleted",
        // What it was nobody knows any more.
        (Some(_), Some(_)) if change.is_pruned() => "edited",
        (Some(before), Some(after)) if before.hash == after.hash && before.mode != after.mode => "mode",
        (Some(before), Some(after)) if before.hash == after.hash => "as it was",
        (Some(_), Some(_)) => "edited",
        (None, None) => "absent",
    }
}

/// Returns the hunks of a change; none if one of the texts is none, or is not kept.
fn extent(workspace: &Workspace, change: &Change) -> Result<Option<Vec<diff::Hunk>>, Ending> {
    let (before, after) = workspace.texts(change.id).map_err(failed)?;
    let is_known = before.is_some() == change.before.is_some() && after.is_some() == change.after.is_some();
    Ok(is_known.then(|| diff::hunks(&before.unwrap_or_default(), &after.unwrap_or_default())))
}

fn stat(hunks: &[diff::Hunk]) -> diff::Stat {
    let sum = |range: fn(&diff::Hunk) -> usize| hunks.iter().map(range).sum();
    diff::Stat { added: sum(|hunk| hunk.new.len()), removed: sum(|hunk| hunk.old.len()) }
}

fn shown_extent(extent: Option<&[diff::Hunk]>, change: &Change, look: Look) -> String {
    let Some(lines) = extent.map(stat) else {
        let size = |state: Option<FileState>| state.map_or(0, |state| state.size);
        return format!("{} → {} bytes", size(change.before), size(change.after));
    };
    let mut parts = Vec::new();
    if lines.added > 0 {
        parts.push(look.paint(Ink::Good, &format!("+{}", lines.added)));
    }
    if lines.removed > 0 {
        parts.push(look.paint(Ink::Bad, &format!("−{}", lines.removed)));
    }
    parts.join(" ")
}
