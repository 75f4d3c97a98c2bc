//! What a command's output looks like, whatever it tries.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::chat::parts::cells;
use crate::chat::parts::testing::{plain, texts};

fn output(columns: u16, text: &str) -> Output {
    let mut output = Output::new(columns);
    output.feed(text);
    output
}

fn check(columns: u16, text: &str, expected: Expect) {
    let lines = output(columns, text).lines();
    let shown = lines.iter().map(|line| {
        let spans = line.spans.iter().map(|span| match span.style == Style::new() {
            true => span.content.to_string(),
            false => format!("<{:?}>{}</>", span.style, span.content),
        });
        spans.collect::<String>() + "\n"
    });
    expected.assert_eq(&shown.collect::<String>());
}

#[test]
fn colours_stay() {
    check(
        40,
        "\u{1b}[1;31merror\u{1b}[0m: \u{1b}[38;5;208mno\u{1b}[48;2;1;2;3mway\u{1b}[m\n",
        expect![[r#"
            <Style::new().fg(Color::Indexed(1)).bold()>error</>: <Style::new().fg(Color::Indexed(208))>no</><Style::new().fg(Color::Indexed(208)).bg(Color::Rgb(1, 2, 3))>way</>
        "#]],
    );
}

#[test]
fn lines_end_with_or_without_a_return() {
    check(
        40,
        "one\ntwo\r\nthree",
        expect![[r#"
        one
        two
        three
    "#]],
    );
}

#[test]
fn progress_is_overwritten_as_on_a_terminal() {
    check(
        40,
        "10%\r50%\r100%\ndone\u{1b}[1A\r\u{1b}[Kall\n",
        expect![[r#"
        all
        done
    "#]],
    );
}

#[test]
fn what_reaches_beyond_the_text_is_dropped() {
    let hostile = "a\u{1b}]0;title\u{7}b\u{1b}]52;c;aGk=\u{1b}\\c\u{1b}]8;;http://evil\u{1b}\\d\u{1b}P1$q\u{1b}\\e\u{1b}_x\u{1b}\\f\u{1b}[8;999;999tg\u{7}";
    check(
        40,
        hostile,
        expect![[r#"
        abcdefg
    "#]],
    );
}

#[test]
fn what_hides_or_reorders_is_marked_and_letters_keep_their_marks() {
    check(
        40,
        "x\u{202e}y\u{200b}z e\u{301} \u{9b}31mred",
        expect![[r#"
        x�y�z é <Style::new().fg(Color::Indexed(1))>red</>
    "#]],
    );
    let pile = format!("e{}\n", "\u{301}".repeat(10));
    check(
        40,
        &pile,
        expect![[r#"
        é́́́������
    "#]],
    );
}

#[test]
fn long_lines_go_on_in_the_next_row() {
    check(
        10,
        "0123456789abc漢\n",
        expect![[r#"
        0123456789
        abc漢
    "#]],
    );
}

#[test]
fn the_newest_lines_are_kept() {
    let text: String = (0..10_000).map(|line| format!("{line}\n")).collect();
    let lines = output(40, &text).lines();
    assert!(lines.len() <= MAX_SCROLLBACK + ROWS);
    assert_eq!(lines.last().map(plain).as_deref(), Some("9999"));
}

#[test]
fn a_few_bytes_make_little_work() {
    // Each repeats a character 65,535 times, if it is let.
    let text = "x\u{1b}[65535b\u{1b}[65535S\u{1b}[65535L".repeat(2000);
    assert!(output(80, &text).lines().len() <= MAX_SCROLLBACK + ROWS);
}

#[test]
fn another_width_moves_the_words() {
    let mut output = output(10, "0123456789abc\n");
    output.resize(20);
    assert_eq!(output.lines().iter().map(plain).collect::<Vec<_>>(), ["0123456789abc"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_breaks_it_and_nothing_gets_out(
        pieces in proptest::collection::vec(prop_oneof![texts(), "\u{1b}\\[[0-9;?]{0,6}[@-~]", "\u{1b}[ -~]"], 0..12),
        columns in 1..300_u16,
        after in 1..300_u16,
    ) {
        let mut output = Output::new(columns);
        pieces.iter().for_each(|piece| output.feed(piece));
        let whole = output.lines();
        let mut at_once = Output::new(columns);
        at_once.feed(&pieces.concat());
        prop_assert_eq!(&at_once.lines(), &whole);
        for width in [columns, after] {
            output.resize(width);
            for line in output.lines() {
                let text = plain(&line);
                prop_assert!(!text.contains(char::is_control), "{:?}", text);
                prop_assert!(cells::width(&text) <= usize::from(width), "{:?}", text);
            }
        }
    }
}
