//! Tests of undo and redo: scripts run on a small in-memory journal, and properties.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::changes::{ChangeOrigin, ChangeSource, FileState};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

const PLAIN: u32 = 0o644;

type FileMap = BTreeMap<String, (Vec<u8>, u32)>;

/// Files and their changes, with every byte kept.
#[derive(Default)]
struct TestJournal {
    files: FileMap,
    history: Vec<Change>,
    blobs: BTreeMap<ContentHash, Vec<u8>>,
}

impl TestJournal {
    fn store_content(&mut self, file: Option<&(Vec<u8>, u32)>) -> Option<FileState> {
        let (bytes, mode) = file?;
        let hash = ContentHash::digest(bytes);
        self.blobs.insert(hash, bytes.clone());
        Some(FileState { hash, size: bytes.len() as u64, mode: *mode })
    }

    /// Changes a file and records it.
    fn change(
        &mut self,
        path: &str,
        file: Option<(Vec<u8>, u32)>,
        origin: ChangeOrigin,
        reverses: Vec<Reversal>,
        at: i64,
    ) {
        let before = self.files.get(path).cloned();
        let change = Change {
            id: ChangeId(self.history.len() as i64 + 1),
            at: Timestamp(at),
            origin,
            source: ChangeSource::Written,
            path: path.to_owned(),
            before: self.store_content(before.as_ref()),
            after: self.store_content(file.as_ref()),
            moved_from: None,
            reverses,
        };
        self.history.push(change);
        self.set_file(path, file);
    }

    /// Changes a file without recording it.
    fn set_file(&mut self, path: &str, file: Option<(Vec<u8>, u32)>) {
        match file {
            Some(file) => self.files.insert(path.to_owned(), file),
            None => self.files.remove(path),
        };
    }

    fn content(&self, state: Option<FileState>) -> FileContent<'_> {
        let Some(state) = state else { return FileContent::Absent };
        match self.blobs.get(&state.hash) {
            Some(bytes) => FileContent::Bytes { bytes, mode: state.mode },
            None => FileContent::Unknown,
        }
    }

    /// Reverts the whole selection, or nothing. Returns the reverted changes.
    fn reverse_selected(
        &mut self,
        direction: ReversalDirection,
        selection: &ChangeSelection,
    ) -> Result<Vec<ChangeId>, ReversalError> {
        let (ids, hunks) = match direction {
            ReversalDirection::Undo => {
                let hunks = selection.change.as_ref().and_then(|change| change.hunks.clone());
                (changes_to_undo(&self.history, selection), hunks)
            }
            ReversalDirection::Redo => (changes_to_redo(&self.history, selection), None),
        };
        let mut by_path: BTreeMap<&str, Vec<ReversalStep<'_>>> = BTreeMap::new();
        for id in &ids {
            let change = self.history.iter().find(|change| change.id == *id).unwrap();
            by_path.entry(&change.path).or_default().push(ReversalStep {
                change,
                before: self.content(change.before),
                after: self.content(change.after),
                hunks: hunks.as_deref(),
            });
        }
        let mut plans = Vec::new();
        for (path, steps) in by_path {
            let current = self.files.get(path);
            let content = current
                .map_or(FileContent::Absent, |(bytes, mode)| FileContent::Bytes { bytes, mode: *mode });
            let file = match plan_reversal(content, &steps)? {
                ReversalPlan::Unchanged => current.cloned(),
                ReversalPlan::Write { bytes, mode } => Some((bytes, mode)),
                ReversalPlan::Delete => None,
            };
            let reverses = steps.iter().map(ReversalStep::reversal).collect();
            plans.push((path.to_owned(), file, reverses));
        }
        let at = self.history.len() as i64;
        for (path, file, reverses) in plans {
            self.change(&path, file, ChangeOrigin::default(), reverses, at);
        }
        Ok(ids)
    }

    fn reverse_all(&mut self, direction: ReversalDirection) -> Result<Vec<ChangeId>, ReversalError> {
        self.reverse_selected(direction, &ChangeSelection::default())
    }
}

fn agent(turn: u64, call: &str) -> ChangeOrigin {
    ChangeOrigin {
        session: Some("s".to_owned()),
        turn: Some(turn),
        call: Some(call.to_owned()),
        command: None,
    }
}

