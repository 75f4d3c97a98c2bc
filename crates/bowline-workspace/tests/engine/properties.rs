//! Properties of the real engine in a real directory, for any file content and any interleaving of actors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::hash::ContentHash;
use bowline_text::lines::{self, LineWindow};
use bowline_text::text::{self, Encoding, TextFormat};
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions, WorkspaceSession};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tempfile::TempDir;

/// A workspace with one file.
struct SingleFileWorkspace {
    file: PathBuf,
    path: String,
    workspace: Workspace,
    _directory: TempDir,
}

impl SingleFileWorkspace {
    fn with_bytes(bytes: &[u8]) -> Self {
        let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        let file = base.join("ws/a.txt");
        fs::write(&file, bytes).unwrap();
        let roots = Roots::open(&RootSpec::writable(base.join("ws").to_str().unwrap()), &[]).unwrap();
        let opened = Workspace::open(roots, &base.join("state"), WorkspaceOptions::default()).unwrap();
        let path = file.to_str().unwrap().to_owned();
        Self { file, path, workspace: opened.workspace, _directory: directory }
    }

    /// Replaces the text of a document, as an editor that knows the current text does.
    fn type_over(&self, path: &str, text: String) {
        let revision = self.workspace.document(path).unwrap().unwrap().revision;
        self.workspace.change_document(path, text, revision).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.file).unwrap()
    }

    fn session(&self, id: &str) -> WorkspaceSession {
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

fn any_format() -> impl Strategy<Value = TextFormat> {
    prop_oneof![
        Just(TextFormat::default()),
        Just(TextFormat { encoding: Encoding::Utf8, has_bom: true }),
        Just(TextFormat { encoding: Encoding::Utf16Le, has_bom: true }),
        Just(TextFormat { encoding: Encoding::Utf16Be, has_bom: true }),
        Just(TextFormat { encoding: Encoding::Utf16Le, has_bom: false }),
        Just(TextFormat { encoding: Encoding::from_name("windows-1252").unwrap(), has_bom: false }),
        Just(TextFormat { encoding: Encoding::from_name("shift_jis").unwrap(), has_bom: false }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_slices_of_a_file_are_the_file(text in any_text(), limit in 1..5_u32, open: bool, dirty: bool) {
        let one = SingleFileWorkspace::with_bytes(text.as_bytes());
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
            match session.read(&one.path, LineWindow { line: Some(line), limit: Some(limit) }) {
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
        // A session that has seen every slice has seen the file.
        let written = session.write(&one.path, "x\n", &session.origin(None, None)).unwrap();
        prop_assert_eq!(written.verdict, Some(bowline_history::ledger::WriteVerdict::Replaced));
    }

    #[test]
    fn writing_back_a_read_changes_no_byte(text in any_text(), format in any_format()) {
        let Ok(bytes) = text::encode(&text, format) else { return Ok(()) };
        let one = SingleFileWorkspace::with_bytes(&bytes);
        let session = one.session("s1");
        let origin = session.origin(None, None);
        match session.read(&one.path, LineWindow::default()) {
            Ok(read) => {
                for sent in [read.text.to_string(), read.text.replace("\r\n", "\n")] {
                    match session.write(&one.path, &sent, &origin) {
                        Ok(written) => prop_assert_eq!(written.verdict, None),
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                    prop_assert_eq!(one.bytes(), bytes.clone());
                }
            }
            // A file that cannot be read as text cannot be written as text.
            Err(FilesError::NotText { .. }) => {
                prop_assert!(session.write(&one.path, "x\n", &origin).is_err());
                prop_assert_eq!(one.bytes(), bytes);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn a_change_and_its_undo_leave_every_byte(text in any_text(), format in any_format(), line in any_line()) {
        // In other encodings, some texts cannot be detected, and some lines cannot be written.
        let is_certain = format.encoding == Encoding::Utf8 || format.has_bom;
        let Ok(bytes) = text::encode(&text, format) else {
            prop_assert!(!is_certain);
            return Ok(());
        };
        let one = SingleFileWorkspace::with_bytes(&bytes);
        let session = one.session("s1");
        let origin = session.origin(None, None);
        let Ok(read) = session.read(&one.path, LineWindow::default()) else {
            prop_assert!(!is_certain);
            return Ok(());
        };
        let written = session.write(&one.path, &(line + &read.text), &origin);
        let is_changed = written.is_ok_and(|written| written.change.is_some());
        prop_assert!(is_changed || !is_certain);
        if is_changed {
            let changed = one.bytes();
            prop_assert_ne!(&changed, &bytes);
            session.undo(&ChangeSelection::default(), &origin).unwrap();
            prop_assert_eq!(one.bytes(), bytes.clone());
            session.redo(&ChangeSelection::default(), &origin).unwrap();
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
        let one = SingleFileWorkspace::with_bytes(format!("{mark}{text}").as_bytes());
        let session = one.session("s1");
        // Offsets repeat: the second time, the index knows the way.
        for line in [1, 2, 119_999, 60_000, 59_999, 1_000, 120_000, 1, 60_000, 120_000] {
            let window = LineWindow { line: Some(line), limit: Some(200) };
            let read = session.read(&one.path, window).unwrap();
            assert_eq!(*read.text, lines::slice_lines(&text, window).unwrap());
        }
        let past = session.read(&one.path, LineWindow { line: Some(120_001), limit: Some(1) });
        assert!(matches!(past, Err(FilesError::PastEnd { why, .. }) if why.lines == 120_000));
    }
}

/// An actor's next step. The number selects the position in the text, or one of its lines.
#[derive(Debug, Clone, Copy)]
enum EditStep {
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

fn any_step() -> impl Strategy<Value = EditStep> {
    let who = || 0..2_u8;
    prop_oneof![
        2 => who().prop_map(EditStep::Read),
        1 => who().prop_map(EditStep::Forget),
        4 => (who(), any::<u16>()).prop_map(|(who, at)| EditStep::Insert(who, at)),
        2 => (who(), any::<u16>()).prop_map(|(who, at)| EditStep::Remove(who, at)),
        1 => who().prop_map(EditStep::Undo),
        1 => who().prop_map(EditStep::Redo),
        1 => who().prop_map(EditStep::UndoLast),
        2 => any::<u16>().prop_map(EditStep::DiskInsert),
        1 => any::<u16>().prop_map(EditStep::DiskRemove),
        1 => any::<u16>().prop_map(EditStep::DiskRename),
        1 => Just(EditStep::Open),
        3 => any::<u16>().prop_map(EditStep::Type),
        1 => any::<u16>().prop_map(EditStep::TypeRemove),
        1 => Just(EditStep::Save),
    ]
}

/// Two sessions and a user editing one file, and its invariants.
struct ConcurrentEdits {
    workspace: SingleFileWorkspace,
    // The text that each session believes the file to hold, and whether the engine knows that the session has seen it.
    views: [Option<String>; 2],
    has_seen: [bool; 2],
    count: usize,
    // Every line accepted as written, and its author: a session, or the user.
    markers: BTreeMap<String, Option<u8>>,
    // Lines that were removed or undone: they may be present or not.
    uncertain_lines: BTreeSet<String>,
    // Whether the file was changed outside the engine since the engine's last change.
    is_disk_changed: bool,
}

impl ConcurrentEdits {
    fn new() -> Self {
        let text: String = (0..12).map(|line| format!("line {line}\n")).collect();
        Self {
            workspace: SingleFileWorkspace::with_bytes(text.as_bytes()),
            views: [None, None],
            has_seen: [false, false],
            count: 0,
            markers: BTreeMap::new(),
            uncertain_lines: BTreeSet::new(),
            is_disk_changed: false,
        }
    }

    fn insert(&mut self, text: &str, at: u16) -> (String, String) {
        self.count += 1;
        let marker = format!("marker {}", self.count);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(usize::from(at) % (lines.len() + 1), &marker);
        (lines.join("\n") + "\n", marker)
    }

    /// Returns the text without one of its lines, and that line, which becomes uncertain if the step succeeds.
    fn remove(text: &str, at: u16) -> Option<(String, String)> {
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return None;
        }
        let removed = lines.remove(usize::from(at) % lines.len()).to_owned();
        Some((lines.iter().map(|line| format!("{line}\n")).collect(), removed))
    }

    fn document_text(&self) -> Option<String> {
        self.workspace
            .workspace
            .document(&self.workspace.path)
            .unwrap()
            .map(|document| document.text.to_string())
    }

    fn disk_text(&self) -> String {
        String::from_utf8(self.workspace.bytes()).unwrap()
    }

    fn session_id(who: u8) -> String {
        format!("s{who}")
    }

    fn write(&mut self, who: u8, text: String) -> bool {
        let session = self.workspace.session(&Self::session_id(who));
        let disk = self.disk_text();
        match session.write(&self.workspace.path, &text, &session.origin(None, None)) {
            Ok(written) => {
                if !std::mem::replace(&mut self.has_seen[usize::from(who)], true) {
                    // An unseen write replaces the text on disk, but never the user's unsaved text.
                    let replaced = disk.lines().filter(|line| !text.lines().any(|sent| sent == *line));
                    self.uncertain_lines.extend(replaced.map(str::to_owned));
                }
                self.is_disk_changed &= written.change.is_none();
                self.views[usize::from(who)] = Some(text);
                true
            }
            Err(FilesError::WriteRejected { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn undo_or_redo(&mut self, who: u8, deed: EditStep) {
        let session = self.workspace.session(&Self::session_id(who));
        let origin = session.origin(None, None);
        let last = matches!(deed, EditStep::UndoLast(_)).then_some(1);
        let selection = ChangeSelection {
            owner: ChangeOwner::Session(Self::session_id(who)),
            limit: last,
            ..ChangeSelection::default()
        };
        let done = match deed {
            EditStep::Redo(_) => session.redo(&selection, &origin),
            _ => session.undo(&selection, &origin),
        };
        match done {
            Ok(reversed) => {
                self.is_disk_changed &= reversed.files.iter().all(|reversed| !reversed.is_changed);
                let own = self.markers.iter().filter(|(_, author)| **author == Some(who));
                self.uncertain_lines.extend(own.map(|(marker, _)| marker.clone()));
            }
            Err(
                FilesError::CannotReverse(_)
                | FilesError::NothingToUndo(_)
                | FilesError::WriteRejected { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn write_to_disk(&mut self, text: &str, rename: bool) {
        if rename {
            let temp = self.workspace.file.with_extension("editing");
            fs::write(&temp, text).unwrap();
            fs::rename(temp, &self.workspace.file).unwrap();
        } else {
            fs::write(&self.workspace.file, text).unwrap();
        }
        self.is_disk_changed = true;
    }

    fn run_step(&mut self, deed: EditStep) {
        let path = self.workspace.path.clone();
        match deed {
            EditStep::Read(who) => {
                let read = self
                    .workspace
                    .session(&Self::session_id(who))
                    .read(&path, LineWindow::default())
                    .unwrap();
                self.views[usize::from(who)] = Some(read.text.to_string());
                self.has_seen[usize::from(who)] = true;
            }
            EditStep::Forget(who) => {
                self.workspace.session(&Self::session_id(who)).end();
                self.has_seen[usize::from(who)] = false;
            }
            EditStep::Insert(who, at) => {
                let Some(view) = self.views[usize::from(who)].clone() else {
                    return self.run_step(EditStep::Read(who));
                };
                let (text, marker) = self.insert(&view, at);
                if self.write(who, text) {
                    self.markers.insert(marker, Some(who));
                }
            }
            EditStep::Remove(who, at) => {
                let Some(view) = self.views[usize::from(who)].clone() else {
                    return self.run_step(EditStep::Read(who));
                };
                let Some((text, removed)) = Self::remove(&view, at) else { return };
                if self.write(who, text) {
                    self.uncertain_lines.insert(removed);
                }
            }
            EditStep::Undo(who) | EditStep::Redo(who) | EditStep::UndoLast(who) => {
                self.undo_or_redo(who, deed)
            }
            EditStep::DiskInsert(at) | EditStep::DiskRename(at) => {
                let (text, marker) = self.insert(&self.disk_text(), at);
                self.write_to_disk(&text, matches!(deed, EditStep::DiskRename(_)));
                self.markers.insert(marker, None);
            }
            EditStep::DiskRemove(at) => {
                if let Some((text, removed)) = Self::remove(&self.disk_text(), at) {
                    self.write_to_disk(&text, false);
                    self.uncertain_lines.insert(removed);
                }
            }
            EditStep::Open => {
                if self.document_text().is_none() {
                    self.workspace.workspace.open_document(&path).unwrap();
                }
            }
            EditStep::Type(at) => {
                let Some(shown) = self.document_text() else { return };
                let (text, marker) = self.insert(&shown, at);
                self.workspace.type_over(&path, text);
                self.markers.insert(marker, None);
            }
            EditStep::TypeRemove(at) => {
                let Some((text, removed)) = self.document_text().and_then(|shown| Self::remove(&shown, at))
                else {
                    return;
                };
                self.workspace.type_over(&path, text);
                self.uncertain_lines.insert(removed);
            }
            EditStep::Save => {
                match self.document_text().map(|_| self.workspace.workspace.save_document(&path)) {
                    None | Some(Err(FilesError::WriteRejected { .. })) => {}
                    Some(saved) => {
                        saved.unwrap();
                    }
                }
            }
        }
    }

    /// Checks the invariants after every step.
    fn check(&self) -> TestCaseResult {
        let disk = self.disk_text();
        let shown = self.document_text().unwrap_or_default();
        let there: BTreeSet<&str> = disk.lines().chain(shown.lines()).collect();
        for marker in self.markers.keys().filter(|marker| !self.uncertain_lines.contains(*marker)) {
            prop_assert!(there.contains(&**marker), "{} is lost", marker);
        }
        let folder: Vec<_> = fs::read_dir(self.workspace.file.parent().unwrap()).unwrap().collect();
        prop_assert_eq!(folder.len(), 1, "{:?}", folder);
        let changes = self.workspace.workspace.changes(&ChangeSelection::default()).unwrap();
        if let Some(last) = changes.last().filter(|_| !self.is_disk_changed) {
            let after = last.change.after.map(|after| after.hash);
            prop_assert_eq!(
                after,
                Some(ContentHash::digest(&self.workspace.bytes())),
                "the journal knows another end"
            );
        }
        Ok(())
    }

    /// Checks the final invariant: every line acknowledged to an agent is in the journal.
    fn check_journal(&self) -> TestCaseResult {
        let mut patches = String::new();
        for changed in self.workspace.workspace.changes(&ChangeSelection::default()).unwrap() {
            patches.push_str(&self.workspace.workspace.diff_change(changed.change.id).unwrap());
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
    fn concurrent_edits_lose_no_line(
        deeds in proptest::collection::vec(any_step(), 1..30)
    ) {
        let mut crowd = ConcurrentEdits::new();
        for deed in deeds {
            crowd.run_step(deed);
            crowd.check()?;
        }
        crowd.check_journal()?;
    }
}
