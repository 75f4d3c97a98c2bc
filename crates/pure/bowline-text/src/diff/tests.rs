//! Tests of diffs: tables of hunks and edits, patches in git's format, and properties.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::hash::ContentHash;

/// Shows the hunks and edits between texts in which `/` stands for a newline.
fn check(rows: &[(&str, &str)], expected: Expect) {
    let mut out = String::new();
    for (old, new) in rows {
        let [old_text, new_text] = [old, new].map(|text| text.replace('/', "\n"));
        let DiffStat { added, removed } = compute_stat(&old_text, &new_text);
        writeln!(out, "{old:?} {new:?}: +{added} -{removed}").unwrap();
        for (hunk, edit) in
            compute_hunks(&old_text, &new_text).iter().zip(compute_edits(&old_text, &new_text))
        {
            let replaced = old_text[edit.range.clone()].replace('\n', "/");
            let text = edit.text.replace('\n', "/");
            writeln!(out, "    {:?} {:?}, at {} {replaced:?} {text:?}", hunk.old, hunk.new, edit.range.start)
                .unwrap();
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn a_hunk_is_one_region_of_lines() {
    check(
        &[
            ("", ""),
            ("a/", "a/"),
            ("", "a/b/"),
            ("a/b/", ""),
            ("a/b/c/", "a/B/c/"),
            ("a/b/c/d/", "a/x/y/d/"),
            ("a/b/c/", "A/b/C/"),
            ("a/b/c/", "b/c/d/"),
            ("a/b", "a/b/"),
            ("a/b/", "a/b"),
            ("a", "a/b"),
        ],
        expect![[r#"
            "" "": +0 -0
            "a/" "a/": +0 -0
            "" "a/b/": +2 -0
                0..0 0..2, at 0 "" "a/b/"
            "a/b/" "": +0 -2
                0..2 0..0, at 0 "a/b/" ""
            "a/b/c/" "a/B/c/": +1 -1
                1..2 1..2, at 2 "b" "B"
            "a/b/c/d/" "a/x/y/d/": +2 -2
                1..3 1..3, at 2 "b/c" "x/y"
            "a/b/c/" "A/b/C/": +2 -2
                0..1 0..1, at 0 "a" "A"
                2..3 2..3, at 4 "c" "C"
            "a/b/c/" "b/c/d/": +1 -1
                0..1 0..0, at 0 "a/" ""
                3..3 2..3, at 6 "" "d/"
            "a/b" "a/b/": +1 -1
                1..2 1..2, at 3 "" "/"
            "a/b/" "a/b": +1 -1
                1..2 1..2, at 3 "/" ""
            "a" "a/b": +2 -1
                0..1 0..2, at 1 "" "/b"
        "#]],
    );
}

#[test]
fn an_edit_leaves_the_characters_that_stay() {
    check(
        &[
            ("one two three/", "one 2 three/"),
            ("one/two/", "one/tw/o/"),
            ("aa/", "aaa/"),
            ("é/", "è/"),
            ("😀x/", "😁x/"),
            ("xé/", "xã©/"),
            ("aéb/", "aÃb/"),
            ("a\r/", "a/"),
            ("a/", "a\r/"),
            ("a\r/", "a\r\r/"),
            ("a\r/", "b\r/"),
            ("a\r/", "a\r"),
            ("a\r", "a\r/"),
        ],
        expect![[r#"
            "one two three/" "one 2 three/": +1 -1
                0..1 0..1, at 4 "two" "2"
            "one/two/" "one/tw/o/": +2 -1
                1..2 1..3, at 6 "" "/"
            "aa/" "aaa/": +1 -1
                0..1 0..1, at 2 "" "a"
            "é/" "è/": +1 -1
                0..1 0..1, at 0 "é" "è"
            "😀x/" "😁x/": +1 -1
                0..1 0..1, at 0 "😀" "😁"
            "xé/" "xã©/": +1 -1
                0..1 0..1, at 1 "é" "ã©"
            "aéb/" "aÃb/": +1 -1
                0..1 0..1, at 1 "é" "Ã"
            "a\r/" "a/": +1 -1
                0..1 0..1, at 1 "\r/" "/"
            "a/" "a\r/": +1 -1
                0..1 0..1, at 1 "/" "\r/"
            "a\r/" "a\r\r/": +1 -1
                0..1 0..1, at 1 "" "\r"
            "a\r/" "b\r/": +1 -1
                0..1 0..1, at 0 "a" "b"
            "a\r/" "a\r": +1 -1
                0..1 0..1, at 1 "\r/" "\r"
            "a\r" "a\r/": +1 -1
                0..1 0..1, at 1 "\r" "\r/"
        "#]],
    );
}

#[test]
fn edits_must_be_in_order_and_at_characters() {
    let edit = |range: Range<usize>| TextEdit { range, text: "-".to_owned() };
    let mut out = String::new();
    for edits in [
        vec![],
        vec![edit(0..0), edit(0..1), edit(1..1), edit(1..3), edit(3..4), edit(4..4)],
        vec![edit(1..3), edit(0..1)],
        vec![edit(0..3), edit(1..3)],
        vec![edit(2..3)],
        vec![edit(0..2)],
        vec![edit(4..5)],
        vec![edit(5..5)],
        vec![edit(Range { start: 1, end: 0 })],
    ] {
        match apply_edits("aéb", &edits) {
            Ok(text) => writeln!(out, "{text:?}").unwrap(),
            Err(error) => writeln!(out, "! {error}").unwrap(),
        }
    }
    expect![[r#"
        "aéb"
        "------"
        ! the edit of bytes 0 to 1 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 1 to 3 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 2 to 3 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 0 to 2 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 4 to 5 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 5 to 5 does not fit: edits go from start to end without overlap, and split no character
        ! the edit of bytes 1 to 0 does not fit: edits go from start to end without overlap, and split no character
    "#]].assert_eq(&out);
}

#[test]
fn hunks_are_taken_back_by_their_places() {
    let (old, new) = ("a\nb\nc\nd\ne", "A\nb\nx\nc\ne\nf\n");
    let mut out = String::new();
    for indices in [&[][..], &[0], &[1], &[2], &[3], &[2, 0, 2], &[0, 1, 2], &[3, 1]] {
        match revert_hunks(old, new, indices) {
            Ok(text) => writeln!(out, "{indices:?} {text:?}").unwrap(),
            Err(error) => writeln!(out, "{indices:?} ! {error}").unwrap(),
        }
    }
    expect![[r#"
        [] "A\nb\nx\nc\ne\nf\n"
        [0] "a\nb\nx\nc\ne\nf\n"
        [1] "A\nb\nc\ne\nf\n"
        [2] "A\nb\nx\nc\nd\ne"
        [3] ! no hunk 3: the change has 3, numbered from 0
        [2, 0, 2] "a\nb\nx\nc\nd\ne"
        [0, 1, 2] "a\nb\nc\nd\ne"
        [3, 1] ! no hunk 3: the change has 3, numbered from 0
    "#]]
    .assert_eq(&out);
}

const REGULAR_MODE: u32 = 0o644;
const EXECUTABLE_MODE: u32 = 0o755;

fn text_side(text: &str, mode: u32) -> Option<DiffSide<'_>> {
    Some(DiffSide { content: DiffContent::Text(text), mode })
}

fn opaque_side(bytes: &[u8], mode: u32) -> Option<DiffSide<'static>> {
    Some(DiffSide { content: DiffContent::Opaque(ContentHash::digest(bytes)), mode })
}

fn check_unified(path: &str, before: Option<DiffSide<'_>>, after: Option<DiffSide<'_>>, expected: Expect) {
    expected.assert_eq(&format_unified_diff(&FileDiff { path, before, after }, 3));
}

fn numbered_lines(changed: &[usize]) -> String {
    (1..=20)
        .map(|line| format!("{line}{}\n", if changed.contains(&line) { " changed" } else { "" }))
        .collect()
}

#[test]
fn changes_share_a_group_as_long_as_their_contexts_meet() {
    check_unified(
        "src/a.rs",
        text_side(&numbered_lines(&[]), REGULAR_MODE),
        text_side(&numbered_lines(&[5, 12]), REGULAR_MODE),
        expect![[r#"
            diff --git a/src/a.rs b/src/a.rs
            --- a/src/a.rs
            +++ b/src/a.rs
            @@ -2,14 +2,14 @@
             2
             3
             4
            -5
            +5 changed
             6
             7
             8
             9
             10
             11
            -12
            +12 changed
             13
             14
             15
        "#]],
    );
    check_unified(
        "src/a.rs",
        text_side(&numbered_lines(&[]), REGULAR_MODE),
        text_side(&numbered_lines(&[1, 9, 20]), REGULAR_MODE),
        expect![[r#"
            diff --git a/src/a.rs b/src/a.rs
            --- a/src/a.rs
            +++ b/src/a.rs
            @@ -1,4 +1,4 @@
            -1
            +1 changed
             2
             3
             4
            @@ -6,7 +6,7 @@
             6
             7
             8
            -9
            +9 changed
             10
             11
             12
            @@ -17,4 +17,4 @@
             17
             18
             19
            -20
            +20 changed
        "#]],
    );
}

#[test]
fn context_may_be_none_or_all() {
    let (old, new) =
        (numbered_lines(&[]), numbered_lines(&[5, 6, 8]).replace("10\n", "").replace("15\n", "15\nnew\n"));
    let file =
        FileDiff { path: "a", before: text_side(&old, REGULAR_MODE), after: text_side(&new, REGULAR_MODE) };
    expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -5,2 +5,2 @@
        -5
        -6
        +5 changed
        +6 changed
        @@ -8 +8 @@
        -8
        +8 changed
        @@ -10 +9,0 @@
        -10
        @@ -15,0 +15 @@
        +new
    "#]]
    .assert_eq(&format_unified_diff(&file, 0));
    expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,20 +1,20 @@
         1
         2
         3
         4
        -5
        -6
        +5 changed
        +6 changed
         7
        -8
        +8 changed
         9
        -10
         11
         12
         13
         14
         15
        +new
         16
         17
         18
         19
         20
    "#]]
    .assert_eq(&format_unified_diff(&file, usize::MAX));
}

#[test]
fn files_come_and_go() {
    check_unified(
        "new",
        None,
        text_side("a\nb\n", REGULAR_MODE),
        expect![[r#"
        diff --git a/new b/new
        new file mode 100644
        --- /dev/null
        +++ b/new
        @@ -0,0 +1,2 @@
        +a
        +b
    "#]],
    );
    check_unified(
        "new",
        None,
        text_side("a", EXECUTABLE_MODE),
        expect![[r#"
        diff --git a/new b/new
        new file mode 100755
        --- /dev/null
        +++ b/new
        @@ -0,0 +1 @@
        +a
        \ No newline at end of file
    "#]],
    );
    check_unified(
        "old",
        text_side("a\nb\n", 0o600),
        None,
        expect![[r#"
        diff --git a/old b/old
        deleted file mode 100644
        --- a/old
        +++ /dev/null
        @@ -1,2 +0,0 @@
        -a
        -b
    "#]],
    );
    check_unified(
        "empty",
        None,
        text_side("", REGULAR_MODE),
        expect![[r#"
        diff --git a/empty b/empty
        new file mode 100644
    "#]],
    );
    check_unified(
        "empty",
        text_side("", EXECUTABLE_MODE),
        None,
        expect![[r#"
        diff --git a/empty b/empty
        deleted file mode 100755
    "#]],
    );
    check_unified(
        "filled",
        text_side("", REGULAR_MODE),
        text_side("a\n", REGULAR_MODE),
        expect![[r#"
        diff --git a/filled b/filled
        --- a/filled
        +++ b/filled
        @@ -0,0 +1 @@
        +a
    "#]],
    );
    check_unified(
        "emptied",
        text_side("a\n", REGULAR_MODE),
        text_side("", REGULAR_MODE),
        expect![[r#"
        diff --git a/emptied b/emptied
        --- a/emptied
        +++ b/emptied
        @@ -1 +0,0 @@
        -a
    "#]],
    );
    check_unified("never", None, None, expect![[r#""#]]);
}

#[test]
fn a_last_line_without_an_end_is_marked() {
    check_unified(
        "a",
        text_side("x\na", REGULAR_MODE),
        text_side("x\na\n", REGULAR_MODE),
        expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,2 +1,2 @@
         x
        -a
        \ No newline at end of file
        +a
    "#]],
    );
    check_unified(
        "a",
        text_side("x\na\n", REGULAR_MODE),
        text_side("x\na", REGULAR_MODE),
        expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,2 +1,2 @@
         x
        -a
        +a
        \ No newline at end of file
    "#]],
    );
    check_unified(
        "a",
        text_side("x\na", REGULAR_MODE),
        text_side("y\na", REGULAR_MODE),
        expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,2 +1,2 @@
        -x
        +y
         a
        \ No newline at end of file
    "#]],
    );
    check_unified(
        "a",
        text_side("x\na", REGULAR_MODE),
        text_side("x\na\nb", REGULAR_MODE),
        expect![[r#"
        diff --git a/a b/a
        --- a/a
        +++ b/a
        @@ -1,2 +1,3 @@
         x
        -a
        \ No newline at end of file
        +a
        +b
        \ No newline at end of file
    "#]],
    );
}

#[test]
fn a_carriage_return_belongs_to_its_line() {
    let patch = format_unified_diff(
        &FileDiff {
            path: "a",
            before: text_side("x\r\na\r\n", REGULAR_MODE),
            after: text_side("x\r\na\n", REGULAR_MODE),
        },
        3,
    );
    expect![[r#""diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\r\n-a\r\n+a\n""#]]
        .assert_eq(&format!("{patch:?}"));
}

#[test]
fn of_the_mode_only_execution_is_told() {
    check_unified(
        "a",
        text_side("a\n", REGULAR_MODE),
        text_side("a\n", EXECUTABLE_MODE),
        expect![[r#"
        diff --git a/a b/a
        old mode 100644
        new mode 100755
    "#]],
    );
    check_unified(
        "a",
        text_side("a\n", EXECUTABLE_MODE),
        text_side("b\n", 0o600),
        expect![[r#"
        diff --git a/a b/a
        old mode 100755
        new mode 100644
        --- a/a
        +++ b/a
        @@ -1 +1 @@
        -a
        +b
    "#]],
    );
    check_unified("a", text_side("a\n", 0o644), text_side("a\n", 0o600), expect![[r#""#]]);
}

#[test]
fn bodies_that_are_no_text_are_said_to_differ() {
    check_unified(
        "a b",
        opaque_side(b"\0", REGULAR_MODE),
        opaque_side(b"\0\0", EXECUTABLE_MODE),
        expect![[r#"
        diff --git a/a b b/a b
        old mode 100644
        new mode 100755
        Binary files a/a b and b/a b differ
    "#]],
    );
    check_unified(
        "a",
        opaque_side(b"\0", REGULAR_MODE),
        opaque_side(b"\0", EXECUTABLE_MODE),
        expect![[r#"
        diff --git a/a b/a
        old mode 100644
        new mode 100755
    "#]],
    );
    check_unified("a", opaque_side(b"\0", REGULAR_MODE), opaque_side(b"\0", REGULAR_MODE), expect![[r#""#]]);
    check_unified(
        "a",
        None,
        opaque_side(b"\0", REGULAR_MODE),
        expect![[r#"
        diff --git a/a b/a
        new file mode 100644
        Binary files /dev/null and b/a differ
    "#]],
    );
    check_unified(
        "a",
        opaque_side(b"\0", REGULAR_MODE),
        None,
        expect![[r#"
        diff --git a/a b/a
        deleted file mode 100644
        Binary files a/a and /dev/null differ
    "#]],
    );
    check_unified(
        "é",
        text_side("a\n", REGULAR_MODE),
        opaque_side(b"\0", REGULAR_MODE),
        expect![[r#"
        diff --git "a/\303\251" "b/\303\251"
        Binary files "a/\303\251" and "b/\303\251" differ
    "#]],
    );
}

#[test]
fn odd_names_are_quoted() {
    for (path, expected) in [
        (
            "my file",
            expect![[r#"
            "diff --git a/my file b/my file"
            "--- a/my file\t"
            "+++ b/my file\t"
        "#]],
        ),
        (
            "t\tq\"\\é\u{1}\u{7f} x",
            expect![[r#"
            "diff --git \"a/t\\tq\\\"\\\\\\303\\251\\001\\177 x\" \"b/t\\tq\\\"\\\\\\303\\251\\001\\177 x\""
            "--- \"a/t\\tq\\\"\\\\\\303\\251\\001\\177 x\"\t"
            "+++ \"b/t\\tq\\\"\\\\\\303\\251\\001\\177 x\"\t"
        "#]],
        ),
        (
            "\u{7}\u{8}\n\u{b}\u{c}\r'~!",
            expect![[r#"
            "diff --git \"a/\\a\\b\\n\\v\\f\\r'~!\" \"b/\\a\\b\\n\\v\\f\\r'~!\""
            "--- \"a/\\a\\b\\n\\v\\f\\r'~!\""
            "+++ \"b/\\a\\b\\n\\v\\f\\r'~!\""
        "#]],
        ),
    ] {
        let patch = format_unified_diff(
            &FileDiff { path, before: text_side("a\n", REGULAR_MODE), after: text_side("b\n", REGULAR_MODE) },
            3,
        );
        expected.assert_eq(&patch.lines().take(3).map(|line| format!("{line:?}\n")).collect::<String>());
    }
}

/// Applies a patch strictly: every line must match the patch in position and content.
fn apply_patch(old: &str, patch: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let mut rest = patch.split_inclusive('\n').skip_while(|line| !line.starts_with("@@")).peekable();
    let mut new: Vec<String> = Vec::new();
    let mut done = 0;
    while let Some(header) = rest.next() {
        let ranges = header.strip_prefix("@@ -").and_then(|header| header.strip_suffix(" @@\n")).unwrap();
        let (old_range, new_range) = ranges.split_once(" +").unwrap();
        let range = |text: &str| -> (usize, usize) {
            let (start, count) = text.split_once(',').unwrap_or((text, "1"));
            let (start, count): (usize, usize) = (start.parse().unwrap(), count.parse().unwrap());
            (if count == 0 { start } else { start - 1 }, count)
        };
        let ((old_start, old_count), (new_start, new_count)) = (range(old_range), range(new_range));
        assert!(old_start >= done && old_count + new_count > 0);
        new.extend(old[done..old_start].iter().map(|line| (*line).to_owned()));
        done = old_start;
        assert_eq!(new.len(), new_start);
        while let Some(line) = rest.next_if(|line| !line.starts_with("@@")) {
            let ended = rest.next_if(|line| *line == "\\ No newline at end of file\n").is_none();
            let body = if ended { &line[1..] } else { line[1..].strip_suffix('\n').unwrap() };
            assert!(line.starts_with([' ', '-', '+']));
            if !line.starts_with('+') {
                assert_eq!(old[done], body);
                done += 1;
            }
            if !line.starts_with('-') {
                new.push(body.to_owned());
            }
        }
        assert_eq!((done, new.len()), (old_start + old_count, new_start + new_count));
    }
    new.extend(old[done..].iter().map(|line| (*line).to_owned()));
    new.concat()
}

/// Texts from few distinct lines, so that two of them have some in common.
fn any_lines() -> impl Strategy<Value = String> {
    let parts = vec!["a\n", "b\n", "c\n", "c\r\n", "\n", "\r\n", "é\n", "è\n", "@@\n", "ab\rc\n"];
    (
        proptest::collection::vec(prop::sample::select(parts), 0..20),
        prop::sample::select(vec!["", "a", "é", "\r"]),
    )
        .prop_map(|(lines, last)| lines.concat() + last)
}

proptest! {
    #[test]
    fn what_lies_between_hunks_is_the_same(old in any_lines(), new in any_lines()) {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
        let hunks = compute_hunks(&old.concat(), &new.concat());
        let (mut old_done, mut new_done) = (0, 0);
        for (index, hunk) in hunks.iter().enumerate() {
            prop_assert!(index == 0 || hunk.old.start > old_done);
            prop_assert_eq!(&old[old_done..hunk.old.start], &new[new_done..hunk.new.start]);
            prop_assert_ne!(&old[hunk.old.clone()], &new[hunk.new.clone()]);
            (old_done, new_done) = (hunk.old.end, hunk.new.end);
        }
        prop_assert_eq!(&old[old_done..], &new[new_done..]);
    }

    #[test]
    fn edits_make_the_new_text_and_split_nothing(old in any_lines(), new in any_lines()) {
        let edits = compute_edits(&old, &new);
        prop_assert_eq!(apply_edits(&old, &edits), Ok(new.clone()));
        // From the end, one at a time, as an editor applies them.
        let mut document = old.clone();
        for edit in edits.iter().rev() {
            document.replace_range(edit.range.clone(), &edit.text);
            for end in [edit.range.start, edit.range.end] {
                prop_assert!(!(old[..end].ends_with('\r') && old[end..].starts_with('\n')));
            }
        }
        prop_assert_eq!(document, new);
    }

    #[test]
    fn hunks_taken_back_one_by_one_or_all_at_once_give_the_old_text(old in any_lines(), new in any_lines()) {
        let all: Vec<usize> = (0..compute_hunks(&old, &new).len()).collect();
        prop_assert_eq!(revert_hunks(&old, &new, &all), Ok(old.clone()));
        prop_assert_eq!(revert_hunks(&old, &new, &[]), Ok(new.clone()));
        let sides: Vec<&str> = old.split_inclusive('\n').chain(new.split_inclusive('\n')).collect();
        for hunk in &all {
            let text = revert_hunks(&old, &new, &[*hunk]).unwrap();
            prop_assert!(text.split_inclusive('\n').all(|line| sides.contains(&line)));
        }
    }

    #[test]
    fn a_patch_makes_the_new_text(old in any_lines(), new in any_lines(), context in 0usize..5) {
        let file = FileDiff { path: "a", before: text_side(&old, REGULAR_MODE), after: text_side(&new, REGULAR_MODE) };
        prop_assert_eq!(apply_patch(&old, &format_unified_diff(&file, context)), new);
    }
}
