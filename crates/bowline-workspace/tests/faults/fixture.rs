//! A workspace and its journal in a directory of their own, operations with faults in it, and the check of its promises
//! afterwards.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_history::undo::ChangeSelection;
use bowline_storage::disk_calls::DiskCalls;
use bowline_text::hash::ContentHash;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{OpenedWorkspace, Workspace, WorkspaceOptions};
use rustix::fs::XattrFlags;
use tempfile::TempDir;
use test_support::faulty_sqlite;

use super::plan::{FaultAction, FaultPlan, FaultReason, FaultSchedule, RecordedCall};
use super::scenarios::{FaultTarget, Scenario, ScenarioDirectory, ScenarioFile, UndoDirection, create_files};

const ATTRIBUTE_NAME: &str = "user.note";
const ATTRIBUTE_VALUE: &[u8] = b"kept";
/// The parts of a fixture.
const SUBDIRECTORIES: [&str; 2] = ["work", "journal"];

/// The outcome of the operation, as reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportedOutcome {
    Done,
    Failed,
    Interrupted,
    /// Unknown: the process died before it could report, or another process made the call.
    Unknown,
}

impl ReportedOutcome {
    pub(crate) fn from_result<T>(result: &Result<T, FilesError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(FilesError::Interrupted { .. } | FilesError::PartlyUndone { .. }) => Self::Interrupted,
            Err(_) => Self::Failed,
        }
    }
}

/// The state of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Old,
    /// The first group of files is new, the others are old.
    Between,
    New,
}

/// The directory of a scenario.
#[derive(Debug)]
pub(crate) struct FaultFixture {
    directory: PathBuf,
    // `None` if another process removes it.
    _owned: Option<TempDir>,
    // Changes up to this one were in the journal before.
    before: i64,
    has_attribute: bool,
}

