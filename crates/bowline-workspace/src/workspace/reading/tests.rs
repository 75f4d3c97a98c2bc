//! Reading at hand: what it gives is what a read gives, and what it leaves to a read.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use bowline_state::lines::Window;
use bowline_state::paths::Access;
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

use crate::roots::{RootSpec, Roots};
use crate::workspace::{Session, Settings, Workspace};

/// A project with a session, in the build directory: what is not written to a disk never leaves the memory.
struct Project {
    scratch: TempDir,
    session: Session,
}

impl Project {
    fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, &[])
    }

    fn with(files: &[(&str, &[u8])], own: &[&str]) -> Self {
        let build = std::env::current_exe().unwrap();
        let scratch = TempDir::new_in(build.parent().unwrap()).unwrap();
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

    /// Reads at hand; what comes of it is what a read gives.
    fn at_hand(&self, name: &str) -> Option<String> {
        let admitted = self.session.admit_at_hand(&self.path(name), Access::Read)?;
        let read = self.session.read_at_hand(&admitted)?;
        assert_eq!(read, self.session.read(&self.path(name), Window::default()).unwrap());
        Some(read.text.to_string())
    }

    /// Reads twice, so that the second finds a name that is known.
    fn twice(&self, name: &str) -> [Option<String>; 2] {
        [self.at_hand(name), self.at_hand(name)]
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_file_in_memory_is_read_and_what_it_holds_now_is_read_again() {
    let project = Project::new(&[("a", b"one\n")]);
    assert_eq!(project.twice("a"), [some("one\n"), some("one\n")]);
    fs::write(project.path("a"), "longer\n").unwrap();
    assert_eq!(project.twice("a"), [some("longer\n"), some("longer\n")]);
    // Another file of the same name.
    fs::write(project.path("b"), "two\n").unwrap();
    fs::rename(project.path("b"), project.path("a")).unwrap();
    assert_eq!(project.twice("a"), [some("two\n"), some("two\n")]);
    fs::remove_file(project.path("a")).unwrap();
    assert_eq!(project.at_hand("a"), None);
}

#[test]
fn a_file_that_is_not_in_memory_is_left_to_who_may_wait() {
    let project = Project::new(&[("a", b"one\n")]);
    let chill = || {
        let file = File::open(project.path("a")).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        rustix::fs::fstatfs(&file).unwrap().f_type
    };
    // Of this one nothing can be put out of the memory.
    const TMPFS: u64 = 0x0102_1994;
    let is_warm = chill() as u64 == TMPFS;
    let expected = || is_warm.then(|| "one\n".to_owned());
    assert_eq!(project.at_hand("a"), expected());
    // Somebody waits, and then it is at hand, until it is not.
    project.session.read(&project.path("a"), Window::default()).unwrap();
    assert_eq!(project.twice("a"), [some("one\n"), some("one\n")]);
    chill();
    assert_eq!(project.at_hand("a"), expected());
}

#[test]
fn while_somebody_is_at_work_on_documents_nothing_is_at_hand() {
    let project = Project::new(&[("a", b"one\n")]);
    assert_eq!(project.at_hand("a"), some("one\n"));
    let admitted = project.session.admit_at_hand(&project.path("a"), Access::Read).unwrap();
    let documents = project.session.workspace.inner.documents.lock().unwrap();
    assert_eq!(project.session.read_at_hand(&admitted), None);
    drop(documents);
    assert_eq!(project.session.read_at_hand(&admitted).unwrap().text.as_str(), "one\n");
}

#[test]
fn open_documents_large_files_and_what_is_no_text_are_left_to_who_may_wait() {
    let large = "x".repeat(200 << 10);
    let project = Project::new(&[("open", b"disk\n"), ("large", large.as_bytes()), ("binary", b"\0\x01")]);
    let workspace = &project.session.workspace;
    assert_eq!(project.twice("open"), [some("disk\n"), some("disk\n")]);
    let document = workspace.open_document(&project.path("open")).unwrap();
    workspace.change_document(&project.path("open"), "unsaved\n".to_owned(), document.revision).unwrap();
    assert_eq!(project.at_hand("open"), None);
    assert_eq!(project.at_hand("large"), None);
    assert_eq!(project.at_hand("binary"), None);
    fs::create_dir(project.path("dir")).unwrap();
    assert_eq!(project.at_hand("dir"), None);
}

#[test]
fn a_known_name_that_leads_elsewhere_by_now_is_looked_at_anew() {
    let project =
        Project::with(&[("a", b"one\n"), ("b", b"two\n"), (".env", b"s\n"), ("own", b"o\n")], &["own"]);
    fs::write(project.scratch.path().join("secret"), "secret\n").unwrap();
    fs::create_dir(project.path("dir")).unwrap();
    fs::write(project.path("dir/x"), "x\n").unwrap();
    assert_eq!(project.twice("a"), [some("one\n"), some("one\n")]);
    assert_eq!(project.twice("dir/x"), [some("x\n"), some("x\n")]);
    // By a link to another file, out of the root, and to what is Bowline's own.
    let swap = |target: &str| {
        fs::remove_file(project.path("a")).unwrap();
        symlink(target, project.path("a")).unwrap();
    };
    swap("b");
    assert_eq!(project.twice("a"), [some("two\n"), some("two\n")]);
    let path = project.path("a");
    assert_eq!(project.session.admit_at_hand(&path, Access::Read).unwrap().canonical(), project.path("b"));
    swap("../secret");
    assert_eq!(project.twice("a"), [None, None]);
    swap("own");
    assert_eq!(project.twice("a"), [None, None]);
    // By a link on the way.
    fs::rename(project.path("dir"), project.path("moved")).unwrap();
    symlink(project.scratch.path(), project.path("dir")).unwrap();
    assert_eq!(project.at_hand("dir/x"), None);
    assert_eq!(project.at_hand("dir/secret"), None);
    // What protects a name is known as well as the name is.
    for _ in 0..2 {
        let admitted = project.session.admit_at_hand(&project.path(".env"), Access::Read).unwrap();
        assert!(admitted.protection().is_some());
        assert!(project.session.read_at_hand(&admitted).unwrap().protection.is_some());
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
        assert_eq!(project.at_hand(name).as_deref(), Some(name.as_str()));
    }
}
