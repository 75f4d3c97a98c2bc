//! Tests of comparisons with texts in an editor.

use super::*;

#[test]
fn what_editors_change_on_their_own_makes_no_difference() {
    let cases = [
        ("a\nb\n", "a\nb\n", true),
        ("a\nb\n", "a\r\nb\r\n", true),
        ("\u{feff}a\n", "a\n", true),
        ("a", "a\n", true),
        ("a\n\n", "a\n", false),
        ("a\nb\n", "a\nc\n", false),
        ("a\n", "", false),
    ];
    for (one, other, expected) in cases {
        assert_eq!(is_equivalent_text(one, other), expected, "{one:?} {other:?}");
    }
}
