//! Tests of applying and refusing edits.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{EditError, MAX_EDITS, MatchSelection, SearchReplaceEdit, apply_search_replace};

fn replace_only(old: &str, new: &str) -> SearchReplaceEdit {
    SearchReplaceEdit { old: old.to_owned(), new: new.to_owned(), selection: MatchSelection::Only }
}

fn replace_all(old: &str, new: &str) -> SearchReplaceEdit {
    SearchReplaceEdit { selection: MatchSelection::All, ..replace_only(old, new) }
}

fn describe_outcome(text: &str, edits: &[SearchReplaceEdit]) -> String {
    match apply_search_replace(text, edits) {
        Ok(edited) => {
            format!("{:?} in {} from line {}\n", edited.text, edited.replacements, edited.first_line)
        }
        Err(EditError::NotFound { nearest: Some(nearest), edit, produced_by }) => {
            let error = EditError::NotFound { nearest: None, edit, produced_by };
            let (line, similarity) = (nearest.line, nearest.similarity);
            format!(
                "! {error}\n  near line {line} by {similarity:?}, from {}: {:?}\n",
                nearest.excerpt_start, nearest.excerpt
            )
        }
        Err(error) => format!("! {error}\n"),
    }
}

fn check(text: &str, edits: &[SearchReplaceEdit], expected: Expect) {
    expected.assert_eq(&describe_outcome(text, edits));
}

