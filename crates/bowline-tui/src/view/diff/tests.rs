//! Tests of rendered diffs.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use ratatui::style::Modifier;

use super::*;
use crate::view::widgets::test_util::{any_text, line_text};

fn lines_text(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line_text(line).trim_end().to_owned() + "\n").collect()
}

fn check(before: Option<&str>, after: Option<&str>, width: u16, layout: DiffLayout, expected: Expect) {
    expected.assert_eq(&lines_text(&render_diff_lines(before, after, width, layout)));
}

const OLD: &str = "fn main() {\n    let a = 1;\n    let b = 2;\n}\n\n// one\n// two\n// three\n// four\n// five\n// six\nend\n";
const NEW: &str = "fn main() {\n    let a = 10;\n    let c = 3;\n    let b = 2;\n}\n\n// one\n// two\n// three\n// four\n// five\nend\n";

#[test]
fn removed_lines_stand_above_added_ones() {
    check(
        Some(OLD),
        Some(NEW),
        60,
        DiffLayout::Unified,
        expect![[r#"
        @@ -1,5 +1,6 @@
         1  1  fn main() {
         2    -    let a = 1;
            2 +    let a = 10;
            3 +    let c = 3;
         3  4      let b = 2;
         4  5  }
         5  6
        @@ -8,5 +9,4 @@
         8  9  // three
         9 10  // four
        10 11  // five
        11    -// six
        12 12  end
    "#]],
    );
}

#[test]
fn two_texts_stand_side_by_side() {
    check(
        Some(OLD),
        Some(NEW),
        70,
        DiffLayout::Split,
        expect![[r#"
        @@ -1,5 +1,6 @@
         1  fn main() {                   │ 1  fn main() {
         2 -    let a = 1;                │ 2 +    let a = 10;
                                          │ 3 +    let c = 3;
         3      let b = 2;                │ 4      let b = 2;
         4  }                             │ 5  }
         5                                │ 6
        @@ -8,5 +9,4 @@
         8  // three                      │ 9  // three
         9  // four                       │10  // four
        10  // five                       │11  // five
        11 -// six                        │
        12  end                           │12  end
    "#]],
    );
}

#[test]
fn where_there_is_little_room_there_are_no_numbers() {
    check(
        Some(OLD),
        Some(NEW),
        20,
        DiffLayout::Unified,
        expect![[r#"
        @@ -1,5 +1,6 @@
         fn main() {
        -    let a = 1;
        +    let a = 10;
        +    let c = 3;
             let b = 2;
         }

        @@ -8,5 +9,4 @@
         // three
         // four
         // five
        -// six
         end
    "#]],
    );
    check(
        Some(OLD),
        Some(NEW),
        20,
        DiffLayout::Split,
        expect![[r#"
        @@ -1,5 +1,6 @@
         fn main(│ fn main()
        ┊) {     │┊ {
        -    let │+    let a
        ┊a = 1;  │┊ = 10;
                 │+    let c
                 │┊ = 3;
             let │     let b
        ┊b = 2;  │┊ = 2;
         }       │ }
                 │
        @@ -8,5 +9,4 @@
         // three│ // three
         // four │ // four
         // five │ // five
        -// six  │
         end     │ end
    "#]],
    );
}

#[test]
fn files_come_and_go() {
    check(
        None,
        Some("a\nb"),
        40,
        DiffLayout::Unified,
        expect![[r#"
        new file
        @@ -0,0 +1,2 @@
          1 +a
          2 +b
            \ No newline at end of file
    "#]],
    );
    check(
        Some("a\n"),
        None,
        40,
        DiffLayout::Unified,
        expect![[r#"
        deleted
        @@ -1 +0,0 @@
        1   -a
    "#]],
    );
    check(
        None,
        Some(""),
        40,
        DiffLayout::Unified,
        expect![[r#"
        new file, empty
    "#]],
    );
    check(
        Some("a\n"),
        Some("a\n"),
        40,
        DiffLayout::Unified,
        expect![[r#"
        no difference
    "#]],
    );
    check(
        None,
        None,
        40,
        DiffLayout::Split,
        expect![[r#"
        no difference
    "#]],
    );
}

#[test]
fn an_end_that_is_missing_is_said() {
    check(
        Some("a\nb"),
        Some("a\nb\n"),
        50,
        DiffLayout::Unified,
        expect![[r#"
        @@ -1,2 +1,2 @@
        1 1  a
        2   -b
            \ No newline at end of file
          2 +b
    "#]],
    );
    check(
        Some("a\nb"),
        Some("a\nb\n"),
        50,
        DiffLayout::Split,
        expect![[r#"
        @@ -1,2 +1,2 @@
         a                      │ a
        -b                      │+b
        \ No newline at end of …│
    "#]],
    );
}

#[test]
fn ends_of_lines_are_shown_where_they_differ_and_said_once_where_they_do_not() {
    check(
        Some("a\r\nb\r\n"),
        Some("a\nb\r\n"),
        50,
        DiffLayout::Unified,
        expect![[r#"
        @@ -1,2 +1,2 @@
        1   -a\r
          1 +a
        2 2  b\r
    "#]],
    );
    check(
        Some("a\r\nb\r\n"),
        Some("a\r\nc\r\n"),
        50,
        DiffLayout::Unified,
        expect![[r#"
        all lines end with \r\n
        @@ -1,2 +1,2 @@
        1 1  a
        2   -b
          2 +c
    "#]],
    );
}

#[test]
fn text_can_neither_steer_the_terminal_nor_hide() {
    let hostile =
        "\u{1b}[2Jgone\u{1b}]0;title\u{7}\nrm -rf /\u{202e}txt.\n\tx\ty\nzero\u{200b}width \u{0e31}\n";
    check(
        Some(""),
        Some(hostile),
        60,
        DiffLayout::Unified,
        expect![[r#"
        @@ -0,0 +1,4 @@
          1 +\u{1b}[2Jgone\u{1b}]0;title\u{7}
          2 +rm -rf /\u{202e}txt.
          3 +    x   y
          4 +zero\u{200b}width ั
    "#]],
    );
}

#[test]
fn a_line_that_goes_on_is_marked_so_that_it_looks_like_no_other() {
    let long = "let words = \"  unchanged, it seems, but this is one line that the agent adds\";\n";
    check(
        Some("a\n"),
        Some(long),
        30,
        DiffLayout::Unified,
        expect![[r#"
        @@ -1 +1 @@
        1   -a
          1 +let words = "  unchanged,
            ┊ it seems, but this is on
            ┊e line that the agent add
            ┊s";
    "#]],
    );
    check(
        Some("a\n"),
        Some("漢字漢字漢字漢字漢字\n"),
        14,
        DiffLayout::Split,
        expect![[r#"
        @@ -1 +1 @@
        -a    │+漢字漢
              │┊字漢字
              │┊漢字漢
              │┊字
    "#]],
    );
}

#[test]
fn what_differs_within_a_line_stands_out() {
    let emphasised = |old: &str, new: &str| {
        let lines = render_diff_lines(Some(old), Some(new), 60, DiffLayout::Unified);
        let spans = lines.iter().flat_map(|line| line.spans.iter());
        let reversed = spans.filter(|span| span.style.add_modifier.contains(Modifier::REVERSED));
        reversed.map(|span| span.content.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(emphasised("let a = 1;\n", "let a = 2;\n"), ["1", "2"]);
    assert_eq!(emphasised("abc\n", "abxc\n"), ["x"]);
    assert_eq!(emphasised("e\u{301}ab\n", "eab\n"), ["e\u{301}", "e"]);
    // These lines have nothing in common.
    assert_eq!(emphasised("fn one() {}\n", "struct Two;\n"), Vec::<String>::new());
}

#[test]
fn of_a_very_long_line_start_and_end_are_shown_and_it_is_said() {
    let line = format!("start{}end\n", "x".repeat(2 * MAX_LINE));
    let diff = render_diff(Some(""), Some(&line), 80, DiffLayout::Unified);
    let text = lines_text(&diff.lines);
    assert_eq!(diff.hidden_lines, 1);
    assert!(text.contains("start") && text.contains("end\n"), "{text}");
    assert!(text.ends_with("… 1 changed line is not shown, or not whole: too long\n"), "{text}");
}

#[test]
fn a_huge_diff_is_cut_and_says_how_much_is_missing() {
    let old: String = (0..30_000).map(|line| format!("old {line}\n")).collect();
    let new: String = (0..30_000).map(|line| format!("new {line}\n")).collect();
    for layout in [DiffLayout::Unified, DiffLayout::Split] {
        let diff = render_diff(Some(&old), Some(&new), 80, layout);
        let changed_lines = diff
            .lines
            .iter()
            .filter(|line| line_text(line).contains(['+', '-']) && !line_text(line).contains("@@"));
        let changed_lines: usize =
            changed_lines.map(|line| line_text(line).matches(['d', 'w']).count()).sum();
        assert_eq!(changed_lines + diff.hidden_lines, 60_000, "{layout:?}");
        assert!(diff.lines.len() <= MAX_ROWS + 1);
        assert_eq!(diff.hunks.len(), 1);
    }
}

/// Returns the lines of one side, reassembled from the rows of a unified diff without numbers.
fn lines_with_sign(lines: &[Line<'_>], sign: char) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut has_sign = false;
    for line in lines.iter().map(line_text) {
        let (mark, text) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
        match mark {
            "┊" if has_sign => texts.last_mut().unwrap().push_str(text),
            "┊" => {}
            _ => {
                has_sign = mark == sign.to_string();
                if has_sign {
                    texts.push(text.to_owned());
                }
            }
        }
    }
    texts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_of_what_changed_is_lost(old in any_text(), new in any_text(), width in 8..28_u16) {
        // Narrow enough that there are no line numbers.
        let diff = render_diff(Some(&old), Some(&new), width, DiffLayout::Unified);
        let line_endings = DiffLineEndings::detect(&old, &new);
        let expected = |text: &str, pick: fn(&Hunk) -> &Range<usize>| {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let hunks = compute_hunks(&old, &new);
            hunks.iter().flat_map(|hunk| pick(hunk).clone()).map(|index| DiffLine::new(lines[index], line_endings).text).collect::<Vec<_>>()
        };
        prop_assert_eq!(lines_with_sign(&diff.lines, '-'), expected(&old, |hunk| &hunk.old));
        prop_assert_eq!(lines_with_sign(&diff.lines, '+'), expected(&new, |hunk| &hunk.new));
        prop_assert_eq!(diff.hidden_lines, 0);
    }

    #[test]
    fn no_row_is_wider_than_there_is_room(
        old in proptest::option::of(any_text()),
        new in proptest::option::of(any_text()),
        width in 8..200_u16,
        split in any::<bool>(),
    ) {
        let layout = if split { DiffLayout::Split } else { DiffLayout::Unified };
        let diff = render_diff(old.as_deref(), new.as_deref(), width, layout);
        for line in &diff.lines {
            let text = line_text(line);
            prop_assert!(cells::text_width(&text) <= usize::from(width), "{:?}", text);
            prop_assert!(!text.contains(char::is_control), "{:?}", text);
        }
        let hunks = compute_hunks(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
        prop_assert_eq!(diff.hunks.len(), hunks.len());
        prop_assert!(diff.hunks.iter().all(|rows| rows.end <= diff.lines.len() && !rows.is_empty()));
        prop_assert!(diff.hunks.is_sorted_by_key(|rows| rows.start));
    }
}
