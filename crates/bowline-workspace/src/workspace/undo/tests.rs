//! Undo of files that became directories, and of directories that became files.

use std::cell::RefCell;
use std::fs;

use bowline_history::changes::ChangeOrigin;
use bowline_history::undo::{ChangeSelection, ConflictResolution, ReversalDirection};

use crate::workspace::fixture::TestProject;

fn command_origin() -> ChangeOrigin {
    let (session, command) = (Some("s".to_owned()), Some("mv".to_owned()));
    ChangeOrigin { session, turn: Some(1), call: None, command }
}

/// Lists the files of the project with their contents.
fn list_tree(project: &TestProject) -> Vec<String> {
    fn list(directory: &str, root: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path().display().to_string();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                found.push(format!("{}/", &path[root.len()..]));
                list(&path, root, found);
            } else {
                found.push(format!("{}={}", &path[root.len()..], fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let root = project.path("");
    let mut found = Vec::new();
    list(&root, &root, &mut found);
    found.sort();
    found
}

#[test]
fn a_file_that_became_a_directory_comes_back_and_goes_again() {
    let project = TestProject::new(&[("x", "file"), ("y", "other")]);
    fs::remove_file(project.path("x")).unwrap();
    fs::create_dir_all(project.path("x/deep")).unwrap();
    project.write("x/a", "a");
    project.write("x/deep/b", "b");
    project.write("y", "changed");
    assert_eq!(project.observe(&command_origin()), 4);
    let after = ["x/", "x/a=a", "x/deep/", "x/deep/b=b", "y=changed"];
    assert_eq!(list_tree(&project), after);
    let turn = ChangeSelection::turn("s", 1);
    let foreseen = project.workspace.preview_undo(ReversalDirection::Undo, &turn).unwrap();
    assert!(foreseen.files.iter().all(|file| file.patch.is_ok()));
    let back = project.workspace.undo(&turn).unwrap();
    assert_eq!((back.files.len(), back.skipped.len()), (4, 0));
    assert_eq!(list_tree(&project), ["x=file", "y=other"]);
    // A redo restores all of it in one step.
    let again = project.workspace.redo(&ChangeSelection { limit: Some(1), ..turn.clone() }).unwrap();
    assert_eq!(again.files.len(), 4);
    assert_eq!(list_tree(&project), after);
    project.workspace.undo(&turn).unwrap();
    assert_eq!(list_tree(&project), ["x=file", "y=other"]);
}

#[test]
fn a_directory_that_became_a_file_comes_back() {
    let project = TestProject::new(&[]);
    fs::create_dir_all(project.path("d/e")).unwrap();
    project.write("d/a", "a");
    project.write("d/e/b", "b");
    project.observe(&ChangeOrigin::default());
    fs::remove_dir_all(project.path("d")).unwrap();
    project.write("d", "now a file");
    assert_eq!(project.observe(&command_origin()), 3);
    project.workspace.undo(&ChangeSelection::turn("s", 1)).unwrap();
    assert_eq!(list_tree(&project), ["d/", "d/a=a", "d/e/", "d/e/b=b"]);
}

#[test]
fn a_directory_with_something_else_in_it_stays_and_so_does_all_of_it() {
    let project = TestProject::new(&[("x", "file")]);
    fs::remove_file(project.path("x")).unwrap();
    fs::create_dir(project.path("x")).unwrap();
    project.write("x/a", "a");
    project.observe(&command_origin());
    project.write("x/mine", "mine");
    project.observe(&ChangeOrigin::default());
    let refused = project.workspace.undo(&ChangeSelection::turn("s", 1)).unwrap_err().to_string();
    assert!(refused.contains("directory"), "{refused}");
    assert_eq!(list_tree(&project), ["x/", "x/a=a", "x/mine=mine"]);
    // Once the directory has no other file, it can be undone.
    fs::remove_file(project.path("x/mine")).unwrap();
    project.workspace.undo(&ChangeSelection::turn("s", 1)).unwrap();
    assert_eq!(list_tree(&project), ["x=file"]);
}

#[test]
fn who_takes_back_many_files_is_told_how_far_it_is() {
    let project = TestProject::new(&[]);
    let session = project.workspace.session("s");
    let origin = session.origin(Some(1), None);
    for number in 0..5 {
        session.write(&project.path(&format!("f{number}")), "x\n", &origin).unwrap();
    }
    let told = RefCell::new(Vec::new());
    project
        .workspace
        .undo_or_redo(
            ReversalDirection::Undo,
            &ChangeSelection::turn("s", 1),
            ConflictResolution::Refuse,
            &|done, of| told.borrow_mut().push((done, of)),
        )
        .unwrap();
    assert_eq!(told.take(), [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
    project
        .workspace
        .undo_or_redo(
            ReversalDirection::Redo,
            &ChangeSelection::turn("s", 1),
            ConflictResolution::Refuse,
            &|done, of| told.borrow_mut().push((done, of)),
        )
        .unwrap();
    assert_eq!(told.take().last(), Some(&(5, 5)));
}
