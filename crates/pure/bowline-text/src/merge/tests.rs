//! Tests of three-way merges: tables of merges and conflicts, and properties.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Merges texts in which `/` stands for a newline, both ways.
fn check(rows: &[(&str, &str, &str)], expected: Expect) {
    let mut out = String::new();
    for row in rows {
        let [base, ours, theirs] = [row.0, row.1, row.2].map(|text| text.replace('/', "\n"));
        let show = |text: &str| format!("{:?}", text.replace('\n', "/"));
        write!(out, "{:?} {:?} {:?}: ", row.0, row.1, row.2).unwrap();
        match merge(&base, &ours, &theirs) {
            Ok(merged) => {
                writeln!(out, "{}", show(&merged)).unwrap();
            }
            Err(conflict) => {
                writeln!(out, "! {conflict}").unwrap();
                for ConflictHunk { line, base, ours, theirs } in &conflict.hunks {
                    writeln!(out, "    {line}: {} {} {}", show(base), show(ours), show(theirs)).unwrap();
                }
            }
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn what_only_one_side_changed_is_taken() {
    check(
        &[
            ("", "", ""),
            ("", "x/", ""),
            ("", "", "x/"),
            ("a/b/c/", "A/b/c/", "a/b/C/"),
            ("a/b/c/", "a/b/C/", "A/b/c/"),
            ("a/b/c/", "b/c/", "a/b/c/d/"),
            ("a/b/c/", "x/a/b/c/", "a/b/"),
            ("a/b/c/d/e/", "x/b/C/d/e/", "a/b/c/d/y/"),
            ("a/b/c/", "a/b/c/", "x/"),
            ("a/b/c/", "a/B/c/", "a/b/c/"),
        ],
        expect![[r#"
            "" "" "": ""
            "" "x/" "": "x/"
            "" "" "x/": "x/"
            "a/b/c/" "A/b/c/" "a/b/C/": "A/b/C/"
            "a/b/c/" "a/b/C/" "A/b/c/": "A/b/C/"
            "a/b/c/" "b/c/" "a/b/c/d/": "b/c/d/"
            "a/b/c/" "x/a/b/c/" "a/b/": "x/a/b/"
            "a/b/c/d/e/" "x/b/C/d/e/" "a/b/c/d/y/": "x/b/C/d/y/"
            "a/b/c/" "a/b/c/" "x/": "x/"
            "a/b/c/" "a/B/c/" "a/b/c/": "a/B/c/"
        "#]],
    );
}

#[test]
fn equal_changes_are_taken_once() {
    check(
        &[
            ("a/b/c/", "a/B/c/", "a/B/c/"),
            ("a/b/c/d/e/", "A/b/C/d/e/", "a/b/C/d/E/"),
            ("a/b/c/d/", "a/c/d/", "a/c/D/"),
            ("a/b/c/", "x/a/b/c/", "x/a/b/C/"),
            ("", "x/", "x/"),
        ],
        expect![[r#"
            "a/b/c/" "a/B/c/" "a/B/c/": "a/B/c/"
            "a/b/c/d/e/" "A/b/C/d/e/" "a/b/C/d/E/": "A/b/C/d/E/"
            "a/b/c/d/" "a/c/d/" "a/c/D/": "a/c/D/"
            "a/b/c/" "x/a/b/c/" "x/a/b/C/": "x/a/b/C/"
            "" "x/" "x/": "x/"
        "#]],
    );
}

#[test]
fn changes_that_overlap_or_touch_conflict() {
    check(
        &[
            ("a/b/c/", "a/B/c/", "a/BB/c/"),
            ("a/b/c/", "A/b/c/", "a/B/c/"),
            ("a/b/c/", "a/c/", "a/B/c/"),
            ("a/b/c/", "b/c/", "a/c/"),
            ("a/b/", "a/x/b/", "a/y/b/"),
            ("a/b/", "a/x/b/", "a/B/"),
            ("a/b/", "a/x/b/", "A/b/"),
            ("a/b/", "a/b/x/", "a/b/y/"),
            ("a/b/c/d/e/f/", "a/B/c/D/e/f/", "a/b/C/d/e/F/"),
            ("a/b/c/", "A/b/c1/", "a2/b/c2/"),
            ("", "x/", "y/"),
            ("a/", "", "b/"),
        ],
        expect![[r#"
            "a/b/c/" "a/B/c/" "a/BB/c/": ! conflicting changes in 1 place, first at line 2
                2: "b/" "B/" "BB/"
            "a/b/c/" "A/b/c/" "a/B/c/": ! conflicting changes in 1 place, first at line 1
                1: "a/b/" "A/b/" "a/B/"
            "a/b/c/" "a/c/" "a/B/c/": ! conflicting changes in 1 place, first at line 2
                2: "b/" "" "B/"
            "a/b/c/" "b/c/" "a/c/": ! conflicting changes in 1 place, first at line 1
                1: "a/b/" "b/" "a/"
            "a/b/" "a/x/b/" "a/y/b/": ! conflicting changes in 1 place, first at line 2
                2: "" "x/" "y/"
            "a/b/" "a/x/b/" "a/B/": ! conflicting changes in 1 place, first at line 2
                2: "b/" "x/b/" "B/"
            "a/b/" "a/x/b/" "A/b/": ! conflicting changes in 1 place, first at line 1
                1: "a/" "a/x/" "A/"
            "a/b/" "a/b/x/" "a/b/y/": ! conflicting changes in 1 place, first at line 3
                3: "" "x/" "y/"
            "a/b/c/d/e/f/" "a/B/c/D/e/f/" "a/b/C/d/e/F/": ! conflicting changes in 1 place, first at line 2
                2: "b/c/d/" "B/c/D/" "b/C/d/"
            "a/b/c/" "A/b/c1/" "a2/b/c2/": ! conflicting changes in 2 places, first at line 1
                1: "a/" "A/" "a2/"
                3: "c/" "c1/" "c2/"
            "" "x/" "y/": ! conflicting changes in 1 place, first at line 1
                1: "" "x/" "y/"
            "a/" "" "b/": ! conflicting changes in 1 place, first at line 1
                1: "a/" "" "b/"
        "#]],
    );
}

#[test]
fn no_two_lines_are_glued_into_one() {
    check(
        &[
            // One side appends to an unterminated last line, the other changes another line, or terminates that one.
            ("a/b/foo", "A/b/foo", "a/b/foo/bar"),
            ("a/b/foo", "a/b/foo/", "A/b/foo"),
            ("a/foo", "a/foo/", "a/foo/bar"),
            ("a/foo", "a/foo/bar", "a/foo/baz"),
            ("a/foo", "a/foo/bar", "a/foo/bar"),
            ("foo", "x/foo", "foo/y"),
            ("a/b/foo/", "a/b/foo", "A/b/foo/"),
            ("a/b/foo/", "a/b/foo", "a/b/foo/bar/"),
            // One side removes the end of the text, the other its start.
            ("a/b/c/foo", "a/b/", "b/c/foo"),
            ("a/b/c/foo", "a/b", "b/c/foo"),
            ("foo", "", "foo/"),
            ("", "foo", "bar"),
        ],
        expect![[r#"
            "a/b/foo" "A/b/foo" "a/b/foo/bar": "A/b/foo/bar"
            "a/b/foo" "a/b/foo/" "A/b/foo": "A/b/foo/"
            "a/foo" "a/foo/" "a/foo/bar": ! conflicting changes in 1 place, first at line 2
                2: "foo" "foo/" "foo/bar"
            "a/foo" "a/foo/bar" "a/foo/baz": ! conflicting changes in 1 place, first at line 2
                2: "foo" "foo/bar" "foo/baz"
            "a/foo" "a/foo/bar" "a/foo/bar": "a/foo/bar"
            "foo" "x/foo" "foo/y": ! conflicting changes in 1 place, first at line 1
                1: "foo" "x/foo" "foo/y"
            "a/b/foo/" "a/b/foo" "A/b/foo/": "A/b/foo"
            "a/b/foo/" "a/b/foo" "a/b/foo/bar/": ! conflicting changes in 1 place, first at line 3
                3: "foo/" "foo" "foo/bar/"
            "a/b/c/foo" "a/b/" "b/c/foo": "b/"
            "a/b/c/foo" "a/b" "b/c/foo": ! conflicting changes in 1 place, first at line 1
                1: "a/b/c/foo" "a/b" "b/c/foo"
            "foo" "" "foo/": ! conflicting changes in 1 place, first at line 1
                1: "foo" "" "foo/"
            "" "foo" "bar": ! conflicting changes in 1 place, first at line 1
                1: "" "foo" "bar"
        "#]],
    );
}

#[test]
fn lines_are_compared_with_their_ends() {
    check(
        &[
            ("a\r/b\r/c\r/", "A\r/b\r/c\r/", "a\r/b\r/C\r/"),
            ("a\r/b\r/c\r/", "a/b/c/", "a\r/b\r/C\r/"),
            ("a\rb/c/d/", "a\rB/c/d/", "a\rb/c/D/"),
        ],
        expect![[r#"
            "a\r/b\r/c\r/" "A\r/b\r/c\r/" "a\r/b\r/C\r/": "A\r/b\r/C\r/"
            "a\r/b\r/c\r/" "a/b/c/" "a\r/b\r/C\r/": ! conflicting changes in 1 place, first at line 1
                1: "a\r/b\r/c\r/" "a/b/c/" "a\r/b\r/C\r/"
            "a\rb/c/d/" "a\rB/c/d/" "a\rb/c/D/": "a\rB/c/D/"
        "#]],
    );
}

#[test]
fn a_conflict_stays_small() {
    let text = |side: &str| -> String {
        (0..100).map(|number| format!("{side}{number} {}\n=\n", "é".repeat(3000))).collect()
    };
    let conflict = merge(&text("base"), &text("ours"), &text("theirs")).unwrap_err();
    assert_eq!((conflict.hunks.len(), conflict.total), (MAX_CONFLICT_HUNKS, 100));
    assert_eq!(conflict.hunks[MAX_CONFLICT_HUNKS - 1].line, 31);
    for hunk in &conflict.hunks {
        for text in [&hunk.base, &hunk.ours, &hunk.theirs] {
            assert!(
                text.ends_with("é…") && (MAX_HUNK_TEXT_BYTES - 1..=MAX_HUNK_TEXT_BYTES).contains(&text.len())
            );
        }
    }
    expect!["conflicting changes in 100 places, first at line 1"].assert_eq(&conflict.to_string());
    let fits = "x".repeat(MAX_HUNK_TEXT_BYTES);
    assert_eq!(merge(&fits, "", "y").unwrap_err().hunks[0].base, fits);
}

/// Merging must not take super-linear time: otherwise this test would take minutes.
#[test]
fn large_and_hostile_texts_are_merged_in_time() {
    let numbered =
        |from: usize, to: usize, line: &dyn Fn(usize) -> String| (from..to).map(line).collect::<String>();
    let base = numbered(0, 30_000, &|line| format!("line {line}\n"));
    let ours = numbered(0, 30_000, &|line| match line % 100 {
        10 => format!("ours {line}\n"),
        _ => format!("line {line}\n"),
    });
    let theirs = numbered(0, 30_000, &|line| match line % 100 {
        50 => String::new(),
        60 => format!("line {line}\ntheirs {line}\n"),
        _ => format!("line {line}\n"),
    });
    let merged = merge(&base, &ours, &theirs).unwrap();
    assert_eq!(merged.lines().count(), 30_000);

    let other = |name: &str| numbered(0, 20_000, &|line| format!("{name} {line}\n"));
    assert_eq!(merge(&other("base"), &other("ours"), &other("theirs")).unwrap_err().total, 1);

    let equal = |lines: usize| "equal\n".repeat(lines);
    assert_eq!(merge(&equal(100_000), &equal(50_000), &equal(70_000)).unwrap_err().total, 1);

    let long = "x".repeat(10_000_000);
    assert_eq!(merge(&long, &format!("{long}y"), &format!("y{long}")).unwrap_err().hunks[0].line, 1);
}

/// How one side changes a line of the base.
#[derive(Debug, Clone, Copy)]
enum LineChange {
    Keep,
    Remove,
    Change,
    InsertBefore,
}

/// Texts of distinct lines, the last with or without a terminator, and each side's change of each line.
fn any_line_changes() -> impl Strategy<Value = (Vec<(LineChange, LineChange)>, [bool; 3])> {
    use LineChange::{Change, InsertBefore, Keep, Remove};
    let change =
        || prop_oneof![8 => Just(Keep), 1 => Just(Remove), 1 => Just(Change), 1 => Just(InsertBefore)];
    (proptest::collection::vec((change(), change()), 0..20), any::<[bool; 3]>())
}

/// Returns the side's text, the lines it removed and the lines it added.
fn apply_changes(
    changes: impl Iterator<Item = LineChange>,
    name: &str,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut text, mut removed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for (line, change) in changes.enumerate() {
        let kept = format!("line {line}\n");
        let new = format!("{name} {line}\n");
        if matches!(change, LineChange::Change | LineChange::InsertBefore) {
            text.push(new.clone());
            added.push(new);
        }
        if matches!(change, LineChange::Keep | LineChange::InsertBefore) {
            text.push(kept);
        } else {
            removed.push(kept);
        }
    }
    (text, removed, added)
}

fn join_lines(lines: &[String], ended: bool) -> String {
    let text = lines.concat();
    if ended { text } else { text.strip_suffix('\n').unwrap_or_default().to_owned() }
}

/// Texts from few distinct lines, so that they repeat.
fn any_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\n", "c\r\n", "\n"]), 0..12)
        .prop_flat_map(|lines| (Just(lines.concat()), prop::sample::select(vec!["", "a", "b", "c", "d"])))
        .prop_map(|(lines, last)| lines + last)
}

proptest! {
    #[test]
    fn a_merge_has_all_that_was_kept_and_all_that_was_added((changes, ended) in any_line_changes()) {
        let (base, ..) = apply_changes(changes.iter().map(|_| LineChange::Keep), "");
        let (ours, removed_by_ours, added_by_ours) = apply_changes(changes.iter().map(|change| change.0), "ours");
        let (theirs, removed_by_theirs, added_by_theirs) = apply_changes(changes.iter().map(|change| change.1), "theirs");
        let [base_text, ours_text, theirs_text] =
            [(&base, ended[0]), (&ours, ended[1]), (&theirs, ended[2])].map(|(lines, ended)| join_lines(lines, ended));
        if let Ok(merged) = merge(&base_text, &ours_text, &theirs_text) {
            let mut expected: Vec<&str> = base
                .iter()
                .filter(|line| !removed_by_ours.contains(line) && !removed_by_theirs.contains(line))
                .chain(&added_by_ours)
                .chain(&added_by_theirs)
                .map(|line| line.trim_end())
                .collect();
            expected.sort_unstable();
            let mut found: Vec<&str> = merged.lines().collect();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        } else {
            // Two changes conflict only if no line that neither side touched lies between them.
            let alone = |at: usize| {
                let changed = |change: Option<&(LineChange, LineChange)>| {
                    change.map_or([false; 2], |&(ours, theirs)| [ours, theirs].map(|change| !matches!(change, LineChange::Keep)))
                };
                let near = [changed(changes.get(at)), changed(changes.get(at + 1))];
                !(near.iter().any(|changed| changed[0]) && near.iter().any(|changed| changed[1]))
            };
            prop_assert!(!(ended == [true; 3] && (0..changes.len()).all(alone)));
        }
    }

    #[test]
    fn a_side_that_changed_nothing_changes_nothing(base in any_text(), changed in any_text()) {
        prop_assert_eq!(merge(&base, &changed, &base), Ok(changed.clone()));
        prop_assert_eq!(merge(&base, &base, &changed), Ok(changed.clone()));
        prop_assert_eq!(merge(&base, &changed, &changed), Ok(changed.clone()));
    }

    #[test]
    fn which_side_is_ours_makes_no_difference(base in any_text(), ours in any_text(), theirs in any_text()) {
        match (merge(&base, &ours, &theirs), merge(&base, &theirs, &ours)) {
            (Ok(first), Ok(second)) => prop_assert_eq!(first, second),
            (Err(first), Err(second)) => prop_assert_eq!(first.total, second.total),
            (first, second) => prop_assert!(false, "{:?} but {:?}", first, second),
        }
    }

    #[test]
    fn every_line_of_a_merge_is_a_line_of_a_side(base in any_text(), ours in any_text(), theirs in any_text()) {
        if let Ok(merged) = merge(&base, &ours, &theirs) {
            let sides: BTreeSet<&str> = [&ours, &theirs].into_iter().flat_map(|text| text.split_inclusive('\n')).collect();
            for line in merged.split_inclusive('\n') {
                prop_assert!(sides.contains(line), "{:?}", line);
            }
        }
    }
}
