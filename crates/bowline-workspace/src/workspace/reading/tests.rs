//! Reading at hand: what it gives is what a read gives, and what it leaves to a read.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use bowline_state::lines::Window;
use bowline_state::paths::Access;
use tempfile::TempDir;

use crate::roots::{Admitted, RootSpec, Roots};
use crate::workspace::{ReadText, Session, Settings, Workspace};

/// How long something that is read again and again may not be at hand.
const HANG: Duration = Duration::from_secs(120);

/// A project with a session.
struct Project {
    scratch: TempDir,
    session: Session,
}

impl Project {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, &[])
    }

    fn with(files: &[(&str, &[u8])], own: &[&str]) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().join("project");
        fs::create_dir(&root).unwrap();
        for (name, bytes) in files {
            fs::write(root.join(name), bytes).unwrap();
        }
        let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
        let roots = roots.keeping_out(own.iter().map(|name| root.join(name)));
        let state = scratch.path().join("state");
        let workspace = Workspace::open(roots, &state, Settings::default()).unwrap().workspace;
        Self { session: workspace.session("s1"), scratch }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path().canonicalize().unwrap().join("project").join(name).to_str().unwrap().to_owned()
    }

    /// Asks for what is at hand until it is. The system may say at any time that it is not: a name or a byte has left the
    /// memory, or somebody anywhere renames a directory. Who waits in between brings it back.
    fn soon<T>(&self, name: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = ask() {
                return found;
            }
            assert!(begun.elapsed() < HANG, "{name} is never at hand");
            self.session.read(&self.path(name), Window::default()).unwrap();
        }
    }

    /// Admits at hand, sooner or later.
    fn admitted(&self, name: &str) -> Admitted {
        self.soon(name, || self.session.admit_at_hand(&self.path(name), Access::Read))
    }

    fn try_at_hand(&self, name: &str) -> Option<ReadText> {
        self.session.read_at_hand(&self.session.admit_at_hand(&self.path(name), Access::Read)?)
    }

    /// Reads at hand, sooner or later; what comes of it is what a read gives.
    fn at_hand(&self, name: &str) -> String {
        let read = self.soon(name, || self.try_at_hand(name));
        assert_eq!(read, self.session.read(&self.path(name), Window::default()).unwrap());
        read.text.to_string()
    }

    /// Reads twice, so that the second finds a name that is known.
    fn twice(&self, name: &str) -> [String; 2] {
        [self.at_hand(name), self.at_hand(name)]
    }

    /// Says whether it is left to who may wait, however often it is asked for.
    fn is_left(&self, name: &str) -> bool {
        (0..4).all(|_| self.try_at_hand(name).is_none())
    }
}

#[test]
fn a_file_in_memory_is_read_and_what_it_holds_now_is_read_again() {
    let project = Project::new(&[("a", b"one\n")]);
    assert_eq!(project.twice("a"), ["one\n", "one\n"]);
    fs::write(project.path("a"), "longer\n").unwrap();
    assert_eq!(project.twice("a"), ["longer\n", "longer\n"]);
    // Another file of the same name.
    fs::write(project.path("b"), "two\n").unwrap();
    fs::rename(project.path("b"), project.path("a")).unwrap();
    assert_eq!(project.twice("a"), ["two\n", "two\n"]);
    fs::remove_file(project.path("a")).unwrap();
    assert!(project.is_left("a"));
}

#[test]
fn while_somebody_is_at_work_on_documents_nothing_is_at_hand() {
    let project = Project::new(&[("a", b"one\n")]);
    assert_eq!(project.at_hand("a"), "one\n");
    let admitted = project.admitted("a");
    let documents = project.session.workspace.inner.documents.lock().unwrap();
    assert_eq!(project.session.read_at_hand(&admitted), None);
    drop(documents);
    let read = project.soon("a", || project.session.read_at_hand(&admitted));
    assert_eq!(read.text.as_str(), "one\n");
}

#[test]
fn open_documents_large_files_and_what_is_no_text_are_left_to_who_may_wait() {
    let large = "x".repeat(200 << 10);
    let project = Project::new(&[("open", b"disk\n"), ("large", large.as_bytes()), ("binary", b"\0\x01")]);
    let workspace = &project.session.workspace;
    assert_eq!(project.twice("open"), ["disk\n", "disk\n"]);
    let document = workspace.open_document(&project.path("open")).unwrap();
    workspace.change_document(&project.path("open"), "unsaved\n".to_owned(), document.revision).unwrap();
    assert!(project.is_left("open"));
    assert!(project.is_left("large"));
    assert!(project.is_left("binary"));
    fs::create_dir(project.path("dir")).unwrap();
    assert!(project.is_left("dir"));
}

#[test]
fn a_known_name_that_leads_elsewhere_by_now_is_looked_at_anew() {
    let project =
        Project::with(&[("a", b"one\n"), ("b", b"two\n"), (".env", b"s\n"), ("own", b"o\n")], &["own"]);
    fs::write(project.scratch.path().join("secret"), "secret\n").unwrap();
    fs::create_dir(project.path("dir")).unwrap();
    fs::write(project.path("dir/x"), "x\n").unwrap();
    assert_eq!(project.twice("a"), ["one\n", "one\n"]);
    assert_eq!(project.twice("dir/x"), ["x\n", "x\n"]);
    // By a link to another file, out of the root, and to what is Bowline's own.
    let swap = |target: &str| {
        fs::remove_file(project.path("a")).unwrap();
        symlink(target, project.path("a")).unwrap();
    };
    swap("b");
    assert_eq!(project.twice("a"), ["two\n", "two\n"]);
    assert_eq!(project.admitted("a").canonical(), project.path("b"));
    swap("../secret");
    assert!(project.is_left("a"));
    swap("own");
    assert!(project.is_left("a"));
    // By a link on the way.
    fs::rename(project.path("dir"), project.path("moved")).unwrap();
    symlink(project.scratch.path(), project.path("dir")).unwrap();
    assert!(project.is_left("dir/x"));
    assert!(project.is_left("dir/secret"));
    // What protects a name is known as well as the name is.
    for _ in 0..2 {
        let admitted = project.admitted(".env");
        assert!(admitted.protection().is_some());
        let read = project.soon(".env", || project.session.read_at_hand(&admitted));
        assert!(read.protection.is_some());
    }
}

#[test]
fn more_names_than_are_kept_are_all_read() {
    let project = Project::new(&[]);
    let names: Vec<String> = (0..600).map(|number| format!("file-{number}")).collect();
    for name in &names {
        fs::write(project.path(name), name).unwrap();
    }
    for name in names.iter().chain(names.iter().rev()) {
        assert_eq!(project.at_hand(name), *name);
    }
}
