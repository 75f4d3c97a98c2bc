//! Tests of diff views.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Formats a view: changed words in brackets.
fn format(view: &DiffView) -> String {
    let mut text = format!("+{} -{} omitted {}\n", view.added, view.removed, view.omitted_lines);
    for hunk in &view.hunks {
        text += &format!(
            "@@ {} -{} +{}\n",
            hunk.index.map_or(-1, |index| index as i64),
            hunk.old_start,
            hunk.new_start
        );
        for line in &hunk.lines {
            let number =
                |number: Option<usize>| number.map_or("  ".to_owned(), |number| format!("{number:2}"));
            text += &format!("{} {} {}", number(line.old), number(line.new), line.kind);
            for part in &line.parts {
                text += &if part.changed { format!("[{}]", part.text) } else { part.text.clone() };
            }
            text += if line.no_newline { " (no newline)\n" } else { "\n" };
        }
    }
    text
}

fn check(old: &str, new: &str, options: DiffViewOptions, expected: Expect) {
    expected.assert_eq(&format(&compare(old, new, options)));
}

#[test]
fn words_are_marked_and_lines_between_hunks_appear_once() {
    let old = "one\ntwo\nthree\nfour\nfive\nlet value = compute(1);\nseven\n";
    let new = "one\n2\nthree\nfour\nfive\nlet value = compute(2, 3);\nseven\neight";
    check(
        old,
        new,
        DiffViewOptions::default(),
        expect![[r#"
        +3 -2 omitted 0
        @@ 0 -1 +1
         1  1  one
         2    -two
            2 +2
         3  3  three
         4  4  four
         5  5  five
        @@ 1 -6 +6
         6    -let value = compute([1]);
            6 +let value = compute([2, 3]);
         7  7  seven
        @@ 2 -8 +8
            8 +eight (no newline)
    "#]],
    );
}

#[test]
fn created_and_removed_files_have_one_side() {
    check(
        "",
        "a\nb\n",
        DiffViewOptions::default(),
        expect![[r#"
        +2 -0 omitted 0
        @@ 0 -1 +1
            1 +a
            2 +b
    "#]],
    );
    check(
        "a\n",
        "",
        DiffViewOptions::default(),
        expect![[r#"
        +0 -1 omitted 0
        @@ 0 -1 +1
         1    -a
    "#]],
    );
    check(
        "same\n",
        "same\n",
        DiffViewOptions::default(),
        expect![[r#"
        +0 -0 omitted 0
    "#]],
    );
}

#[test]
fn white_space_can_be_ignored() {
    let options = DiffViewOptions { ignore_whitespace: true, ..DiffViewOptions::default() };
    check(
        "if x {\n  a();\n}\n",
        "if x {\n\ta();\n  b();\n}\r\n",
        options,
        expect![[r#"
            +1 -0 omitted 0
            @@ -1 -1 +1
             1  1  if x {
             2  2    a();
                3 +  b();
             3  4  }
        "#]],
    );
}

#[test]
fn what_is_too_much_is_left_out_and_counted() {
    let old: String = (0..100).map(|line| format!("line {line}\n")).collect();
    let new: String = (0..100)
        .map(|line| if line % 10 == 5 { format!("new {line}\n") } else { format!("line {line}\n") })
        .collect();
    let options = DiffViewOptions { max_lines: 20, ..DiffViewOptions::default() };
    let view = compare(&old, &new, options);
    assert_eq!((view.hunks.len(), view.truncated, view.omitted_lines), (2, true, 16));
    let options = DiffViewOptions { max_bytes: 10, ..DiffViewOptions::default() };
    assert_eq!(compare(&old, &new, options).hunks, []);
}

#[test]
fn words_are_marked_only_as_far_as_the_limit_allows() {
    let line = |word: &str| format!("let value = {word};\nsame\nsame\n");
    let (old, new) = (line("one").repeat(4), line("two").repeat(4));
    let options = DiffViewOptions { max_words: 45, ..DiffViewOptions::default() };
    let view = compare(&old, &new, options);
    let has_marks = |hunk: &HunkView| hunk.lines.iter().flat_map(|line| &line.parts).any(|part| part.changed);
    let marked: Vec<bool> = view.hunks.iter().map(has_marks).collect();
    assert_eq!(marked, [true, true, false, false]);
}

proptest! {
    #[test]
    fn a_view_has_both_texts(
        old in prop::collection::vec(prop_oneof![Just("a b"), Just("c"), Just(""), Just("d e f\r")], 0..12),
        new in prop::collection::vec(prop_oneof![Just("a b"), Just("c"), Just(""), Just("a x f")], 0..12),
        ends in any::<(bool, bool)>(),
    ) {
        let join = |lines: &[&str], ends: bool| lines.join("\n") + if ends { "\n" } else { "" };
        let (old, new) = (join(&old, ends.0), join(&new, ends.1));
        let view = compare(&old, &new, DiffViewOptions::default());
        let hunks = diff::compute_hunks(&old, &new);
        prop_assert_eq!(view.hunks.len(), hunks.len());
        for (hunk, view) in hunks.iter().zip(&view.hunks) {
            let side = |kind: char| -> String {
                let lines = view.lines.iter().filter(|line| line.kind == kind);
                let text = |line: &LineView| {
                    let text: String = line.parts.iter().map(|part| part.text.as_str()).collect();
                    text + if line.no_newline { "" } else { "\n" }
                };
                lines.map(text).collect()
            };
            let lines = |text: &str, range: Range<usize>| -> String {
                text.split_inclusive('\n').skip(range.start).take(range.len()).collect()
            };
            prop_assert_eq!(side('-'), lines(&old, hunk.old.clone()));
            prop_assert_eq!(side('+'), lines(&new, hunk.new.clone()));
        }
    }
}
