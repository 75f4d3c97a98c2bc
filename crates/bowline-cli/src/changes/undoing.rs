//! Taking back, and doing again.

use std::collections::{BTreeSet, HashSet};
use std::io::IsTerminal as _;
use std::path::Path;

use bowline_state::audit::{Action, By, Entry, Subject};
use bowline_state::changes::{Change, ChangeId, FileState, Reversal, Source};
use bowline_state::undo::Selection;
use bowline_workspace::audit::AuditLog;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::workspace::{Changed, Foresight, Reversed, TakenBack, Workspace};

use super::selecting::{Meant, Purpose};
use super::{Taking, failed, history, nothing_yet, patching};
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::showing::{Look, count, note, print, safe, write_stderr};
use crate::records::times::now;

/// So many directories beside the workspace's own are opened, to take back what was changed there.
const MAX_MORE: usize = 32;
/// So many files that were found on disk are named.
const MAX_FOUND: usize = 20;
/// What is said of them.
const PERHAPS_YOURS: &str =
    "what was found on disk may be your own work, saved meanwhile, or that of another program";

/// What is said of those that stay.
const STAYS: &str = "what was merely found changed may be your own work, and stays";

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Undo,
    Redo,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Undo => "undone",
            Self::Redo => "redone",
        }
    }

    fn purpose(self) -> Purpose {
        match self {
            Self::Undo => Purpose::Undo,
            Self::Redo => Purpose::Redo,
        }
    }

    fn foresee(self, workspace: &Workspace, selection: &Selection) -> Result<Foresight, FilesError> {
        match self {
            Self::Undo => workspace.foresee_undo(selection),
            Self::Redo => workspace.foresee_redo(selection),
        }
    }

    fn act(self, workspace: &Workspace, selection: &Selection) -> Result<TakenBack, FilesError> {
        match self {
            Self::Undo => workspace.undo_telling(selection, &|done, of| progress(self, done, of)),
            Self::Redo => workspace.redo_telling(selection, &|done, of| progress(self, done, of)),
        }
    }
}

/// From so many files on a person is told how far it is.
const MANY: usize = 200;

/// Tells a person at a terminal how many of many files are done, on one line that goes when all are.
fn progress(way: Way, done: usize, of: usize) {
    if of < MANY || !std::io::stderr().is_terminal() {
        return;
    }
    if done >= of {
        write_stderr("\r\x1b[K");
    } else if done.is_multiple_of(50) {
        write_stderr(&format!("\r{} {done} of {of} files", way.done()));
    }
}

/// Takes back what is meant, or shows what that would do. What was merely found on disk is left alone unless `found`, or it is
/// named by its number.
pub(super) fn take_back(taking: &Taking, way: Way, found: bool) -> Result<(), Ending> {
    let here = Here::find(taking.selectors.cwd(), Sign::Journal)?;
    if !here.known {
        return Err(failed(anyhow::anyhow!("there is nothing to {}: {}", way.word(), nothing_yet(&here))));
    }
    let workspace = here.open(&[])?;
    let known = history(&workspace)?;
    // What cannot be looked at now is told of when it is taken back.
    let keeps = |changed: &Changed| {
        let change = &changed.change;
        !change.is_pruned() && (change.source != Source::Observed || workspace.keeps(change).unwrap_or(true))
    };
    let mut meant = taking.selectors.meant(&here, &known, way.purpose(), &taking.hunk, &keeps)?;
    meant.selection.explained = !found && meant.selection.change.is_none();
    if let Some(one) = &meant.selection.change
        && let Some(hunks) = &one.hunks
    {
        patching::check(&workspace, one.change, hunks)?;
    }
    let workspace = reaching(&here, workspace, &known, &meant.selection)?;
    if taking.dry_run {
        return foresee(&here, &workspace, way, &meant, &known);
    }
    let done = match way.act(&workspace, &meant.selection) {
        Ok(done) => Done { files: done.files, left: done.left, ..Done::default() },
        Err(FilesError::NothingTo(_)) => return Err(nothing(way, &meant)),
        Err(FilesError::OnlyFound(_)) => return Err(only_found(&here, &meant, &known)),
        Err(error) if !taking.keep_going => {
            return Err(refused(&here, &workspace, way, &meant.selection, error));
        }
        Err(_) => one_by_one(&workspace, way, &meant.selection)?,
    };
    workspace.tell_kept_texts(|text| note(&text.to_string()));
    record(&here, &workspace, &done.files);
    let stays = if way == Way::Undo { found_left(&here, &meant.selection, &known) } else { None };
    tell(&here, &workspace, way, &meant.words, &done, stays)
}

