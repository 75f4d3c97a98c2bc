//! Titles of turns.

use super::{MAX_FILE_BYTES, TITLES_FILE};
use crate::workspace::fixture::TestProject;

#[test]
fn a_turn_is_titled_by_the_first_line_of_its_prompt() {
    let project = TestProject::new(&[]);
    let workspace = &project.workspace;
    workspace.record_turn_title("s", 1, "\n  Fix the typo\nin README.md");
    workspace.record_turn_title("s", 2, &"long ".repeat(100));
    workspace.record_turn_title("s", 3, " \n");
    workspace.record_turn_title("t", 1, "an\u{1b}[31mother");
    // A turn that changed nothing has its number reused.
    workspace.record_turn_title("s", 1, "Fix the other typo");
    let titles = workspace.turn_titles();
    assert_eq!(titles.get("s", 1), Some("Fix the other typo"));
    assert!(
        titles
            .get("s", 2)
            .is_some_and(|title| title.len() < 210 && title.starts_with("long long") && title.ends_with('…'))
    );
    assert_eq!((titles.get("s", 3), titles.get("t", 1)), (None, Some("an\\u{1b}[31mother")));
}

#[test]
fn old_titles_go_and_broken_lines_are_left_out() {
    let project = TestProject::new(&[]);
    let workspace = &project.workspace;
    let file = workspace.inner.journal_directory.join(TITLES_FILE);
    let mut turn = 0;
    let length = || std::fs::metadata(&file).map_or(0, |found| found.len());
    while length() <= MAX_FILE_BYTES - 400 {
        turn += 1;
        workspace.record_turn_title("s", turn, &"x".repeat(300));
    }
    std::fs::write(&file, [std::fs::read(&file).unwrap(), b"{\"session\":\n".repeat(40)].concat()).unwrap();
    workspace.record_turn_title("s", turn + 1, "the last one");
    let titles = workspace.turn_titles();
    assert!(length() < MAX_FILE_BYTES * 2 / 3 && titles.get("s", 1).is_none());
    assert!(titles.get("s", turn).is_some());
    assert_eq!(titles.get("s", turn + 1), Some("the last one"));
}
