//! Tests of what a grant covers, and when it is revoked.

use super::*;

fn holder(session: &str, turn: u64) -> GrantHolder {
    GrantHolder { session: session.to_owned(), turn: Some(turn) }
}

fn write_operation(path: &str, inode: u64, before: &str, content: &str, after: &str) -> ResolvedOperation {
    ResolvedOperation::Write {
        path: path.to_owned(),
        file: Some(FileId { device: 1, inode }),
        before: Some(ContentHash::digest(before.as_bytes())),
        content: ContentHash::digest(content.as_bytes()),
        after: ContentHash::digest(after.as_bytes()),
    }
}

fn run_operation(line: &str, cwd: &str) -> ResolvedOperation {
    ResolvedOperation::Run {
        invocation: Invocation::Shell(line.to_owned()),
        cwd: cwd.to_owned(),
        env: Vec::new(),
    }
}

#[test]
fn a_grant_is_used_up_by_one_operation() {
    let mut grants = Grants::default();
    let ids = grants.add(&holder("s", 1), Some("t1"), [run_operation("make", "/w")]);
    let used = grants.take(&holder("s", 1), &run_operation("make", "/w"));
    assert_eq!(used, Some(UsedGrant { id: ids[0], call: Some("t1".to_owned()) }));
    assert_eq!(grants.take(&holder("s", 1), &run_operation("make", "/w")), None);
}

#[test]
fn a_grant_covers_what_was_shown_and_nothing_else() {
    let shown = write_operation("/w/f", 7, "old", "new", "new");
    let cases = [
        ("the same", write_operation("/w/f", 7, "old", "new", "new"), true),
        ("another text", write_operation("/w/f", 7, "old", "evil", "evil"), false),
        (
            "the same text with another result",
            write_operation("/w/f", 7, "old", "new", "merged otherwise"),
            false,
        ),
        ("another file under the name", write_operation("/w/f", 8, "old", "new", "new"), false),
        ("another name", write_operation("/w/g", 7, "old", "new", "new"), false),
        ("the user edited meanwhile", write_operation("/w/f", 7, "older", "new", "new"), false),
        (
            "a deletion",
            ResolvedOperation::Delete { path: "/w/f".to_owned(), file: Some(FileId { device: 1, inode: 7 }) },
            false,
        ),
    ];
    for (case, operation, covered) in cases {
        let mut grants = Grants::default();
        grants.add(&holder("s", 1), None, [shown.clone()]);
        let same_file = matches!(&operation, ResolvedOperation::Write { path, .. } if path == "/w/f");
        assert_eq!(grants.has_similar(&holder("s", 1), &operation), same_file, "{case}");
        assert!(!grants.has_similar(&holder("s", 2), &operation), "{case}");
        assert_eq!(grants.take(&holder("s", 1), &operation).is_some(), covered, "{case}");
        assert_eq!(grants.is_empty(), covered, "{case}: used up only if it covers");
    }
}

#[test]
fn a_command_is_bound_to_its_directory_and_environment() {
    let mut grants = Grants::default();
    grants.add(&holder("s", 1), None, [run_operation("make", "/w")]);
    assert!(grants.has_similar(&holder("s", 1), &run_operation("make", "/w/sub")));
    assert!(!grants.has_similar(&holder("s", 1), &run_operation("test", "/w")));
    assert_eq!(grants.take(&holder("s", 1), &run_operation("make", "/w/sub")), None);
    let with_environment = ResolvedOperation::Run {
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
    grants.add(&holder("s", 1), None, [run_operation("make", "/w")]);
    assert_eq!(grants.take(&holder("other", 1), &run_operation("make", "/w")), None);
    assert_eq!(grants.take(&holder("s", 2), &run_operation("make", "/w")), None);
    grants.end_turn(&holder("s", 2));
    assert_eq!(grants.len(), 1, "the end of another turn voids nothing here");
    grants.end_turn(&holder("s", 1));
    assert_eq!(grants.take(&holder("s", 1), &run_operation("make", "/w")), None);
}

#[test]
fn asking_again_for_a_call_voids_what_was_approved_for_it() {
    let mut grants = Grants::default();
    grants.add(&holder("s", 1), Some("t1"), [run_operation("make", "/w")]);
    grants.add(&holder("s", 1), Some("t2"), [run_operation("test", "/w")]);
    grants.add(&holder("other", 1), Some("t1"), [run_operation("make", "/w")]);
    grants.add(&holder("s", 1), Some("t1"), [run_operation("make clean", "/w")]);
    assert_eq!(grants.take(&holder("s", 1), &run_operation("make", "/w")), None);
    assert!(grants.take(&holder("other", 1), &run_operation("make", "/w")).is_some());
    assert!(grants.take(&holder("s", 1), &run_operation("test", "/w")).is_some());
}

#[test]
fn the_end_of_a_session_voids_its_grants_and_no_others() {
    let mut grants = Grants::default();
    grants.add(&holder("s", 1), Some("t1"), [run_operation("make", "/w")]);
    grants.add(&GrantHolder { session: "s".to_owned(), turn: None }, None, [run_operation("make", "/w")]);
    grants.add(&holder("other", 1), Some("t1"), [run_operation("make", "/w")]);
    grants.end_session("s");
    assert_eq!(grants.len(), 1);
    assert_eq!(grants.take(&holder("s", 1), &run_operation("make", "/w")), None);
    assert!(grants.take(&holder("other", 1), &run_operation("make", "/w")).is_some());
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let mut grants = Grants::default();
    for number in 0..=MAX_GRANTS {
        grants.add(&holder("s", 1), None, [run_operation(&number.to_string(), "/w")]);
    }
    assert_eq!(grants.len(), MAX_GRANTS);
    assert_eq!(grants.take(&holder("s", 1), &run_operation("0", "/w")), None);
    assert!(grants.take(&holder("s", 1), &run_operation("1", "/w")).is_some());
}
