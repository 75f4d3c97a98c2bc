//! Undo brings back what was typed, and what lay on disk is not lost either.

use bowline_state::changes::{Origin, Reversal};
use bowline_state::undo::Selection;

use crate::workspace::fixture::Project;

fn agent() -> Origin {
    Origin { session: Some("s".to_owned()), turn: Some(1), ..Origin::default() }
}

/// The changes of the project: who, before and after, as far as they are in effect.
fn told(project: &Project) -> Vec<String> {
    let changes = project.workspace.changes(&Selection::default()).unwrap();
    let told = changes.iter().filter(|changed| changed.in_effect).map(|changed| {
        let change = &changed.change;
        let who = change.origin.session.as_deref().unwrap_or("nobody");
        let size =
            |state: Option<bowline_state::changes::FileState>| state.map_or(-1, |state| state.size as i64);
        format!("{who} {:?} {}->{}", change.source, size(change.before), size(change.after))
    });
    told.collect()
}

#[test]
fn to_undo_what_an_editor_wrote_brings_back_what_was_typed() {
    let project = Project::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    let write =
        session.editor_writes(&path, Some("disk\ntyped\n"), "disk\ntyped\nagent\n", &agent()).unwrap();
    assert!(write.change.is_some());
    // Then the editor writes, and nothing else is found.
    project.write("a", "disk\ntyped\nagent\n");
    assert_eq!(project.observe(&agent()), 0);
    assert_eq!(told(&project), ["nobody Written 5->11", "s Written 11->17"]);
    session.undo(&Selection::turn("s", 1), &Origin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("disk\ntyped\n"));
    // The text that the disk had is there, too.
    let all = Selection { last: Some(1), ..Selection::default() };
    session.undo(&all, &Origin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("disk\n"));
}

#[test]
fn a_new_file_a_text_that_is_there_and_a_mark_are_what_they_are() {
    let project = Project::new(&[("a", "same\n"), ("marked", "\u{feff}one\n")]);
    let session = project.workspace.session("s");
    let same = session.editor_writes(&project.path("a"), Some("same\n"), "same\n", &agent()).unwrap();
    assert_eq!((same.change, told(&project).len()), (None, 0));
    session.editor_did_not_write(&same, &agent()).unwrap();
    session.editor_writes(&project.path("new"), None, "new\n", &agent()).unwrap();
    session
        .editor_writes(&project.path("marked"), Some("\u{feff}one\n"), "\u{feff}two!\n", &agent())
        .unwrap();
    assert_eq!(told(&project), ["s Written -1->4", "s Written 7->8"]);
    let outside = session.editor_writes("/etc/hostname", None, "x", &agent()).unwrap_err().to_string();
    assert!(outside.contains("outside"), "{outside}");
}

#[test]
fn what_an_editor_did_not_write_is_in_effect_no_more() {
    let project = Project::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    let write = session.editor_writes(&path, Some("typed\n"), "agent\n", &agent()).unwrap();
    session.editor_did_not_write(&write, &agent()).unwrap();
    assert_eq!(told(&project), ["s Written 5->5"], "only that nothing was done");
    assert_eq!(project.observe(&agent()), 0);
    assert_eq!(project.read("a").as_deref(), Some("disk\n"));
    // Another text of the editor's than was said is found by the next look.
    session.editor_writes(&path, Some("disk\n"), "agent\n", &agent()).unwrap();
    project.write("a", "agent, formatted\n");
    assert_eq!(project.observe(&agent()), 1);
    let one = project.workspace.changes(&Selection::default()).unwrap().last().unwrap().change.clone();
    assert_eq!((one.before.unwrap().size, one.after.unwrap().size), (6, 17));
    let selection =
        Selection { change: Some(Reversal { change: one.id, hunks: None }), ..Selection::default() };
    session.undo(&selection, &Origin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("agent\n"));
}

#[test]
fn what_an_editor_writes_after_the_next_look_is_no_second_change() {
    let project = Project::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    session.editor_writes(&path, Some("typed\n"), "agent\n", &agent()).unwrap();
    // The editor takes its time, and others have the disk looked at.
    assert_eq!(project.observe(&agent()), 0);
    project.write("a", "agent\n");
    assert_eq!(project.observe(&agent()), 0);
    assert_eq!(told(&project), ["nobody Written 5->6", "s Written 6->6"]);
    // Once it was there, the same text again is a change.
    project.write("a", "user\n");
    assert_eq!(project.observe(&Origin::default()), 1);
    project.write("a", "agent\n");
    assert_eq!(project.observe(&Origin::default()), 1);
}

#[test]
fn a_write_that_was_undone_is_awaited_no_more() {
    let project = Project::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    session.editor_writes(&path, Some("disk\n"), "agent\n", &agent()).unwrap();
    let write = session.editor_writes(&path, Some("agent\n"), "refused\n", &agent()).unwrap();
    session.editor_did_not_write(&write, &agent()).unwrap();
    assert_eq!(project.observe(&agent()), 0);
    project.write("a", "refused\n");
    assert_eq!(project.observe(&agent()), 1);
}
