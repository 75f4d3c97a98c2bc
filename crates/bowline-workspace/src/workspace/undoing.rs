//! Taking back what changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard};

use bowline_state::changes::{Change, ChangeId, ContentHash, FileState, Moment, Origin, Reversal, Source};
use bowline_state::ledger::Rejected;
use bowline_state::paths::Access;
use bowline_state::text;
use bowline_state::undo::{self, CannotReverse, Direction, Planned, Resolution, Selection, Why};

use indexmap::IndexMap;

use super::applying::{Bytes, Current, Effect, Group, NewFile, NotApplied, Telling};
use super::documents::{DocumentEvent, Documents};
use super::editor::beside;
use super::reversal::{ReversalOptions, TakenFile, take_back_all};
use super::sharing::SharedNews;
use super::writing::encode;
use super::{Session, Workspace, Writer};
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{Draft, Filter, Journal, Manner, Side, SideContent};
use crate::roots::{Admitted, Roots};

/// How often taking back is planned anew because somebody changed a file meanwhile.
const ATTEMPTS: usize = 8;

/// What is taken back at once has at most this many bytes, before and after together.
const MAX_AT_ONCE: usize = 512 << 20;

/// What was taken back in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reversed {
    /// The file.
    pub path: String,
    /// The change that took back others.
    pub change: ChangeId,
    /// Whether the file is another one now; it may have been as before already.
    pub changed: bool,
    /// In how many places the file had been changed since, and was resolved as was wanted.
    pub resolved: usize,
}

/// What an undo or redo did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// The files in which something was taken back.
    pub files: Vec<Reversed>,
    /// Changes that were found on disk and whose text is not known, so that they could not be taken back with the rest.
    pub left: Vec<ChangeId>,
}

/// Returns the hunks that are meant. An undo of hunks is redone whole.
pub(super) fn hunks(direction: Direction, selection: &Selection) -> Option<&[usize]> {
    let hunks = selection.change.as_ref().and_then(|one| one.hunks.as_deref());
    hunks.filter(|_| direction == Direction::Undo)
}

/// What is to be taken back.
pub(super) struct Chosen {
    /// The files, each with its changes, the newest first.
    pub(super) files: IndexMap<String, Vec<Change>>,
    /// As in [`TakenBack`].
    pub(super) left: Vec<ChangeId>,
    /// What is meant, with the file under the name that the journal knows it by.
    pub(super) selection: Selection,
}

/// One file of an undo or redo, planned.
pub(super) struct Plan {
    admitted: Admitted,
    pub(super) current: Option<Current>,
    pub(super) planned: Planned,
    reverses: Vec<Reversal>,
    resolved: usize,
    known_by: Option<String>,
    // Whether an open document has text that its file does not have.
    pub(super) unsaved: bool,
}

/// How changes are taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meant<'a> {
    pub(super) what: &'static str,
    pub(super) options: ReversalOptions<'a>,
    pub(super) origin: &'a Origin,
    // One moment for all that is taken back at once: that is how a redo knows.
    pub(super) at: Moment,
    pub(super) tell: Telling<'a>,
}

impl Plan {
    fn bytes(&self) -> usize {
        let new = match &self.planned {
            Planned::Write { bytes, .. } => bytes.len(),
            Planned::Unchanged | Planned::Delete => 0,
        };
        new + self.current.as_ref().map_or(0, |current| current.bytes.len())
    }
}

impl Workspace {
    /// Takes back changes for the user, as [`Session::undo`] does, below the workspace's own roots.
    ///
    /// # Errors
    /// As [`Session::undo`].
    pub fn undo(&self, selection: &Selection) -> Result<TakenBack, FilesError> {
        self.session("").undo(selection, &Origin::default())
    }

    /// Takes back changes or undos for the user, resolves conflicts, and tells how many of how many files are done.
    ///
    /// # Errors
    /// As [`Session::undo`].
    pub fn take_back(
        &self,
        direction: Direction,
        selection: &Selection,
        resolution: Resolution,
        tell: &dyn Fn(usize, usize),
    ) -> Result<TakenBack, FilesError> {
        self.session("").take_back(selection, &Origin::default(), direction, resolution, Telling(Some(tell)))
    }

