//! What an undo or a redo did, or would do, told to a person or a program.

use std::collections::{BTreeSet, HashSet};

use bowline_state::changes::{Change, ChangeId, FileState, Source};
use bowline_state::merge::ConflictHunk;
use bowline_state::undo::{CannotReverse, Direction, Selection, Why};
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{Changed, Foresight, Reversed, Workspace};
use serde_json::{Value, json};

use super::leftovers::Leftovers;
use super::selecting::Meant;
use super::undoing::UndoRequest;
use super::{Conflicts, failed, patching};
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::pager::page;
use crate::records::showing::{Ink, Look, count, note, print, safe, safe_lines};

/// So many files are listed that were taken back, and so many that could not be.
const MAX_LISTED: usize = 20;
/// What is said of files that were found on disk.
const PERHAPS_YOURS: &str =
    "what was found on disk may be your own work, saved meanwhile, or that of another program";
/// What is said of those that stay.
const STAYS: &str = "what was merely found changed may be your own work, and stays";

/// What was done.
#[derive(Default)]
pub(super) struct Done {
    pub(super) files: Vec<Reversed>,
    pub(super) left: Vec<ChangeId>,
    pub(super) refused: Vec<(String, FilesError)>,
}

/// How much was done of what was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Partly {
    Nothing,
    TheRest,
}

/// What is taken back, where, and how.
pub(super) struct UndoContext<'a> {
    pub(super) here: &'a Here,
    pub(super) workspace: &'a Workspace,
    pub(super) meant: &'a Meant,
    pub(super) known: &'a [Changed],
    pub(super) request: UndoRequest,
}

