//! The picture in the README shows the screen of today's `bowline chat`.

use avt::Terminal;
use bowline_tests::picture::svg::{ScreenCell, draw_row};
use bowline_tests::picture::{PICTURE_PATH, draw_chat, fix_times};
use expect_test::{Expect, expect};

use crate::fixture::bowline;
use crate::programs::workspace_root;

#[tokio::test]
async fn the_picture_in_the_readme_is_current() {
    let committed = std::fs::read_to_string(workspace_root().join(PICTURE_PATH)).unwrap();
    let current = draw_chat(&bowline()).await;
    let list = |mark: &str, these: &str, others: &str| -> String {
        let differ = these.lines().filter(|line| !others.lines().any(|other| other == *line));
        differ.map(|line| format!("{mark} {line}\n")).collect()
    };
    assert!(
        committed == current,
        "{PICTURE_PATH} shows another screen than `bowline chat` does; if the change is wanted, run `cargo xtask picture`\n{}{}",
        list("-", &committed, &current),
        list("+", &current, &committed)
    );
}

#[test]
fn a_run_of_equal_style_is_one_text() {
    check_row(
        "  \u{1b}[1;32mtwo words\u{1b}[0m \u{1b}[7m&<b>\u{1b}[0m",
        expect![[r##"
            <text x="30.8" y="13.5" textLength="75.6" lengthAdjust="spacingAndGlyphs" fill="#56d364" font-weight="bold">two words</text>
            <rect x="114.8" y="0" width="33.6" height="18" fill="#d1d7e0"/>
            <text x="114.8" y="13.5" textLength="33.6" lengthAdjust="spacingAndGlyphs" fill="#151b23">&amp;&lt;b&gt;</text>"##]],
    );
}

#[test]
fn symbols_and_wide_gaps_do_not_shift_the_text_beside_them() {
    check_row(
        "✓ one two  three",
        expect![[r##"
            <text x="14.0" y="13.5" textLength="8.4" lengthAdjust="spacingAndGlyphs" fill="#d1d7e0">✓</text>
            <text x="30.8" y="13.5" textLength="58.8" lengthAdjust="spacingAndGlyphs" fill="#d1d7e0">one two</text>
            <text x="106.4" y="13.5" textLength="42.0" lengthAdjust="spacingAndGlyphs" fill="#d1d7e0">three</text>"##]],
    );
}

#[test]
fn dim_and_underlined_text_looks_so() {
    check_row(
        "\u{1b}[2mdim\u{1b}[0;4munderlined\u{1b}[0;38;5;196mred",
        expect![[r##"
            <text x="14.0" y="13.5" textLength="25.2" lengthAdjust="spacingAndGlyphs" fill="#858b94">dim</text>
            <text x="39.2" y="13.5" textLength="84.0" lengthAdjust="spacingAndGlyphs" fill="#d1d7e0" text-decoration="underline">underlined</text>
            <text x="123.2" y="13.5" textLength="25.2" lengthAdjust="spacingAndGlyphs" fill="#ff0000">red</text>"##]],
    );
}

#[test]
fn a_time_is_replaced_and_the_columns_stay() {
    let mut rows = [read_row("Run test.py    <0.1s"), read_row(" ⠋ working 12s   Esc")];
    fix_times(&mut rows, &["1.3s", "3.2s"]);
    let texts = rows.map(|row| row.iter().map(|cell| cell.character).collect::<String>());
    assert_eq!(texts, ["Run test.py     1.3s", " ⠴ working 3.2s  Esc"]);
}

/// Draws a terminal's row at the top of the picture.
fn check_row(output: &str, expected: Expect) {
    expected.assert_eq(&draw_row(&read_row(output), 0.0).join("\n"));
}

/// Returns the row that a program's output makes in a terminal of 20 columns.
fn read_row(output: &str) -> Vec<ScreenCell> {
    let mut terminal = Terminal::new(20, 1).unwrap();
    terminal.feed(output);
    terminal.screen().visible_lines().flat_map(|line| line.cells()).map(ScreenCell::from).collect()
}
