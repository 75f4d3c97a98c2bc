//! Any sequence of batches, edits by the user and undos keeps every line of the user: in the journal at least, and in the
//! files if the agent has not read it.

use bowline_history::undo::ReversalDirection;
use proptest::prelude::*;

use super::*;

/// A step: by the agent, or by the user in the editor or on the disk.
#[derive(Debug, Clone, Copy)]
enum RandomStep {
    Read(usize),
    Replace(usize),
    Append(usize),
    Insert(usize),
    Bytes(usize),
    Move(usize, usize),
    Copy(usize, usize),
    Remove(usize),
    MoveDirectory,
    DiskLine(usize),
    // Alone, so that it is done in place if the file is large enough.
    SingleAppend(usize),
    Open(usize),
    Type(usize),
    Undo(u64),
    Redo(u64),
}

const NAMES: [&str; 4] = ["a", "b", "d/a", "d/b"];

fn any_step() -> impl Strategy<Value = RandomStep> {
    let file = || 0..NAMES.len();
    prop_oneof![
        file().prop_map(RandomStep::Read),
        file().prop_map(RandomStep::Replace),
        file().prop_map(RandomStep::Append),
        file().prop_map(RandomStep::Insert),
        file().prop_map(RandomStep::Bytes),
        (file(), file()).prop_map(|(from, to)| RandomStep::Move(from, to)),
        (file(), file()).prop_map(|(from, to)| RandomStep::Copy(from, to)),
        file().prop_map(RandomStep::Remove),
        Just(RandomStep::MoveDirectory),
        file().prop_map(RandomStep::DiskLine),
        file().prop_map(RandomStep::SingleAppend),
        file().prop_map(RandomStep::Open),
        file().prop_map(RandomStep::Type),
        (1..6_u64).prop_map(RandomStep::Undo),
        (1..6_u64).prop_map(RandomStep::Redo),
    ]
}

impl BatchProject {
    /// Performs a step of the agent together with a write to another file; both happen or none.
    fn run_random(&mut self, step: RandomStep, number: usize) {
        let name = |file: usize| format!("~/{}", NAMES[file]);
        let mark = self.expand("~/mark");
        let marked = fs::read_to_string(&mark).unwrap_or_default();
        let operation = match step {
            RandomStep::Replace(file) => {
                json!({"op": "write", "path": name(file), "data": format!("agent {number}\n")})
            }
            RandomStep::Append(file) => {
                json!({"op": "write", "path": name(file), "data": format!("agent {number}\n"), "mode": "append"})
            }
            RandomStep::Insert(file) => {
                json!({"op": "write", "path": name(file), "data": format!("agent {number}\n"), "mode": "insert", "position": 0})
            }
            RandomStep::Bytes(file) => {
                json!({"op": "write", "path": name(file), "data": "YWdlbnQK", "encoding": "base64"})
            }
            RandomStep::Move(from, to) | RandomStep::Copy(from, to) => {
                let op = if matches!(step, RandomStep::Move(..)) { "move" } else { "copy" };
                json!({"op": op, "from": name(from), "to": name(to), "overwrite": true})
            }
            RandomStep::Remove(file) => json!({"op": "remove", "path": name(file)}),
            RandomStep::MoveDirectory => json!({"op": "move", "from": "~/d", "to": "~/e"}),
            RandomStep::Read(file) => return drop(self.run_step(&format!("read {}", name(file)))),
            RandomStep::DiskLine(file) => {
                let path = self.expand(&name(file));
                let text = fs::read_to_string(&path).unwrap_or_default();
                fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
                return fs::write(path, format!("{text}user {number}.\n")).unwrap();
            }
            RandomStep::SingleAppend(file) => {
                let data = format!("agent {number}\n");
                let operation = json!([{"op": "write", "path": name(file), "data": data, "mode": "append"}]);
                return drop(self.run_step(&format!("batch {operation}")));
            }
            RandomStep::Open(file) => {
                // A directory may be in the way.
                return drop(self.workspace.open_document(&self.expand(&name(file))));
            }
            RandomStep::Type(file) => {
                let path = self.expand(&name(file));
                let Ok(Some(shown)) = self.workspace.document(&path) else { return };
                let text = format!("{}user {number}.\n", shown.text);
                return drop(self.workspace.change_document(&path, text, shown.revision));
            }
            RandomStep::Undo(turn) => {
                let origin = self.session.origin(None, None);
                return drop(self.session.undo(&ChangeSelection::turn("s", turn), &origin));
            }
            RandomStep::Redo(turn) => {
                let origin = self.session.origin(None, None);
                return drop(self.session.redo(&ChangeSelection::turn("s", turn), &origin));
            }
        };
        let other = json!({"op": "write", "path": "~/mark", "data": format!("{number}\n"), "mode": "append"});
        let applied = self.run_step(&format!("batch {}", json!([operation, other])));
        let is_marked = fs::read_to_string(&mark).unwrap_or_default() != marked;
        assert_eq!(applied.is_ok(), is_marked, "all or none: {step:?} {applied:?}");
    }