#[test]
fn several_edits_are_made_on_the_text_as_it_was() {
    check(
        "one\ntwo\nthree\n",
        &[replace_only("three", "one"), replace_only("one", "two"), replace_only("two", "three")],
        expect![[r#"
            "two\nthree\none\n" in 3 from line 1
        "#]],
    );
}

#[test]
fn every_match_is_replaced_if_that_is_wanted() {
    check(
        "a b a b a",
        &[replace_all("a", "aa")],
        expect![[r#"
        "aa b aa b aa" in 3 from line 1
    "#]],
    );
    check(
        "aaa",
        &[replace_all("aa", "b")],
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
        &[replace_only("", "x")],
        expect![[r#"
        ! old_text of edit 1 is empty: give the text to replace, with some lines around it
    "#]],
    );
    check(
        text,
        &[replace_only("\u{feff}", "x")],
        expect![[r#"
        ! old_text of edit 1 is empty: give the text to replace, with some lines around it
    "#]],
    );
    check(
        text,
        &[replace_only("two\r\n", "two\n")],
        expect![[r#"
        ! edit 1 changes nothing: old_text and new_text are the same
    "#]],
    );
    check(
        text,
        &[replace_only("one", "1")],
        expect![[r#"
            ! old_text of edit 1 is in the file 2 times, at lines 1, 3: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        "aaa",
        &[replace_only("aa", "b")],
        expect![[r#"
            ! old_text of edit 1 is in the file 2 times, at lines 1, 1: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        &"x\n".repeat(30),
        &[replace_only("x", "y")],
        expect![[r#"
            ! old_text of edit 1 is in the file 30 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …: give more of the text around the place, or set replace_all to true if all of them are meant
        "#]],
    );
    check(
        text,
        &[replace_only("two", "2"), replace_only("one\ntwo", "3")],
        expect![[r#"
        ! edits 1 and 2 overlap at line 2: make one of them
    "#]],
    );
    check(
        text,
        &[replace_only("two", "2"), replace_only("two", "3")],
        expect![[r#"
        ! edits 1 and 2 overlap at line 2: make one of them
    "#]],
    );
    check(
        text,
        &vec![replace_only("two", "2"); MAX_EDITS + 1],
        expect![[r#"
        ! 501 edits are too many at once, the limit is 500: make them in several calls
    "#]],
    );
}

#[test]
fn all_edits_are_made_or_none() {
    check(
        "one\ntwo\n",
        &[replace_only("one", "1"), replace_only("three", "3")],
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
        &[replace_only("fn two() {\n    let b = 1;\n    c(b);\n}", "")],
        expect![[r#"
            ! old_text of edit 1 is not in the file
              near line 5 by WhitespaceOnly, from 2: "    a();\n}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
        "#]],
    );
    check(
        text,
        &[replace_only("fn two() {\n    let b = 2;\n    c(b);\n}", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
          near line 5 by Lines(3, 4), from 2: "    a();\n}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
    "#]],
    );
    check(
        text,
        &[replace_only("let b = 7;", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
          near line 6 by Words, from 3: "}\n\nfn two() {\n\tlet b = 1;\n    c(b);\n}\n"
    "#]],
    );
    check(
        text,
        &[replace_only("nothing like it", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
    "#]],
    );
    check(
        text,
        &[replace_only("\n\n\n", "")],
        expect![[r#"
        ! old_text of edit 1 is not in the file
    "#]],
    );
    check(
        text,
        &[replace_only("a();", "new text"), replace_only("new text", "newer")],
        expect![[r#"
        ! old_text of edit 2 is not in the file: edit 1 puts it there, but all edits are made on the text as it is now, so join the two
    "#]],
    );
}

#[test]
fn line_endings_belong_to_the_file() {
    check(
        "a\r\nb\r\nc\r\n",
        &[replace_only("a\nb", "1\n2\n3")],
        expect![[r#"
        "1\r\n2\r\n3\r\nc\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\r\nb\r\nc\r\n",
        &[replace_only("b", "1\n2")],
        expect![[r#"
        "a\r\n1\r\n2\r\nc\r\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\nb\r\nc\r\n",
        &[replace_only("\nb", "")],
        expect![[r#"
        "a\r\nc\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\r\nb",
        &[replace_only("b", "1\n2")],
        expect![[r#"
        "a\r\n1\r\n2" in 1 from line 2
    "#]],
    );
    check(
        "a\nb\n",
        &[replace_only("b", "1\r\n2")],
        expect![[r#"
        "a\n1\n2\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\nb\nc\r\n",
        &[replace_only("b\n", "1\n2\n")],
        expect![[r#"
        "a\r\n1\n2\nc\r\n" in 1 from line 2
    "#]],
    );
    check(
        "a\r\r\nb\r\n",
        &[replace_only("a\nb", "c\nd")],
        expect![[r#"
        "c\r\nd\r\n" in 1 from line 1
    "#]],
    );
    check(
        "a\rb\r\n",
        &[replace_only("a\rb", "c\rd")],
        expect![[r#"
        "c\rd\r\n" in 1 from line 1
    "#]],
    );
    check(
        "one line",
        &[replace_only("line", "1\r\n2")],
        expect![[r#"
        "one 1\r\n2" in 1 from line 1
    "#]],
    );
}

#[test]
fn the_byte_order_mark_belongs_to_the_file() {
    check(
        "\u{feff}a\n",
        &[replace_only("a", "b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
    check(
        "\u{feff}a\n",
        &[replace_only("\u{feff}a", "b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
    check(
        "\u{feff}a\n",
        &[replace_only("a", "\u{feff}b")],
        expect![[r#"
        "\u{feff}b\n" in 1 from line 1
    "#]],
    );
}

/// Returns the original offset of an offset in the text with normalised line endings.
fn original_offset(text: &str, plain: usize) -> usize {
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

fn normalise_endings(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(body) => format!("{}\n", body.trim_end_matches('\r')),
            None => line.to_owned(),
        })
        .collect()
}

fn any_lines() -> impl Strategy<Value = String> {
    let line = prop_oneof!["[ab ä]{0,4}\n", "[ab ä]{0,4}\r\n", "[ab]{0,2}\r\r\n", "[ab]\r[ab]\n"];
    (prop::bool::ANY, prop::collection::vec(line, 0..8), "[abä]{0,3}").prop_map(|(mark, lines, last)| {
        format!("{}{}{last}", if mark { "\u{feff}" } else { "" }, lines.concat())
    })
}

proptest! {
    #[test]
    fn no_byte_outside_of_the_place_changes(
        text in any_lines(),
        new in "[xy\n]{0,6}",
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let body = normalise_endings(text.strip_prefix('\u{feff}').unwrap_or(&text));
        let offset = text.len() - text.strip_prefix('\u{feff}').unwrap_or(&text).len();
        let offsets: Vec<usize> = body.char_indices().map(|(at, _)| at).chain([body.len()]).collect();
        let (first, second) = (*from.get(&offsets), *to.get(&offsets));
        let (start, end) = (first.min(second), first.max(second));
        let old = &body[start..end];
        let rest = |at: usize| body.get(at..).unwrap_or_default();
        let count = body.char_indices().filter(|(at, _)| !old.is_empty() && rest(*at).starts_with(old)).count();
        let edited = apply_search_replace(&text, &[replace_only(old, &new)]);
        if count != 1 || normalise_endings(&new) == old {
            prop_assert!(edited.is_err());
        } else {
            let edited = edited.unwrap().text;
            prop_assert_eq!(normalise_endings(&edited), normalise_endings(&format!("{}{}{new}{}", &text[..offset], &body[..start], &body[end..])));
            let (before, after) = (original_offset(&text[offset..], start) + offset, original_offset(&text[offset..], end) + offset);
            prop_assert!(edited.starts_with(&text[..before]));
            prop_assert!(edited.ends_with(&text[after..]));
        }
    }

    #[test]
    fn a_file_of_one_ending_stays_one(lines in prop::collection::vec("[ab]{0,3}\r\n", 1..6), new in "[x\n]{0,5}") {
        let text = lines.concat();
        for selection in [MatchSelection::Only, MatchSelection::All] {
            for old in ["a", "a\n", "\n", "b\na"] {
                let edit = SearchReplaceEdit { old: old.to_owned(), new: new.clone(), selection };
                if let Ok(edited) = apply_search_replace(&text, &[edit]) {
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
        let edits: Vec<SearchReplaceEdit> = edits
            .into_iter()
            .map(|(old, new, every)| SearchReplaceEdit { old, new, selection: if every { MatchSelection::All } else { MatchSelection::Only } })
            .collect();
        if let Ok(edited) = apply_search_replace(&text, &edits) {
            prop_assert!(edited.replacements >= edits.len());
            let keeps_its_mark = edited.text.starts_with('\u{feff}') || !text.starts_with('\u{feff}');
            prop_assert!(keeps_its_mark);
        }
    }
}
