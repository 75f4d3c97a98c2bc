//! Edits found, made and refused.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{Edit, EditFault, MAX_EDITS, Which, apply};

fn only(old: &str, new: &str) -> Edit {
    Edit { old: old.to_owned(), new: new.to_owned(), which: Which::Only }
}

fn all(old: &str, new: &str) -> Edit {
    Edit { which: Which::All, ..only(old, new) }
}

fn told(text: &str, edits: &[Edit]) -> String {
    match apply(text, edits) {
        Ok(edited) => format!("{:?} in {} from line {}\n", edited.text, edited.places, edited.line),
        Err(EditFault::NotFound { nearest: Some(nearest), edit, made_by }) => {
            let fault = EditFault::NotFound { nearest: None, edit, made_by };
            let (line, likeness) = (nearest.line, nearest.likeness);
            format!(
                "! {fault}\n  near line {line} by {likeness:?}, from {}: {:?}\n",
                nearest.shown_from, nearest.shown
            )
        }
        Err(fault) => format!("! {fault}\n"),
    }
}

fn check(text: &str, edits: &[Edit], expected: Expect) {
    expected.assert_eq(&told(text, edits));
}

#[test]
fn several_edits_are_made_on_the_text_as_it_was() {
    check(
        "one\ntwo\nthree\n",
        &[only("three", "one"), only("one", "two"), only("two", "three")],
        expect![[r#"
            "two\nthree\none\n" in 3 from line 1
        "#]],
    );
}

#[test]
fn every_match_is_replaced_if_that_is_wanted() {
    check(
        "a b a b a",
        &[all("a", "aa")],
        expect![[r#"
        "aa b aa b aa" in 3 from line 1
    "#]],
    );
    check(
        "aaa",
        &[all("aa", "b")],
        expect![[r#"
        "ba" in 1 from line 1
    "#]],
    );
}

#[test]
fn an_edit_that_is_not_clear_is_refused() {
    let text = "one\ntwo\none\n";
    check(
        text,
        &[],
        expect![[r#"
        ! there are no edits: give at least one
    "#]],
    );
    check(
        text,
        &[only("", "x")],
        expect![[r#"
        ! old_text of edit 1 is empty: give the text to replace, with some lines around it
    "#]],
    );
    check(
        text,
        &[only("\u{feff}", "x")],
        expect![[r#"
        ! old_text of edit 1 is empty: give the text to replace, with some lines around it
    "#]],
    );
    check(
        text,
        &[only("two\r\n", "two\n")],
        expect![[r#"
        ! edit 1 changes nothing: old_text and new_text are the same
    "#]],
    );
    check(
        text,
        &[only("one", "1")],
        expect![[r#"
            ! old_text of edit 1 is in the file 2 times, at lines 1, 3: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        "aaa",
        &[only("aa", "b")],
        expect![[r#"
            ! old_text of edit 1 is in the file 2 times, at lines 1, 1: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        &"x\n".repeat(30),
        &[only("x", "y")],
        expect![[r#"
            ! old_text of edit 1 is in the file 30 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        text,
        &[only("two", "2"), only("one\ntwo", "3")],
        expect![[r#"
        ! edits 1 and 2 overlap at line 2: make one of them
    "#]],
    );
    check(
        text,
        &[only("two", "2"), only("two", "3")],
        expect![[r#"
        ! edits 1 and 2 overlap at line 2: make one of them
    "#]],
    );
    check(
        text,
        &vec![only("two", "2"); MAX_EDITS + 1],
        expect![[r#"
        ! 501 edits are too many at once, the limit is 500: make them in several calls
    "#]],
    );
}

#[test]
fn all_edits_are_made_or_none() {
    check(
        "one\ntwo\n",
        &[only("one", "1"), only("three", "3")],
        expect![[r#"
        ! old_text of edit 2 is not in the file
    "#]],
    );
}

#[test]
fn the_most_similar_place_is_shown() {
    let text = "fn one() {\n    a();\n}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n";
    check(
        text,
        &[only("fn two() {\n    let b = 1;\n    c(b);\n}", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
          near line 5 by Blanks, from 2: "    a();\n}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
    "#]],
    );
    check(
        text,
        &[only("fn two() {\n    let b = 2;\n    c(b);\n}", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
          near line 5 by Lines(3, 4), from 2: "    a();\n}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
    "#]],
    );
    check(
        text,
        &[only("let b = 7;", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
          near line 6 by Words, from 3: "}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
    "#]],
    );
    check(
        text,
        &[only("nothing like it", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
    "#]],
    );
    check(
        text,
        &[only("\n\n\n", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
    "#]],
    );
    check(
        text,
        &[only("a();", "new text"), only("new text", "newer")],
        expect![[r#"
        ! old_text of edit 2 is not in the file: edit 1 puts it there, but all edits are made on the text as it is now, so join the two
    "#]],
    );
}

#[test]
fn line_endings_belong_to_the_file() {
    check(
        "a\r\nb\r\nc\r\n",
        &[only("a\nb", "1\n2\n3")],
        expect![[r#"
        "1\r\n2\r\n3\r\nc\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\r\nb\r\nc\r\n",
        &[only("b", "1\n2")],
        expect![[r#"
        "a\r\n1\r\n2\r\nc\r\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\nb\r\nc\r\n",
        &[only("\nb", "")],
        expect![[r#"
        "a\r\nc\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\r\nb",
        &[only("b", "1\n2")],
        expect![[r#"
        "a\r\n1\r\n2" in 1 from line 2
    "#]],
    );
    check(
        "a\nb\n",
        &[only("b", "1\r\n2")],
        expect![[r#"
        "a\n1\n2\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\nb\nc\r\n",
        &[only("b\n", "1\n2\n")],
        expect![[r#"
        "a\r\n1\n2\nc\r\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\r\nb\r\n",
        &[only("a\nb", "c\nd")],
        expect![[r#"
        "c\r\nd\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\rb\r\n",
        &[only("a\rb", "c\rd")],
        expect![[r#"
        "c\rd\r\n" in 1 from line 1
    "#]],
    );
    check(
        "one line",
        &[only("line", "1\r\n2")],
        expect![[r#"
        "one 1\r\n2" in 1 from line 1
    "#]],
    );
}

#[test]
fn the_byte_order_mark_belongs_to_the_file() {
    check(
        "\u{feff}a\n",
        &[only("a", "b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
    check(
        "\u{feff}a\n",
        &[only("\u{feff}a", "b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
    check(
        "\u{feff}a\n",
        &[only("a", "\u{feff}b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
}

/// Returns where a place of a text with plain endings is in the text itself.
fn raw(text: &str, plain: usize) -> usize {
    let (mut at, mut left) = (0, plain);
    let rest = |at: usize| &text[at..];
    while left > 0 {
        let trimmed = rest(at).trim_start_matches('\r');
        let step = if trimmed.starts_with('\n') {
            rest(at).len() - trimmed.len() + 1
        } else {
            rest(at).chars().next().map_or(0, char::len_utf8)
        };
        left -= if trimmed.starts_with('\n') { 1 } else { step };
        at += step;
    }
    at
}

fn plain(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(body) => format!("{}\n", body.trim_end_matches('\r')),
            None => line.to_owned(),
        })
        .collect()
}

fn lines() -> impl Strategy<Value = String> {
    let line = prop_oneof!["[ab ä]{0,4}\n", "[ab ä]{0,4}\r\n", "[ab]{0,2}\r\r\n", "[ab]\r[ab]\n"];
    (prop::bool::ANY, prop::collection::vec(line, 0..8), "[abä]{0,3}").prop_map(|(mark, lines, last)| {
        format!("{}{}{last}", if mark { "\u{feff}" } else { "" }, lines.concat())
    })
}

proptest! {
    #[test]
    fn no_byte_outside_of_the_place_changes(
        text in lines(),
        new in "[xy\n]{0,6}",
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let body = plain(text.strip_prefix('\u{feff}').unwrap_or(&text));
        let offset = text.len() - text.strip_prefix('\u{feff}').unwrap_or(&text).len();
        let places: Vec<usize> = body.char_indices().map(|(at, _)| at).chain([body.len()]).collect();
        let (one, other) = (*from.get(&places), *to.get(&places));
        let (start, end) = (one.min(other), one.max(other));
        let old = &body[start..end];
        let rest = |at: usize| body.get(at..).unwrap_or_default();
        let count = body.char_indices().filter(|(at, _)| !old.is_empty() && rest(*at).starts_with(old)).count();
        let edited = apply(&text, &[only(old, &new)]);
        if count != 1 || plain(&new) == old {
            prop_assert!(edited.is_err());
        } else {
            let edited = edited.unwrap().text;
            prop_assert_eq!(plain(&edited), plain(&format!("{}{}{new}{}", &text[..offset], &body[..start], &body[end..])));
            let (before, after) = (raw(&text[offset..], start) + offset, raw(&text[offset..], end) + offset);
            prop_assert!(edited.starts_with(&text[..before]));
            prop_assert!(edited.ends_with(&text[after..]));
        }
    }

    #[test]
    fn a_file_of_one_ending_stays_one(lines in prop::collection::vec("[ab]{0,3}\r\n", 1..6), new in "[x\n]{0,5}") {
        let text = lines.concat();
        for which in [Which::Only, Which::All] {
            for old in ["a", "a\n", "\n", "b\na"] {
                let edit = Edit { old: old.to_owned(), new: new.clone(), which };
                if let Ok(edited) = apply(&text, &[edit]) {
                    prop_assert!(!edited.text.replace("\r\n", "").contains(['\r', '\n']), "{:?}", edited.text);
                }
            }
        }
    }

    #[test]
    fn whatever_is_asked_for_is_answered(
        text in "\\PC{0,40}|[\r\n\u{feff}ab]{0,40}",
        edits in prop::collection::vec(("[\r\n\u{feff}ab]{0,4}", "[\r\n\u{feff}abä]{0,4}", any::<bool>()), 0..4),
    ) {
        let edits: Vec<Edit> = edits
            .into_iter()
            .map(|(old, new, every)| Edit { old, new, which: if every { Which::All } else { Which::Only } })
            .collect();
        if let Ok(edited) = apply(&text, &edits) {
            prop_assert!(edited.places >= edits.len());
            let keeps_its_mark = edited.text.starts_with('\u{feff}') || !text.starts_with('\u{feff}');
            prop_assert!(keeps_its_mark);
        }
    }
}