/// Names the files that an undo leaves alone because they were merely found changed.
fn found_left(here: &Here, selection: &Selection, known: &[Changed]) -> Option<String> {
    let all = Selection { explained: false, ..selection.clone() };
    let is_left = |changed: &&Changed| {
        let change = &changed.change;
        let is_edit = changed.in_effect && change.reverses.is_empty() && change.origin.session.is_some();
        is_edit && selection.explained && change.is_unexplained() && all.matches(change)
    };
    let left = known.iter().filter(is_left).map(|changed| here.name(&changed.change.path));
    let left: BTreeSet<&str> = left.collect();
    (!left.is_empty()).then(|| named(&left))
}

/// Names some files, and how many more there are.
fn named(names: &BTreeSet<&str>) -> String {
    let shown: Vec<String> = names.iter().take(MAX_FOUND).map(|name| safe(name)).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn only_found(here: &Here, meant: &Meant, known: &[Changed]) -> Ending {
    let left = found_left(here, &meant.selection, known).unwrap_or_default();
    failed(anyhow::anyhow!(
        "there is nothing to undo of {} but what was merely found changed and may be your own work: {left}; --found \
         takes it back",
        meant.words
    ))
}

/// Puts a text that only the journal has into its file.
pub(super) fn restore(here: &Here, workspace: Workspace, id: ChangeId) -> Result<(), Ending> {
    let change = Some(Reversal { change: id, hunks: None });
    let selection = Selection { change, ..Selection::default() };
    let known = history(&workspace)?;
    let workspace = reaching(here, workspace, &known, &selection)?;
    let taken = match workspace.undo(&selection) {
        Ok(taken) => taken,
        Err(FilesError::NothingTo(_)) => {
            return Err(failed(anyhow::anyhow!("text {id} was restored before; --print shows it")));
        }
        Err(error) => {
            let why = why(&error);
            return Err(failed(anyhow::anyhow!("the file stays as it is: {why}; --print shows the text")));
        }
    };
    record(here, &workspace, &taken.files);
    let names: Vec<String> = taken.files.iter().map(|file| safe(here.name(&file.path))).collect();
    print(&format!("restored text {id} to {}; `bowline redo` takes that back\n", names.join(", ")))
}

/// What was done.
#[derive(Default)]
struct Done {
    files: Vec<Reversed>,
    left: Vec<ChangeId>,
    refused: Vec<(String, FilesError)>,
}

/// Returns the workspace with the directories beside its own in which something was changed that is meant: a session may
/// have had more than one.
fn reaching(
    here: &Here,
    workspace: Workspace,
    history: &[Changed],
    selection: &Selection,
) -> Result<Workspace, Ending> {
    let root = Path::new(&here.root);
    let mut more = Vec::new();
    let mut known = HashSet::new();
    let meant = history.iter().map(|changed| &changed.change).filter(|change| selection.matches(change));
    for change in meant.filter(|change| !Path::new(&change.path).starts_with(root)) {
        let above = Path::new(&change.path).ancestors().skip(1);
        let directory = above.filter_map(Path::to_str).find(|above| Path::new(above).is_dir());
        if let Some(directory) = directory.filter(|directory| known.insert((*directory).to_owned()))
            && more.len() < MAX_MORE
        {
            more.push(RootSpec::writable(directory));
        }
    }
    if more.is_empty() {
        return Ok(workspace);
    }
    drop(workspace);
    here.open(&more)
}

fn nothing(way: Way, meant: &Meant) -> Ending {
    failed(match (way, meant.selection.last) {
        (Way::Redo, Some(_)) => anyhow::anyhow!("there is nothing to redo: nothing is undone"),
        _ => anyhow::anyhow!("there is nothing to {} of {}", way.word(), meant.words),
    })
}

/// Shows what would be done.
fn foresee(
    here: &Here,
    workspace: &Workspace,
    way: Way,
    meant: &Meant,
    known: &[Changed],
) -> Result<(), Ending> {
    let words = &meant.words;
    let foresight = match way.foresee(workspace, &meant.selection) {
        Ok(foresight) => foresight,
        Err(FilesError::NothingTo(_)) => return Err(nothing(way, meant)),
        Err(FilesError::OnlyFound(_)) => return Err(only_found(here, meant, known)),
        Err(error) => return Err(failed(error)),
    };
    let look = Look::of_stdout();
    let mut refused = Vec::new();
    let files = foresight.files.len();
    note(&format!("{words} would be {}, in {}", way.done(), count(files, "file", "files")));
    let taken = |change: &Change| foresight.files.iter().any(|file| file.path == change.path);
    let found = known.iter().filter(|changed| changed.in_effect).map(|changed| &changed.change);
    let found = found.filter(|change| change.source == Source::Observed && meant.selection.matches(change));
    let found: BTreeSet<&str> =
        found.filter(|change| taken(change)).map(|change| here.name(&change.path)).collect();
    if way == Way::Undo && !found.is_empty() {
        note(&format!("{PERHAPS_YOURS}: {}; --written-only leaves that alone", named(&found)));
    }
    if let (Way::Undo, Some(left)) = (way, found_left(here, &meant.selection, known)) {
        note(&format!("{STAYS}: {left}; --found takes that back, too"));
    }
    for file in foresight.files {
        match file.patch {
            Ok(patch) if patch.is_empty() => note(&format!("{} is so already", safe(here.name(&file.path)))),
            Ok(patch) => print(&if look.terminal { patching::painted(&patch, look) } else { patch })?,
            Err(error) => refused.push((file.path, error)),
        }
    }
    let left = tell_left(here, workspace, way, &foresight.left)?;
    told_refused(here, way, files, &refused, Partly::Nothing)?;
    left.map_or(Ok(()), Err)
}

/// Says why nothing was done: of every file that is in the way, not only of the first.
fn refused(here: &Here, workspace: &Workspace, way: Way, selection: &Selection, error: FilesError) -> Ending {
    let Ok(foresight) = way.foresee(workspace, selection) else { return failed(error) };
    let files = foresight.files.len();
    let refused: Vec<_> =
        foresight.files.into_iter().filter_map(|file| Some((file.path, file.patch.err()?))).collect();
    match told_refused(here, way, files, &refused, Partly::Nothing) {
        Err(ending) => ending,
        // It would work by now: what was in the way is what is told.
        Ok(()) => failed(error),
    }
}

/// How much was done of what was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partly {
    Nothing,
    TheRest,
}