    /// Returns a project in which the agent has made batches, and its files before the first and after each of them.
    fn with_batches(batches: &[Vec<Value>]) -> (Self, Vec<String>) {
        let mut project = Self::new(WorkspaceOptions::default());
        project.run_step("disk ~/a \"one\\n\"").unwrap();
        project.run_step("disk ~/d/e/b \"two\\n\"").unwrap();
        let mut trees = vec![project.describe_tree()];
        for batch in batches {
            let turn = project.turn;
            // It may be refused.
            drop(project.run_step(&format!("batch {}", json!(batch))));
            if project.turn > turn {
                trees.push(project.describe_tree());
            }
        }
        (project, trees)
    }

    /// Returns whether a line of the user is in a file, or unsaved in a document.
    fn has_live_line(&self, line: &str) -> bool {
        let unsaved = self.workspace.unsaved_texts();
        self.describe_tree().contains(line) || unsaved.iter().any(|(_, text)| text.contains(line))
    }

    /// Returns whether a line of the user is in a file, in a document, or in a text that the journal keeps.
    fn has_line(&self, line: &str) -> bool {
        let mut journal = self.workspace.changes(&ChangeSelection::default()).unwrap().into_iter();
        self.has_live_line(line)
            || journal.any(|listed| {
                let states = [listed.change.before, listed.change.after];
                states.into_iter().flatten().any(|state| {
                    let content = self.workspace.writer().journal.content(&state.hash).unwrap();
                    content.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(line))
                }) || {
                    let tail = self.workspace.writer().journal.tail(listed.change.id).unwrap();
                    tail.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(line))
                }
            })
    }
}

/// An operation of the agent on files and directories that take each other's places.
fn any_operation() -> impl Strategy<Value = Value> {
    let path = || prop::sample::select(vec!["~/a", "~/d", "~/d/a", "~/d/e", "~/d/e/b", "~/f"]);
    prop_oneof![
        (path(), any::<u8>()).prop_map(|(path, number)| {
            json!({"op": "write", "path": path, "data": format!("{number}\n"), "createParents": true})
        }),
        (path(), any::<bool>())
            .prop_map(|(path, parents)| json!({"op": "mkdir", "path": path, "parents": parents})),
        path().prop_map(|path| json!({"op": "remove", "path": path, "recursive": true})),
        (path(), path())
            .prop_map(|(from, to)| json!({"op": "move", "from": from, "to": to, "overwrite": true})),
        (path(), path()).prop_map(|(from, to)| json!({"op": "copy", "from": from, "to": to})),
    ]
}

proptest! {
#![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

#[test]
fn no_line_of_the_user_is_lost(
    steps in proptest::collection::vec(any_step(), 1..24),
    append_in_place_bytes in prop_oneof![Just(0), Just(1 << 20)],
) {
    let options = WorkspaceOptions { append_in_place_bytes, ..WorkspaceOptions::default() };
    let mut project = BatchProject::new(options);
    project.run_step("disk ~/a \"user first\\n\"").unwrap();
    let mut lines = vec!["user first".to_owned()];
    for (number, step) in steps.into_iter().enumerate() {
        project.run_random(step, number);
        let line = format!("user {number}.");
        if project.has_line(&line) {
            lines.push(line);
        }
        for line in &lines {
            prop_assert!(project.has_line(line), "{line:?} is lost by {step:?}");
        }
    }
}}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_undone_and_redone_together(
        batches in prop::collection::vec(prop::collection::vec(any_operation(), 1..3), 1..12),
    ) {
        let (project, trees) = BatchProject::with_batches(&batches);
        let (Some(before), Some(after)) = (trees.first(), trees.last()) else { unreachable!() };
        let undo = (ReversalDirection::Undo, before);
        let redo = (ReversalDirection::Redo, after);
        let has_changes = trees.len() > 1;
        for (direction, expected) in [undo, redo, undo, redo].into_iter().filter(|_| has_changes) {
            let preview = project.workspace.preview_undo(direction, &ChangeSelection::default()).unwrap();
            let refused: Vec<_> = preview.files.iter().filter(|file| file.patch.is_err()).collect();
            prop_assert!(refused.is_empty(), "{direction:?}: {refused:?}");
            let answer = project.reverse_selected(direction.verb(), "all", "", "");
            prop_assert!(answer.starts_with(direction.verb()), "{direction:?}: {answer}");
            let found = project.describe_tree();
            prop_assert_eq!(&found, expected, "{:?}", direction);
        }
    }

    #[test]
    fn batches_are_undone_one_by_one(
        batches in prop::collection::vec(prop::collection::vec(any_operation(), 1..3), 1..12),
        was_undone in any::<bool>(),
    ) {
        let (project, trees) = BatchProject::with_batches(&batches);
        if was_undone {
            project.reverse_selected("undo", "all", "", "");
            project.reverse_selected("redo", "all", "", "");
        }
        for (turn, before) in (1..trees.len()).zip(&trees).rev() {
            let answer = project.reverse_selected("undo", "turn", "", &turn.to_string());
            prop_assert!(answer.starts_with("undo"), "turn {turn}: {answer}");
            let found = project.describe_tree();
            prop_assert_eq!(&found, before, "turn {}", turn);
        }
    }
}
