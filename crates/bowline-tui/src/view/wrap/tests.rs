//! Tests of wrapping: lines keep their width and their text.

use proptest::prelude::*;
use ratatui::text::{Line, Span};

use super::*;

fn lines_text(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

fn wrap_to_text(source: &str, width: usize, breaks: LineBreak) -> String {
    lines_text(&wrap_spans(&[Span::raw(source.to_owned())], width, breaks, &[], &[]))
}

#[test]
fn words_stay_whole_where_they_can() {
    assert_eq!(wrap_to_text("one two three", 7, LineBreak::Words), "one two\nthree\n");
    assert_eq!(wrap_to_text("abcdefghij", 4, LineBreak::Words), "abcd\nefgh\nij\n");
    assert_eq!(wrap_to_text("a abcdefghij", 4, LineBreak::Words), "a \nabcd\nefgh\nij\n");
    assert_eq!(wrap_to_text("  x  y", 4, LineBreak::Anywhere), "  x \n y\n");
}

#[test]
fn wide_and_combined_characters_are_never_cut() {
    assert_eq!(wrap_to_text("日本語", 5, LineBreak::Words), "日本\n語\n");
    assert_eq!(wrap_to_text("e\u{301}e\u{301}e\u{301}", 2, LineBreak::Words), "e\u{301}e\u{301}\ne\u{301}\n");
    assert_eq!(wrap_to_text("日本", 1, LineBreak::Words), "…\n…\n");
}

#[test]
fn what_is_cut_is_marked() {
    assert_eq!(truncate_end("a long title", 6), "a lon…");
    assert_eq!(truncate_start("/home/me/project", 8), "…project");
    assert_eq!(truncate_end("日本語", 4), "日…");
    assert_eq!(truncate_end("fits", 4), "fits");
}

#[test]
fn text_of_others_cannot_steer_the_terminal() {
    assert_eq!(escape_line("a\u{1b}[2Jb\tc"), "a\\u{1b}[2Jb    c");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_line_is_too_wide_and_nothing_is_lost(source in "[a-z 日é\u{301}👍\t.]{0,80}", width in 2usize..20) {
        let source = escape_line(&source);
        for breaks in [LineBreak::Words, LineBreak::Anywhere] {
            let prefix = [Span::raw("> ")];
            let lines = wrap_spans(&[Span::raw(source.clone())], width, breaks, &prefix, &prefix);
            prop_assert!(lines.iter().all(|line| line.width() <= width));
            if width > 3 {
                let wrapped: String = lines.iter().map(|line| line.to_string()[2..].to_owned()).collect();
                let dense = |text: &str| text.split_whitespace().collect::<String>();
                prop_assert_eq!(dense(&wrapped), dense(&source));
            }
        }
    }
}

#[test]
fn joiners_stay_where_they_belong_to_what_is_written() {
    let kept = "dev 👨\u{200d}💻 🧑🏽\u{200d}⚕\u{fe0f} 🏳\u{fe0f}\u{200d}🌈 1\u{fe0f}\u{20e3} می\u{200c}خواهم क्\u{200d}ष";
    assert_eq!(escape_prose(kept), kept);
    for (text, escaped) in [
        ("rm\u{200d} -rf", "rm\\u{200d} -rf"),
        ("a\u{200c}b", "a\\u{200c}b"),
        ("👨\u{200d}", "👨\\u{200d}"),
        ("👨\u{200d}\u{200d}💻", "👨\\u{200d}\\u{200d}💻"),
        ("a\u{fe0f}", "a\\u{fe0f}"),
        ("م\u{202e}\u{200c}ن\t.", "م\\u{202e}\\u{200c}ن    ."),
    ] {
        assert_eq!(escape_prose(text), escaped);
    }
    assert_eq!(escape_line("👨\u{200d}💻"), "👨\\u{200d}💻", "names and commands have none");
}
