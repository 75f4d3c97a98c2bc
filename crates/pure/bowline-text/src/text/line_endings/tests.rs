//! Tests of line endings: tables of the endings that a written text takes, and properties.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(texts: &[(&str, &str)], expected: Expect) {
    let mut out = String::new();
    for (new, old) in texts {
        let fitted = fit_line_endings(new, old);
        let owned = if matches!(fitted, Cow::Owned(_)) { "" } else { " as it is" };
        writeln!(out, "{new:?} into {old:?}: {fitted:?}{owned}").unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn a_file_with_one_kind_of_ending_keeps_to_it() {
    check(
        &[
            ("a\nc\n", "a\nb\n"),
            ("a\r\nc\r\n", "a\nb\n"),
            ("a\nc\n", "a\r\nb\r\n"),
            ("a\r\nc\n", "a\r\nb\r\n"),
            ("a\r\nc\r\n", "a\r\nb\r\n"),
            ("a\nb", "a\r\nb\r\n"),
            ("a\nb\n", "a\r\nb"),
            ("a\rb\n", "a\r\n"),
            ("a\r\r\n", "a\r\n"),
            ("a\r\r\nb\n", "a\n"),
            ("", "a\r\n"),
            ("\n", "a\r\n"),
        ],
        expect![[r#"
            "a\nc\n" into "a\nb\n": "a\nc\n" as it is
            "a\r\nc\r\n" into "a\nb\n": "a\nc\n"
            "a\nc\n" into "a\r\nb\r\n": "a\r\nc\r\n"
            "a\r\nc\n" into "a\r\nb\r\n": "a\r\nc\r\n"
            "a\r\nc\r\n" into "a\r\nb\r\n": "a\r\nc\r\n" as it is
            "a\nb" into "a\r\nb\r\n": "a\r\nb"
            "a\nb\n" into "a\r\nb": "a\r\nb\r\n"
            "a\rb\n" into "a\r\n": "a\rb\r\n"
            "a\r\r\n" into "a\r\n": "a\r\n"
            "a\r\r\nb\n" into "a\n": "a\nb\n"
            "" into "a\r\n": "" as it is
            "\n" into "a\r\n": "\r\n"
        "#]],
    );
}

#[test]
fn a_file_without_endings_takes_the_text_as_it_is() {
    check(
        &[("a\r\nb\n", ""), ("\u{feff}a\r\n", ""), ("a\r\nb\n", "a"), ("a\r\r\n", "a\r"), ("", "")],
        expect![[r#"
            "a\r\nb\n" into "": "a\r\nb\n" as it is
            "\u{feff}a\r\n" into "": "\u{feff}a\r\n" as it is
            "a\r\nb\n" into "a": "a\r\nb\n" as it is
            "a\r\r\n" into "a\r": "a\r\r\n" as it is
            "" into "": "" as it is
        "#]],
    );
}

#[test]
fn lines_of_a_mixed_file_keep_their_own() {
    check(
        &[
            // Untouched.
            ("a\nb\nc\n", "a\r\nb\nc\r\n"),
            // Changed one for one.
            ("a\nB\nC\n", "a\r\nb\nc\r\n"),
            ("X\nb\nY\n", "a\r\nb\nc\r\n"),
            // Added: after a line, before all lines.
            ("a\nnew\nb\nnew\n", "a\r\nb\n"),
            ("new\nnew\na\nb\n", "a\r\nb\n"),
            // Removed and moved.
            ("c\n", "a\r\nb\nc\r\n"),
            ("b\na\n", "a\r\nb\n"),
            // Nothing in common.
            ("x\n", "a\r\nb\nc\r\n"),
            ("w\nx\ny\nz\n", "a\r\nb\nc\r\n"),
            ("w\nx\ny\nz\n", "a\r\nb\nc\n"),
            // The last line ends as in the new text.
            ("a\nb\nc", "a\r\nb\nc\r\n"),
            ("a\nb\nc\n", "a\r\nb\nc"),
            ("a\nb\nc\nd\n", "a\n\nb\r\nc"),
            ("a\nb\nX\n", "a\n\nb\r\nc"),
            ("c\r\n", "a\n\r\nc"),
            // Several carriage returns belong to the ending.
            ("a\nb\n", "a\r\r\nb\n"),
            ("a\r\nb\n", "a\r\r\nb\n"),
            ("a\r\r\r\nnew\nb\n", "a\r\r\nb\n"),
            ("a\rb\nc\r", "a\rb\r\r\nc\r"),
            ("\r\n", "\r\r\n\r"),
        ],
        expect![[r#"
            "a\nb\nc\n" into "a\r\nb\nc\r\n": "a\r\nb\nc\r\n"
            "a\nB\nC\n" into "a\r\nb\nc\r\n": "a\r\nB\nC\r\n"
            "X\nb\nY\n" into "a\r\nb\nc\r\n": "X\r\nb\nY\r\n"
            "a\nnew\nb\nnew\n" into "a\r\nb\n": "a\r\nnew\r\nb\nnew\n"
            "new\nnew\na\nb\n" into "a\r\nb\n": "new\r\nnew\r\na\r\nb\n"
            "c\n" into "a\r\nb\nc\r\n": "c\r\n"
            "b\na\n" into "a\r\nb\n": "b\r\na\r\n"
            "x\n" into "a\r\nb\nc\r\n": "x\r\n"
            "w\nx\ny\nz\n" into "a\r\nb\nc\r\n": "w\r\nx\r\ny\r\nz\r\n"
            "w\nx\ny\nz\n" into "a\r\nb\nc\n": "w\nx\ny\nz\n"
            "a\nb\nc" into "a\r\nb\nc\r\n": "a\r\nb\nc"
            "a\nb\nc\n" into "a\r\nb\nc": "a\r\nb\nc\n"
            "a\nb\nc\nd\n" into "a\n\nb\r\nc": "a\nb\r\nc\r\nd\r\n"
            "a\nb\nX\n" into "a\n\nb\r\nc": "a\nb\r\nX\r\n"
            "c\r\n" into "a\n\r\nc": "c\n"
            "a\nb\n" into "a\r\r\nb\n": "a\r\r\nb\n"
            "a\r\nb\n" into "a\r\r\nb\n": "a\r\r\nb\n"
            "a\r\r\r\nnew\nb\n" into "a\r\r\nb\n": "a\r\r\nnew\r\nb\n"
            "a\rb\nc\r" into "a\rb\r\r\nc\r": "a\rb\r\r\nc\r"
            "\r\n" into "\r\r\n\r": "\r\r\n"
        "#]],
    );
}

#[test]
fn a_mark_belongs_to_the_file() {
    check(
        &[
            ("\u{feff}a\n", "a\n"),
            ("\u{feff}a\n", "a\r\n"),
            ("\u{feff}\u{feff}a\n", "a\n"),
            ("\u{feff}a\n", "\u{feff}a\r\n"),
            ("a\n", "\u{feff}a\r\n"),
            ("\u{feff}", "a"),
        ],
        expect![[r#"
            "\u{feff}a\n" into "a\n": "a\n" as it is
            "\u{feff}a\n" into "a\r\n": "a\r\n"
            "\u{feff}\u{feff}a\n" into "a\n": "\u{feff}a\n" as it is
            "\u{feff}a\n" into "\u{feff}a\r\n": "\u{feff}a\r\n"
            "a\n" into "\u{feff}a\r\n": "a\r\n"
            "\u{feff}" into "a": "" as it is
        "#]],
    );
}

#[test]
fn large_texts_of_the_worst_kinds_are_fitted() {
    const LINES: usize = 50_000;
    let mixed = |content: &dyn Fn(usize) -> String| -> String {
        (0..LINES).map(|at| content(at) + if at % 3 == 0 { "\r\n" } else { "\n" }).collect()
    };
    let noise = |seed: usize| move |at: usize| ((at * 7919 + seed) % 104_729 * (at + seed) % 13).to_string();
    let same = mixed(&|_| "}".to_owned());
    let numbers = mixed(&|at| at.to_string());
    let others = mixed(&|at| format!("other {at}"));
    let backwards = mixed(&|at| (LINES - at).to_string());
    let (noise, more_noise) = (mixed(&noise(1)), mixed(&noise(5)));
    let long = format!("{}\r\nb\n", "\r".repeat(10 << 20));
    for (new, old) in [
        (&numbers, &numbers),
        (&same, &numbers),
        (&numbers, &same),
        (&others, &numbers),
        (&backwards, &numbers),
        (&noise, &more_noise),
        (&numbers, &long),
        (&long, &numbers),
    ] {
        let fitted = fit_line_endings(new, old);
        assert!(line_contents_of(&fitted) == line_contents_of(new));
        assert!(fitted.len() <= new.len() + old.len());
    }
    // Half as many equal lines: each is one of the old ones.
    let half = "}\n".repeat(LINES / 2);
    assert!(line_contents_of(&fit_line_endings(&half, &same)) == line_contents_of(&half));
}

/// Returns the lines without their endings, by another algorithm than the code's, and whether the last one has an
/// ending.
fn line_contents_of(text: &str) -> (Vec<&str>, bool) {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let last = lines.pop().unwrap();
    let mut contents: Vec<&str> = lines.into_iter().map(|line| line.trim_end_matches('\r')).collect();
    if !last.is_empty() {
        contents.push(last);
    }
    (contents, last.is_empty())
}

fn with_lf(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Returns the lines of a text, and one more, each with this ending.
fn uniform(text: &str, ending: &str) -> String {
    let (mut contents, _) = line_contents_of(text);
    contents.push("last");
    contents.iter().flat_map(|line| [line.trim_end_matches('\r'), ending]).collect()
}

fn without_added_bom<'a>(new: &'a str, old: &str) -> &'a str {
    if old.is_empty() || old.starts_with(BOM) { new } else { new.strip_prefix(BOM).unwrap_or(new) }
}

fn text() -> impl Strategy<Value = String> {
    let ending = prop::sample::select(vec!["\n", "\r\n", "\r\n", "\n", "\r\r\n"]);
    let content = prop::sample::select(vec!["", "a", "b", "c", "d", "x\ry", "\u{feff}", "é"]);
    let line = (content.clone(), ending).prop_map(|(content, ending)| format!("{content}{ending}"));
    let last = prop_oneof![Just(""), content, Just("z\r")];
    (proptest::collection::vec(line, 0..12), last).prop_map(|(lines, last)| lines.concat() + last)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_text_fits_itself(old in text()) {
        prop_assert_eq!(&fit_line_endings(&old, &old), &old);
        if old.contains('\n') {
            let new = with_lf(&old);
            prop_assert_eq!(&fit_line_endings(&new, &old), &old);
        }
    }

    #[test]
    fn nothing_but_endings_and_the_mark_change(new in text(), old in text()) {
        let fitted = fit_line_endings(&new, &old);
        prop_assert_eq!(line_contents_of(&fitted), line_contents_of(without_added_bom(&new, &old)));
        if !old.starts_with(BOM) && !old.is_empty() {
            // A second mark is a character, and fitting again would take it for the file's.
            prop_assume!(!fitted.starts_with(BOM));
        }
        prop_assert_eq!(&fit_line_endings(&fitted, &old), &fitted);
    }

    #[test]
    fn a_line_that_is_put_in_or_changed_leaves_the_others_alone(
        old in text(),
        at in any::<prop::sample::Index>(),
        put_in in any::<bool>(),
    ) {
        let old = old + "last\r\n";
        let mut lines: Vec<&str> = old.split_inclusive('\n').collect();
        let at = at.index(lines.len());
        // An added line ends as the one before it does, a changed one as before.
        let model = lines[if put_in { at.saturating_sub(1) } else { at }];
        let line = if model.ends_with("\r\n") { "new\r\n" } else { "new\n" };
        lines.splice(at..at + usize::from(!put_in), [line]);
        let expected = lines.concat();
        let new = with_lf(&expected);
        prop_assert_eq!(fit_line_endings(&new, &old), expected);
    }

    #[test]
    fn it_does_not_matter_which_endings_the_new_text_has(new in text(), old in text()) {
        prop_assume!(old.contains('\n'));
        let (contents, ended) = line_contents_of(&new);
        let join = |ending: &str| contents.join(ending) + if ended && !contents.is_empty() { ending } else { "" };
        let (with_lf, with_crlf) = (join("\n"), join("\r\n"));
        prop_assert_eq!(fit_line_endings(&with_lf, &old), fit_line_endings(&with_crlf, &old));
        prop_assert_eq!(fit_line_endings(&new, &old), fit_line_endings(&with_crlf, &old));
    }

    #[test]
    fn a_uniform_file_stays_uniform(new in text(), old in text(), crlf in any::<bool>()) {
        let ending = if crlf { CRLF } else { LF };
        let old = uniform(&old, ending);
        for line in fit_line_endings(&new, &old).split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            prop_assert!(line.ends_with(ending));
            prop_assert!(!line.trim_end_matches(ending).ends_with('\r'));
        }
    }

    #[test]
    fn the_roads_without_a_diff_lead_to_the_same(new in text(), old in text(), crlf in any::<bool>()) {
        let ending = if crlf { CRLF } else { LF };
        let old = uniform(&old, ending);
        prop_assert_eq!(with_uniform_endings(&new, ending).into_owned(), with_endings_of(&new, &old));
    }
}