impl FaultFixture {
    /// Sets up a scenario. It uses memory as a disk where possible: only the order of calls matters, and they are
    /// cheaper there.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let memory = Path::new("/dev/shm");
        let named = || tempfile::Builder::new().prefix("bowline-faults-").to_owned();
        let owned = named().tempdir_in(memory).or_else(|_| named().tempdir()).expect("somewhere is room");
        let mut lab = Self {
            directory: owned.path().canonicalize().expect("it was just made"),
            _owned: Some(owned),
            before: 0,
            has_attribute: false,
        };
        fs::create_dir(lab.directory.join("work")).expect("the lab is writable");
        create_files(&lab, scenario);
        if scenario.files.iter().any(|subject| subject.path == "a.txt" && subject.old.is_some()) {
            let set =
                rustix::fs::setxattr(lab.path("a.txt"), ATTRIBUTE_NAME, ATTRIBUTE_VALUE, XattrFlags::empty());
            lab.has_attribute = set.is_ok();
        }
        let OpenedWorkspace { workspace, .. } =
            lab.open(scenario.options(), None).expect("nothing fails yet");
        (scenario.set_up)(&lab, &workspace);
        lab.before = list_changes(&workspace, &ChangeSelection::default())
            .into_iter()
            .map(|(id, ..)| id)
            .max()
            .unwrap_or(0);
        drop(workspace);
        match scenario.target {
            FaultTarget::Operation => {}
            FaultTarget::FirstOpening => {
                fs::remove_dir_all(lab.directory.join("journal")).expect("the lab is writable");
                fs::create_dir(lab.directory.join("journal")).expect("the lab is writable");
            }
            FaultTarget::Recovery(call) => lab.interrupt(scenario, RecordedCall::Writer(call)),
        }
        for part in SUBDIRECTORIES {
            copy_tree(&lab.directory.join(part), &lab.directory.join("first").join(part));
        }
        lab
    }

    /// Restores the initial state. The journal knows files by their absolute paths, so it has to be the same directory.
    pub(crate) fn reset(&self) -> &Self {
        for part in SUBDIRECTORIES {
            fs::remove_dir_all(self.directory.join(part)).expect("the lab is writable");
            copy_tree(&self.directory.join("first").join(part), &self.directory.join(part));
        }
        self
    }

    /// Returns a fixture that another process has set up.
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory, _owned: None, before: 0, has_attribute: false }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/work/{name}", self.directory.display())
    }

    fn open(
        &self,
        settings: WorkspaceOptions,
        plan: Option<&Arc<FaultPlan>>,
    ) -> Result<OpenedWorkspace, FilesError> {
        let root = RootSpec::writable(self.directory.join("work").display().to_string());
        let roots = Roots::open(&root, &[]).expect("the lab is there");
        let calls = plan.map_or_else(DiskCalls::default, |plan| DiskCalls::with_injector(plan.clone()));
        Workspace::open_with(roots, &self.directory.join("journal"), settings, calls)
    }

    /// Runs the operation and simulates a crash in the middle of a call.
    fn interrupt(&self, scenario: &Scenario, call: RecordedCall) {
        let operation = Scenario { target: FaultTarget::Operation, ..*scenario };
        let probe = Self::new(&operation);
        let (_, made) = probe.run(&operation, FaultSchedule::default(), |_| {});
        let at = 1 + made.iter().position(|one| *one == call).expect("the operation makes this call");
        let faults = if call.is_write() {
            FaultSchedule::at(at, FaultAction::Short)
        } else {
            FaultSchedule::default()
        };
        let cut = if call.is_write() { at + 1 } else { at };
        self.run(&operation, faults.then(cut, FaultAction::FailFromHere(FaultReason::Io)), |_| {});
    }

    /// Runs the scenario with faults. `then` receives the outcome before anything else happens.
    pub(crate) fn run(
        &self,
        scenario: &Scenario,
        faults: FaultSchedule,
        then: impl FnOnce(ReportedOutcome),
    ) -> (ReportedOutcome, Vec<RecordedCall>) {
        faulty_sqlite::install();
        let plan = Arc::new(FaultPlan::new(faults));
        let told = faulty_sqlite::with_gate(plan.clone(), || match scenario.target {
            FaultTarget::Operation => {
                let opened = self.open(scenario.options(), Some(&plan)).expect("nothing fails yet");
                (scenario.prepare)(self, &opened.workspace);
                plan.arm(true);
                let told = ReportedOutcome::from_result(&(scenario.act)(self, &opened.workspace));
                then(told);
                drop(opened);
                told
            }
            FaultTarget::FirstOpening | FaultTarget::Recovery(_) => {
                plan.arm(true);
                drop(self.open(scenario.options(), Some(&plan)));
                ReportedOutcome::Unknown
            }
        });
        plan.arm(false);
        (told, plan.recorded_calls())
    }

    /// Runs the scenario with one fault, and continues in the same process.
    pub(crate) fn run_and_stay(&self, scenario: &Scenario, faults: FaultSchedule) -> Result<(), String> {
        faulty_sqlite::install();
        let plan = Arc::new(FaultPlan::new(faults));
        faulty_sqlite::with_gate(plan.clone(), || {
            let opened = self.open(scenario.options(), Some(&plan)).expect("nothing fails yet");
            (scenario.prepare)(self, &opened.workspace);
            plan.arm(true);
            let told = ReportedOutcome::from_result(&(scenario.act)(self, &opened.workspace));
            plan.arm(false);
            // The next operation repairs the interrupted one first.
            let session = opened.workspace.session("poke");
            let poked = session.write(&self.path("poke.txt"), "poke\n", &session.origin(None, None));
            poked.map_err(|error| format!("the next write fails: {error}"))?;
            self.check_outcome(scenario, &opened.workspace, told)
        })
    }

    /// Opens the workspace without faults and returns the first broken promise.
    pub(crate) fn verify(&self, scenario: &Scenario, told: ReportedOutcome) -> Result<(), String> {
        let opened =
            self.open(scenario.options(), None).map_err(|error| format!("it does not open: {error}"))?;
        // Nothing was damaged, so no journal may have been set aside, neither now nor before.
        let aside = fs::read_dir(self.directory.join("journal")).into_iter().flatten().flatten();
        let aside: Vec<_> = aside.map(|entry| entry.file_name()).filter(is_set_aside).collect();
        if !opened.notices.is_empty() || !aside.is_empty() {
            return Err(format!("it opens with {:?}, aside lie {aside:?}", opened.notices));
        }
        self.check_outcome(scenario, &opened.workspace, told)
    }

    /// Lets a user write to every file before the workspace is opened again, and checks that these texts stay.
    pub(crate) fn verify_user_first(&self, scenario: &Scenario) -> Result<(), String> {
        let text = |subject: &ScenarioFile| format!("a user's own {}\n", subject.path);
        let reachable = |subject: &&ScenarioFile| {
            let path = PathBuf::from(self.path(subject.path));
            path.parent().is_some_and(Path::is_dir) && !path.is_dir()
        };
        let subjects: Vec<_> = scenario.files.iter().filter(reachable).collect();
        subjects.iter().for_each(|subject| self.write_as_user(subject.path, &text(subject)));
        let opened =
            self.open(scenario.options(), None).map_err(|error| format!("it does not open: {error}"))?;
        for subject in subjects {
            let path = self.path(subject.path);
            let found = fs::read(&path).ok();
            if found.as_deref() != Some(text(subject).as_bytes()) {
                let found = found.as_deref().map(String::from_utf8_lossy);
                return Err(format!("{} is not what the user wrote: {found:?}", subject.path));
            }
            let session = opened.workspace.session("next");
            let written = session.write(&path, "next\n", &session.origin(None, None));
            written.map_err(|error| format!("the next write fails: {error}"))?;
        }
        match temp_files(&self.directory.join("work")) {
            temps if temps.is_empty() => Ok(()),
            temps => Err(format!("these stay behind: {temps:?}")),
        }
    }

    fn check_outcome(
        &self,
        scenario: &Scenario,
        workspace: &Workspace,
        told: ReportedOutcome,
    ) -> Result<(), String> {
        let state = self.files_state(scenario)?;
        self.check_journal(scenario, workspace, state)?;
        match (told, state) {
            (ReportedOutcome::Done, State::Old | State::Between) => {
                return Err("it was told to be done and is not".into());
            }
            (ReportedOutcome::Failed, State::New | State::Between) => {
                return Err("it was told to have failed and is done".into());
            }
            (
                ReportedOutcome::Done
                | ReportedOutcome::Failed
                | ReportedOutcome::Interrupted
                | ReportedOutcome::Unknown,
                _,
            ) => {}
        }
        if state != State::New {
            catch_panic("preparing again", || (scenario.prepare)(self, workspace))?;
            (scenario.act)(self, workspace).map_err(|error| format!("trying again: {error}"))?;
            self.check_state(scenario, workspace, State::New, "after trying again")?;
        }
        let session = workspace.session("s");
        let selection = (scenario.selection)(self);
        let turn = session.origin(Some(9), None);
        let undo = || session.undo(&selection, &turn);
        let redo = || session.redo(&selection, &turn);
        let back = if scenario.direction == UndoDirection::Undo { undo() } else { redo() };
        back.map_err(|error| format!("taking it back: {error}"))?;
        self.check_bytes(scenario, State::Old, "after taking it back")?;
        let again = if scenario.direction == UndoDirection::Undo { redo() } else { undo() };
        again.map_err(|error| format!("doing it again: {error}"))?;
        self.check_bytes(scenario, State::New, "after doing it again")
    }

    fn check_state(
        &self,
        scenario: &Scenario,
        workspace: &Workspace,
        state: State,
        when: &str,
    ) -> Result<(), String> {
        self.check_bytes(scenario, state, when)?;
        self.check_journal(scenario, workspace, state).map_err(|why| format!("{when}: {why}"))
    }

    fn check_bytes(&self, scenario: &Scenario, expected: State, when: &str) -> Result<(), String> {
        match self.files_state(scenario) {
            Ok(state) if state == expected => Ok(()),
            Ok(state) => Err(format!("{when} the files are {state:?}")),
            Err(why) => Err(format!("{when}: {why}")),
        }
    }

    /// Returns whether all files are new, all are old, or only the first group is new. Anything else is an error.
    fn files_state(&self, scenario: &Scenario) -> Result<State, String> {
        let mut states = Vec::new();
        for subject in scenario.files {
            let path = self.path(subject.path);
            let found = fs::read(&path).ok();
            let is = |text: Option<&str>| found.as_deref() == text.map(str::as_bytes);
            if !is(subject.old) && !is(subject.new) {
                let text = found.as_deref().map(String::from_utf8_lossy);
                return Err(format!("{} is neither old nor new: {text:?}", subject.path));
            }
            states.push(is(subject.new));
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let mode = metadata.permissions().mode() & 0o7777;
            if subject.mode.is_some_and(|expected| expected != mode) {
                return Err(format!("{} has the mode {mode:o}", subject.path));
            }
            if subject.path == "a.txt" && subject.new.is_some() && self.has_attribute {
                let mut value = [0; 16];
                let length = rustix::fs::getxattr(&path, ATTRIBUTE_NAME, &mut value[..]).unwrap_or(0);
                if &value[..length] != ATTRIBUTE_VALUE {
                    return Err(format!("{} has lost an attribute", subject.path));
                }
            }
            let link = scenario.link.and_then(|link| fs::metadata(self.path(link)).ok());
            if link.is_some_and(|link| link.ino() != metadata.ino()) {
                return Err(format!("{} is not the file that its other name is", subject.path));
            }
        }
        let temps = temp_files(&self.directory.join("work"));
        if !temps.is_empty() {
            return Err(format!("these stay behind: {temps:?}"));
        }
        let is_there = |directory: &ScenarioDirectory| Path::new(&self.path(directory.path)).is_dir();
        if scenario.files.is_empty() {
            let directories = scenario.directories.iter();
            states.extend(directories.map(|directory| is_there(directory) == directory.is_created));
        }
        let state = match states.iter().filter(|new| **new).count() {
            0 => State::Old,
            count if count == states.len() => State::New,
            count if count == scenario.first_count && states[..count].iter().all(|new| *new) => {
                State::Between
            }
            _ => return Err(format!("some files are new and some are old: {states:?}")),
        };
        for directory in scenario.directories {
            let is_there = is_there(directory);
            if is_there != (directory.is_created == (state == State::New)) {
                return Err(format!("the files are {state:?}, and {}/ exists: {is_there}", directory.path));
            }
        }
        Ok(state)
    }

    /// Checks that the journal has the operation exactly if it was done.
    fn check_journal(&self, scenario: &Scenario, workspace: &Workspace, state: State) -> Result<(), String> {
        let all = list_changes(workspace, &ChangeSelection::default());
        for (at, subject) in scenario.files.iter().enumerate() {
            let is_new = state == State::New || state == State::Between && at < scenario.first_count;
            let path = self.path(subject.path);
            let mut later = all.iter().filter(|(id, changed, ..)| *id > self.before && *changed == path);
            if at < scenario.first_count {
                // The file may have been removed, restored, and removed again.
                let last = later.next_back();
                let text = if is_new { subject.new } else { subject.old };
                let is_told = last.map_or(!is_new, |(_, _, in_effect, uncertain, after)| {
                    let is_right = *after == text.map(|text| scenario.journal_hash(text));
                    is_right && !uncertain && (*in_effect || !is_new)
                });
                if !is_told {
                    return Err(format!("{}: {state:?}, and the journal says {last:?}", subject.path));
                }
                continue;
            }
            let mut listed = 0;
            for (id, _, in_effect, uncertain, after) in later {
                if *uncertain {
                    return Err(format!("the journal does not know what became of change {id}"));
                }
                if *after != subject.new.map(|new| scenario.journal_hash(new)) {
                    return Err(format!("the journal has an unexpected change {id}"));
                }
                if !in_effect {
                    return Err(format!("the journal says that change {id} is not in effect"));
                }
                listed += 1;
            }
            if listed != usize::from(is_new) {
                let state = if is_new { "new" } else { "old" };
                return Err(format!("{} is {state}, the journal has {listed} changes", subject.path));
            }
        }
        for directory in scenario.directories.iter().filter(|_| scenario.files.is_empty()) {
            let path = self.path(directory.path);
            let own = all.iter().filter(|(id, changed, ..)| *id > self.before && *changed == path);
            let listed = own.filter(|(_, _, in_effect, uncertain, _)| *in_effect && !uncertain).count();
            if listed != usize::from(state == State::New) {
                return Err(format!("{} is {state:?}, the journal has {listed} changes", directory.path));
            }
        }
        Ok(())
    }
}

