//! What is tried with faults: each a state of the disk, an operation, and the files before and after it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use bowline_state::lines::Window;
use bowline_state::undo::{Selection, Who};
use bowline_workspace::calls::Call;
use bowline_workspace::error::FilesError;
use bowline_workspace::journal::Retention;
use bowline_workspace::workspace::{Guard, Settings, Workspace};

use super::lab::Lab;

const OLD: &str = "one\ntwo\nthree\nfour\nfive\n";
const NEW: &str = "one\n2\nthree\nfour\nfive\nsix\nseven\n";
const SHORT: &str = "one\n2\n";
const OTHER: &str = "alpha\nbeta\n";
// Of a length that SQLite keeps on pages of their own, and that does not compress to nothing.
const ADDED: &str = include_str!("plan.rs");
// Of which the journal keeps what differs from that.
const EDITED: &str = concat!("// One line more.\n", include_str!("plan.rs"));

/// A file that the operation changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) path: &'static str,
    /// Before; none if it is not there.
    pub(crate) old: Option<&'static str>,
    /// After; none if it is not there.
    pub(crate) new: Option<&'static str>,
    /// The mode it has whenever it is there.
    pub(crate) mode: Option<u32>,
}

/// How the operation is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Back {
    Undo,
    Redo,
}

/// What the faults meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The operation.
    Operation,
    /// The first opening of the workspace: there is no journal yet.
    FirstOpening,
    /// The next opening of the workspace, after the operation was cut off at the first such call; a write half done.
    Recovery(Call),
}

/// Something to try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    pub(crate) subjects: &'static [Subject],
    /// So many of the files are changed first, all or none, and then the rest. None: all of them at once.
    pub(crate) first: usize,
    /// Another name of the first file.
    pub(crate) link: Option<&'static str>,
    /// Changes that are in the journal before, through the engine.
    pub(crate) set_up: fn(&Lab, &Workspace),
    /// What the process that does it has to do first: it has seen files, it has documents open.
    pub(crate) prepare: fn(&Lab, &Workspace),
    pub(crate) act: fn(&Lab, &Workspace) -> Result<(), FilesError>,
    pub(crate) back: Back,
    pub(crate) selection: fn(&Lab) -> Selection,
}

impl Scenario {
    pub(crate) fn settings(&self) -> Settings {
        let hard_links = if self.link.is_some() { Guard::Allow } else { Guard::Refuse };
        let mut settings = Settings { hard_links, ..Settings::default() };
        if self.name == "prune" {
            settings.retention = Retention { max_changes: 2, ..Retention::default() };
        }
        settings
    }
}

fn nothing(_: &Lab, _: &Workspace) {}

fn second_turn(_: &Lab) -> Selection {
    Selection { who: Who::Turn { session: "s".into(), turn: 2 }, ..Selection::default() }
}

fn first_turn(_: &Lab) -> Selection {
    Selection { who: Who::Turn { session: "s".into(), turn: 1 }, ..Selection::default() }
}

fn last_of_a(lab: &Lab) -> Selection {
    Selection { path: Some(lab.path("a.txt")), last: Some(1), ..Selection::default() }
}

fn write(lab: &Lab, workspace: &Workspace, turn: u64, path: &str, text: &str) -> Result<(), FilesError> {
    let session = workspace.session("s");
    session.write(&lab.path(path), text, &session.origin(Some(turn), Some("call"))).map(|_| ())
}

fn see(lab: &Lab, workspace: &Workspace, path: &str) {
    workspace.session("s").read(&lab.path(path), Window::default()).expect("nothing fails yet");
}

/// A turn that changes a file, creates one and deletes one.
fn turn_of_three(lab: &Lab, workspace: &Workspace) {
    let session = workspace.session("s");
    write(lab, workspace, 1, "a.txt", NEW).expect("nothing fails yet");
    write(lab, workspace, 1, "b.txt", ADDED).expect("nothing fails yet");
    session.delete(&lab.path("c.txt"), &session.origin(Some(1), None)).expect("nothing fails yet");
}

fn undo_turn(lab: &Lab, workspace: &Workspace) -> Result<(), FilesError> {
    let session = workspace.session("s");
    session.undo(&first_turn(lab), &session.origin(Some(2), None)).map(|_| ())
}

const REPLACE: Scenario = Scenario {
    name: "replace",
    target: Target::Operation,
    subjects: &[Subject { path: "a.txt", old: Some(OLD), new: Some(NEW), mode: Some(0o640) }],
    first: 0,
    link: None,
    set_up: nothing,
    prepare: |lab, workspace| see(lab, workspace, "a.txt"),
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", NEW),
    back: Back::Undo,
    selection: second_turn,
};