    /// Takes back undos for the user, as [`Session::redo`] does, below the workspace's own roots.
    ///
    /// # Errors
    /// As [`Session::redo`].
    pub fn redo(&self, selection: &Selection) -> Result<TakenBack, FilesError> {
        self.session("").redo(selection, &Origin::default())
    }
}

impl Session {
    /// Takes back the changes that are meant: all of them, or none. Later edits stay.
    ///
    /// # Errors
    /// Returns why none was taken back, for instance that later edits touch the same lines.
    pub fn undo(&self, selection: &Selection, origin: &Origin) -> Result<TakenBack, FilesError> {
        self.take_back(selection, origin, Direction::Undo, Resolution::Refuse, Telling(None))
    }

    /// Takes back undos of the changes that are meant.
    ///
    /// # Errors
    /// As [`Session::undo`].
    pub fn redo(&self, selection: &Selection, origin: &Origin) -> Result<TakenBack, FilesError> {
        self.take_back(selection, origin, Direction::Redo, Resolution::Refuse, Telling(None))
    }

    fn take_back(
        &self,
        selection: &Selection,
        origin: &Origin,
        direction: Direction,
        resolution: Resolution,
        tell: Telling<'_>,
    ) -> Result<TakenBack, FilesError> {
        let workspace = &self.workspace;
        let mut writer = workspace.writer();
        workspace.recover_interrupted(&mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        let Chosen { files: mut by_file, left, selection } =
            self.chosen(&writer.journal, selection, direction)?;
        let options = ReversalOptions { hunks: hunks(direction, &selection), resolution };
        let meant = Meant { what: direction.verb(), options, origin, at: now(), tell };
        let mut files = self.make_room(&mut writer, &by_file, &meant)?;
        files.iter().for_each(|cleared| _ = by_file.shift_remove(&cleared.path));
        match self.take_back_files(&mut writer, &by_file, &meant) {
            Ok(rest) => {
                files.extend(rest);
                workspace.inner.bell.tell(SharedNews::Changes);
                Ok(TakenBack { files, left })
            }
            Err(error) if self.fill_room(&mut writer, &files, &meant) => Err(error),
            Err(error) => {
                let path = files.first().map(|cleared| cleared.path.clone()).unwrap_or_default();
                Err(FilesError::HalfTakenBack { path, why: error.to_string() })
            }
        }
    }

    /// Takes back changes of files, all or none.
    fn take_back_files(
        &self,
        writer: &mut Writer,
        by_file: &IndexMap<String, Vec<Change>>,
        meant: &Meant<'_>,
    ) -> Result<Vec<Reversed>, FilesError> {
        let workspace = &self.workspace;
        for _ in 0..ATTEMPTS {
            let mut documents = workspace.documents();
            let mut plans = Vec::new();
            let mut bytes = 0;
            for (path, changes) in by_file {
                let plan = self.plan(&writer.journal, &documents, path, changes, meant.options)?;
                bytes += plan.bytes();
                if bytes > MAX_AT_ONCE {
                    let (what, files) = (meant.what, by_file.len());
                    return Err(FilesError::TooMuchAtOnce { what, files, cap: MAX_AT_ONCE });
                }
                plans.push(plan);
            }
            // It can be done. What the user typed is the user's change: it is saved first, so that it stays.
            let unsaved = plans.iter().filter(|plan| plan.unsaved).map(|plan| plan.admitted.canonical());
            let unsaved: Vec<String> = unsaved.map(str::to_owned).collect();
            let done = if unsaved.is_empty() {
                self.reverse(writer, &mut documents, plans, meant)
            } else {
                let save = |path: &String| {
                    workspace.save_open(writer, &mut documents, &self.roots, path).map(|_| ())
                };
                // And then planned anew.
                unsaved.iter().try_for_each(save).and(Err(NotApplied::Raced))
            };
            match done {
                Ok(files) => return Ok(files),
                Err(NotApplied::Raced) => {}
                Err(NotApplied::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::Unsteady(by_file.keys().next().cloned().unwrap_or_default()))
    }

    /// Returns what is to be taken back, each file with its changes, the newest first.
    pub(super) fn chosen(
        &self,
        journal: &Journal,
        selection: &Selection,
        direction: Direction,
    ) -> Result<Chosen, FilesError> {
        let entries = journal.changes(&Filter::default())?;
        let history: Vec<Change> = entries.into_iter().map(|entry| entry.change).collect();
        let selection = by_own_name(selection, &history, &self.roots);
        let chosen = match direction {
            Direction::Undo => undo::to_undo(&history, &selection),
            Direction::Redo => undo::to_redo(&history, &selection),
        };
        if chosen.is_empty() {
            let all = Selection { explained: false, ..selection };
            let found = if direction == Direction::Undo { undo::to_undo(&history, &all) } else { Vec::new() };
            let of_found = history.iter().filter(|change| found.contains(&change.id));
            let files: HashSet<&str> = of_found.map(|change| change.path.as_str()).collect();
            let only_found = (!files.is_empty()).then_some(FilesError::OnlyFound(files.len()));
            return Err(only_found.unwrap_or(FilesError::NothingTo(direction.verb())));
        }
        let mut by_id: HashMap<ChangeId, Change> =
            history.into_iter().map(|change| (change.id, change)).collect();
        let mut files: IndexMap<String, Vec<Change>> = IndexMap::new();
        let mut left = Vec::new();
        for change in chosen.iter().filter_map(|id| by_id.remove(id)) {
            // Who means many changes means those that can be taken back; who means one is told why it cannot be.
            let is_lost =
                chosen.len() > 1 && change.source == Source::Observed && !is_kept(journal, &change)?;
            if is_lost {
                left.push(change);
            } else {
                files.entry(change.path.clone()).or_default().push(change);
            }
        }
        if let (true, Some(change)) = (files.is_empty(), left.first()) {
            let path = change.path.clone();
            return Err(CannotReverse { path, change: change.id, why: Why::Forgotten }.into());
        }
        let left = left.into_iter().map(|change| change.id).collect();
        Ok(Chosen { files, left, selection })
    }

    /// Plans what becomes of one file.
    pub(super) fn plan(
        &self,
        journal: &Journal,
        documents: &Documents,
        path: &str,
        changes: &[Change],
        options: ReversalOptions<'_>,
    ) -> Result<Plan, FilesError> {
        let mut admitted = self.roots.admit(path, Access::Write)?;
        // The name leads elsewhere by now, through a link: it is not the file that was changed.
        if admitted.canonical() != path {
            return Err(FilesError::LeadsElsewhere(path.to_owned()));
        }
        // No guard is asked: what is taken back may be what made the file read-only, and it is the user who takes it back.
        let current = self.workspace.load(&self.roots, &admitted)?;
        let known_by = documents.find(&admitted);
        let unsaved = unsaved_bytes(documents, known_by.as_deref(), current.as_ref(), path)?;
        let mode = current.as_ref().map_or(0o644, Current::mode);
        let shown = unsaved.clone().or_else(|| current.as_ref().map(|current| current.bytes.clone()));
        let shown = shown.map(|bytes| (bytes, mode));
        let changes: Vec<&Change> = changes.iter().collect();
        let TakenFile { file, reverses, resolved } =
            take_back_all(journal, shown.clone(), &changes, options)?;
        let planned = match file {
            file if file == shown => Planned::Unchanged,
            Some((bytes, mode)) => Planned::Write { bytes, mode },
            None => Planned::Delete,
        };
        admitted.let_go();
        let unsaved = unsaved.is_some();
        Ok(Plan { admitted, current, planned, reverses, resolved, known_by, unsaved })
    }

    pub(super) fn reverse(
        &self,
        writer: &mut Writer,
        documents: &mut MutexGuard<'_, Documents>,
        plans: Vec<Plan>,
        meant: &Meant<'_>,
    ) -> Result<Vec<Reversed>, NotApplied> {
        let Meant { origin, at, tell, .. } = *meant;
        let mut effects = Vec::new();
        let mut shown = Vec::new();
        let mut unchanged = Vec::new();
        for plan in plans {
            let new = match plan.planned {
                Planned::Unchanged => {
                    unchanged.push((plan.admitted, plan.current, plan.reverses));
                    continue;
                }
                Planned::Write { bytes, mode } => {
                    Some(NewFile { bytes: Bytes::Own(bytes), mode: Some(mode) })
                }
                Planned::Delete => None,
            };
            shown.push((plan.known_by, plan.resolved));
            effects.push(Effect {
                admitted: plan.admitted,
                current: plan.current,
                new,
                reverses: plan.reverses,
            });
        }
        let group = Group { roots: &self.roots, origin, effects: &effects, at, tell };
        let applied = self.workspace.apply(writer, &group)?;
        let mut reversed = Vec::new();
        for ((effect, (known_by, resolved)), applied) in effects.iter().zip(shown).zip(applied) {
            let path = effect.admitted.canonical().to_owned();
            if let Some(known_by) = known_by {
                show(documents, &known_by, effect.new.as_ref(), applied.stat.as_ref());
            }
            reversed.push(Reversed { path, change: applied.change, changed: true, resolved });
        }
        for (admitted, current, reverses) in unchanged {
            let change = note_unchanged(writer, &admitted, current.as_ref(), &reverses, origin, at)?;
            let path = admitted.canonical().to_owned();
            reversed.push(Reversed { path, change, changed: false, resolved: 0 });
        }
        Ok(reversed)
    }
}

/// A file on one side of a change, with its bytes as far as they are kept.
pub(super) type Kept = (FileState, Option<Vec<u8>>);

pub(super) fn kept(journal: &Journal, state: Option<FileState>) -> Result<Option<Kept>, FilesError> {
    let Some(state) = state else { return Ok(None) };
    Ok(Some((state, journal.blob(&state.hash)?)))
}

/// Returns a file that is at hand as one that is kept.
pub(super) fn at_hand(bytes: Vec<u8>, mode: u32) -> Kept {
    let state = FileState { hash: ContentHash::of(&bytes), size: bytes.len() as u64, mode };
    (state, Some(bytes))
}

/// Says whether the texts of a change are there to take it back with.
pub(super) fn is_kept(journal: &Journal, change: &Change) -> Result<bool, FilesError> {
    for state in [change.before, change.after].into_iter().flatten() {
        if !journal.has(&state.hash)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the selection with its file under the name that the journal knows it by, if it can be found.
pub(super) fn by_own_name(selection: &Selection, history: &[Change], roots: &Roots) -> Selection {
    let own = |path: &String| {
        // A name may have become a link since.
        if history.iter().any(|change| change.path == *path) {
            return path.clone();
        }
        let admitted = roots.admit(path, Access::Read);
        admitted.map_or_else(|_| path.clone(), |admitted| admitted.canonical().to_owned())
    };
    Selection { path: selection.path.as_ref().map(own), ..selection.clone() }
}

/// Returns the bytes that an open document with unsaved text would be saved as.
fn unsaved_bytes(
    documents: &Documents,
    known_by: Option<&str>,
    current: Option<&Current>,
    path: &str,
) -> Result<Option<Vec<u8>>, FilesError> {
    let document =
        known_by.and_then(|known_by| documents.get(known_by)).filter(|document| document.is_dirty());
    let Some(document) = document else { return Ok(None) };
    let Some(current) = current else {
        return encode(document.text(), text::Format::default(), path).map(Some);
    };
    let disk = text::decode(current.bytes.clone())
        .map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
    let text = beside(document, &disk.text)
        .map_err(|why| FilesError::Rejected { path: path.to_owned(), why: Rejected::DiskDiffers(why) })?;
    encode(&text, disk.format, path).map(Some)
}

fn show(documents: &mut Documents, known_by: &str, new: Option<&NewFile>, stat: Option<&rustix::fs::Stat>) {
    if new.is_none() {
        documents.tell(&DocumentEvent::FileGone { path: known_by.to_owned() });
    }
    // A document whose file is gone, or is not text any more, goes on showing what it showed.
    if let Some(decoded) = new.and_then(|new| text::decode(new.bytes.to_vec()).ok()) {
        documents.settle(known_by, &Arc::new(decoded.text), stat);
    }
}

/// Records that a change was taken back which somebody had taken back by hand.
pub(super) fn note_unchanged(
    writer: &mut Writer,
    admitted: &Admitted,
    current: Option<&Current>,
    reverses: &[Reversal],
    origin: &Origin,
    at: Moment,
) -> Result<ChangeId, FilesError> {
    fn side(current: &Current) -> Side<'_> {
        Side { content: SideContent::Bytes(&current.bytes), mode: current.mode() }
    }
    let draft = Draft {
        origin,
        source: Source::Written,
        path: admitted.canonical(),
        before: current.map(side),
        after: current.map(side),
        reverses,
        manner: Manner::Found,
    };
    let recorded = writer.journal.record(&[draft], at)?;
    recorded.first().copied().ok_or(FilesError::NothingTo("undo"))
}