/// Parses the selection of an undo or redo: `last 2`, `file a`, `session s`, `turn 1`, `call t1`, `change 3`, `hunks
/// 0 2`.
fn selection(words: &str) -> ChangeSelection {
    let mut selection = ChangeSelection::default();
    let mut words = words.split_whitespace().peekable();
    let session = "s".to_owned();
    while let Some(word) = words.next() {
        let value = words.next().unwrap();
        match word {
            "last" => selection.limit = Some(value.parse().unwrap()),
            "file" => selection.path = Some(value.to_owned()),
            "session" => selection.owner = ChangeOwner::Session(value.to_owned()),
            "turn" => {
                selection.owner = ChangeOwner::Turn { session: session.clone(), turn: value.parse().unwrap() }
            }
            "call" => {
                selection.owner = ChangeOwner::Call { session: session.clone(), call: value.to_owned() }
            }
            "change" => {
                selection.change = Some(Reversal { change: ChangeId(value.parse().unwrap()), hunks: None });
            }
            "hunks" => {
                let hunks = value.split(',').map(|hunk| hunk.parse().unwrap()).collect();
                selection.change.as_mut().unwrap().hunks = Some(hunks);
            }
            other => panic!("{other}"),
        }
    }
    selection
}

/// Runs a script. `1 t1 a = x/y/` is a change by a tool call of a turn, `user a = x/` an unrecorded one; `/` stands
/// for a line end, `gone` for no file and a trailing `*` for an executable one. The files are shown after each undo
/// and redo.
fn check(script: &str, expected: Expect) {
    let mut journal = TestJournal::default();
    let mut out = String::new();
    for line in script.trim().lines() {
        if let Some((actor, file)) = line.split_once(" = ") {
            let (actor, path) = actor.rsplit_once(' ').unwrap();
            let text = file.trim_end_matches('*').replace('/', "\n");
            let mode = if file.ends_with('*') { 0o755 } else { PLAIN };
            let file = (file != "gone").then_some((text.into_bytes(), mode));
            match actor.split_once(' ') {
                None => journal.set_file(path, file),
                Some((turn, call)) => {
                    let at = journal.history.len() as i64;
                    journal.change(path, file, agent(turn.parse().unwrap(), call), vec![], at);
                }
            }
            continue;
        }
        if let Some(id) = line.strip_prefix("forget ") {
            let before = journal.history[id.parse::<usize>().unwrap() - 1].before.unwrap();
            journal.blobs.remove(&before.hash);
            continue;
        }
        let (direction, words) = match line.strip_prefix("undo") {
            Some(words) => (ReversalDirection::Undo, words),
            None => (ReversalDirection::Redo, line.strip_prefix("redo").unwrap()),
        };
        write!(out, "{line}:").unwrap();
        match journal.reverse_selected(direction, &selection(words)) {
            Ok(ids) => {
                ids.iter().for_each(|id| write!(out, " {id}").unwrap());
                for (path, (bytes, mode)) in &journal.files {
                    let text = String::from_utf8_lossy(bytes).replace('\n', "/");
                    let mark = if *mode == PLAIN { "" } else { "*" };
                    write!(out, ", {path} = {text}{mark}").unwrap();
                }
            }
            Err(refused) => write!(out, " ! {refused}").unwrap(),
        }
        out.push('\n');
    }
    expected.assert_eq(&out);
}