const EDIT: Scenario = Scenario {
    name: "edit a long text",
    subjects: &[Subject { path: "a.txt", old: Some(ADDED), new: Some(EDITED), mode: Some(0o640) }],
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", EDITED),
    ..REPLACE
};

const CREATE: Scenario = Scenario {
    name: "create in new directories",
    subjects: &[Subject { path: "new/deep/b.txt", old: None, new: Some(ADDED), mode: None }],
    prepare: nothing,
    act: |lab, workspace| write(lab, workspace, 2, "new/deep/b.txt", ADDED),
    ..REPLACE
};

const MERGE: Scenario = Scenario {
    name: "merge",
    subjects: &[Subject {
        path: "a.txt",
        old: Some("one\ntwo\nthree\nfour\nFIVE\n"),
        new: Some("ONE\ntwo\nthree\nfour\nFIVE\n"),
        mode: Some(0o644),
    }],
    prepare: |lab, workspace| {
        lab.user_writes("a.txt", OLD);
        see(lab, workspace, "a.txt");
        lab.user_writes("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    },
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", "ONE\ntwo\nthree\nfour\nfive\n"),
    ..REPLACE
};

const GROW: Scenario = Scenario { name: "grow in place", link: Some("link.txt"), ..REPLACE };

const SHRINK: Scenario = Scenario {
    name: "shrink in place",
    subjects: &[Subject { path: "a.txt", old: Some(OLD), new: Some(SHORT), mode: Some(0o640) }],
    link: Some("link.txt"),
    act: |lab, workspace| write(lab, workspace, 2, "a.txt", SHORT),
    ..REPLACE
};

const DELETE: Scenario = Scenario {
    name: "delete",
    subjects: &[Subject { path: "a.txt", old: Some(OLD), new: None, mode: Some(0o640) }],
    act: |lab, workspace| {
        let session = workspace.session("s");
        session.delete(&lab.path("a.txt"), &session.origin(Some(2), None)).map(|_| ())
    },
    ..REPLACE
};

const UNDO: Scenario = Scenario {
    name: "undo a turn",
    subjects: &[
        Subject { path: "a.txt", old: Some(NEW), new: Some(OLD), mode: Some(0o640) },
        Subject { path: "b.txt", old: Some(ADDED), new: None, mode: None },
        Subject { path: "c.txt", old: None, new: Some(OTHER), mode: Some(0o755) },
    ],
    set_up: |lab, workspace| {
        lab.user_writes("a.txt", OLD);
        lab.user_removes("b.txt");
        lab.user_writes("c.txt", OTHER);
        lab.user_sets_mode("c.txt", 0o755);
        turn_of_three(lab, workspace);
    },
    prepare: nothing,
    act: undo_turn,
    back: Back::Redo,
    selection: first_turn,
    ..REPLACE
};

const REDO: Scenario = Scenario {
    name: "redo a turn",
    subjects: &[
        Subject { path: "a.txt", old: Some(OLD), new: Some(NEW), mode: Some(0o640) },
        Subject { path: "b.txt", old: None, new: Some(ADDED), mode: None },
        Subject { path: "c.txt", old: Some(OTHER), new: None, mode: Some(0o755) },
    ],
    set_up: |lab, workspace| {
        turn_of_three(lab, workspace);
        undo_turn(lab, workspace).expect("nothing fails yet");
    },
    act: |lab, workspace| {
        let session = workspace.session("s");
        session.redo(&first_turn(lab), &session.origin(Some(3), None)).map(|_| ())
    },
    back: Back::Undo,
    ..UNDO
};

/// What is in the way goes first, as a group of its own, and then the directory.
const FILE_BACK: Scenario = Scenario {
    name: "undo where a file became a directory",
    subjects: &[
        Subject { path: "x/deep/b.txt", old: Some(OTHER), new: None, mode: None },
        Subject { path: "x/c.txt", old: Some(ADDED), new: None, mode: None },
        Subject { path: "x", old: None, new: Some(OLD), mode: None },
        Subject { path: "a.txt", old: Some(NEW), new: Some(OLD), mode: Some(0o640) },
    ],
    first: 2,
    set_up: |lab, workspace| {
        lab.user_removes_all("x");
        lab.user_writes("x", OLD);
        lab.user_writes("a.txt", OLD);
        let session = workspace.session("s");
        write(lab, workspace, 1, "a.txt", NEW).expect("nothing fails yet");
        session.delete(&lab.path("x"), &session.origin(Some(1), None)).expect("nothing fails yet");
        write(lab, workspace, 1, "x/deep/b.txt", OTHER).expect("nothing fails yet");
        write(lab, workspace, 1, "x/c.txt", ADDED).expect("nothing fails yet");
    },
    ..UNDO
};

const DIRECTORY_BACK: Scenario = Scenario {
    name: "undo where a directory became a file",
    subjects: &[
        Subject { path: "x", old: Some(NEW), new: None, mode: None },
        Subject { path: "x/deep/b.txt", old: None, new: Some(OTHER), mode: None },
        Subject { path: "x/c.txt", old: None, new: Some(ADDED), mode: None },
    ],
    first: 1,
    set_up: |lab, workspace| {
        lab.user_removes_all("x");
        lab.user_writes("x/deep/b.txt", OTHER);
        lab.user_writes("x/c.txt", ADDED);
        let session = workspace.session("s");
        for name in ["x/deep/b.txt", "x/c.txt"] {
            session.delete(&lab.path(name), &session.origin(Some(1), None)).expect("nothing fails yet");
        }
        lab.user_removes_all("x");
        write(lab, workspace, 1, "x", NEW).expect("nothing fails yet");
    },
    ..UNDO
};

const SAVE: Scenario = Scenario {
    name: "save a document",
    prepare: |lab, workspace| {
        workspace.open_document(&lab.path("a.txt")).expect("nothing fails yet");
        let shown = workspace.document(&lab.path("a.txt")).expect("it is there").expect("it is open");
        workspace.change_document(&lab.path("a.txt"), NEW.to_owned(), shown.revision).expect("it is open");
    },
    act: |lab, workspace| workspace.save_document(&lab.path("a.txt")).map(|_| ()),
    selection: last_of_a,
    ..REPLACE
};

/// Retention drops old changes when the workspace is opened; the newest can be undone all the same.
const PRUNE: Scenario = Scenario {
    name: "prune",
    target: Target::Recovery(Call::CreateTemp),
    set_up: |lab, workspace| {
        for round in 0..6 {
            let text = format!("{round}\n{ADDED}");
            write(lab, workspace, 1, "other.txt", &text).expect("nothing fails yet");
        }
    },
    ..REPLACE
};

/// Returns everything that is tried.
pub(crate) fn all() -> Vec<Scenario> {
    let recovery =
        |name, scenario: Scenario, call| Scenario { name, target: Target::Recovery(call), ..scenario };
    vec![
        Scenario { name: "first opening", target: Target::FirstOpening, ..REPLACE },
        REPLACE,
        EDIT,
        CREATE,
        MERGE,
        GROW,
        SHRINK,
        DELETE,
        UNDO,
        REDO,
        FILE_BACK,
        DIRECTORY_BACK,
        SAVE,
        PRUNE,
        recovery("recover a half-written temporary file", REPLACE, Call::Write),
        recovery("recover before the exchange", REPLACE, Call::Exchange),
        recovery("recover after the exchange", REPLACE, Call::SyncDirectory),
        recovery("recover an edit of a long text", EDIT, Call::SyncDirectory),
        recovery("recover a creation", CREATE, Call::Rename),
        recovery("recover a half-written file", GROW, Call::Write),
        recovery("recover an uncut file", SHRINK, Call::Truncate),
        recovery("recover a deletion", DELETE, Call::SyncDirectory),
        recovery("recover half an undo", UNDO, Call::Exchange),
        recovery("recover half a redo", REDO, Call::Rename),
        recovery("recover half the way to a file", FILE_BACK, Call::Rename),
        recovery("recover half the way to a directory", DIRECTORY_BACK, Call::Rename),
    ]
}

/// Gives the files of a scenario their first state.
pub(crate) fn lay_out(lab: &Lab, scenario: &Scenario) {
    for subject in scenario.subjects {
        if let Some(old) = subject.old {
            lab.user_writes(subject.path, old);
        }
        if let (Some(_), Some(mode)) = (subject.old, subject.mode) {
            lab.user_sets_mode(subject.path, mode);
        }
    }
    if let (Some(link), Some(first)) = (scenario.link, scenario.subjects.first()) {
        fs::hard_link(lab.path(first.path), lab.path(link)).expect("the lab is writable");
    }
}

impl Lab {
    /// Writes a file as a user's editor does that knows nothing of Bowline.
    pub(crate) fn user_writes(&self, path: &str, text: &str) {
        let path = PathBuf::from(self.path(path));
        fs::create_dir_all(path.parent().expect("it is in the lab")).expect("the lab is writable");
        fs::write(path, text).expect("the lab is writable");
    }

    /// Removes a file, or a directory with all that is in it.
    fn user_removes_all(&self, path: &str) {
        let path = self.path(path);
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).expect("the lab is writable");
    }

    fn user_removes(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("the lab is writable");
    }

    fn user_sets_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("the lab is writable");
    }
}
