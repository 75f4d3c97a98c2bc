//! A byte order mark in an editor's text becomes the file's, once.

use crate::workspace::fixture::TestProject;

#[test]
fn a_mark_in_the_text_of_a_document_is_the_files_and_there_once() {
    let project = TestProject::new(&[("marked", "\u{feff}one\n"), ("plain", "one\n")]);
    let workspace = &project.workspace;
    for (name, saved) in [("marked", "\u{feff}two\n"), ("plain", "two\n"), ("new", "\u{feff}two\n")] {
        let path = project.path(name);
        let revision = workspace.open_document(&path).unwrap().revision;
        let shown = workspace.change_document(&path, "\u{feff}two\n".to_owned(), revision).unwrap();
        assert_eq!(shown.text.as_str(), "two\n", "{name}");
        workspace.save_document(&path).unwrap();
        assert_eq!(project.read(name).as_deref(), Some(saved), "{name}");
    }
    // A text without a mark keeps the file's.
    let path = project.path("marked");
    let revision = workspace.document(&path).unwrap().unwrap().revision;
    workspace.change_document(&path, "three\n".to_owned(), revision).unwrap();
    workspace.save_document(&path).unwrap();
    assert_eq!(project.read("marked").as_deref(), Some("\u{feff}three\n"));
}
