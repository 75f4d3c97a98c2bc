//! Properties of the real engine in a real directory, whatever is in the files and whoever does what in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use bowline_state::changes::ContentHash;
use bowline_state::lines::{self, Window};
use bowline_state::text::{self, Encoding, Format};
use bowline_state::undo::{Selection, Who};
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Session, Settings, Workspace};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tempfile::TempDir;

/// A workspace with one file.
struct OneFile {
    file: PathBuf,
    path: String,
    workspace: Workspace,
    _directory: TempDir,
}

impl OneFile {
    fn holding(bytes: &[u8]) -> Self {
        let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        let file = base.join("ws/a.txt");
        fs::write(&file, bytes).unwrap();
        let roots = Roots::open(&RootSpec::writable(base.join("ws").to_str().unwrap()), &[]).unwrap();
        let opened = Workspace::open(roots, &base.join("state"), Settings::default()).unwrap();
        let path = file.to_str().unwrap().to_owned();
        Self { file, path, workspace: opened.workspace, _directory: directory }
    }

    /// Replaces what a document shows, as an editor does that knows what it shows.
    fn type_over(&self, path: &str, text: String) {
        let revision = self.workspace.document(path).unwrap().unwrap().revision;
        self.workspace.change_document(path, text, revision).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.file).unwrap()
    }

    fn session(&self, id: &str) -> Session {
        self.workspace.session(id)
    }
}

fn any_line() -> impl Strategy<Value = String> {
    let content =
        prop_oneof!["[a-c]{0,3}", "[äöü€☃]{0,4}", Just("a\rb".to_owned()), Just("\u{2028}".to_owned())];
    let ending = prop_oneof![4 => Just("\n"), 3 => Just("\r\n"), 1 => Just("\r\r\n")];
    (content, ending).prop_map(|(content, ending)| content + ending)
}

