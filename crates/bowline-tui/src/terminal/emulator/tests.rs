//! Tests of rendered command output, hostile sequences included.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::view::widgets::cells;
use crate::view::widgets::test_util::{any_text, line_text};

fn emulate(columns: u16, text: &str) -> TerminalEmulator {
    let mut output = TerminalEmulator::new(columns);
    output.feed(text);
    output
}

fn check(columns: u16, text: &str, expected: Expect) {
    let lines = emulate(columns, text).lines();
    let rendered = lines.iter().map(|line| {
        let spans = line.spans.iter().map(|span| match span.style == Style::new() {
            true => span.content.to_string(),
            false => format!("<{:?}>{}</>", span.style, span.content),
        });
        spans.collect::<String>() + "\n"
    });
    expected.assert_eq(&rendered.collect::<String>());
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
    let stacked_marks = format!("e{}\n", "\u{301}".repeat(10));
    check(
        40,
        &stacked_marks,
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
    let lines = emulate(40, &text).lines();
    assert!(lines.len() <= MAX_SCROLLBACK + SCREEN_ROWS);
    assert_eq!(lines.last().map(line_text).as_deref(), Some("9999"));
}

#[test]
fn a_few_bytes_make_little_work() {
    // Unlimited, each would repeat a character 65,535 times.
    let text = "x\u{1b}[65535b\u{1b}[65535S\u{1b}[65535L".repeat(2000);
    assert!(emulate(80, &text).lines().len() <= MAX_SCROLLBACK + SCREEN_ROWS);
}

#[test]
fn another_width_moves_the_words() {
    let mut output = emulate(10, "0123456789abc\n");
    output.resize(20);
    assert_eq!(output.lines().iter().map(line_text).collect::<Vec<_>>(), ["0123456789abc"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_breaks_it_and_nothing_gets_out(
        pieces in proptest::collection::vec(prop_oneof![any_text(), "\u{1b}\\[[0-9;?]{0,6}[@-~]", "\u{1b}[ -~]"], 0..12),
        columns in 1..300_u16,
        new_columns in 1..300_u16,
    ) {
        let mut output = TerminalEmulator::new(columns);
        pieces.iter().for_each(|piece| output.feed(piece));
        let lines = output.lines();
        let mut at_once = TerminalEmulator::new(columns);
        at_once.feed(&pieces.concat());
        prop_assert_eq!(&at_once.lines(), &lines);
        for width in [columns, new_columns] {
            output.resize(width);
            for line in output.lines() {
                let text = line_text(&line);
                prop_assert!(!text.contains(char::is_control), "{:?}", text);
                prop_assert!(cells::text_width(&text) <= usize::from(width), "{:?}", text);
            }
        }
    }
}
