//! Tests of Markdown rendering: Markdown in, visible lines out.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(source: &str, width: usize, expected: &Expect) {
    let lines = render_markdown(source, width, Style::new());
    assert!(lines.iter().all(|line| line.width() <= width), "too wide");
    expected.assert_eq(
        &lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect::<String>(),
    );
}

#[test]
fn blocks_have_their_look() {
    check(
        "# Title\nSome *text* with `code` and a [link](https://a.b).\n\n> quoted\n> more\n\n- one\n- two\n  - inner\n\n\
         3. three\n4. four\n\n```rust\nfn main() {\n    work();\n}\n```\nEnd.\n",
        40,
        &expect![[r#"
            Title

            Some text with code and a link
            (https://a.b).

            ▌ quoted more

            • one
            • two
              • inner

            3. three
            4. four

            rust
            │ fn main() {
            │     work();
            │ }

            End.
        "#]],
    );
}

#[test]
fn tables_are_in_columns_if_they_fit() {
    let source = "| name | size |\n|---|---|\n| a | 1 |\n| longer | 22 |\n";
    check(
        source,
        40,
        &expect![[r#"
        name   │ size
        ───────┼─────
        a      │ 1
        longer │ 22
    "#]],
    );
    check(
        source,
        12,
        &expect![[r#"
        name │ size
        a │ 1
        longer │ 22
    "#]],
    );
}

#[test]
fn what_is_no_markdown_is_shown_as_it_is() {
    check(
        "<b>bold</b> & a_b_c \\* \u{1b}[31m\n<div>\nx\n</div>\n",
        60,
        &expect![[r#"
            <b>bold</b> & a_b_c * \u{1b}[31m
            <div>
            x
            </div>
        "#]],
    );
}

#[test]
fn an_unfinished_block_is_shown_while_it_grows() {
    check(
        "```sh\ncargo te",
        20,
        &expect![[r#"
        sh
        │ cargo te
    "#]],
    );
    check(
        "a **bol",
        20,
        &expect![[r#"
        a **bol
    "#]],
    );
}

#[test]
fn nesting_without_end_is_shown() {
    let deep = "> ".repeat(5000) + "deep";
    assert!(render_markdown(&deep, 30, Style::new()).iter().any(|line| line.to_string().contains("deep")));
    let lists: String = (0..300).map(|level| "  ".repeat(level) + "- x\n").collect();
    assert!(!render_markdown(&lists, 30, Style::new()).is_empty());
}

#[test]
fn a_wide_character_has_room_beside_a_mark() {
    let lines: Vec<String> =
        render_markdown("> * 日本", 5, Style::new()).iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["日本"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_text_keeps_the_width(source in "[ -~\n\t日é\u{301}\u{202e}]{0,200}", width in 1usize..60) {
        let lines = render_markdown(&source, width, Style::new());
        prop_assert!(lines.iter().all(|line| line.width() <= width));
    }

    #[test]
    fn no_word_is_lost(words in proptest::collection::vec("[a-z]{1,12}|日本", 1..30), marks in "[*_>#`|\n -]{0,6}", width in 4usize..60) {
        let source = words.join(&format!(" {marks} "));
        let rendered: String = render_markdown(&source, width, Style::new()).iter().map(ToString::to_string).collect();
        let mut letters = rendered.chars().filter(|character| character.is_alphabetic());
        for expected in words.concat().chars() {
            prop_assert!(letters.any(|letter| letter == expected), "{source:?} became {rendered:?}");
        }
    }
}