fn told_refused(
    here: &Here,
    way: Way,
    files: usize,
    refused: &[(String, FilesError)],
    partly: Partly,
) -> Result<(), Ending> {
    if refused.is_empty() {
        return Ok(());
    }
    for (path, error) in refused {
        note(&format!("{}: {}", safe(here.name(path)), why(error)));
    }
    let (word, done) = (way.word(), way.done());
    let of = format!("{} of {}", refused.len(), count(files, "file", "files"));
    Err(failed(match partly {
        Partly::Nothing if files > refused.len() => {
            anyhow::anyhow!(
                "cannot {word} {of}, so nothing is {done}: choose fewer, or --keep-going for the others"
            )
        }
        Partly::Nothing => anyhow::anyhow!("cannot {word} {of}, so nothing is {done}"),
        Partly::TheRest => anyhow::anyhow!("cannot {word} {of}; they are as they were"),
    }))
}

/// Returns why a file is not done; its name is said by the caller.
fn why(error: &FilesError) -> String {
    match error {
        FilesError::CannotReverse(refused) => format!("change {}: {}", refused.change, refused.why),
        FilesError::TooLarge { size, cap, .. } => {
            format!("it has {size} bytes, and at most {cap} are taken back")
        }
        other => other.to_string(),
    }
}

/// Does the files that can be done.
fn one_by_one(workspace: &Workspace, way: Way, selection: &Selection) -> Result<Done, Ending> {
    let foresight = way.foresee(workspace, selection).map_err(failed)?;
    let mut done = Done { left: foresight.left, ..Done::default() };
    for file in foresight.files {
        let of_file = Selection { path: Some(file.path.clone()), ..selection.clone() };
        match way.act(workspace, &of_file) {
            Ok(taken) => done.files.extend(taken.files),
            // It was done with the directory that it lies in, which was a file before.
            Err(FilesError::NothingTo(_)) => {}
            Err(error) => done.refused.push((file.path, error)),
        }
    }
    Ok(done)
}

