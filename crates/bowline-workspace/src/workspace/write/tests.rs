//! Writes by an editor: undo restores what was typed, and the text on disk is not lost either.

use bowline_history::changes::{ChangeOrigin, Reversal};
use bowline_history::undo::ChangeSelection;

use crate::workspace::fixture::TestProject;

fn agent_origin() -> ChangeOrigin {
    ChangeOrigin { session: Some("s".to_owned()), turn: Some(1), ..ChangeOrigin::default() }
}

/// Describes the changes of the project that are in effect: session, before and after.
fn describe_changes(project: &TestProject) -> Vec<String> {
    let changes = project.workspace.changes(&ChangeSelection::default()).unwrap();
    let told = changes.iter().filter(|changed| changed.is_in_effect).map(|changed| {
        let change = &changed.change;
        let session = change.origin.session.as_deref().unwrap_or("no session");
        let size =
            |state: Option<bowline_history::changes::FileState>| state.map_or(-1, |state| state.size as i64);
        format!("{session} {:?} {}->{}", change.source, size(change.before), size(change.after))
    });
    told.collect()
}

#[test]
fn undoing_an_editor_write_restores_the_typed_text() {
    let project = TestProject::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    let write = session
        .record_editor_write(&path, Some("disk\ntyped\n"), "disk\ntyped\nagent\n", &agent_origin())
        .unwrap();
    assert!(write.change.is_some());
    // The editor then writes, and the scan finds nothing else.
    project.write("a", "disk\ntyped\nagent\n");
    assert_eq!(project.observe(&agent_origin()), 0);
    assert_eq!(describe_changes(&project), ["no session Written 5->11", "s Written 11->17"]);
    session.undo(&ChangeSelection::turn("s", 1), &ChangeOrigin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("disk\ntyped\n"));
    // The text on disk can be restored, too.
    let all = ChangeSelection { limit: Some(1), ..ChangeSelection::default() };
    session.undo(&all, &ChangeOrigin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("disk\n"));
}

#[test]
fn editor_writes_handle_new_unchanged_and_bom_files() {
    let project = TestProject::new(&[("a", "same\n"), ("marked", "\u{feff}one\n")]);
    let session = project.workspace.session("s");
    let same =
        session.record_editor_write(&project.path("a"), Some("same\n"), "same\n", &agent_origin()).unwrap();
    assert_eq!((same.change, describe_changes(&project).len()), (None, 0));
    session.cancel_editor_write(&same, &agent_origin()).unwrap();
    session.record_editor_write(&project.path("new"), None, "new\n", &agent_origin()).unwrap();
    session
        .record_editor_write(
            &project.path("marked"),
            Some("\u{feff}one\n"),
            "\u{feff}two!\n",
            &agent_origin(),
        )
        .unwrap();
    assert_eq!(describe_changes(&project), ["s Written -1->4", "s Written 7->8"]);
    let outside =
        session.record_editor_write("/etc/hostname", None, "x", &agent_origin()).unwrap_err().to_string();
    assert!(outside.contains("outside"), "{outside}");
}

#[test]
fn a_cancelled_editor_write_is_not_in_effect() {
    let project = TestProject::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    let write = session.record_editor_write(&path, Some("typed\n"), "agent\n", &agent_origin()).unwrap();
    session.cancel_editor_write(&write, &agent_origin()).unwrap();
    assert_eq!(describe_changes(&project), ["s Written 5->5"], "only that nothing was done");
    assert_eq!(project.observe(&agent_origin()), 0);
    assert_eq!(project.read("a").as_deref(), Some("disk\n"));
    // If the editor writes a different text than announced, the next scan finds it.
    session.record_editor_write(&path, Some("disk\n"), "agent\n", &agent_origin()).unwrap();
    project.write("a", "agent, formatted\n");
    assert_eq!(project.observe(&agent_origin()), 1);
    let one = project.workspace.changes(&ChangeSelection::default()).unwrap().last().unwrap().change.clone();
    assert_eq!((one.before.unwrap().size, one.after.unwrap().size), (6, 17));
    let selection = ChangeSelection {
        change: Some(Reversal { change: one.id, hunks: None }),
        ..ChangeSelection::default()
    };
    session.undo(&selection, &ChangeOrigin::default()).unwrap();
    assert_eq!(project.read("a").as_deref(), Some("agent\n"));
}

#[test]
fn a_late_editor_write_is_not_a_second_change() {
    let project = TestProject::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    session.record_editor_write(&path, Some("typed\n"), "agent\n", &agent_origin()).unwrap();
    // The editor is slow, and a scan runs in the meantime.
    assert_eq!(project.observe(&agent_origin()), 0);
    project.write("a", "agent\n");
    assert_eq!(project.observe(&agent_origin()), 0);
    assert_eq!(describe_changes(&project), ["no session Written 5->6", "s Written 6->6"]);
    // After the write has arrived, the same text again is a change.
    project.write("a", "user\n");
    assert_eq!(project.observe(&ChangeOrigin::default()), 1);
    project.write("a", "agent\n");
    assert_eq!(project.observe(&ChangeOrigin::default()), 1);
}

#[test]
fn a_cancelled_editor_write_is_no_longer_expected() {
    let project = TestProject::new(&[("a", "disk\n")]);
    let session = project.workspace.session("s");
    let path = project.path("a");
    session.record_editor_write(&path, Some("disk\n"), "agent\n", &agent_origin()).unwrap();
    let write = session.record_editor_write(&path, Some("agent\n"), "refused\n", &agent_origin()).unwrap();
    session.cancel_editor_write(&write, &agent_origin()).unwrap();
    assert_eq!(project.observe(&agent_origin()), 0);
    project.write("a", "refused\n");
    assert_eq!(project.observe(&agent_origin()), 1);
}
