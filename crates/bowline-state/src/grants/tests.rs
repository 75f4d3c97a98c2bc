//! What a grant covers, and when it is void.

use super::*;

fn holder(session: &str, turn: u64) -> Holder {
    Holder { session: session.to_owned(), turn: Some(turn) }
}

fn write(path: &str, inode: u64, before: &str, content: &str, after: &str) -> Deed {
    Deed::Write {
        path: path.to_owned(),
        file: Some(FileId { device: 1, inode }),
        before: Some(ContentHash::of(before.as_bytes())),
        content: ContentHash::of(content.as_bytes()),
        after: ContentHash::of(after.as_bytes()),
    }
}

fn run(line: &str, cwd: &str) -> Deed {
    Deed::Run { invocation: Invocation::Shell(line.to_owned()), cwd: cwd.to_owned(), env: Vec::new() }
}

#[test]
fn a_grant_is_used_up_by_one_operation() {
    let mut grants = Grants::default();
    let given = grants.give(&holder("s", 1), Some("t1"), [run("make", "/w")]);
    let taken = grants.take(&holder("s", 1), &run("make", "/w"));
    assert_eq!(taken, Some(Taken { id: given[0], call: Some("t1".to_owned()) }));
    assert_eq!(grants.take(&holder("s", 1), &run("make", "/w")), None);
}

#[test]
fn a_grant_covers_what_was_shown_and_nothing_else() {
    let shown = write("/w/f", 7, "old", "new", "new");
    let cases = [
        ("the same", write("/w/f", 7, "old", "new", "new"), true),
        ("another text", write("/w/f", 7, "old", "evil", "evil"), false),
        ("the same text with another result", write("/w/f", 7, "old", "new", "merged otherwise"), false),
        ("another file under the name", write("/w/f", 8, "old", "new", "new"), false),
        ("another name", write("/w/g", 7, "old", "new", "new"), false),
        ("the user edited meanwhile", write("/w/f", 7, "older", "new", "new"), false),
        (
            "a deletion",
            Deed::Delete { path: "/w/f".to_owned(), file: Some(FileId { device: 1, inode: 7 }) },
            false,
        ),
    ];
    for (what, act, covered) in cases {
        let mut grants = Grants::default();
        grants.give(&holder("s", 1), None, [shown.clone()]);
        let same_file = matches!(&act, Deed::Write { path, .. } if path == "/w/f");
        assert_eq!(grants.has_like(&holder("s", 1), &act), same_file, "{what}");
        assert!(!grants.has_like(&holder("s", 2), &act), "{what}");
        assert_eq!(grants.take(&holder("s", 1), &act).is_some(), covered, "{what}");
        assert_eq!(grants.is_empty(), covered, "{what}: used up only if it covers");
    }
}

#[test]
fn a_command_is_bound_to_its_directory_and_environment() {
    let mut grants = Grants::default();
    grants.give(&holder("s", 1), None, [run("make", "/w")]);
    assert!(grants.has_like(&holder("s", 1), &run("make", "/w/sub")));
    assert!(!grants.has_like(&holder("s", 1), &run("test", "/w")));
    assert_eq!(grants.take(&holder("s", 1), &run("make", "/w/sub")), None);
    let with_environment = Deed::Run {
        invocation: Invocation::Shell("make".to_owned()),
        cwd: "/w".to_owned(),
        env: vec![("LD_PRELOAD".to_owned(), "/w/x.so".to_owned())],
    };
    assert_eq!(grants.take(&holder("s", 1), &with_environment), None);
    assert_eq!(grants.len(), 1);
}

#[test]
fn a_grant_belongs_to_its_session_and_turn() {
    let mut grants = Grants::default();
    grants.give(&holder("s", 1), None, [run("make", "/w")]);
    assert_eq!(grants.take(&holder("other", 1), &run("make", "/w")), None);
    assert_eq!(grants.take(&holder("s", 2), &run("make", "/w")), None);
    grants.end_turn(&holder("s", 2));
    assert_eq!(grants.len(), 1, "the end of another turn voids nothing here");
    grants.end_turn(&holder("s", 1));
    assert_eq!(grants.take(&holder("s", 1), &run("make", "/w")), None);
}

#[test]
fn asking_again_for_a_call_voids_what_was_approved_for_it() {
    let mut grants = Grants::default();
    grants.give(&holder("s", 1), Some("t1"), [run("make", "/w")]);
    grants.give(&holder("s", 1), Some("t2"), [run("test", "/w")]);
    grants.give(&holder("other", 1), Some("t1"), [run("make", "/w")]);
    grants.give(&holder("s", 1), Some("t1"), [run("make clean", "/w")]);
    assert_eq!(grants.take(&holder("s", 1), &run("make", "/w")), None);
    assert!(grants.take(&holder("other", 1), &run("make", "/w")).is_some());
    assert!(grants.take(&holder("s", 1), &run("test", "/w")).is_some());
}

#[test]
fn the_end_of_a_session_voids_its_grants_and_no_others() {
    let mut grants = Grants::default();
    grants.give(&holder("s", 1), Some("t1"), [run("make", "/w")]);
    grants.give(&Holder { session: "s".to_owned(), turn: None }, None, [run("make", "/w")]);
    grants.give(&holder("other", 1), Some("t1"), [run("make", "/w")]);
    grants.end_session("s");
    assert_eq!(grants.len(), 1);
    assert_eq!(grants.take(&holder("s", 1), &run("make", "/w")), None);
    assert!(grants.take(&holder("other", 1), &run("make", "/w")).is_some());
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let mut grants = Grants::default();
    for number in 0..=MAX_GRANTS {
        grants.give(&holder("s", 1), None, [run(&number.to_string(), "/w")]);
    }
    assert_eq!(grants.len(), MAX_GRANTS);
    assert_eq!(grants.take(&holder("s", 1), &run("0", "/w")), None);
    assert!(grants.take(&holder("s", 1), &run("1", "/w")).is_some());
}