#[test]
fn the_last_change_is_undone_first_and_redone_last() {
    check(
        "
1 t1 a = one/
1 t2 a = one/two/
2 t3 a = one/two/three/
undo last 1
undo last 1
redo last 1
undo last 1
redo last 1
redo last 1
redo last 1
undo last 2
undo
undo
redo
",
        expect![[r#"
            undo last 1: 3, a = one/two/
            undo last 1: 2, a = one/
            redo last 1: 5, a = one/two/
            undo last 1: 2, a = one/
            redo last 1: 7, a = one/two/
            redo last 1: 4, a = one/two/three/
            redo last 1:, a = one/two/three/
            undo last 2: 3 2, a = one/
            undo: 1
            undo:
            redo: 11 10, a = one/two/three/
        "#]],
    );
}

#[test]
fn changes_are_selected_by_file_call_turn_and_session() {
    let script = "
1 t1 a = 1/
1 t1 b = 1/
1 t2 a = 1/2/
2 t3 b = 3/
";
    for (undo, expected) in [
        (
            "undo file a",
            expect![[r#"
            undo file a: 3 1, b = 3/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo call t1",
            expect![[r#"
            undo call t1: ! cannot take back change 1 of a: it created the file, which was edited since; delete the file if it is not needed
            redo last 1:, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo call t3",
            expect![[r#"
            undo call t3: 4, a = 1/2/, b = 1/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo turn 2",
            expect![[r#"
            undo turn 2: 4, a = 1/2/, b = 1/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo turn 1",
            expect![[r#"
            undo turn 1: ! cannot take back change 2 of b: it created the file, which was edited since; delete the file if it is not needed
            redo last 1:, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo turn 1 file a",
            expect![[r#"
            undo turn 1 file a: 3 1, b = 3/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo turn 1 file a last 1",
            expect![[r#"
            undo turn 1 file a last 1: 3, a = 1/, b = 3/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo session s",
            expect![[r#"
            undo session s: 4 3 2 1
            redo last 1: 6 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo session other",
            expect![[r#"
            undo session other:, a = 1/2/, b = 3/
            redo last 1:, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo change 3",
            expect![[r#"
            undo change 3: 3, a = 1/, b = 3/
            redo last 1: 5, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo change 9",
            expect![[r#"
            undo change 9:, a = 1/2/, b = 3/
            redo last 1:, a = 1/2/, b = 3/
        "#]],
        ),
        (
            "undo last 0",
            expect![[r#"
            undo last 0:, a = 1/2/, b = 3/
            redo last 1:, a = 1/2/, b = 3/
        "#]],
        ),
    ] {
        check(&format!("{script}{undo}\nredo last 1"), expected);
    }
}

#[test]
fn changes_undone_together_are_redone_together() {
    check(
        "
1 t1 a = 1/
1 t1 b = 1/
2 t2 a = 2/
undo turn 2
undo turn 1
redo last 1
redo last 1
undo
redo turn 2
redo turn 1
redo
undo turn 2
redo change 13
redo change 14 hunks 0
undo change 15
",
        expect![[r#"
            undo turn 2: 3, a = 1/, b = 1/
            undo turn 1: 2 1
            redo last 1: 6 5, a = 1/, b = 1/
            redo last 1: 4, a = 2/, b = 1/
            undo: 3 2 1
            redo turn 2:
            redo turn 1: 11, b = 1/
            redo: 10, a = 2/, b = 1/
            undo turn 2: 3, a = 1/, b = 1/
            redo change 13:, a = 1/, b = 1/
            redo change 14 hunks 0: 14, a = 2/, b = 1/
            undo change 15:, a = 2/, b = 1/
        "#]],
    );
}

#[test]
fn an_undo_keeps_what_came_later() {
    check(
        "
1 t1 a = 1/2/3/4/5/
2 t2 a = 1/two/3/4/5/
3 t3 a = 1/two/3/four/5/
user a = 0/1/two/3/four/5/6/
undo turn 2
redo
undo turn 3
undo turn 2
redo last 2
",
        expect![[r#"
            undo turn 2: 2, a = 0/1/2/3/four/5/6/
            redo: 4, a = 0/1/two/3/four/5/6/
            undo turn 3: 3, a = 0/1/two/3/4/5/6/
            undo turn 2: 2, a = 0/1/2/3/4/5/6/
            redo last 2: 7 6, a = 0/1/two/3/four/5/6/
        "#]],
    );
}

#[test]
fn an_undo_that_would_lose_text_is_refused() {
    check(
        "
1 t1 a = 1/2/3/
user a = 1/2/3/mine/
undo
user a = gone
undo
2 t2 b = 1/
2 t3 b = 2/
user b = mine/
undo turn 2
undo call t3
undo call t2
user b = gone
undo call t3
user b = 1/
undo call t3
3 t4 c = 1/
3 t5 c = gone
user c = mine/
undo call t5
user c = 1/*
undo call t5
",
        expect![[r#"
            undo: ! cannot take back change 1 of a: it created the file, which was edited since; delete the file if it is not needed
            undo: 1
            undo turn 2: ! cannot take back change 4 of b: its lines were changed since: conflicting changes in 1 place, first at line 1
            undo call t3: ! cannot take back change 4 of b: its lines were changed since: conflicting changes in 1 place, first at line 1
            undo call t2: ! cannot take back change 3 of b: it created the file, which was edited since; delete the file if it is not needed
            undo call t3: ! cannot take back change 4 of b: the file was deleted since, restore it first
            undo call t3: 4, b = 1/
            undo call t5: ! cannot take back change 7 of c: it deleted the file and there is another one now, move that away first
            undo call t5: 7, b = 1/, c = 1/*
        "#]],
    );
}

#[test]
fn modes_go_back_unless_they_were_changed_since() {
    check(
        "
1 t1 a = 1/
2 t2 a = 2/*
undo turn 2
redo
user a = 2/
undo turn 2
3 t3 b = 1/*
4 t4 b = gone
undo turn 4
5 t5 b = 1/
undo turn 5
redo
user b = 1/mine/
undo turn 5
",
        expect![[r#"
            undo turn 2: 2, a = 1/
            redo: 3, a = 2/*
            undo turn 2: 2, a = 1/
            undo turn 4: 7, a = 1/, b = 1/*
            undo turn 5: 9, a = 1/, b = 1/*
            redo: 10 8 5, a = 2/
            undo turn 5: 9, a = 2/, b = 1/mine/*
        "#]],
    );
}

#[test]
fn hunks_are_undone_one_by_one() {
    check(
        "
1 t1 a = 1/2/3/4/5/6/7/
2 t2 a = one/2/three/4/five/6/7/*
undo change 2 hunks 1
undo change 2 hunks 1
undo change 2 hunks 7
user a = one/2/3/4/five/6/7/8/*
undo change 2 hunks 2
undo change 2 hunks 2,0
undo change 2
redo last 1
redo change 2 hunks 2
redo change 2 hunks 0,2
redo change 2 hunks 1
redo
user a = one/2/3/4/mine/6/7/8/
undo change 2 hunks 2
undo change 2 hunks 0
undo change 2 hunks 0,1,2
undo change 1 hunks 0
redo last 1
user a = gone
undo change 2 hunks 0
3 t3 b = 1/
undo change 13 hunks 0
redo last 1
4 t4 b = 2/
undo change 16 hunks 0
undo change 16
redo change 16
",
        expect![[r#"
            undo change 2 hunks 1: 2, a = one/2/3/4/five/6/7/*
            undo change 2 hunks 1:, a = one/2/3/4/five/6/7/*
            undo change 2 hunks 7: ! cannot take back change 2 of a: no hunk 7: the change has 3, numbered from 0
            undo change 2 hunks 2: 2, a = one/2/3/4/5/6/7/8/*
            undo change 2 hunks 2,0: 2, a = 1/2/3/4/5/6/7/8/*
            undo change 2: 2, a = 1/2/3/4/5/6/7/8/
            redo last 1: 6, a = 1/2/3/4/5/6/7/8/*
            redo change 2 hunks 2: 4, a = 1/2/3/4/five/6/7/8/*
            redo change 2 hunks 0,2: 5, a = one/2/3/4/five/6/7/8/*
            redo change 2 hunks 1: 3, a = one/2/three/4/five/6/7/8/*
            redo:, a = one/2/three/4/five/6/7/8/*
            undo change 2 hunks 2: ! cannot take back change 2 of a: its lines were changed since: conflicting changes in 1 place, first at line 5
            undo change 2 hunks 0: 2, a = 1/2/3/4/mine/6/7/8/
            undo change 2 hunks 0,1,2: ! cannot take back change 2 of a: its lines were changed since: conflicting changes in 1 place, first at line 5
            undo change 1 hunks 0: ! cannot take back change 1 of a: it created the file, which was edited since; delete the file if it is not needed
            redo last 1: 11, a = one/2/3/4/mine/6/7/8/
            undo change 2 hunks 0: ! cannot take back change 2 of a: the file was deleted since, restore it first
            undo change 13 hunks 0: 13
            redo last 1: 14, b = 1/
            undo change 16 hunks 0: 16, b = 1/
            undo change 16:, b = 1/
            redo change 16: 17, b = 2/
        "#]],
    );
}

#[test]
fn an_empty_hunk_list_undoes_nothing() {
    let mut journal = TestJournal::default();
    for (at, mode) in [PLAIN, 0o755].into_iter().enumerate() {
        journal.change("a", Some((b"1".to_vec(), mode)), agent(1, "t"), vec![], at as i64);
    }
    let select = |hunks| ChangeSelection {
        change: Some(Reversal { change: ChangeId(2), hunks }),
        ..ChangeSelection::default()
    };
    journal.reverse_selected(ReversalDirection::Undo, &select(Some(vec![]))).unwrap();
    assert_eq!(journal.files["a"].1, 0o755);
    journal.reverse_selected(ReversalDirection::Undo, &select(None)).unwrap();
    assert_eq!(journal.files["a"].1, PLAIN);
}

#[test]
fn bytes_that_are_not_kept_cannot_come_back() {
    check(
        "
1 t1 a = 1/
2 t2 a = 2/
3 t3 a = 3/
forget 2
undo turn 3
undo turn 2
redo
",
        expect![[r#"
            undo turn 3: 3, a = 2/
            undo turn 2: ! cannot take back change 2 of a: its text is not kept
            redo: 4, a = 3/
        "#]],
    );
    let journal = TestJournal::default();
    assert_eq!(plan_reversal(FileContent::Unknown, &[]), Ok(ReversalPlan::Unchanged));
    assert_eq!(changes_to_undo(&journal.history, &ChangeSelection::default()), []);
}

#[test]
fn a_file_that_is_not_text_is_taken_back_only_as_a_whole() {
    let mut journal = TestJournal::default();
    let file = |bytes: &[u8]| Some((bytes.to_vec(), PLAIN));
    journal.change("a", file(b"\x00\x00\x01\n1\n"), agent(1, "t1"), vec![], 1);
    journal.change("a", file(b"\x00\x00\x01\n2\n"), agent(2, "t2"), vec![], 2);
    journal.set_file("a", file(b"\x00\x00\x01\n2\n\n3\n"));
    expect!["cannot take back change 2 of a: the file is not text, so the change can only be taken back whole and before another one"]
        .assert_eq(&journal.reverse_selected(ReversalDirection::Undo, &selection("turn 2")).unwrap_err().to_string());
    journal.set_file("a", file(b"\x00\x00\x01\n2\n"));
    expect!["cannot take back change 2 of a: the file is not text, so the change can only be taken back whole and before another one"]
        .assert_eq(&journal.reverse_selected(ReversalDirection::Undo, &selection("change 2 hunks 0")).unwrap_err().to_string());
    journal.reverse_selected(ReversalDirection::Undo, &selection("turn 2")).unwrap();
    assert_eq!(journal.files["a"].0, b"\x00\x00\x01\n1\n");
}

/// An operation on one of two files.
#[derive(Debug, Clone)]
enum FileEvent {
    Write(bool, Vec<u8>, bool),
    Delete(bool),
}

fn any_event() -> impl Strategy<Value = FileEvent> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        prop::sample::select(vec!["", "a\n", "a\nb", "a\r\nb\r\n"]).prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        4 => (any::<bool>(), bytes, any::<bool>()).prop_map(|(file, bytes, mode)| FileEvent::Write(file, bytes, mode)),
        1 => any::<bool>().prop_map(FileEvent::Delete),
    ]
}

fn apply_event(journal: &mut TestJournal, event: FileEvent, turn: u64) {
    let (second, file) = match event {
        FileEvent::Write(second, bytes, executable) => {
            (second, Some((bytes, if executable { 0o755 } else { PLAIN })))
        }
        FileEvent::Delete(second) => (second, None),
    };
    let at = journal.history.len() as i64;
    journal.change(if second { "b" } else { "a" }, file, agent(turn, "t"), vec![], at);
}

/// An edit of a text whose lines are all different.
#[derive(Debug, Clone)]
struct LineEdit {
    by_user: bool,
    at: prop::sample::Index,
    removes: usize,
    adds: usize,
}

fn any_line_edit() -> impl Strategy<Value = LineEdit> {
    (any::<bool>(), any::<prop::sample::Index>(), 0usize..2, 0usize..3)
        .prop_map(|(by_user, at, removes, adds)| LineEdit { by_user, at, removes, adds })
}

proptest! {
    #[test]
    fn without_other_edits_undo_and_redo_are_exact_for_any_bytes(
        start in proptest::collection::vec(any_event(), 0..3),
        events in proptest::collection::vec(any_event(), 0..8),
    ) {
        let mut journal = TestJournal::default();
        start.into_iter().for_each(|event| apply_event(&mut journal, event, 1));
        let (original, first) = (journal.files.clone(), journal.history.len());
        let mut states = vec![original.clone()];
        for event in events {
            apply_event(&mut journal, event, 2);
            states.push(journal.files.clone());
        }
        let edits: Vec<ChangeId> = journal.history[first..].iter().rev().map(|change| change.id).collect();
        let edited = journal.files.clone();
        let turn = selection("turn 2");
        let step = selection("turn 2 last 1");
        for _ in 0..2 {
            prop_assert_eq!(journal.reverse_selected(ReversalDirection::Undo, &turn).unwrap(), edits.clone());
            prop_assert_eq!(&journal.files, &original);
            prop_assert_eq!(journal.reverse_selected(ReversalDirection::Undo, &turn).unwrap(), []);
            journal.reverse_selected(ReversalDirection::Redo, &turn).unwrap();
            prop_assert_eq!(&journal.files, &edited);
            prop_assert_eq!(journal.reverse_selected(ReversalDirection::Redo, &turn).unwrap(), []);
            for state in states.iter().rev().skip(1) {
                journal.reverse_selected(ReversalDirection::Undo, &step).unwrap();
                prop_assert_eq!(&journal.files, state);
            }
            for state in states.iter().skip(1) {
                journal.reverse_selected(ReversalDirection::Redo, &step).unwrap();
                prop_assert_eq!(&journal.files, state);
            }
        }
    }

    #[test]
    fn an_undo_gives_what_the_user_alone_would_have_made_or_nothing(
        edits in proptest::collection::vec(any_line_edit(), 0..8),
        lines in 0usize..40,
    ) {
        let mut journal = TestJournal::default();
        let base: Vec<String> = (0..lines).map(|line| format!("base {line}\n")).collect();
        journal.set_file("a", Some((base.concat().into_bytes(), PLAIN)));
        let mut text = base.clone();
        let mut expected: BTreeSet<String> = base.into_iter().collect();
        for (turn, edit) in edits.iter().enumerate() {
            let at = edit.at.index(text.len() + 1);
            let name = if edit.by_user { "user" } else { "agent" };
            let added: Vec<String> = (0..edit.adds).map(|line| format!("{name} {turn} {line}\n")).collect();
            let end = text.len().min(at + edit.removes);
            let removed: Vec<String> = text.splice(at..end, added.clone()).collect();
            let file = Some((text.concat().into_bytes(), PLAIN));
            if edit.by_user {
                journal.set_file("a", file);
                expected.retain(|line| !removed.contains(line));
                expected.extend(added);
            } else {
                journal.change("a", file, agent(1, "t"), vec![], turn as i64);
            }
        }
        let before = journal.files.clone();
        if journal.reverse_all(ReversalDirection::Undo).is_ok() {
            let found = String::from_utf8(journal.files["a"].0.clone()).unwrap();
            let mut found: Vec<&str> = found.split_inclusive('\n').collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected.iter().map(String::as_str).collect::<Vec<_>>());
            journal.reverse_all(ReversalDirection::Redo).unwrap();
        }
        prop_assert_eq!(journal.files, before);
    }

    #[test]
    fn every_edit_is_either_in_effect_or_undone(
        steps in proptest::collection::vec((0u8..4, 1u64..4, prop::option::of(1usize..3)), 0..20),
    ) {
        let mut journal = TestJournal::default();
        let mut undone: BTreeMap<ChangeId, bool> = BTreeMap::new();
        for (step, turn, last) in steps {
            let mut selected = selection(&format!("turn {turn}"));
            selected.limit = last;
            let (direction, undoes) = match step {
                0 => (ReversalDirection::Undo, true),
                1 => (ReversalDirection::Redo, false),
                _ => {
                    // Lines far enough apart that all changes can be merged.
                    let line = journal.history.len();
                    let old = journal.files.get("a").map(|(bytes, _)| String::from_utf8(bytes.clone()).unwrap());
                    let old = old.unwrap_or_else(|| (0..100).map(|line| format!("\n{line}\n")).collect());
                    journal.set_file("a", Some((old.clone().into_bytes(), PLAIN)));
                    let new = old.replace(&format!("\n{line}\n"), &format!("\n{line} changed\n"));
                    journal.change("a", Some((new.into_bytes(), PLAIN)), agent(turn, "t"), vec![], line as i64);
                    undone.insert(ChangeId(line as i64 + 1), false);
                    continue;
                }
            };
            let edits_of = |journal: &TestJournal, id: ChangeId| -> Vec<ChangeId> {
                let change = &journal.history[id.0 as usize - 1];
                if undoes { vec![id] } else { change.reverses.iter().map(|reversal| reversal.change).collect() }
            };
            for id in journal.reverse_selected(direction, &selected).unwrap() {
                for edit in edits_of(&journal, id) {
                    prop_assert_eq!(undone.insert(edit, undoes), Some(!undoes));
                }
            }
            let in_effect: Vec<ChangeId> =
                undone.iter().rev().filter(|(_, undone)| !**undone).map(|(id, _)| *id).collect();
            prop_assert_eq!(changes_to_undo(&journal.history, &ChangeSelection::default()), in_effect.clone());
            // The text agrees with the journal.
            let text = String::from_utf8(journal.files.get("a").map_or(vec![], |file| file.0.clone())).unwrap();
            prop_assert_eq!(text.matches("changed").count(), in_effect.len());
        }
    }
}

#[test]
fn later_edits_are_merged_in_the_files_own_encoding() {
    let utf16 = |text: &str| {
        let format =
            bowline_text::text::TextFormat { encoding: bowline_text::text::Encoding::Utf16Le, has_bom: true };
        Some((bowline_text::text::encode(text, format).unwrap(), PLAIN))
    };
    let mut journal = TestJournal::default();
    journal.change("a", utf16("one\r\ntwo\r\nthree\r\n"), agent(1, "t1"), vec![], 1);
    journal.change("a", utf16("ONE\r\ntwo\r\nthree\r\n"), agent(2, "t2"), vec![], 2);
    journal.set_file("a", utf16("ONE\r\ntwo\r\nüser\r\n"));
    journal.reverse_selected(ReversalDirection::Undo, &selection("turn 2")).unwrap();
    assert_eq!(Some(journal.files["a"].clone()), utf16("one\r\ntwo\r\nüser\r\n"));
}

#[test]
fn ascii_in_between_does_not_change_a_files_encoding() {
    let latin = |text: &str| {
        let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        Some((bytes, PLAIN))
    };
    let french = "d\u{e9}j\u{e0} vu, o\u{f9} \u{e7}a ?\nl'\u{e9}t\u{e9} \u{e0} No\u{eb}l\n-\n-\nend\n";
    let ascii = "deja vu\n-\n-\nend\n";
    let mut journal = TestJournal::default();
    journal.change("a", latin(french), agent(1, "t1"), vec![], 1);
    journal.change("a", latin(ascii), agent(2, "t2"), vec![], 2);
    journal.set_file("a", latin(&format!("{ascii}more\n")));
    journal.reverse_selected(ReversalDirection::Undo, &selection("turn 2")).unwrap();
    assert_eq!(Some(journal.files["a"].clone()), latin(&format!("{french}more\n")));
}

#[test]
fn a_hunk_that_is_taken_back_is_not_taken_back_again() {
    let mut journal = TestJournal::default();
    let file = |text: &str| Some((text.as_bytes().to_vec(), PLAIN));
    journal.change("a", file("1\n-\n2\n"), agent(1, "t1"), vec![], 1);
    journal.change("a", file("one\n-\ntwo\n"), agent(2, "t2"), vec![], 2);
    journal.reverse_selected(ReversalDirection::Undo, &selection("change 2 hunks 0")).unwrap();
    assert_eq!(changes_to_undo(&journal.history, &selection("change 2 hunks 0")), []);
    assert_eq!(changes_to_undo(&journal.history, &selection("change 2 hunks 0,1")).len(), 1);
    journal.reverse_selected(ReversalDirection::Redo, &selection("change 2 hunks 0")).unwrap();
    assert_eq!(changes_to_undo(&journal.history, &selection("change 2 hunks 0")).len(), 1);
}

#[test]
fn an_undone_change_is_not_in_effect_but_its_undo_is() {
    let file = |text: &str| Some((text.as_bytes().to_vec(), PLAIN));
    let mut journal = TestJournal::default();
    journal.change("a", file("1\n"), agent(1, "t1"), vec![], 1);
    journal.change("a", file("2\n"), agent(2, "t2"), vec![], 2);
    let ids =
        |journal: &TestJournal| changes_in_effect(&journal.history).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(ids(&journal), [1, 2]);
    journal.reverse_selected(ReversalDirection::Undo, &selection("turn 2")).unwrap();
    assert_eq!(ids(&journal), [1, 3]);
    journal.reverse_selected(ReversalDirection::Redo, &selection("turn 2")).unwrap();
    assert_eq!(ids(&journal), [1, 2, 4]);
}

#[test]
fn a_mode_is_restored_unless_it_changed_since() {
    let (before, after, other) = (0o644, 0o755, 0o700);
    let state = |mode| Some(FileState { hash: ContentHash::digest(b"x\n"), size: 2, mode });
    let change = Change {
        id: ChangeId(1),
        at: Timestamp(0),
        origin: ChangeOrigin::default(),
        source: ChangeSource::Observed,
        path: "a".to_owned(),
        before: state(before),
        after: state(after),
        moved_from: None,
        reverses: Vec::new(),
    };
    let content = |bytes: &'static [u8], mode| FileContent::Bytes { bytes, mode };
    let step = ReversalStep {
        change: &change,
        before: content(b"x\n", before),
        after: content(b"x\n", after),
        hunks: None,
    };
    let plan = |bytes, mode| plan_reversal(content(bytes, mode), &[step]).unwrap();
    let write = |bytes: &[u8], mode| ReversalPlan::Write { bytes: bytes.to_vec(), mode };
    assert_eq!(plan(b"x\n", after), write(b"x\n", before));
    assert_eq!(plan(b"x\n", other), ReversalPlan::Unchanged);
    assert_eq!(plan(b"x\n", before), ReversalPlan::Unchanged);
    // The bytes are the user's by now; the mode is still the change's.
    assert_eq!(plan(b"y\n", after), write(b"y\n", before));
    assert_eq!(plan(b"y\n", other), ReversalPlan::Unchanged);
    // No text has to be merged, so the content need not be text.
    assert_eq!(plan(b"\xff\0\xff", after), write(b"\xff\0\xff", before));
}

#[test]
fn selecting_agents_excludes_other_changes() {
    let mut journal = TestJournal::default();
    for (at, origin) in [agent(1, "c1"), ChangeOrigin::default(), agent(2, "c2")].into_iter().enumerate() {
        let path = format!("f{at}");
        journal.change(&path, Some((b"x\n".to_vec(), PLAIN)), origin, Vec::new(), at as i64);
    }
    let agents = ChangeSelection { owner: ChangeOwner::Agents, ..ChangeSelection::default() };
    assert_eq!(changes_to_undo(&journal.history, &agents), [ChangeId(3), ChangeId(1)]);
    journal.reverse_selected(ReversalDirection::Undo, &agents).unwrap();
    assert_eq!(journal.files.keys().collect::<Vec<_>>(), ["f1"]);
    assert_eq!(changes_to_redo(&journal.history, &agents).len(), 2);
}

#[test]
fn changes_are_selected_by_source() {
    let mut journal = TestJournal::default();
    for (at, source) in
        [ChangeSource::Written, ChangeSource::Observed, ChangeSource::Claimed].into_iter().enumerate()
    {
        let path = format!("f{at}");
        journal.change(&path, Some((b"x\n".to_vec(), PLAIN)), agent(1, "c1"), Vec::new(), at as i64);
        journal.history[at].source = source;
    }
    let by_source = |source| ChangeSelection { source, ..ChangeSelection::turn("s", 1) };
    assert_eq!(changes_to_undo(&journal.history, &by_source(Some(ChangeSource::Written))), [ChangeId(1)]);
    assert_eq!(changes_to_undo(&journal.history, &by_source(Some(ChangeSource::Observed))), [ChangeId(2)]);
    assert_eq!(changes_to_undo(&journal.history, &by_source(None)), [ChangeId(3), ChangeId(2), ChangeId(1)]);
    journal.reverse_selected(ReversalDirection::Undo, &by_source(Some(ChangeSource::Written))).unwrap();
    assert_eq!(journal.files.keys().collect::<Vec<_>>(), ["f1", "f2"]);
}

#[test]
fn a_directory_means_what_lies_below_it() {
    let mut journal = TestJournal::default();
    for (at, path) in ["/w/a", "/w/ab", "/w/a/b", "/w/a/b/c", "/x"].into_iter().enumerate() {
        journal.change(path, Some((b"x\n".to_vec(), PLAIN)), agent(1, "c1"), Vec::new(), at as i64);
    }
    let mut out = String::new();
    for path in ["/w/a", "/w/a/", "/w/a/b", "/w", "/", "/w/a/c"] {
        let selection = ChangeSelection { path: Some(path.to_owned()), ..ChangeSelection::default() };
        let files = journal.history.iter().filter(|change| selection.matches(change));
        let files: Vec<&str> = files.map(|change| change.path.as_str()).collect();
        out += &format!("{path}: {}\n", files.join(" "));
    }
    expect![[r#"
        /w/a: /w/a /w/a/b /w/a/b/c
        /w/a/: /w/a /w/a/b /w/a/b/c
        /w/a/b: /w/a/b /w/a/b/c
        /w: /w/a /w/ab /w/a/b /w/a/b/c
        /: /w/a /w/ab /w/a/b /w/a/b/c /x
        /w/a/c: 
    "#]]
    .assert_eq(&out);
}

/// Reverts one change of a file, and returns the result and the number of resolved conflicts.
fn resolve(
    before: Option<&str>,
    after: Option<&str>,
    now: Option<&str>,
    resolution: ConflictResolution,
) -> String {
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let (before, after, now) = (bytes(before), bytes(after), bytes(now));
    let state = |bytes: &Option<Vec<u8>>| {
        bytes.as_ref().map(|bytes| FileState {
            hash: ContentHash::digest(bytes),
            size: bytes.len() as u64,
            mode: PLAIN,
        })
    };
    let change = Change {
        id: ChangeId(1),
        at: Timestamp(0),
        origin: ChangeOrigin::default(),
        source: ChangeSource::Written,
        path: "/a".to_owned(),
        before: state(&before),
        after: state(&after),
        moved_from: None,
        reverses: Vec::new(),
    };
    fn content_of(bytes: &Option<Vec<u8>>) -> FileContent<'_> {
        bytes.as_ref().map_or(FileContent::Absent, |bytes| FileContent::Bytes { bytes, mode: PLAIN })
    }
    let step =
        ReversalStep { change: &change, before: content_of(&before), after: content_of(&after), hunks: None };
    match plan_resolved_reversal(content_of(&now), &[step], resolution) {
        Ok((ReversalPlan::Write { bytes, .. }, conflicts)) => {
            format!("{conflicts}: {}", String::from_utf8_lossy(&bytes))
        }
        Ok((plan, conflicts)) => format!("{conflicts}: {plan:?}\n"),
        Err(error) => format!("! {error}\n"),
    }
}

#[test]
fn conflicts_are_marked_or_forced() {
    let mut out = String::new();
    let cases = [
        ("lines", Some("a\nb\nc\n"), Some("a\nB\nc\n"), Some("top\na\nmine\nc\n")),
        ("no conflict", Some("a\nb\nc\n"), Some("a\nB\nc\n"), Some("a\nB\nc\nmine\n")),
        ("no line end", Some("old"), Some("new"), Some("mine")),
        ("created and edited", None, Some("new\n"), Some("mine\n")),
        ("deleted, and another one", Some("old\n"), None, Some("mine\n")),
        ("edited and deleted", Some("old\n"), Some("new\n"), None),
    ];
    for (name, before, after, now) in cases {
        for resolution in [ConflictResolution::Markers, ConflictResolution::Force] {
            let result = resolve(before, after, now, resolution);
            _ = writeln!(out, "{name}, {resolution:?} {}", result.trim_end());
        }
    }
    expect![[r#"
        lines, Markers 1: top
        a
        <<<<<<< now
        mine
        ||||||| after the change
        B
        =======
        b
        >>>>>>> before the change
        c
        lines, Force 1: top
        a
        b
        c
        no conflict, Markers 0: a
        b
        c
        mine
        no conflict, Force 0: a
        b
        c
        mine
        no line end, Markers 1: <<<<<<< now
        mine
        ||||||| after the change
        new
        =======
        old
        >>>>>>> before the change
        no line end, Force 1: old
        created and edited, Markers ! cannot take back change 1 of /a: it created the file, which was edited since; delete the file if it is not needed
        created and edited, Force 1: Delete
        deleted, and another one, Markers ! cannot take back change 1 of /a: it deleted the file and there is another one now, move that away first
        deleted, and another one, Force 1: old
        edited and deleted, Markers ! cannot take back change 1 of /a: the file was deleted since, restore it first
        edited and deleted, Force 1: old
    "#]].assert_eq(&out);
}
