//! A workspace and its journal in a directory of their own, what is done there with faults, and whether it is as
//! promised afterwards.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_state::changes::ContentHash;
use bowline_state::undo::Selection;
use bowline_workspace::calls::Calls;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Opened, Settings, Workspace};
use rustix::fs::XattrFlags;
use tempfile::TempDir;
use test_support::faulty_sqlite;

use super::plan::{Action, Faults, Made, Plan, Why};
use super::scenarios::{Back, Scenario, Subject, Target, lay_out};

const ATTRIBUTE: &str = "user.note";
const NOTE: &[u8] = b"kept";
/// What a lab consists of.
const PARTS: [&str; 2] = ["work", "journal"];

/// What became of the operation, as far as whoever asked for it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Failed,
    Interrupted,
    /// It is not known: the process died before it could tell, or it was not this process that asked.
    Nothing,
}

impl Told {
    pub(crate) fn of<T>(result: &Result<T, FilesError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(FilesError::Interrupted { .. } | FilesError::HalfTakenBack { .. }) => Self::Interrupted,
            Err(_) => Self::Failed,
        }
    }
}

/// How the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Old,
    /// Those that go first are new, the others old.
    Between,
    New,
}

/// Where it happens.
#[derive(Debug)]
pub(crate) struct Lab {
    directory: PathBuf,
    // None: somebody else removes it.
    _owned: Option<TempDir>,
    // Changes up to this one were in the journal before.
    before: i64,
    has_attribute: bool,
}