impl UndoContext<'_> {
    fn name(&self, path: &str) -> String {
        safe(self.here.name(path))
    }

    /// Says why nothing can be taken back at all.
    pub(super) fn not_begun(&self, error: FilesError) -> Ending {
        let (direction, words) = (self.request.direction, &self.meant.words);
        failed(match error {
            FilesError::NothingTo(_)
                if direction == Direction::Redo && self.meant.selection.last.is_some() =>
            {
                anyhow::anyhow!("there is nothing to redo: nothing is undone")
            }
            FilesError::NothingTo(_) => {
                anyhow::anyhow!("there is nothing to {} of {words}", direction.verb())
            }
            FilesError::OnlyFound(_) => anyhow::anyhow!(
                "there is nothing to undo of {words} but what was merely found changed and may be your own work: {}; \
                 --found takes it back",
                named(&self.found_left())
            ),
            other => other.into(),
        })
    }

    /// Returns the files that an undo leaves alone because they were merely found changed.
    fn found_left(&self) -> BTreeSet<&str> {
        let selection = &self.meant.selection;
        let all = Selection { explained: false, ..selection.clone() };
        let is_left = |changed: &&Changed| {
            let change = &changed.change;
            let is_edit = changed.in_effect && change.reverses.is_empty() && change.origin.session.is_some();
            is_edit && selection.explained && change.is_unexplained() && all.matches(change)
        };
        if self.request.direction == Direction::Redo {
            return BTreeSet::new();
        }
        self.known.iter().filter(is_left).map(|changed| self.here.name(&changed.change.path)).collect()
    }

    /// Shows what would be done.
    pub(super) fn tell_foresight(&self, foresight: Foresight) -> Result<(), Ending> {
        let Self { here, workspace, meant, request: UndoRequest { direction, json, .. }, .. } = *self;
        if json {
            return self.print_foresight(&foresight);
        }
        let look = Look::of_stdout();
        let (mut shown, mut refused) = (String::new(), Vec::new());
        let files = foresight.files.len();
        note(&format!(
            "{} would be {}, in {}",
            meant.words,
            direction.participle(),
            count(files, "file", "files")
        ));
        let taken = |change: &Change| foresight.files.iter().any(|file| file.path == change.path);
        let found = self.known.iter().filter(|changed| changed.in_effect).map(|changed| &changed.change);
        let found =
            found.filter(|change| change.source == Source::Observed && meant.selection.matches(change));
        let found: BTreeSet<&str> =
            found.filter(|change| taken(change)).map(|change| here.name(&change.path)).collect();
        if direction == Direction::Undo && !found.is_empty() {
            note(&format!("{PERHAPS_YOURS}: {}; --written-only leaves that alone", named(&found)));
        }
        let left = self.found_left();
        if !left.is_empty() {
            note(&format!("{STAYS}: {}; --found takes that back, too", named(&left)));
        }
        for file in foresight.files {
            match file.patch {
                Ok(patch) if patch.is_empty() => note(&format!("{} is so already", self.name(&file.path))),
                Ok(patch) if look.terminal => shown.push_str(&patching::painted(&patch, look)),
                Ok(patch) => shown.push_str(&patch),
                Err(error) => refused.push((file.path, error)),
            }
        }
        page(&shown)?;
        let left = tell_left(here, workspace, direction, &foresight.left)?;
        self.tell_refused(files, &refused, Partly::Nothing)?;
        left.map_or(Ok(()), Err)
    }

    fn print_foresight(&self, foresight: &Foresight) -> Result<(), Ending> {
        let files = foresight.files.iter().map(|file| match &file.patch {
            Ok(patch) => json!({"path": file.path, "changes": ids(&file.changes), "patch": patch}),
            Err(error) => {
                let mut refused = refusal(&file.path, error);
                refused["changes"] = json!(ids(&file.changes));
                refused
            }
        });
        let files: Vec<Value> = files.collect();
        let told = json!({
            "command": self.request.direction.verb(),
            "workspace": self.here.root,
            "what": self.meant.words,
            "dry_run": true,
            "files": files,
            "left": self.left_objects(&foresight.left)?,
            "kept": self.found_left(),
        });
        print(&format!("{told}\n"))?;
        let refused = foresight.files.iter().filter(|file| file.patch.is_err()).count();
        match (refused, foresight.left.len()) {
            (0, 0) => Ok(()),
            _ => Err(failed(anyhow::anyhow!("not all could be {}", self.request.direction.participle()))),
        }
    }

    /// Shows both sides of each place that was changed since.
    pub(super) fn show_conflicts(&self, foresight: &Foresight) -> Result<(), Ending> {
        let look = Look::of_stdout();
        let mut text = String::new();
        let refused: Vec<(&str, &FilesError)> = foresight
            .files
            .iter()
            .filter_map(|file| Some((&*file.path, file.patch.as_ref().err()?)))
            .collect();
        if self.request.json {
            let conflicts: Vec<Value> = refused.iter().map(|(path, error)| refusal(path, error)).collect();
            let told = json!({"workspace": self.here.root, "what": self.meant.words, "conflicts": conflicts});
            return print(&format!("{told}\n"));
        }
        for (path, error) in &refused {
            let head = format!("{}: {}", self.name(path), why(error));
            text.push_str(&format!("{}\n", look.paint(Ink::Head, &head)));
            for hunk in conflicts(error) {
                text.push_str(&format!("  {}\n", look.paint(Ink::Mark, &format!("line {}", hunk.line))));
                for (side, sign, ink, what) in
                    [(&hunk.ours, '-', Ink::Bad, "now"), (&hunk.theirs, '+', Ink::Good, "before the change")]
                {
                    text.push_str(&format!("    {what}:\n"));
                    for line in safe_lines(side).lines() {
                        text.push_str(&format!("    {}\n", look.paint(ink, &format!("{sign} {line}"))));
                    }
                }
            }
        }
        if refused.is_empty() {
            text = format!(
                "nothing is in conflict: {} can be {}\n",
                self.meant.words,
                self.request.direction.participle()
            );
        } else {
            text.push_str(
                "\nrun the same command again with one of these instead:\n\
                 \x20 --conflicts markers   puts both sides into the files, to be edited\n\
                 \x20 --conflicts force     brings back what was before, and drops what is there now\n",
            );
        }
        page(&text)
    }

    /// Names the files that are not done, and says that.
    pub(super) fn tell_refused(
        &self,
        files: usize,
        refused: &[(String, FilesError)],
        partly: Partly,
    ) -> Result<(), Ending> {
        if refused.is_empty() {
            return Ok(());
        }
        for (path, error) in refused.iter().take(MAX_LISTED) {
            note(&format!("{}: {}", self.name(path), why(error)));
        }
        if refused.len() > MAX_LISTED {
            note(&format!("… and {} more", refused.len() - MAX_LISTED));
        }
        let (word, done) = (self.request.direction.verb(), self.request.direction.participle());
        let of = format!("{} of {}", refused.len(), count(files, "file", "files"));
        let is_conflict = refused.iter().any(|(_, error)| can_be_resolved(error));
        let hint = if is_conflict && self.request.conflicts.is_none() {
            "; --conflicts show tells more, markers or force resolves it"
        } else {
            ""
        };
        Err(failed(match partly {
            Partly::Nothing if files > refused.len() => anyhow::anyhow!(
                "cannot {word} {of}, so nothing is {done}: choose fewer, or --keep-going for the others{hint}"
            ),
            Partly::Nothing => anyhow::anyhow!("cannot {word} {of}, so nothing is {done}{hint}"),
            Partly::TheRest => anyhow::anyhow!("cannot {word} {of}; they are as they were{hint}"),
        }))
    }

    /// Says what was done.
    pub(super) fn tell(&self, done: &Done, leftovers: &Leftovers) -> Result<(), Ending> {
        let Self { here, workspace, meant, request: UndoRequest { direction, json, .. }, .. } = *self;
        let files = done.files.len();
        let partly = if files == 0 { Partly::Nothing } else { Partly::TheRest };
        if json {
            self.print_done(done, leftovers)?;
            let left = left_ending(direction, done.left.len());
            self.tell_refused(files + done.refused.len(), &done.refused, partly)?;
            return left.map_or(Ok(()), Err);
        }
        let mut text =
            format!("{} {}, in {}\n", direction.participle(), meant.words, count(files, "file", "files"));
        let mut sorted: Vec<(String, &Reversed)> =
            done.files.iter().map(|file| (self.name(&file.path), file)).collect();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        let listed = sorted.iter().take(MAX_LISTED);
        let width = listed.map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let left = self.left_paths(&done.left)?;
        let (mut any_found, mut any_markers) = (false, false);
        for (at, (name, file)) in sorted.iter().enumerate() {
            let change = workspace.change(file.change).map_err(failed)?;
            let found = found(workspace, &change)?;
            any_found |= found.is_some();
            any_markers |= file.resolved > 0 && self.request.conflicts == Some(Conflicts::Markers);
            if at < MAX_LISTED {
                let found = found.map(|how| format!(" ({how})")).unwrap_or_default();
                let became = self.became(file, &change, &left)?;
                text.push_str(&format!("  {name:width$}  {became}{found}\n"));
            }
        }
        if files > MAX_LISTED {
            text.push_str(&format!("  … and {} more\n", files - MAX_LISTED));
        }
        if files == 0 {
            text.clear();
        } else {
            text.push_str(&leftovers.text(here));
        }
        if any_markers {
            text.push_str("edit the files with conflict markers, then save them\n");
        }
        if files > 0 && direction == Direction::Undo {
            text.push_str("`bowline redo` brings it back\n");
            if any_found {
                text.push_str(&format!("{PERHAPS_YOURS}; undo --written-only leaves that alone\n"));
            }
            let stays = self.found_left();
            if !stays.is_empty() {
                text.push_str(&format!("{STAYS}: {}; undo --found takes that back, too\n", named(&stays)));
            }
        }
        print(&text)?;
        let left = tell_left(here, workspace, direction, &done.left)?;
        self.tell_refused(files + done.refused.len(), &done.refused, partly)?;
        left.map_or(Ok(()), Err)
    }

    fn print_done(&self, done: &Done, leftovers: &Leftovers) -> Result<(), Ending> {
        let left = self.left_paths(&done.left)?;
        let mut files = Vec::new();
        for file in &done.files {
            let change = self.workspace.change(file.change).map_err(failed)?;
            files.push(json!({
                "path": file.path,
                "change": file.change.0,
                "reverses": change.reverses.iter().map(|one| one.change.0).collect::<Vec<_>>(),
                "result": self.became(file, &change, &left)?,
                "found": found(self.workspace, &change)?.is_some(),
                "conflicts": file.resolved,
            }));
        }
        let refused: Vec<Value> = done.refused.iter().map(|(path, error)| refusal(path, error)).collect();
        let told = json!({
            "command": self.request.direction.verb(),
            "workspace": self.here.root,
            "what": self.meant.words,
            "dry_run": false,
            "files": files,
            "left": self.left_objects(&done.left)?,
            "refused": refused,
            "kept": self.found_left(),
            "removed_directories": leftovers.removed,
            "remaining": leftovers.remaining,
        });
        print(&format!("{told}\n"))
    }

    fn left_paths(&self, left: &[ChangeId]) -> Result<HashSet<String>, Ending> {
        left.iter().map(|id| Ok(self.workspace.change(*id).map_err(failed)?.path)).collect()
    }

    fn left_objects(&self, left: &[ChangeId]) -> Result<Vec<Value>, Ending> {
        left.iter()
            .map(|id| {
                let change = self.workspace.change(*id).map_err(failed)?;
                Ok(json!({"change": id.0, "path": change.path, "reason": not_kept(&change)}))
            })
            .collect()
    }

    /// Returns what became of a file by a reversal.
    fn became(
        &self,
        file: &Reversed,
        change: &Change,
        left: &HashSet<String>,
    ) -> Result<&'static str, Ending> {
        if left.contains(file.path.as_str()) {
            return Ok("only in part, see below");
        }
        if !file.changed {
            return Ok("was so already");
        }
        let markers = self.request.conflicts == Some(Conflicts::Markers);
        let mut oldest: Option<Change> = None;
        for reversal in &change.reverses {
            let taken = self.workspace.change(reversal.change).map_err(failed)?;
            if reversal.hunks.is_some() {
                // The rest of the change stays, so only what came after it can have been merged.
                let exact = change.before.map(|state| state.hash) == taken.after.map(|state| state.hash);
                return Ok(match (exact, file.resolved) {
                    (_, 1..) if markers => "in part, with conflict markers",
                    (_, 1..) => "in part, later edits dropped",
                    (true, _) => "in part",
                    (false, _) => "in part, merged with later edits",
                });
            }
            if oldest.as_ref().is_none_or(|oldest| taken.id < oldest.id) {
                oldest = Some(taken);
            }
        }
        let hash = |state: Option<FileState>| state.map(|state| state.hash);
        let is_as_before = oldest.is_some_and(|oldest| hash(oldest.before) == hash(change.after));
        Ok(match (change.before, change.after) {
            (Some(_), Some(_)) if file.resolved > 0 && markers => "with conflict markers",
            _ if file.resolved > 0 => "forced, later edits dropped",
            (Some(_), None) => "deleted",
            (None, Some(_)) => "there again",
            _ if is_as_before => match self.request.direction {
                Direction::Undo => "as it was before",
                Direction::Redo => "as it was before the undo",
            },
            _ => "merged with later edits",
        })
    }
}

