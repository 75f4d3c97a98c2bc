//! Tests of open documents.

use super::*;

fn text(text: &str) -> Arc<String> {
    Arc::new(text.to_owned())
}

const ONE: Option<Version> = Some(Version(1));
const TWO: Option<Version> = Some(Version(2));

#[test]
fn the_truth_is_the_document_with_unsaved_text_else_the_disk() {
    let clean = Document::new(Some(text("a")), ONE);
    let mut dirty = clean.clone();
    dirty.change(text("b"), 0).unwrap();
    let empty = Document::new(None, None);
    let mut unborn = empty.clone();
    unborn.change(text("b"), 0).unwrap();
    let rows = [
        (None, ONE, Truth::Disk),
        (None, None, Truth::Disk),
        (Some(&clean), ONE, Truth::Document),
        (Some(&clean), TWO, Truth::Reload),
        (Some(&clean), None, Truth::Reload),
        (Some(&dirty), ONE, Truth::Document),
        (Some(&dirty), TWO, Truth::DocumentBesideChangedFile),
        (Some(&dirty), None, Truth::DocumentBesideChangedFile),
        (Some(&empty), None, Truth::Document),
        (Some(&empty), ONE, Truth::Reload),
        (Some(&unborn), None, Truth::Document),
        (Some(&unborn), ONE, Truth::DocumentBesideChangedFile),
    ];
    for (document, disk, expected) in rows {
        assert_eq!(truth(document, disk), expected, "{document:?} {disk:?}");
    }
}

#[test]
fn a_document_is_dirty_while_its_file_has_other_text() {
    let mut document = Document::new(Some(text("a")), ONE);
    let mut seen = vec![(document.is_dirty(), document.revision())];
    for typed in ["b", "b", "a"] {
        document.change(text(typed), document.revision()).unwrap();
        seen.push((document.is_dirty(), document.revision()));
    }
    document.change(text("c"), 2).unwrap();
    document.settle(text("c"), TWO);
    seen.push((document.is_dirty(), document.revision()));
    assert_eq!(seen, [(false, 0), (true, 1), (true, 1), (false, 2), (false, 3)]);
}

#[test]
fn settling_sets_text_and_file() {
    let mut document = Document::new(None, None);
    assert_eq!(document.text().as_str(), "");
    document.settle(text("x"), TWO);
    assert_eq!((document.text(), document.saved()), (&text("x"), Some(&text("x"))));
    assert_eq!(truth(Some(&document), TWO), Truth::Document);
}

#[test]
fn an_editor_that_has_not_heard_of_a_change_is_merged_with_it() {
    let mut document = Document::new(Some(text("a\nb\nc\n")), ONE);
    document.settle(text("A\nb\nc\n"), TWO);
    document.change(text("a\nb\nC\n"), 0).unwrap();
    assert_eq!((document.text().as_str(), document.revision()), ("A\nb\nC\n", 2));
    assert!(document.is_dirty());
    let conflict = document.clone().change(text("x\nb\nc\n"), 0).unwrap_err();
    assert!(matches!(conflict, Untaken::Conflict(_)), "{conflict}");
    assert_eq!(document.change(text("x"), 7), Err(Untaken::TooOld { based_on: 7, revision: 2 }));
    // What was typed is known to the editor alone.
    assert_eq!(document.change(text("x"), 1), Err(Untaken::TooOld { based_on: 1, revision: 2 }));
    assert_eq!(document.text().as_str(), "A\nb\nC\n");
}

#[test]
fn only_the_last_texts_that_were_replaced_are_remembered() {
    let mut document = Document::new(Some(text("0")), ONE);
    for at in 1..=MAX_REPLACED as u64 + 1 {
        document.settle(text(&at.to_string()), ONE);
    }
    let now = document.revision();
    assert_eq!(document.clone().change(text("x"), 0), Err(Untaken::TooOld { based_on: 0, revision: now }));
    // The oldest that is remembered: the same text as now merges with whatever was made of it.
    assert!(matches!(document.clone().change(text("x"), 1), Err(Untaken::Conflict(_))));
    document.settle(text(&now.to_string()), TWO);
    assert!(
        matches!(document.change(text("x"), 1), Err(Untaken::Conflict(_))),
        "the same text replaces nothing"
    );
}