impl Lab {
    /// Lays out a scenario. Memory will do for a disk: what is tried is the order of calls, and they cost less there.
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
        lay_out(&lab, scenario);
        if scenario.subjects.iter().any(|subject| subject.path == "a.txt" && subject.old.is_some()) {
            let set = rustix::fs::setxattr(lab.path("a.txt"), ATTRIBUTE, NOTE, XattrFlags::empty());
            lab.has_attribute = set.is_ok();
        }
        let Opened { workspace, .. } = lab.open(Settings::default(), None).expect("nothing fails yet");
        (scenario.set_up)(&lab, &workspace);
        lab.before =
            changes(&workspace, &Selection::default()).into_iter().map(|(id, ..)| id).max().unwrap_or(0);
        drop(workspace);
        match scenario.target {
            Target::Operation => {}
            Target::FirstOpening => {
                fs::remove_dir_all(lab.directory.join("journal")).expect("the lab is writable");
                fs::create_dir(lab.directory.join("journal")).expect("the lab is writable");
            }
            Target::Recovery(call) => lab.interrupt(scenario, Made::Writer(call)),
        }
        for part in PARTS {
            copy(&lab.directory.join(part), &lab.directory.join("first").join(part));
        }
        lab
    }

    /// Lets everything be again as it was laid out. The journal knows files by their absolute paths, so it has to be the
    /// same directory.
    pub(crate) fn reset(&self) -> &Self {
        for part in PARTS {
            fs::remove_dir_all(self.directory.join(part)).expect("the lab is writable");
            copy(&self.directory.join("first").join(part), &self.directory.join(part));
        }
        self
    }

    /// Returns a lab that somebody else laid out.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory, _owned: None, before: 0, has_attribute: false }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/work/{name}", self.directory.display())
    }

    fn open(&self, settings: Settings, plan: Option<&Arc<Plan>>) -> Result<Opened, FilesError> {
        let root = RootSpec::writable(self.directory.join("work").display().to_string());
        let roots = Roots::open(&root, &[]).expect("the lab is there");
        let calls = plan.map_or_else(Calls::default, |plan| Calls::gated(plan.clone()));
        Workspace::open_with(roots, &self.directory.join("journal"), settings, calls)
    }

    /// Does the operation and dies, as far as the disk can tell, in the middle of a call.
    fn interrupt(&self, scenario: &Scenario, call: Made) {
        let operation = Scenario { target: Target::Operation, ..*scenario };
        let probe = Self::new(&operation);
        let (_, made) = probe.run(&operation, Faults::default(), |_| {});
        let at = 1 + made.iter().position(|one| *one == call).expect("the operation makes this call");
        let faults = if call.is_write() { Faults::at(at, Action::Short) } else { Faults::default() };
        let cut = if call.is_write() { at + 1 } else { at };
        self.run(&operation, faults.then(cut, Action::FailOn(Why::Io)), |_| {});
    }

    /// Does what the scenario says, with faults. `then` learns what came of it before anything else happens.
    pub(crate) fn run(
        &self,
        scenario: &Scenario,
        faults: Faults,
        then: impl FnOnce(Told),
    ) -> (Told, Vec<Made>) {
        faulty_sqlite::install();
        let plan = Arc::new(Plan::new(faults));
        let told = faulty_sqlite::gated(plan.clone(), || match scenario.target {
            Target::Operation => {
                let opened = self.open(scenario.settings(), Some(&plan)).expect("nothing fails yet");
                (scenario.prepare)(self, &opened.workspace);
                plan.arm(true);
                let told = Told::of(&(scenario.act)(self, &opened.workspace));
                then(told);
                drop(opened);
                told
            }
            Target::FirstOpening | Target::Recovery(_) => {
                plan.arm(true);
                drop(self.open(scenario.settings(), Some(&plan)));
                Told::Nothing
            }
        });
        plan.arm(false);
        (told, plan.made())
    }

    /// Does it with one fault, and goes on in the same process.
    pub(crate) fn run_and_stay(&self, scenario: &Scenario, faults: Faults) -> Result<(), String> {
        faulty_sqlite::install();
        let plan = Arc::new(Plan::new(faults));
        faulty_sqlite::gated(plan.clone(), || {
            let opened = self.open(scenario.settings(), Some(&plan)).expect("nothing fails yet");
            (scenario.prepare)(self, &opened.workspace);
            plan.arm(true);
            let told = Told::of(&(scenario.act)(self, &opened.workspace));
            plan.arm(false);
            // What was interrupted is put right before the next thing is done.
            let session = opened.workspace.session("poke");
            let poked = session.write(&self.path("poke.txt"), "poke\n", &session.origin(None, None));
            poked.map_err(|error| format!("the next write fails: {error}"))?;
            self.judge(scenario, &opened.workspace, told)
        })
    }

    /// Opens the workspace with no faults and says what is not as promised.
    pub(crate) fn verify(&self, scenario: &Scenario, told: Told) -> Result<(), String> {
        let opened =
            self.open(scenario.settings(), None).map_err(|error| format!("it does not open: {error}"))?;
        // Nothing was damaged, so nothing may be given up, neither now nor before.
        let aside = fs::read_dir(self.directory.join("journal")).into_iter().flatten().flatten();
        let aside: Vec<_> = aside.map(|entry| entry.file_name()).filter(is_set_aside).collect();
        if !opened.notices.is_empty() || !aside.is_empty() {
            return Err(format!("it opens with {:?}, aside lie {aside:?}", opened.notices));
        }
        self.judge(scenario, &opened.workspace, told)
    }

    /// Lets a user write to every file before the workspace is opened again, and says whether that was touched.
    pub(crate) fn verify_user_first(&self, scenario: &Scenario) -> Result<(), String> {
        let text = |subject: &Subject| format!("a user's own {}\n", subject.path);
        let reachable = |subject: &&Subject| {
            let path = PathBuf::from(self.path(subject.path));
            path.parent().is_some_and(Path::is_dir) && !path.is_dir()
        };
        let subjects: Vec<_> = scenario.subjects.iter().filter(reachable).collect();
        subjects.iter().for_each(|subject| self.user_writes(subject.path, &text(subject)));
        let opened =
            self.open(scenario.settings(), None).map_err(|error| format!("it does not open: {error}"))?;
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
        match temps(&self.directory.join("work")) {
            temps if temps.is_empty() => Ok(()),
            temps => Err(format!("these stay behind: {temps:?}")),
        }
    }

    fn judge(&self, scenario: &Scenario, workspace: &Workspace, told: Told) -> Result<(), String> {
        let state = self.look(scenario)?;
        self.agree(scenario, workspace, state)?;
        match (told, state) {
            (Told::Done, State::Old | State::Between) => {
                return Err("it was told to be done and is not".into());
            }
            (Told::Failed, State::New | State::Between) => {
                return Err("it was told to have failed and is done".into());
            }
            (Told::Done | Told::Failed | Told::Interrupted | Told::Nothing, _) => {}
        }
        if state != State::New {
            guarded("preparing again", || (scenario.prepare)(self, workspace))?;
            (scenario.act)(self, workspace).map_err(|error| format!("trying again: {error}"))?;
            self.expect_state(scenario, workspace, State::New, "after trying again")?;
        }
        let session = workspace.session("s");
        let selection = (scenario.selection)(self);
        let turn = session.origin(Some(9), None);
        let undo = || session.undo(&selection, &turn);
        let redo = || session.redo(&selection, &turn);
        let back = if scenario.back == Back::Undo { undo() } else { redo() };
        back.map_err(|error| format!("taking it back: {error}"))?;
        self.expect_bytes(scenario, State::Old, "after taking it back")?;
        let again = if scenario.back == Back::Undo { redo() } else { undo() };
        again.map_err(|error| format!("doing it again: {error}"))?;
        self.expect_bytes(scenario, State::New, "after doing it again")
    }

    fn expect_state(
        &self,
        scenario: &Scenario,
        workspace: &Workspace,
        state: State,
        when: &str,
    ) -> Result<(), String> {
        self.expect_bytes(scenario, state, when)?;
        self.agree(scenario, workspace, state).map_err(|why| format!("{when}: {why}"))
    }

    fn expect_bytes(&self, scenario: &Scenario, expected: State, when: &str) -> Result<(), String> {
        match self.look(scenario) {
            Ok(state) if state == expected => Ok(()),
            Ok(state) => Err(format!("{when} the files are {state:?}")),
            Err(why) => Err(format!("{when}: {why}")),
        }
    }

    /// Says whether all files are new, or all are old, or those that go first are new. Anything else is an error.
    fn look(&self, scenario: &Scenario) -> Result<State, String> {
        let mut states = Vec::new();
        for subject in scenario.subjects {
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
                let length = rustix::fs::getxattr(&path, ATTRIBUTE, &mut value[..]).unwrap_or(0);
                if &value[..length] != NOTE {
                    return Err(format!("{} has lost an attribute", subject.path));
                }
            }
            let link = scenario.link.and_then(|link| fs::metadata(self.path(link)).ok());
            if link.is_some_and(|link| link.ino() != metadata.ino()) {
                return Err(format!("{} is not the file that its other name is", subject.path));
            }
        }
        let temps = temps(&self.directory.join("work"));
        if !temps.is_empty() {
            return Err(format!("these stay behind: {temps:?}"));
        }
        match states.iter().filter(|new| **new).count() {
            0 => Ok(State::Old),
            count if count == states.len() => Ok(State::New),
            count if count == scenario.first && states[..count].iter().all(|new| *new) => Ok(State::Between),
            _ => Err(format!("some files are new and some are old: {states:?}")),
        }
    }

    /// Says whether the journal tells of the operation exactly if it was done.
    fn agree(&self, scenario: &Scenario, workspace: &Workspace, state: State) -> Result<(), String> {
        let all = changes(workspace, &Selection::default());
        for (at, subject) in scenario.subjects.iter().enumerate() {
            let is_new = state == State::New || state == State::Between && at < scenario.first;
            let path = self.path(subject.path);
            let mut later = all.iter().filter(|(id, changed, ..)| *id > self.before && *changed == path);
            if at < scenario.first {
                // It may have gone and come back, and gone again.
                let last = later.next_back();
                let text = if is_new { subject.new } else { subject.old };
                let is_told = last.map_or(!is_new, |(_, _, in_effect, uncertain, after)| {
                    let is_right = *after == text.map(|text| ContentHash::of(text.as_bytes()));
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
                if *after != subject.new.map(|new| ContentHash::of(new.as_bytes())) {
                    return Err(format!("the journal tells of a change {id} that nobody asked for"));
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
        Ok(())
    }
}

type Listed = (i64, String, bool, bool, Option<ContentHash>);

fn changes(workspace: &Workspace, selection: &Selection) -> Vec<Listed> {
    let listed = workspace.changes(selection).expect("the journal can be read");
    let short = |changed: bowline_workspace::workspace::Changed| {
        let after = changed.change.after.map(|state| state.hash);
        (changed.change.id.0, changed.change.path, changed.in_effect, changed.uncertain, after)
    };
    listed.into_iter().map(short).collect()
}

fn is_set_aside(name: &OsString) -> bool {
    name.to_string_lossy().contains("set-aside")
}

fn temps(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(temps(&path));
        } else if entry.file_name().to_string_lossy().starts_with(".bowline-") {
            found.push(path);
        }
    }
    found
}

/// Copies a directory with all that matters here: modes, attributes, and which names are one file.
fn copy(from: &Path, to: &Path) {
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
            // By its time of modification the engine knows a replaced file that nothing was written to.
            let times = fs::FileTimes::new().set_modified(metadata.modified().expect("this system has it"));
            let file = fs::File::open(&to).and_then(|file| file.set_times(times));
            file.expect("the lab is writable");
            let mut value = [0; 16];
            if let Ok(length) = rustix::fs::getxattr(&from, ATTRIBUTE, &mut value[..]) {
                rustix::fs::setxattr(&to, ATTRIBUTE, &value[..length], XattrFlags::empty())
                    .expect("as it was before");
            }
            files.insert(metadata.ino(), to);
        }
    }
}

/// Turns a panic into what went wrong.
fn guarded(what: &str, act: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| format!("{what} failed"))
}
