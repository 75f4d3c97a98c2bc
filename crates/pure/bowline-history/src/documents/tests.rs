//! Tests of open documents.

use super::*;

fn text(text: &str) -> Arc<String> {
    Arc::new(text.to_owned())
}

const VERSION_ONE: Option<TextVersion> = Some(TextVersion(1));
const VERSION_TWO: Option<TextVersion> = Some(TextVersion(2));

#[test]
fn the_truth_is_the_document_with_unsaved_text_else_the_disk() {
    let clean = Document::new(Some(text("a")), VERSION_ONE);
    let mut dirty = clean.clone();
    dirty.apply_change(text("b"), 0).unwrap();
    let empty = Document::new(None, None);
    let mut unborn = empty.clone();
    unborn.apply_change(text("b"), 0).unwrap();
    let rows = [
        (None, VERSION_ONE, DocumentTextSource::Disk),
        (None, None, DocumentTextSource::Disk),
        (Some(&clean), VERSION_ONE, DocumentTextSource::Document),
        (Some(&clean), VERSION_TWO, DocumentTextSource::Reload),
        (Some(&clean), None, DocumentTextSource::Reload),
        (Some(&dirty), VERSION_ONE, DocumentTextSource::Document),
        (Some(&dirty), VERSION_TWO, DocumentTextSource::DirtyDocumentOverChangedFile),
        (Some(&dirty), None, DocumentTextSource::DirtyDocumentOverChangedFile),
        (Some(&empty), None, DocumentTextSource::Document),
        (Some(&empty), VERSION_ONE, DocumentTextSource::Reload),
        (Some(&unborn), None, DocumentTextSource::Document),
        (Some(&unborn), VERSION_ONE, DocumentTextSource::DirtyDocumentOverChangedFile),
    ];
    for (document, disk, expected) in rows {
        assert_eq!(resolve_text_source(document, disk), expected, "{document:?} {disk:?}");
    }
}

#[test]
fn a_document_is_dirty_while_its_file_has_other_text() {
    let mut document = Document::new(Some(text("a")), VERSION_ONE);
    let mut states = vec![(document.is_dirty(), document.revision())];
    for typed in ["b", "b", "a"] {
        document.apply_change(text(typed), document.revision()).unwrap();
        states.push((document.is_dirty(), document.revision()));
    }
    document.apply_change(text("c"), 2).unwrap();
    document.mark_synced(text("c"), VERSION_TWO);
    states.push((document.is_dirty(), document.revision()));
    assert_eq!(states, [(false, 0), (true, 1), (true, 1), (false, 2), (false, 3)]);
}

#[test]
fn settling_sets_text_and_file() {
    let mut document = Document::new(None, None);
    assert_eq!(document.text().as_str(), "");
    document.mark_synced(text("x"), VERSION_TWO);
    assert_eq!((document.text(), document.saved_text()), (&text("x"), Some(&text("x"))));
    assert_eq!(resolve_text_source(Some(&document), VERSION_TWO), DocumentTextSource::Document);
}

#[test]
fn an_editor_that_has_not_heard_of_a_change_is_merged_with_it() {
    let mut document = Document::new(Some(text("a\nb\nc\n")), VERSION_ONE);
    document.mark_synced(text("A\nb\nc\n"), VERSION_TWO);
    document.apply_change(text("a\nb\nC\n"), 0).unwrap();
    assert_eq!((document.text().as_str(), document.revision()), ("A\nb\nC\n", 2));
    assert!(document.is_dirty());
    let conflict = document.clone().apply_change(text("x\nb\nc\n"), 0).unwrap_err();
    assert!(matches!(conflict, ChangeDocumentError::Conflict(_)), "{conflict}");
    assert_eq!(
        document.apply_change(text("x"), 7),
        Err(ChangeDocumentError::StaleRevision { based_on: 7, revision: 2 })
    );
    // Only the editor knows the typed text.
    assert_eq!(
        document.apply_change(text("x"), 1),
        Err(ChangeDocumentError::StaleRevision { based_on: 1, revision: 2 })
    );
    assert_eq!(document.text().as_str(), "A\nb\nC\n");
}

#[test]
fn only_the_last_texts_that_were_replaced_are_remembered() {
    let mut document = Document::new(Some(text("0")), VERSION_ONE);
    for at in 1..=MAX_REPLACED_TEXTS as u64 + 1 {
        document.mark_synced(text(&at.to_string()), VERSION_ONE);
    }
    let now = document.revision();
    assert_eq!(
        document.clone().apply_change(text("x"), 0),
        Err(ChangeDocumentError::StaleRevision { based_on: 0, revision: now })
    );
    // The oldest remembered text is still a valid base, so a change of the same lines is a conflict.
    assert!(matches!(document.clone().apply_change(text("x"), 1), Err(ChangeDocumentError::Conflict(_))));
    document.mark_synced(text(&now.to_string()), VERSION_TWO);
    assert!(
        matches!(document.apply_change(text("x"), 1), Err(ChangeDocumentError::Conflict(_))),
        "the same text replaces nothing"
    );
}