/// Returns why a file is not done; its name is said by the caller.
pub(super) fn why(error: &FilesError) -> String {
    match error {
        FilesError::CannotReverse(refused) => format!("change {}: {}", refused.change, refused.why),
        FilesError::TooLarge { size, cap, .. } => {
            format!("it has {size} bytes, and at most {cap} are taken back")
        }
        other => other.to_string(),
    }
}

/// Says whether the user can decide what becomes of the file.
fn can_be_resolved(error: &FilesError) -> bool {
    let FilesError::CannotReverse(CannotReverse { why, .. }) = error else { return false };
    !matches!(why, Why::Forgotten | Why::Pruned | Why::NoSuchHunk(_))
}

/// Says whether the same lines were changed since.
pub(super) fn is_conflict(error: &FilesError) -> bool {
    matches!(error, FilesError::CannotReverse(CannotReverse { why: Why::Conflict(_), .. }))
}

fn conflicts(error: &FilesError) -> &[ConflictHunk] {
    match error {
        FilesError::CannotReverse(CannotReverse { why: Why::Conflict(conflict), .. }) => &conflict.hunks,
        _ => &[],
    }
}

fn refusal(path: &str, error: &FilesError) -> Value {
    let places = conflicts(error)
        .iter()
        .map(|hunk| json!({"line": hunk.line, "now": hunk.ours, "after": hunk.base, "before": hunk.theirs}));
    json!({"path": path, "reason": why(error), "places": places.collect::<Vec<_>>()})
}

