//! A model test of the journal: any sequence of steps leaves it in the same state as a plain list.

use std::collections::{BTreeMap, BTreeSet};

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeOutcome};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{
    ApplyMethod, ChangeDraft, ChangeFilter, DraftContent, DraftSide, Journal, JournalError, Retention,
};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::fixture::{baseline_row, draft};

/// Contents are numbers: a content's size is its number plus one, so none compresses.
const CONTENT_COUNT: usize = 8;

#[derive(Debug, Clone, Copy)]
struct ModelContent {
    number: usize,
    has_bytes: bool,
}

/// The user, or a turn of a session; turn 0 is outside any turn.
type ModelOrigin = Option<(u8, u64)>;

#[derive(Debug, Clone)]
enum ModelStep {
    Begin(ModelOrigin, Vec<[Option<ModelContent>; 2]>),
    Record(ModelOrigin, Vec<[Option<ModelContent>; 2]>),
    Settle(usize, ChangeOutcome),
    Keep(usize),
    Watch(u8, usize),
    Forget(u8),
    Prune,
    Reopen,
    Wait(i64),
}

#[derive(Debug, Clone)]
struct ModelRow {
    id: i64,
    batch: i64,
    at: i64,
    origin: ModelOrigin,
    sides: [Option<usize>; 2],
    outcome: Option<ChangeOutcome>,
}

/// The side of a change whose text was pruned.
const PRUNED: usize = 99;

impl ModelRow {
    fn has_text(&self) -> bool {
        self.sides.iter().flatten().any(|side| *side != PRUNED)
    }
}

#[derive(Debug, Clone)]
struct JournalModel {
    retention: Retention,
    rows: Vec<ModelRow>,
    // Sessions with changes since the journal was opened.
    running: BTreeSet<u8>,
    last: i64,
    kept: BTreeSet<usize>,
    baseline: BTreeMap<u8, usize>,
}

impl JournalModel {
    /// Returns whether the change is recorded: an agent's change is refused if there is no room for what undo needs.
    fn add(
        &mut self,
        whose: ModelOrigin,
        changes: &[[Option<ModelContent>; 2]],
        outcome: Option<ChangeOutcome>,
        at: i64,
    ) -> bool {
        let as_it_was = self.clone();
        let batch = self.last + 1;
        for sides in changes {
            self.last += 1;
            self.kept.extend(sides.iter().flatten().filter(|side| side.has_bytes).map(|side| side.number));
            let sides = sides.map(|side| side.map(|side| side.number));
            self.rows.push(ModelRow { id: self.last, batch, at, origin: whose, sides, outcome });
        }
        self.running.extend(whose.map(|(session, _)| session));
        let max = self.retention.max_bytes;
        if self.kept_bytes() > max {
            self.rows.retain(|row| row.outcome != Some(ChangeOutcome::Abandoned));
            self.drop_unreferenced();
            let promised = self.protected_changes();
            self.drop_texts_until(max - max / 8, &promised);
        }
        // A change that adds no text is never refused, since it needs no room.
        let adds = changes
            .iter()
            .flatten()
            .flatten()
            .any(|side| side.has_bytes && !as_it_was.kept.contains(&side.number));
        let refused = self.kept_bytes() > max && whose.is_some() && adds;
        if refused {
            let running = std::mem::take(&mut self.running);
            *self = Self { running, ..as_it_was };
        }
        !refused
    }

    /// Returns the changes that undo still needs.
    fn protected_changes(&self) -> BTreeSet<i64> {
        let newest = self.rows.iter().map(|row| row.batch).max();
        let last = self.rows.iter().rev().find_map(|row| row.origin).map(|(session, _)| session);
        let sessions: BTreeSet<u8> = self.running.iter().copied().chain(last).collect();
        let mut promised: BTreeSet<i64> = (self.rows.iter())
            .filter(|row| row.outcome.is_none() || Some(row.batch) == newest)
            .map(|row| row.id)
            .collect();
        for session in sessions {
            let own = || {
                self.rows
                    .iter()
                    .filter_map(|row| Some((row.id, row.origin?)))
                    .filter(|row| row.1.0 == session)
            };
            let latest = own().map(|(_, (_, turn))| turn).filter(|turn| *turn > 0).max();
            let first = own().find(|(_, (_, turn))| latest == Some(*turn)).map_or(0, |(id, _)| id);
            promised.extend(own().map(|(id, _)| id).filter(|id| *id >= first));
        }
        promised
    }

    fn drop_texts(&mut self, at: usize) {
        self.rows[at].sides = self.rows[at].sides.map(|side| side.map(|_| PRUNED));
        self.drop_unreferenced();
    }

    fn drop_texts_until(&mut self, goal: u64, promised: &BTreeSet<i64>) {
        while self.kept_bytes() > goal {
            let oldest = self.rows.iter().position(|row| row.has_text() && !promised.contains(&row.id));
            let Some(oldest) = oldest else { return };
            self.drop_texts(oldest);
        }
    }