type ChangeRow = (i64, String, bool, bool, Option<ContentHash>);

fn list_changes(workspace: &Workspace, selection: &ChangeSelection) -> Vec<ChangeRow> {
    let listed = workspace.changes(selection).expect("the journal can be read");
    let short = |changed: bowline_workspace::workspace::ListedChange| {
        let after = changed.change.after.map(|state| state.hash);
        (changed.change.id.0, changed.change.path, changed.is_in_effect, changed.is_uncertain, after)
    };
    listed.into_iter().map(short).collect()
}

fn is_set_aside(name: &OsString) -> bool {
    name.to_string_lossy().contains("set-aside")
}

fn temp_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(temp_files(&path));
        } else if entry.file_name().to_string_lossy().starts_with(".bowline-") {
            found.push(path);
        }
    }
    found
}

/// Copies a directory with everything that matters here: modes, attributes, and hard links.
fn copy_tree(from: &Path, to: &Path) {
    let mut files: HashMap<u64, PathBuf> = HashMap::new();
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        let metadata = fs::metadata(&from).expect("the lab is readable");
        if metadata.is_dir() {
            fs::create_dir_all(&to).expect("the lab is writable");
            let entries =
                fs::read_dir(&from).expect("the lab is readable").map(|entry| entry.expect("it is readable"));
            left.extend(entries.map(|entry| (entry.path(), to.join(entry.file_name()))));
        } else if let Some(first) = files.get(&metadata.ino()) {
            fs::hard_link(first, &to).expect("the lab is writable");
        } else {
            fs::copy(&from, &to).expect("the lab is writable");
            // The engine recognizes a displaced file that was not written to by its modification time.
            let times = fs::FileTimes::new().set_modified(metadata.modified().expect("this system has it"));
            let file = fs::File::open(&to).and_then(|file| file.set_times(times));
            file.expect("the lab is writable");
            let mut value = [0; 16];
            if let Ok(length) = rustix::fs::getxattr(&from, ATTRIBUTE_NAME, &mut value[..]) {
                rustix::fs::setxattr(&to, ATTRIBUTE_NAME, &value[..length], XattrFlags::empty())
                    .expect("as it was before");
            }
            files.insert(metadata.ino(), to);
        }
    }
}

/// Turns a panic into an error.
fn catch_panic(what: &str, act: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| format!("{what} failed"))
}
