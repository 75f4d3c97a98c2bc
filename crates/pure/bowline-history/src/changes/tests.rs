//! Tests of grouping changes by their source.

use super::*;

#[test]
fn a_file_is_told_by_the_surest_way_it_was_learnt() {
    let change = |id, path: &str, source, command: Option<&str>| Change {
        id: ChangeId(id),
        at: Timestamp(0),
        origin: ChangeOrigin { command: command.map(str::to_owned), ..ChangeOrigin::default() },
        source,
        path: path.to_owned(),
        before: None,
        after: None,
        moved_from: None,
        reverses: Vec::new(),
    };
    let changes = [
        change(1, "/a", ChangeSource::Observed, None),
        change(2, "/a", ChangeSource::Written, None),
        change(3, "/b", ChangeSource::Observed, None),
        change(4, "/b", ChangeSource::Observed, Some("make")),
        change(5, "/c", ChangeSource::Observed, None),
        change(6, "/c", ChangeSource::Observed, None),
        change(7, "/d", ChangeSource::Claimed, None),
    ];
    let PathsBySource { written, by_commands, observed } = group_paths_by_source(&changes);
    assert_eq!((written, by_commands, observed), (vec!["/a".into()], vec!["/b".into()], vec!["/c".into()]));
}
