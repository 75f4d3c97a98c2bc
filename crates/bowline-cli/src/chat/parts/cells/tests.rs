//! What fits in how many cells.

use super::*;

#[test]
fn prose_breaks_after_spaces_and_long_words_anywhere() {
    assert_eq!(prose("one two three", 8), ["one two ", "three"]);
    assert_eq!(prose("abcdefghij kl", 4), ["abcd", "efgh", "ij ", "kl"]);
    assert_eq!(prose("", 4), [""]);
    assert_eq!(prose("漢字漢字", 5), ["漢字", "漢字"]);
}

#[test]
fn what_does_not_fit_is_cut_where_it_matters_least() {
    assert_eq!(fit("/home/me/src/main.rs", 10, Stays::End), "…c/main.rs");
    assert_eq!(fit("cargo test --all", 10, Stays::Start), "cargo tes…");
    assert_eq!(fit("漢字漢字", 4, Stays::Start), "漢…");
    assert_eq!(fit("abc", 0, Stays::Start), "");
    assert_eq!(fit("abc", 3, Stays::Start), "abc");
}

#[test]
fn tabs_go_to_the_next_stop() {
    assert_eq!(expanded("\ta\tbcd\te"), "    a   bcd e");
    assert_eq!(expanded("漢\tx"), "漢  x");
}

#[test]
fn what_takes_no_cell_is_named() {
    assert_eq!(visible("a\u{0e31}"), "a\u{0e31}");
    assert_eq!(visible("\u{0e31}a"), "\\u{e31}a");
}