fn any_text() -> impl Strategy<Value = String> {
    (proptest::collection::vec(any_line(), 0..12), "[a-c]{0,2}")
        .prop_map(|(lines, last)| lines.concat() + &last)
}

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::default()),
        Just(Format { encoding: Encoding::Utf8, bom: true }),
        Just(Format { encoding: Encoding::Utf16Le, bom: true }),
        Just(Format { encoding: Encoding::Utf16Be, bom: true }),
        Just(Format { encoding: Encoding::Utf16Le, bom: false }),
        Just(Format { encoding: Encoding::named("windows-1252").unwrap(), bom: false }),
        Just(Format { encoding: Encoding::named("shift_jis").unwrap(), bom: false }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_slices_of_a_file_are_the_file(text in any_text(), limit in 1..5_u32, open: bool, dirty: bool) {
        let one = OneFile::holding(text.as_bytes());
        let mut expected = text;
        if open {
            one.workspace.open_document(&one.path).unwrap();
            if dirty {
                expected.insert_str(0, "unsaved\r\n");
                one.workspace.change_document(&one.path, expected.clone(), 0).unwrap();
            }
        }
        let session = one.session("s1");
        let mut together = String::new();
        let mut line = 1;
        loop {
            match session.read(&one.path, Window { line: Some(line), limit: Some(limit) }) {
                Ok(part) => together.push_str(&part.text),
                Err(FilesError::PastEnd { why, .. }) => {
                    prop_assert!(u64::from(line) > why.lines);
                    break;
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            line += limit;
        }
        prop_assert_eq!(&together, &expected);
        // Who has seen every slice has seen the file.
        let written = session.write(&one.path, "x\n", &session.origin(None, None)).unwrap();
        prop_assert_eq!(written.verdict, Some(bowline_state::ledger::Verdict::Replaced));
    }

    #[test]
    fn what_was_read_can_be_written_and_not_a_byte_changes(text in any_text(), format in any_format()) {
        let Ok(bytes) = text::encode(&text, format) else { return Ok(()) };
        let one = OneFile::holding(&bytes);
        let session = one.session("s1");
        let origin = session.origin(None, None);
        match session.read(&one.path, Window::default()) {
            Ok(read) => {
                for sent in [read.text.to_string(), read.text.replace("\r\n", "\n")] {
                    match session.write(&one.path, &sent, &origin) {
                        Ok(written) => prop_assert_eq!(written.verdict, None),
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                    prop_assert_eq!(one.bytes(), bytes.clone());
                }
            }
            // What is not read as text is not written as text.
            Err(FilesError::NotText { .. }) => {
                prop_assert!(session.write(&one.path, "x\n", &origin).is_err());
                prop_assert_eq!(one.bytes(), bytes);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn a_change_and_its_undo_leave_every_byte(text in any_text(), format in any_format(), line in any_line()) {
        // Of the other encodings some texts cannot be told, and some lines cannot be written.
        let is_certain = format.encoding == Encoding::Utf8 || format.bom;
        let Ok(bytes) = text::encode(&text, format) else {
            prop_assert!(!is_certain);
            return Ok(());
        };
        let one = OneFile::holding(&bytes);
        let session = one.session("s1");
        let origin = session.origin(None, None);
        let Ok(read) = session.read(&one.path, Window::default()) else {
            prop_assert!(!is_certain);
            return Ok(());
        };
        let written = session.write(&one.path, &(line + &read.text), &origin);
        let is_changed = written.is_ok_and(|written| written.change.is_some());
        prop_assert!(is_changed || !is_certain);
        if is_changed {
            let changed = one.bytes();
            prop_assert_ne!(&changed, &bytes);
            session.undo(&Selection::default(), &origin).unwrap();
            prop_assert_eq!(one.bytes(), bytes.clone());
            session.redo(&Selection::default(), &origin).unwrap();
            prop_assert_eq!(one.bytes(), changed);
        } else {
            prop_assert_eq!(one.bytes(), bytes);
        }
    }
}

#[test]
fn windows_of_a_large_file_are_what_slicing_it_gives() {
    for mark in ["", "\u{feff}"] {
        let text: String =
            (0..120_000_u32).map(|line| format!("{line} {}\n", "ä".repeat(line as usize % 37))).collect();
        let one = OneFile::holding(format!("{mark}{text}").as_bytes());
        let session = one.session("s1");
        // Twice: the second time the way is known.
        for line in [1, 2, 119_999, 60_000, 59_999, 1_000, 120_000, 1, 60_000, 120_000] {
            let window = Window { line: Some(line), limit: Some(200) };
            let read = session.read(&one.path, window).unwrap();
            assert_eq!(*read.text, lines::slice(&text, window).unwrap());
        }
        let past = session.read(&one.path, Window { line: Some(120_001), limit: Some(1) });
        assert!(matches!(past, Err(FilesError::PastEnd { why, .. }) if why.lines == 120_000));
    }
}

/// What somebody does next. Where in the text, and which line of those that are there, is up to the number.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Read(u8),
    Forget(u8),
    Insert(u8, u16),
    Remove(u8, u16),
    Undo(u8),
    Redo(u8),
    UndoLast(u8),
    DiskInsert(u16),
    DiskRemove(u16),
    DiskRename(u16),
    Open,
    Type(u16),
    TypeRemove(u16),
    Save,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let who = || 0..2_u8;
    prop_oneof![
        2 => who().prop_map(Deed::Read),
        1 => who().prop_map(Deed::Forget),
        4 => (who(), any::<u16>()).prop_map(|(who, at)| Deed::Insert(who, at)),
        2 => (who(), any::<u16>()).prop_map(|(who, at)| Deed::Remove(who, at)),
        1 => who().prop_map(Deed::Undo),
        1 => who().prop_map(Deed::Redo),
        1 => who().prop_map(Deed::UndoLast),
        2 => any::<u16>().prop_map(Deed::DiskInsert),
        1 => any::<u16>().prop_map(Deed::DiskRemove),
        1 => any::<u16>().prop_map(Deed::DiskRename),
        1 => Just(Deed::Open),
        3 => any::<u16>().prop_map(Deed::Type),
        1 => any::<u16>().prop_map(Deed::TypeRemove),
        1 => Just(Deed::Save),
    ]
}

/// Two sessions and a user at one file, and what must be true of it.
struct Crowd {
    one: OneFile,
    // What each session believes the file to hold, and whether the engine knows that it has seen it.
    views: [Option<String>; 2],
    known: [bool; 2],
    count: usize,
    // Every line that was taken for written, and who wrote it: a session, or the user.
    markers: BTreeMap<String, Option<u8>>,
    // Lines that somebody removed, or an undo took back: they may be there or not.
    loose: BTreeSet<String>,
    // Whether the disk was changed beside the engine since its last change.
    beside: bool,
}

impl Crowd {
    fn new() -> Self {
        let text: String = (0..12).map(|line| format!("line {line}\n")).collect();
        Self {
            one: OneFile::holding(text.as_bytes()),
            views: [None, None],
            known: [false, false],
            count: 0,
            markers: BTreeMap::new(),
            loose: BTreeSet::new(),
            beside: false,
        }
    }

    fn insert(&mut self, text: &str, at: u16) -> (String, String) {
        self.count += 1;
        let marker = format!("marker {}", self.count);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(usize::from(at) % (lines.len() + 1), &marker);
        (lines.join("\n") + "\n", marker)
    }

    /// Returns the text without one of its lines, which is loose from now on if the deed is done.
    fn remove(text: &str, at: u16) -> Option<(String, String)> {
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return None;
        }
        let removed = lines.remove(usize::from(at) % lines.len()).to_owned();
        Some((lines.iter().map(|line| format!("{line}\n")).collect(), removed))
    }

    fn shown(&self) -> Option<String> {
        self.one.workspace.document(&self.one.path).unwrap().map(|document| document.text.to_string())
    }

    fn disk(&self) -> String {
        String::from_utf8(self.one.bytes()).unwrap()
    }

    fn id(who: u8) -> String {
        format!("s{who}")
    }

    fn write(&mut self, who: u8, text: String) -> bool {
        let session = self.one.session(&Self::id(who));
        let disk = self.disk();
        match session.write(&self.one.path, &text, &session.origin(None, None)) {
            Ok(written) => {
                if !std::mem::replace(&mut self.known[usize::from(who)], true) {
                    // An unseen write replaces what is on the disk, but never what the user has not saved.
                    let replaced = disk.lines().filter(|line| !text.lines().any(|sent| sent == *line));
                    self.loose.extend(replaced.map(str::to_owned));
                }
                self.beside &= written.change.is_none();
                self.views[usize::from(who)] = Some(text);
                true
            }
            Err(FilesError::Rejected { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn take_back(&mut self, who: u8, deed: Deed) {
        let session = self.one.session(&Self::id(who));
        let origin = session.origin(None, None);
        let last = matches!(deed, Deed::UndoLast(_)).then_some(1);
        let selection = Selection { who: Who::Session(Self::id(who)), last, ..Selection::default() };
        let done = match deed {
            Deed::Redo(_) => session.redo(&selection, &origin),
            _ => session.undo(&selection, &origin),
        };
        match done {
            Ok(reversed) => {
                self.beside &= reversed.files.iter().all(|reversed| !reversed.changed);
                let own = self.markers.iter().filter(|(_, author)| **author == Some(who));
                self.loose.extend(own.map(|(marker, _)| marker.clone()));
            }
            Err(FilesError::CannotReverse(_) | FilesError::NothingTo(_) | FilesError::Rejected { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn put_on_disk(&mut self, text: &str, rename: bool) {
        if rename {
            let temp = self.one.file.with_extension("editing");
            fs::write(&temp, text).unwrap();
            fs::rename(temp, &self.one.file).unwrap();
        } else {
            fs::write(&self.one.file, text).unwrap();
        }
        self.beside = true;
    }

    fn act(&mut self, deed: Deed) {
        let path = self.one.path.clone();
        match deed {
            Deed::Read(who) => {
                let read = self.one.session(&Self::id(who)).read(&path, Window::default()).unwrap();
                self.views[usize::from(who)] = Some(read.text.to_string());
                self.known[usize::from(who)] = true;
            }
            Deed::Forget(who) => {
                self.one.session(&Self::id(who)).end();
                self.known[usize::from(who)] = false;
            }
            Deed::Insert(who, at) => {
                let Some(view) = self.views[usize::from(who)].clone() else {
                    return self.act(Deed::Read(who));
                };
                let (text, marker) = self.insert(&view, at);
                if self.write(who, text) {
                    self.markers.insert(marker, Some(who));
                }
            }
            Deed::Remove(who, at) => {
                let Some(view) = self.views[usize::from(who)].clone() else {
                    return self.act(Deed::Read(who));
                };
                let Some((text, removed)) = Self::remove(&view, at) else { return };
                if self.write(who, text) {
                    self.loose.insert(removed);
                }
            }
            Deed::Undo(who) | Deed::Redo(who) | Deed::UndoLast(who) => self.take_back(who, deed),
            Deed::DiskInsert(at) | Deed::DiskRename(at) => {
                let (text, marker) = self.insert(&self.disk(), at);
                self.put_on_disk(&text, matches!(deed, Deed::DiskRename(_)));
                self.markers.insert(marker, None);
            }
            Deed::DiskRemove(at) => {
                if let Some((text, removed)) = Self::remove(&self.disk(), at) {
                    self.put_on_disk(&text, false);
                    self.loose.insert(removed);
                }
            }
            Deed::Open => {
                if self.shown().is_none() {
                    self.one.workspace.open_document(&path).unwrap();
                }
            }
            Deed::Type(at) => {
                let Some(shown) = self.shown() else { return };
                let (text, marker) = self.insert(&shown, at);
                self.one.type_over(&path, text);
                self.markers.insert(marker, None);
            }
            Deed::TypeRemove(at) => {
                let Some((text, removed)) = self.shown().and_then(|shown| Self::remove(&shown, at)) else {
                    return;
                };
                self.one.type_over(&path, text);
                self.loose.insert(removed);
            }
            Deed::Save => match self.shown().map(|_| self.one.workspace.save_document(&path)) {
                None | Some(Err(FilesError::Rejected { .. })) => {}
                Some(saved) => {
                    saved.unwrap();
                }
            },
        }
    }

    /// What is true after every deed.
    fn check(&self) -> TestCaseResult {
        let disk = self.disk();
        let shown = self.shown().unwrap_or_default();
        let there: BTreeSet<&str> = disk.lines().chain(shown.lines()).collect();
        for marker in self.markers.keys().filter(|marker| !self.loose.contains(*marker)) {
            prop_assert!(there.contains(&**marker), "{} is lost", marker);
        }
        let folder: Vec<_> = fs::read_dir(self.one.file.parent().unwrap()).unwrap().collect();
        prop_assert_eq!(folder.len(), 1, "{:?}", folder);
        let changes = self.one.workspace.changes(&Selection::default()).unwrap();
        if let Some(last) = changes.last().filter(|_| !self.beside) {
            let after = last.change.after.map(|after| after.hash);
            prop_assert_eq!(after, Some(ContentHash::of(&self.one.bytes())), "the journal knows another end");
        }
        Ok(())
    }

    /// What is true in the end: whatever an agent was told is written can be found in the journal.
    fn check_journal(&self) -> TestCaseResult {
        let mut patches = String::new();
        for changed in self.one.workspace.changes(&Selection::default()).unwrap() {
            patches.push_str(&self.one.workspace.diff_change(changed.change.id).unwrap());
        }
        let added: BTreeSet<&str> = patches.lines().filter_map(|line| line.strip_prefix('+')).collect();
        for (marker, _) in self.markers.iter().filter(|(_, author)| author.is_some()) {
            prop_assert!(added.contains(&**marker), "{} is not in the journal", marker);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_sessions_and_user_do_no_line_vanishes_that_nobody_removed(
        deeds in proptest::collection::vec(any_deed(), 1..30)
    ) {
        let mut crowd = Crowd::new();
        for deed in deeds {
            crowd.act(deed);
            crowd.check()?;
        }
        crowd.check_journal()?;
    }
}
