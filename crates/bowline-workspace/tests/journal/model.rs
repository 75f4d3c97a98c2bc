//! Any sequence of steps leaves the journal as a plain list would be.

use std::collections::{BTreeMap, BTreeSet};

use bowline_state::changes::{ChangeId, ContentHash, Moment, Origin};
use bowline_workspace::journal::{Draft, Filter, Journal, Manner, Outcome, Retention, Side, SideContent};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::fixture::{draft, row};

/// Contents are numbers: a content's size is its number and one, so none compresses.
const CONTENTS: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Content {
    number: usize,
    told: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Begin(Vec<[Option<Content>; 2]>),
    Record(Vec<[Option<Content>; 2]>),
    Settle(usize, Outcome),
    Keep(usize),
    Watch(u8, usize),
    Forget(u8),
    Prune,
    Reopen,
    Wait(i64),
}

#[derive(Debug, Clone)]
struct Row {
    id: i64,
    batch: i64,
    at: i64,
    sides: [Option<usize>; 2],
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Model {
    retention: Retention,
    rows: Vec<Row>,
    last: i64,
    kept: BTreeSet<usize>,
    baseline: BTreeMap<u8, usize>,
}

impl Model {
    fn add(&mut self, changes: &[[Option<Content>; 2]], outcome: Option<Outcome>, at: i64) {
        let batch = self.last + 1;
        for sides in changes {
            self.last += 1;
            self.kept.extend(sides.iter().flatten().filter(|side| side.told).map(|side| side.number));
            let sides = sides.map(|side| side.map(|side| side.number));
            self.rows.push(Row { id: self.last, batch, at, sides, outcome });
        }
    }