fn ids(changes: &[ChangeId]) -> Vec<i64> {
    changes.iter().map(|id| id.0).collect()
}

/// Names some files, and how many more there are.
fn named(names: &BTreeSet<&str>) -> String {
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| safe(name)).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Names the files that are left as they are found, and returns that not all was done, if there are any.
fn tell_left(
    here: &Here,
    workspace: &Workspace,
    direction: Direction,
    left: &[ChangeId],
) -> Result<Option<Ending>, Ending> {
    for id in left.iter().take(MAX_LISTED) {
        let change = workspace.change(*id).map_err(failed)?;
        let (name, why) = (safe(here.name(&change.path)), not_kept(&change));
        note(&format!("{name}: change {id} was found on disk, and {why}"));
    }
    if left.len() > MAX_LISTED {
        note(&format!("… and {} more", left.len() - MAX_LISTED));
    }
    Ok(left_ending(direction, left.len()))
}

fn not_kept(change: &Change) -> &'static str {
    match change.before {
        Some(_) => "what was there before is not known",
        None => "what was made is not kept, so it is not removed",
    }
}

fn left_ending(direction: Direction, left: usize) -> Option<Ending> {
    let count = count(left, "change is left as it was found", "changes are left as they were found");
    (left > 0).then(|| failed(anyhow::anyhow!("not all could be {}: {count}", direction.participle())))
}

/// Says how what was reversed was found on disk, if it was: then another program may have done it.
fn found(workspace: &Workspace, change: &Change) -> Result<Option<&'static str>, Ending> {
    for reversal in &change.reverses {
        let reversed = workspace.change(reversal.change).map_err(failed)?;
        if reversed.source == Source::Observed {
            return Ok(Some(match reversed.origin.command {
                Some(_) => "found on disk after a command",
                None => "found on disk after the turn",
            }));
        }
    }
    Ok(None)
}
