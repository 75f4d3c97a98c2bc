//! Tests of contents stored as deltas: they are restored whole, and their bases are kept as long as they are.

use std::collections::HashMap;

use bowline_history::changes::{ChangeOrigin, ChangeOutcome};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{ChangeFilter, Journal, Retention};
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use super::fixture::{KEEP_EVERYTHING, draft, open_journal, random_bytes};

/// Records edits, each based on the one before.
fn record_edits(journal: &mut Journal, texts: &[Vec<u8>]) {
    let origin = ChangeOrigin::default();
    for pair in texts.windows(2) {
        let ids =
            journal.begin(&[draft(&origin, "/a", Some(&pair[0]), Some(&pair[1]))], Timestamp(1)).unwrap();
        journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    }
}

/// Returns a text and `count` others, each with one more byte in its middle.
fn make_edits(count: u8) -> Vec<Vec<u8>> {
    let mut text = random_bytes(1, 20_000);
    let mut texts = vec![text.clone()];
    for number in 0..count {
        text.insert(10_000, number);
        texts.push(text.clone());
    }
    texts
}

fn query_number(journal: &Journal, sql: &str) -> i64 {
    Connection::open(journal.path()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn of_an_edited_text_what_differs_is_kept() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let texts = make_edits(40);
    record_edits(&mut journal, &texts);
    for text in &texts {
        assert_eq!(journal.content(&ContentHash::digest(text)).unwrap().as_ref(), Some(text));
    }
    // Some are stored whole, so that no chain of deltas becomes too long.
    assert_eq!(query_number(&journal, "SELECT count(*) FROM blobs WHERE codec <> 2"), 3);
    assert_eq!(query_number(&journal, "SELECT max(depth) FROM blobs"), 16);
    assert_eq!(query_number(&journal, "SELECT max(stored) FROM blobs WHERE codec = 2"), 9);
}

#[test]
fn a_text_goes_with_the_last_that_is_built_on_it() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let texts = make_edits(5);
    record_edits(&mut journal, &texts);
    drop(journal);
    let keep = |max_changes| Retention { max_changes, ..KEEP_EVERYTHING };
    let (mut journal, _) = Journal::open(directory.path(), keep(1), Timestamp(2)).unwrap();
    assert_eq!(journal.changes(&ChangeFilter::default()).unwrap().len(), 1);
    assert_eq!(journal.content(&ContentHash::digest(&texts[5])).unwrap().as_ref(), Some(&texts[5]));
    assert_eq!(query_number(&journal, "SELECT count(*) FROM blobs"), 6);
    // The newest stays, and does not depend on them.
    let origin = ChangeOrigin::default();
    let ids = journal.begin(&[draft(&origin, "/b", None, Some(b"other"))], Timestamp(3)).unwrap();
    journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    let pruned = journal.prune(Timestamp(3)).unwrap();
    assert_eq!((pruned.changes, pruned.blobs, pruned.bytes), (1, 6, 20_000 + 5 * 9));
    assert_eq!(query_number(&journal, "SELECT count(*) FROM contents"), 1);
}

#[test]
fn what_is_built_on_a_damaged_text_is_damaged() {
    let spoil = [
        "UPDATE contents SET data = zeroblob(20000) WHERE id = 1",
        "UPDATE contents SET data = x'ffffffffffffffff' WHERE id = 2",
        "UPDATE contents SET data = x'00' WHERE id = 3",
        "UPDATE blobs SET base = hash WHERE codec = 2",
        "DELETE FROM blobs WHERE codec <> 2",
        "UPDATE blobs SET base = zeroblob(7) WHERE codec = 2",
    ];
    for sql in spoil {
        let directory = TempDir::new().unwrap();
        let (mut journal, _) = open_journal(directory.path());
        let texts = make_edits(3);
        record_edits(&mut journal, &texts);
        Connection::open(journal.path()).unwrap().execute_batch(sql).unwrap();
        let hash = ContentHash::digest(&texts[3]);
        let told = journal.content(&hash).unwrap_err().to_string();
        let expected = format!("the content {hash} is damaged in the journal and cannot be given back");
        assert_eq!(told, expected, "{sql}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Edits, and returns to any earlier text, with the oldest changes dropped in between.
    #[test]
    fn whatever_is_dropped_the_rest_is_whole(
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..9_000_usize, 0..4_usize, any::<bool>()), 1..40),
        max_changes in 0..12_u64,
        max_bytes in prop_oneof![0..60_000_u64, Just(u64::MAX)],
    ) {
        let directory = TempDir::new().unwrap();
        let retention = Retention { max_changes, max_bytes, ..KEEP_EVERYTHING };
        let (mut journal, _) = Journal::open(directory.path(), retention, Timestamp(0)).unwrap();
        let mut texts = vec![random_bytes(1, 9_000)];
        let mut by_hash = HashMap::from([(ContentHash::digest(&texts[0]), texts[0].clone())]);
        for (from, at, removed, prune) in steps {
            let last = texts.last().unwrap().clone();
            let mut next = if removed == 0 { from.get(&texts).clone() } else { last.clone() };
            if removed > 0 {
                let at = at.min(next.len());
                let end = (at + removed).min(next.len());
                next.splice(at..end, *b"put in");
            }
            by_hash.insert(ContentHash::digest(&next), next.clone());
            record_edits(&mut journal, &[last, next.clone()]);
            texts.push(next);
            if prune {
                journal.prune(Timestamp(1)).unwrap();
                let unused = "SELECT count(*) FROM blobs WHERE hash NOT IN (SELECT before_hash FROM changes) \
                    AND hash NOT IN (SELECT after_hash FROM changes) \
                    AND hash NOT IN (SELECT base FROM blobs WHERE base IS NOT NULL)";
                prop_assert_eq!(query_number(&journal, unused), 0);
                let orphaned = "SELECT (SELECT count(*) FROM contents) - (SELECT count(*) FROM blobs)";
                prop_assert_eq!(query_number(&journal, orphaned), 0);
            }
            for entry in journal.changes(&ChangeFilter::default()).unwrap() {
                for state in [entry.change.before, entry.change.after].into_iter().flatten() {
                    let kept = journal.content(&state.hash).unwrap();
                    prop_assert!(kept.as_ref() == by_hash.get(&state.hash), "{} is another", state.hash);
                }
            }
        }
    }
}