    fn settle(&mut self, id: i64, outcome: Outcome) -> bool {
        let row = self.rows.iter_mut().find(|row| row.id == id);
        match row {
            Some(row)
                if matches!(row.outcome, None | Some(Outcome::Unknown)) || row.outcome == Some(outcome) =>
            {
                row.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    fn sweep(&mut self) {
        let referred: BTreeSet<_> = self.rows.iter().flat_map(|row| row.sides).flatten().collect();
        self.kept.retain(|content| {
            referred.contains(content) || self.baseline.values().any(|held| held == content)
        });
    }

    fn prune(&mut self, now: i64) {
        self.rows.retain(|row| row.outcome != Some(Outcome::Abandoned));
        let newest = self.rows.iter().map(|row| row.batch).max();
        let may_go = |row: &Row| row.outcome.is_some() && Some(row.batch) != newest;
        let oldest = now.saturating_sub(self.retention.max_age_ms);
        self.rows.retain(|row| !may_go(row) || row.at >= oldest);
        let drop_oldest = |model: &mut Self| match model.rows.iter().position(may_go) {
            Some(at) => {
                model.rows.remove(at);
                true
            }
            None => false,
        };
        while self.rows.len() as u64 > self.retention.max_changes && drop_oldest(self) {}
        self.sweep();
        while self.held() > self.retention.max_bytes && drop_oldest(self) {
            self.sweep();
        }
    }

    fn held(&self) -> u64 {
        let counts = |content: &&usize| !self.baseline.values().any(|held| held == *content);
        self.kept.iter().filter(counts).map(|content| *content as u64 + 1).sum()
    }

    fn show(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| (row.id, row.at, row.sides, row.outcome)).collect();
        let listed: Vec<_> = rows
            .iter()
            .filter(|row| matches!(row.3, Some(Outcome::Done | Outcome::Unknown)))
            .map(|row| format!("{row:?}"))
            .collect();
        let pending: Vec<_> =
            rows.iter().filter(|row| row.3.is_none()).map(|row| format!("{row:?}")).collect();
        format!("{listed:#?} {pending:#?} {:?} {:?}", self.kept, self.baseline)
    }
}

fn bytes(content: usize) -> Vec<u8> {
    vec![b'a' + content as u8; content + 1]
}

fn hash(content: usize) -> ContentHash {
    ContentHash::of(&bytes(content))
}

fn number(of: &ContentHash) -> usize {
    (0..CONTENTS).find(|content| hash(*content) == *of).unwrap()
}

fn show(journal: &Journal) -> String {
    let row = |change: &bowline_state::changes::Change, outcome: Option<Outcome>| {
        let sides = [&change.before, &change.after].map(|side| side.map(|state| number(&state.hash)));
        format!("{:?}", (change.id.0, change.at.0, sides, outcome))
    };
    let listed = journal.changes(&Filter::default()).unwrap();
    let listed: Vec<_> = listed.iter().map(|entry| row(&entry.change, entry.outcome)).collect();
    let pending = journal.pending().unwrap();
    let pending: Vec<_> = pending.iter().map(|one| row(&one.change, None)).collect();
    let kept: BTreeSet<_> = (0..CONTENTS)
        .filter(|content| match journal.blob(&hash(*content)).unwrap() {
            Some(kept) => kept == bytes(*content),
            None => false,
        })
        .collect();
    let baseline: BTreeMap<u8, usize> = journal
        .baseline()
        .unwrap()
        .iter()
        .map(|row| (row.path.parse().unwrap(), number(&row.hash.unwrap())))
        .collect();
    format!("{listed:#?} {pending:#?} {kept:?} {baseline:?}")
}

fn run(steps: &[Step], retention: Retention) {
    let directory = TempDir::new().unwrap();
    let mut now = 0;
    let mut journal = Journal::open(directory.path(), retention, Moment(now)).unwrap().0;
    let mut model =
        Model { retention, rows: Vec::new(), last: 0, kept: BTreeSet::new(), baseline: BTreeMap::new() };
    let contents: Vec<_> = (0..CONTENTS).map(bytes).collect();
    let origin = Origin::default();
    let side = |side: Content| {
        let bytes = contents[side.number].as_slice();
        let known = SideContent::Known { hash: hash(side.number), size: bytes.len() as u64 };
        Side { content: if side.told { SideContent::Bytes(bytes) } else { known }, mode: 0o644 }
    };
    let drafts = |changes: &[[Option<Content>; 2]], manner: Manner| -> Vec<Draft<'_>> {
        let draft = |sides: &[Option<Content>; 2]| Draft {
            before: sides[0].map(side),
            after: sides[1].map(side),
            manner: manner.clone(),
            ..draft(&origin, "/a", None, None)
        };
        changes.iter().map(draft).collect()
    };
    for step in steps {
        match step {
            Step::Begin(changes) => {
                let ids = journal.begin(&drafts(changes, Manner::InPlace), Moment(now)).unwrap();
                model.add(changes, None, now);
                assert_eq!(ids.last(), Some(&ChangeId(model.last)));
            }
            Step::Record(changes) => {
                journal.record(&drafts(changes, Manner::Found), Moment(now)).unwrap();
                model.add(changes, Some(Outcome::Done), now);
            }
            Step::Settle(back, outcome) => {
                let id = model.last - *back as i64;
                let settled = journal.settle(&[(ChangeId(id), *outcome)]).is_ok();
                assert_eq!(settled, model.settle(id, *outcome));
            }
            Step::Keep(content) => {
                journal.keep(&[&contents[*content]]).unwrap();
                model.kept.insert(*content);
            }
            Step::Watch(path, content) => {
                journal.update_baseline(&[row(&path.to_string(), Some(hash(*content)))], &[]).unwrap();
                model.baseline.insert(*path, *content);
            }
            Step::Forget(path) => {
                journal.update_baseline(&[], &[path.to_string()]).unwrap();
                model.baseline.remove(path);
            }
            Step::Prune => {
                journal.prune(Moment(now)).unwrap();
                model.prune(now);
            }
            Step::Reopen => {
                drop(journal);
                let notices;
                (journal, notices) = Journal::open(directory.path(), retention, Moment(now)).unwrap();
                assert_eq!(notices, []);
                model.prune(now);
            }
            Step::Wait(time) => now += time,
        }
        assert_eq!(show(&journal), model.show(), "after {step:?}");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content =
        (0..CONTENTS, prop::bool::weighted(0.8)).prop_map(|(number, told)| Content { number, told });
    let side = prop::option::weighted(0.8, content);
    let changes = vec([side.clone(), side], 1..3);
    let outcome = prop_oneof![Just(Outcome::Done), Just(Outcome::Abandoned), Just(Outcome::Unknown)];
    let step = prop_oneof![
        4 => changes.clone().prop_map(Step::Begin),
        3 => changes.prop_map(Step::Record),
        5 => (0..6_usize, outcome).prop_map(|(back, outcome)| Step::Settle(back, outcome)),
        1 => (0..CONTENTS).prop_map(Step::Keep),
        1 => (0..2_u8, 0..CONTENTS).prop_map(|(path, content)| Step::Watch(path, content)),
        1 => (0..2_u8).prop_map(Step::Forget),
        2 => Just(Step::Prune),
        1 => Just(Step::Reopen),
        2 => (0..6_i64).prop_map(Step::Wait),
    ];
    vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

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
