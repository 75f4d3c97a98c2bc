//! Tests of merges with unsaved text.

use expect_test::expect;

use super::*;

#[test]
fn what_was_typed_is_never_lost_to_an_agent_that_did_not_see_it() {
    let mut out = String::new();
    for (unsaved, requested) in [
        ("a\nb\nc\nd\n", "A\nb\nc\nd\n"),
        ("a\nb\nc\nd\ntyped\n", "A\nb\nc\nd\n"),
        ("a\nb\nc\nd\ntyped\n", "a\nb\nc\nd\n"),
        ("a\nb\nc\nD\n", "a\nb\nc\nD\n"),
        ("typed\nb\nc\nd\n", "A\nb\nc\nd\n"),
        ("", "A\nb\nc\nd\n"),
    ] {
        let result = match merge_unsaved("a\nb\nc\nd\n", unsaved, requested) {
            Ok(outcome) => format!("{outcome:?}"),
            Err(conflict) => format!("! {conflict}"),
        };
        out.push_str(&format!("{result}\n"));
    }
    expect![[r#"
        AsRequested
        Merged("A\nb\nc\nd\ntyped\n")
        Merged("a\nb\nc\nd\ntyped\n")
        AsRequested
        ! conflicting changes in 1 place, first at line 1
        ! conflicting changes in 1 place, first at line 1
    "#]]
    .assert_eq(&out);
    assert_eq!(UnsavedMerge::AsRequested.into_text("w".to_owned()), "w");
    assert_eq!(UnsavedMerge::Merged("m".to_owned()).into_text("w".to_owned()), "m");
}

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