/// Says what was done.
fn tell(
    here: &Here,
    workspace: &Workspace,
    way: Way,
    words: &str,
    done: &Done,
    stays: Option<String>,
) -> Result<(), Ending> {
    let files = done.files.len();
    let mut text = format!("{} {words}, in {}\n", way.done(), count(files, "file", "files"));
    let names: Vec<String> = done.files.iter().map(|file| safe(here.name(&file.path))).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut left = HashSet::new();
    for id in &done.left {
        left.insert(workspace.change(*id).map_err(failed)?.path);
    }
    let mut any_found = false;
    for (file, name) in done.files.iter().zip(&names) {
        let change = workspace.change(file.change).map_err(failed)?;
        let found = found(workspace, &change)?;
        any_found |= found.is_some();
        let found = found.map(|how| format!(" ({how})")).unwrap_or_default();
        let is_left = left.contains(file.path.as_str());
        let became = if is_left { "only in part, see below" } else { became(workspace, way, file, &change)? };
        text.push_str(&format!("  {name:width$}  {became}{found}\n"));
    }
    if files == 0 {
        text.clear();
    } else if way == Way::Undo {
        text.push_str("`bowline redo` brings it back\n");
        if any_found {
            text.push_str(&format!("{PERHAPS_YOURS}; undo --written-only leaves that alone\n"));
        }
        if let Some(names) = stays {
            text.push_str(&format!("{STAYS}: {names}; undo --found takes that back, too\n"));
        }
    }
    print(&text)?;
    let left = tell_left(here, workspace, way, &done.left)?;
    let partly = if files == 0 { Partly::Nothing } else { Partly::TheRest };
    told_refused(here, way, files + done.refused.len(), &done.refused, partly)?;
    left.map_or(Ok(()), Err)
}

/// Names the files that are left as they are found, and returns that not all was done, if there are any.
fn tell_left(
    here: &Here,
    workspace: &Workspace,
    way: Way,
    left: &[ChangeId],
) -> Result<Option<Ending>, Ending> {
    for id in left {
        let change = workspace.change(*id).map_err(failed)?;
        let name = safe(here.name(&change.path));
        let why = match change.before {
            Some(_) => "what was there before is not known",
            None => "what was made is not kept, so it is not removed",
        };
        note(&format!("{name}: change {id} was found on disk, and {why}"));
    }
    let count = count(left.len(), "change is left as it was found", "changes are left as they were found");
    let not_all = || failed(anyhow::anyhow!("not all could be {}: {count}", way.done()));
    Ok((!left.is_empty()).then(not_all))
}

/// Says how what was reversed was found on disk, if it was: then it may have been somebody else who did it.
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

/// Returns what became of a file by a reversal.
fn became(workspace: &Workspace, way: Way, file: &Reversed, change: &Change) -> Result<&'static str, Ending> {
    if !file.changed {
        return Ok("was so already");
    }
    let mut oldest: Option<Change> = None;
    for reversal in &change.reverses {
        let taken = workspace.change(reversal.change).map_err(failed)?;
        if reversal.hunks.is_some() {
            // The rest of the change stays, so only what came after it can have been merged.
            let exact = change.before.map(|state| state.hash) == taken.after.map(|state| state.hash);
            return Ok(if exact { "in part" } else { "in part, merged with later edits" });
        }
        if oldest.as_ref().is_none_or(|oldest| taken.id < oldest.id) {
            oldest = Some(taken);
        }
    }
    let hash = |state: Option<FileState>| state.map(|state| state.hash);
    let is_as_before = oldest.is_some_and(|oldest| hash(oldest.before) == hash(change.after));
    Ok(match (change.before, change.after) {
        (Some(_), None) => "deleted",
        (None, Some(_)) => "there again",
        _ if is_as_before => match way {
            Way::Undo => "as it was before",
            Way::Redo => "as it was before the undo",
        },
        _ => "merged with later edits",
    })
}

/// Puts what was done into the audit log. That this fails is said, and changes nothing: it was the person who did it.
fn record(here: &Here, workspace: &Workspace, files: &[Reversed]) {
    let append = || -> anyhow::Result<()> {
        let log = AuditLog::open(&here.log(), &here.anchor, Default::default())?;
        for file in files {
            let change = workspace.change(file.change)?;
            let mut entry = Entry::new(now(), Action::Undo);
            entry.by = By::Person;
            entry.subject = Subject::Path { asked: change.path, resolved: None };
            (entry.before, entry.after) =
                (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
            log.append(&entry)?;
        }
        log.sync()?;
        Ok(())
    };
    if let Err(error) = append() {
        note(&format!("the audit log does not tell of it: {error:#}"));
    }
}