    fn settle(&mut self, id: i64, outcome: ChangeOutcome) -> bool {
        let row = self.rows.iter_mut().find(|row| row.id == id);
        match row {
            Some(row)
                if matches!(row.outcome, None | Some(ChangeOutcome::Unknown))
                    || row.outcome == Some(outcome) =>
            {
                row.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    fn drop_unreferenced(&mut self) {
        let referred: BTreeSet<_> = self.rows.iter().flat_map(|row| row.sides).flatten().collect();
        self.kept.retain(|content| {
            referred.contains(content) || self.baseline.values().any(|held| held == content)
        });
    }

    fn prune(&mut self, now: i64) {
        self.rows.retain(|row| row.outcome != Some(ChangeOutcome::Abandoned));
        self.drop_unreferenced();
        let promised = self.protected_changes();
        let oldest = now.saturating_sub(self.retention.max_age_ms);
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if row.at < oldest && !promised.contains(&row.id) {
                self.drop_texts(at);
            }
        }
        let excess = (self.rows.len() as u64).saturating_sub(self.retention.max_changes);
        let mut gone = BTreeSet::new();
        for row in self.rows.iter().filter(|row| !promised.contains(&row.id)) {
            if gone.len() as u64 >= excess {
                break;
            }
            gone.insert(row.id);
            // A turn is dropped as a whole.
            let is_with =
                |other: &&ModelRow| row.origin.is_some_and(|whose| whose.1 > 0) && other.origin == row.origin;
            gone.extend(
                self.rows.iter().filter(is_with).map(|row| row.id).filter(|id| !promised.contains(id)),
            );
        }
        self.rows.retain(|row| !gone.contains(&row.id));
        self.drop_unreferenced();
        self.drop_texts_until(self.retention.max_bytes, &promised);
    }

    fn kept_bytes(&self) -> u64 {
        let counts = |content: &&usize| !self.baseline.values().any(|held| held == *content);
        self.kept.iter().filter(counts).map(|content| *content as u64 + 1).sum()
    }

    fn describe(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| (row.id, row.at, row.sides, row.outcome)).collect();
        let listed: Vec<_> = rows
            .iter()
            .filter(|row| matches!(row.3, Some(ChangeOutcome::Done | ChangeOutcome::Unknown)))
            .map(|row| format!("{row:?}"))
            .collect();
        let pending: Vec<_> =
            rows.iter().filter(|row| row.3.is_none()).map(|row| format!("{row:?}")).collect();
        format!("{listed:#?} {pending:#?} {:?} {:?}", self.kept, self.baseline)
    }
}

fn content_bytes(content: usize) -> Vec<u8> {
    vec![b'a' + content as u8; content + 1]
}

fn content_hash(content: usize) -> ContentHash {
    ContentHash::digest(&content_bytes(content))
}

fn content_number(of: &ContentHash) -> usize {
    if *of == ContentHash::UNKNOWN {
        return PRUNED;
    }
    (0..CONTENT_COUNT).find(|content| content_hash(*content) == *of).unwrap()
}

fn describe_journal(journal: &Journal) -> String {
    let row = |change: &bowline_history::changes::Change, outcome: Option<ChangeOutcome>| {
        let sides = [&change.before, &change.after].map(|side| side.map(|state| content_number(&state.hash)));
        format!("{:?}", (change.id.0, change.at.0, sides, outcome))
    };
    let listed = journal.changes(&ChangeFilter::default()).unwrap();
    let listed: Vec<_> = listed.iter().map(|entry| row(&entry.change, entry.outcome)).collect();
    let pending = journal.pending_changes().unwrap();
    let pending: Vec<_> = pending.iter().map(|one| row(&one.change, None)).collect();
    let kept: BTreeSet<_> = (0..CONTENT_COUNT)
        .filter(|content| match journal.content(&content_hash(*content)).unwrap() {
            Some(kept) => kept == content_bytes(*content),
            None => false,
        })
        .collect();
    let baseline: BTreeMap<u8, usize> = journal
        .baseline()
        .unwrap()
        .iter()
        .map(|row| (row.path.parse().unwrap(), content_number(&row.known.hash.unwrap())))
        .collect();
    format!("{listed:#?} {pending:#?} {kept:?} {baseline:?}")
}

fn run(steps: &[ModelStep], retention: Retention) {
    let directory = TempDir::new().unwrap();
    let mut now = 0;
    let mut journal = Journal::open(directory.path(), retention, Timestamp(now)).unwrap().0;
    let mut model = JournalModel {
        retention,
        rows: Vec::new(),
        running: BTreeSet::new(),
        last: 0,
        kept: BTreeSet::new(),
        baseline: BTreeMap::new(),
    };
    let contents: Vec<_> = (0..CONTENT_COUNT).map(content_bytes).collect();
    let origin = |whose: ModelOrigin| ChangeOrigin {
        session: whose.map(|(session, _)| format!("s{session}")),
        turn: whose.map(|(_, turn)| turn).filter(|turn| *turn > 0),
        ..ChangeOrigin::default()
    };
    let side = |side: ModelContent| {
        let bytes = contents[side.number].as_slice();
        let known = DraftContent::HashOnly { hash: content_hash(side.number), size: bytes.len() as u64 };
        DraftSide { content: if side.has_bytes { DraftContent::Bytes(bytes) } else { known }, mode: 0o644 }
    };
    fn drafts<'a, 's: 'a>(
        origin: &'a ChangeOrigin,
        changes: &[[Option<ModelContent>; 2]],
        manner: &ApplyMethod,
        side: impl Fn(ModelContent) -> DraftSide<'s>,
    ) -> Vec<ChangeDraft<'a>> {
        let draft = |sides: &[Option<ModelContent>; 2]| ChangeDraft {
            before: sides[0].map(&side),
            after: sides[1].map(&side),
            method: manner.clone(),
            ..draft(origin, "/a", None, None)
        };
        changes.iter().map(draft).collect()
    }
    for step in steps {
        match step {
            ModelStep::Begin(whose, changes) => {
                let origin = origin(*whose);
                let begun =
                    journal.begin(&drafts(&origin, changes, &ApplyMethod::InPlace, side), Timestamp(now));
                match model.add(*whose, changes, None, now) {
                    true => assert_eq!(begun.unwrap().last(), Some(&ChangeId(model.last))),
                    false => assert!(matches!(begun, Err(JournalError::NoRoom { .. })), "{begun:?}"),
                }
            }
            ModelStep::Record(whose, changes) => {
                let origin = origin(*whose);
                let recorded = journal
                    .record(&drafts(&origin, changes, &ApplyMethod::AlreadyApplied, side), Timestamp(now));
                assert_eq!(recorded.is_ok(), model.add(*whose, changes, Some(ChangeOutcome::Done), now));
            }
            ModelStep::Settle(back, outcome) => {
                let id = model.last - *back as i64;
                let settled = journal.settle(&[(ChangeId(id), *outcome)]).is_ok();
                assert_eq!(settled, model.settle(id, *outcome));
            }
            ModelStep::Keep(content) => {
                journal.store_contents(&[&contents[*content]]).unwrap();
                model.kept.insert(*content);
            }
            ModelStep::Watch(path, content) => {
                journal
                    .update_baseline(&[baseline_row(&path.to_string(), Some(content_hash(*content)))], &[])
                    .unwrap();
                model.baseline.insert(*path, *content);
            }
            ModelStep::Forget(path) => {
                journal.update_baseline(&[], &[path.to_string()]).unwrap();
                model.baseline.remove(path);
            }
            ModelStep::Prune => {
                journal.prune(Timestamp(now)).unwrap();
                model.prune(now);
            }
            ModelStep::Reopen => {
                drop(journal);
                let notices;
                (journal, notices) = Journal::open(directory.path(), retention, Timestamp(now)).unwrap();
                assert_eq!(notices, []);
                model.running.clear();
                model.prune(now);
            }
            ModelStep::Wait(time) => now += time,
        }
        assert_eq!(describe_journal(&journal), model.describe(), "after {step:?}");
    }
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let content = (0..CONTENT_COUNT, prop::bool::weighted(0.8))
        .prop_map(|(number, told)| ModelContent { number, has_bytes: told });
    let side = prop::option::weighted(0.8, content);
    let changes = vec([side.clone(), side], 1..3);
    let outcome =
        prop_oneof![Just(ChangeOutcome::Done), Just(ChangeOutcome::Abandoned), Just(ChangeOutcome::Unknown)];
    let whose = prop::option::weighted(0.6, (0..2_u8, 0..4_u64));
    let step = prop_oneof![
        4 => (whose.clone(), changes.clone()).prop_map(|(whose, changes)| ModelStep::Begin(whose, changes)),
        3 => (whose, changes).prop_map(|(whose, changes)| ModelStep::Record(whose, changes)),
        5 => (0..6_usize, outcome).prop_map(|(back, outcome)| ModelStep::Settle(back, outcome)),
        1 => (0..CONTENT_COUNT).prop_map(ModelStep::Keep),
        1 => (0..2_u8, 0..CONTENT_COUNT).prop_map(|(path, content)| ModelStep::Watch(path, content)),
        1 => (0..2_u8).prop_map(ModelStep::Forget),
        2 => Just(ModelStep::Prune),
        1 => Just(ModelStep::Reopen),
        // The clock may be set back.
        2 => (-6..8_i64).prop_map(ModelStep::Wait),
    ];
    vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_is_what_a_list_would_be(
        steps in steps(),
        max_bytes in 0..40_u64,
        max_age_ms in 0..12_i64,
        max_changes in 0..12_u64,
    ) {
        run(&steps, Retention { max_bytes, max_age_ms, max_changes });
    }
}
