//! Tests of help on a narrow screen.

use super::*;
use expect_test::{Expect, expect};

fn check(text: &str, columns: usize, expected: Expect) {
    let wrapped = wrap_text(text, columns);
    for line in wrapped.lines() {
        assert!(
            display_width(line) <= columns || !line.trim().contains(' '),
            "{line:?} is wider than {columns}"
        );
    }
    expected.assert_eq(&wrapped);
}

const TEXT: &str = "\
Takes back what agents changed; your own later edits stay

Usage: bowline undo [OPTIONS]
       bowline undo <COMMAND>

Options:
      --session <ID>  What one session did: its id, the beginning of it, or `last` for the one that worked here
  -h, --help          Print help
      --open <FILE[=TEXTFILE]>
          A file that is open in the editor. With `=TEXTFILE` that file's content is what the editor shows.

Your own later edits stay: a file that was edited since is merged. Where you changed the same lines
the file is in conflict.
Short lines

Examples:
  bowline undo --dry-run                           the patch that would be applied
";

#[test]
fn lines_are_broken_between_words_and_columns_stay() {
    check(
        TEXT,
        50,
        expect![[r#"
            Takes back what agents changed; your own later
            edits stay

            Usage: bowline undo [OPTIONS]
                   bowline undo <COMMAND>

            Options:
                  --session <ID>  What one session did: its
                                  id, the beginning of it, or
                                  `last` for the one that
                                  worked here
              -h, --help          Print help
                  --open <FILE[=TEXTFILE]>
                      A file that is open in the editor. With
                      `=TEXTFILE` that file's content is what
                      the editor shows.

            Your own later edits stay: a file that was edited
            since is merged. Where you changed the same lines
            the file is in conflict. Short lines

            Examples:
              bowline undo --dry-run
              the patch that would be applied
        "#]],
    );
}

#[test]
fn colours_take_no_room() {
    check(
        "\u{1b}[1mUsage:\u{1b}[0m one two\n  \u{1b}[1m-h\u{1b}[0m  three four\n",
        14,
        expect![[r#"
            [1mUsage:[0m one two
              [1m-h[0m  three
                  four
        "#]],
    );
}

#[test]
fn a_word_that_is_too_long_stays_whole() {
    check(
        "aaaaaaaaaaaaaaaaaaaa bb cc\n",
        6,
        expect![[r#"
        aaaaaaaaaaaaaaaaaaaa
        bb cc
    "#]],
    );
}
