//! Tests of text measured in cells.

use super::*;

#[test]
fn prose_breaks_after_spaces_and_long_words_anywhere() {
    assert_eq!(wrap_prose("one two three", 8), ["one two ", "three"]);
    assert_eq!(wrap_prose("abcdefghij kl", 4), ["abcd", "efgh", "ij ", "kl"]);
    assert_eq!(wrap_prose("", 4), [""]);
    assert_eq!(wrap_prose("漢字漢字", 5), ["漢字", "漢字"]);
}

#[test]
fn what_does_not_fit_is_cut_where_it_matters_least() {
    assert_eq!(truncate("/home/me/src/main.rs", 10, Truncation::KeepEnd), "…c/main.rs");
    assert_eq!(truncate("cargo test --all", 10, Truncation::KeepStart), "cargo tes…");
    assert_eq!(truncate("漢字漢字", 4, Truncation::KeepStart), "漢…");
    assert_eq!(truncate("abc", 0, Truncation::KeepStart), "");
    assert_eq!(truncate("abc", 3, Truncation::KeepStart), "abc");
}

#[test]
fn tabs_go_to_the_next_stop() {
    assert_eq!(expand_tabs("\ta\tbcd\te"), "    a   bcd e");
    assert_eq!(expand_tabs("漢\tx"), "漢  x");
}

#[test]
fn what_takes_no_cell_is_named() {
    assert_eq!(escape_line("a\u{0e31}"), "a\u{0e31}");
    assert_eq!(escape_line("\u{0e31}a"), "\\u{e31}a");
}
