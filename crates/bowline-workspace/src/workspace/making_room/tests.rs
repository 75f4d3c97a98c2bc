//! Files that became directories and come back, and the other way round.

use std::cell::RefCell;
use std::fs;

use bowline_state::changes::Origin;
use bowline_state::undo::{Direction, Resolution, Selection};

use crate::workspace::fixture::Project;

fn command() -> Origin {
    let (session, command) = (Some("s".to_owned()), Some("mv".to_owned()));
    Origin { session, turn: Some(1), call: None, command }
}

/// The files of the project, with what they hold.
fn tree(project: &Project) -> Vec<String> {
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
    let project = Project::new(&[("x", "file"), ("y", "other")]);
    fs::remove_file(project.path("x")).unwrap();
    fs::create_dir_all(project.path("x/deep")).unwrap();
    project.write("x/a", "a");
    project.write("x/deep/b", "b");
    project.write("y", "changed");
    assert_eq!(project.observe(&command()), 4);
    let after = ["x/", "x/a=a", "x/deep/", "x/deep/b=b", "y=changed"];
    assert_eq!(tree(&project), after);
    let turn = Selection::turn("s", 1);
    let foreseen = project.workspace.foresee(Direction::Undo, &turn).unwrap();
    assert!(foreseen.files.iter().all(|file| file.patch.is_ok()));
    let back = project.workspace.undo(&turn).unwrap();
    assert_eq!((back.files.len(), back.left.len()), (4, 0));
    assert_eq!(tree(&project), ["x=file", "y=other"]);
    // And as one gesture, all of it.
    let again = project.workspace.redo(&Selection { last: Some(1), ..turn.clone() }).unwrap();
    assert_eq!(again.files.len(), 4);
    assert_eq!(tree(&project), after);
    project.workspace.undo(&turn).unwrap();
    assert_eq!(tree(&project), ["x=file", "y=other"]);
}

#[test]
fn a_directory_that_became_a_file_comes_back() {
    let project = Project::new(&[]);
    fs::create_dir_all(project.path("d/e")).unwrap();
    project.write("d/a", "a");
    project.write("d/e/b", "b");
    project.observe(&Origin::default());
    fs::remove_dir_all(project.path("d")).unwrap();
    project.write("d", "now a file");
    assert_eq!(project.observe(&command()), 3);
    project.workspace.undo(&Selection::turn("s", 1)).unwrap();
    assert_eq!(tree(&project), ["d/", "d/a=a", "d/e/", "d/e/b=b"]);
}

#[test]
fn a_directory_with_something_else_in_it_stays_and_so_does_all_of_it() {
    let project = Project::new(&[("x", "file")]);
    fs::remove_file(project.path("x")).unwrap();
    fs::create_dir(project.path("x")).unwrap();
    project.write("x/a", "a");
    project.observe(&command());
    project.write("x/mine", "mine");
    project.observe(&Origin::default());
    let refused = project.workspace.undo(&Selection::turn("s", 1)).unwrap_err().to_string();
    assert!(refused.contains("directory"), "{refused}");
    assert_eq!(tree(&project), ["x/", "x/a=a", "x/mine=mine"]);
    // Once it is empty but for that, it can be taken back.
    fs::remove_file(project.path("x/mine")).unwrap();
    project.workspace.undo(&Selection::turn("s", 1)).unwrap();
    assert_eq!(tree(&project), ["x=file"]);
}

#[test]
fn who_takes_back_many_files_is_told_how_far_it_is() {
    let project = Project::new(&[]);
    let session = project.workspace.session("s");
    let origin = session.origin(Some(1), None);
    for number in 0..5 {
        session.write(&project.path(&format!("f{number}")), "x\n", &origin).unwrap();
    }
    let told = RefCell::new(Vec::new());
    project
        .workspace
        .take_back(Direction::Undo, &Selection::turn("s", 1), Resolution::Refuse, &|done, of| {
            told.borrow_mut().push((done, of))
        })
        .unwrap();
    assert_eq!(told.take(), [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
    project
        .workspace
        .take_back(Direction::Redo, &Selection::turn("s", 1), Resolution::Refuse, &|done, of| {
            told.borrow_mut().push((done, of))
        })
        .unwrap();
    assert_eq!(told.take().last(), Some(&(5, 5)));
}
