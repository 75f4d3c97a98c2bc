//! Any sequence of steps leaves the journal as a plain list would be.

use std::collections::{BTreeMap, BTreeSet};

use bowline_state::changes::{ChangeId, ContentHash, Moment, Origin};
use bowline_workspace::journal::{
    Draft, Filter, Journal, JournalError, Manner, Outcome, Retention, Side, SideContent,
};
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

/// The user, or a turn of a session; 0 is what a session does outside of its turns.
type Whose = Option<(u8, u64)>;

#[derive(Debug, Clone)]
enum Step {
    Begin(Whose, Vec<[Option<Content>; 2]>),
    Record(Whose, Vec<[Option<Content>; 2]>),
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
    whose: Whose,
    sides: [Option<usize>; 2],
    outcome: Option<Outcome>,
}

/// The side of a change whose text was pruned.
const PRUNED: usize = 99;

impl Row {
    fn has_text(&self) -> bool {
        self.sides.iter().flatten().any(|side| *side != PRUNED)
    }
}

#[derive(Debug, Clone)]
struct Model {
    retention: Retention,
    rows: Vec<Row>,
    // Sessions that changed something since the journal was opened.
    running: BTreeSet<u8>,
    last: i64,
    kept: BTreeSet<usize>,
    baseline: BTreeMap<u8, usize>,
}

impl Model {
    /// Returns whether it is recorded: an agent's change is not if there is no room for what undo needs.
    fn add(
        &mut self,
        whose: Whose,
        changes: &[[Option<Content>; 2]],
        outcome: Option<Outcome>,
        at: i64,
    ) -> bool {
        let as_it_was = self.clone();
        let batch = self.last + 1;
        for sides in changes {
            self.last += 1;
            self.kept.extend(sides.iter().flatten().filter(|side| side.told).map(|side| side.number));
            let sides = sides.map(|side| side.map(|side| side.number));
            self.rows.push(Row { id: self.last, batch, at, whose, sides, outcome });
        }
        self.running.extend(whose.map(|(session, _)| session));
        let max = self.retention.max_bytes;
        if self.held() > max {
            self.rows.retain(|row| row.outcome != Some(Outcome::Abandoned));
            self.sweep();
            let promised = self.promised();
            self.forget_until(max - max / 8, &promised);
        }
        // What adds no text is not refused: there is nothing to find room for.
        let adds = changes
            .iter()
            .flatten()
            .flatten()
            .any(|side| side.told && !as_it_was.kept.contains(&side.number));
        let refused = self.held() > max && whose.is_some() && adds;
        if refused {
            let running = std::mem::take(&mut self.running);
            *self = Self { running, ..as_it_was };
        }
        !refused
    }

    /// Returns the changes that undo still needs.
    fn promised(&self) -> BTreeSet<i64> {
        let newest = self.rows.iter().map(|row| row.batch).max();
        let last = self.rows.iter().rev().find_map(|row| row.whose).map(|(session, _)| session);
        let sessions: BTreeSet<u8> = self.running.iter().copied().chain(last).collect();
        let mut promised: BTreeSet<i64> = (self.rows.iter())
            .filter(|row| row.outcome.is_none() || Some(row.batch) == newest)
            .map(|row| row.id)
            .collect();
        for session in sessions {
            let own = || {
                self.rows.iter().filter_map(|row| Some((row.id, row.whose?))).filter(|row| row.1.0 == session)
            };
            let latest = own().map(|(_, (_, turn))| turn).filter(|turn| *turn > 0).max();
            let first = own().find(|(_, (_, turn))| latest == Some(*turn)).map_or(0, |(id, _)| id);
            promised.extend(own().map(|(id, _)| id).filter(|id| *id >= first));
        }
        promised
    }

    fn forget(&mut self, at: usize) {
        self.rows[at].sides = self.rows[at].sides.map(|side| side.map(|_| PRUNED));
        self.sweep();
    }

    fn forget_until(&mut self, goal: u64, promised: &BTreeSet<i64>) {
        while self.held() > goal {
            let oldest = self.rows.iter().position(|row| row.has_text() && !promised.contains(&row.id));
            let Some(oldest) = oldest else { return };
            self.forget(oldest);
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
        self.sweep();
        let promised = self.promised();
        let oldest = now.saturating_sub(self.retention.max_age_ms);
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if row.at < oldest && !promised.contains(&row.id) {
                self.forget(at);
            }
        }
        let excess = (self.rows.len() as u64).saturating_sub(self.retention.max_changes);
        let mut gone = BTreeSet::new();
        for row in self.rows.iter().filter(|row| !promised.contains(&row.id)) {
            if gone.len() as u64 >= excess {
                break;
            }
            gone.insert(row.id);
            // A turn goes as a whole.
            let is_with =
                |other: &&Row| row.whose.is_some_and(|whose| whose.1 > 0) && other.whose == row.whose;
            gone.extend(
                self.rows.iter().filter(is_with).map(|row| row.id).filter(|id| !promised.contains(id)),
            );
        }
        self.rows.retain(|row| !gone.contains(&row.id));
        self.sweep();
        self.forget_until(self.retention.max_bytes, &promised);
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
    if *of == ContentHash::UNKNOWN {
        return PRUNED;
    }
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
    let mut model = Model {
        retention,
        rows: Vec::new(),
        running: BTreeSet::new(),
        last: 0,
        kept: BTreeSet::new(),
        baseline: BTreeMap::new(),
    };
    let contents: Vec<_> = (0..CONTENTS).map(bytes).collect();
    let origin = |whose: Whose| Origin {
        session: whose.map(|(session, _)| format!("s{session}")),
        turn: whose.map(|(_, turn)| turn).filter(|turn| *turn > 0),
        ..Origin::default()
    };
    let side = |side: Content| {
        let bytes = contents[side.number].as_slice();
        let known = SideContent::Known { hash: hash(side.number), size: bytes.len() as u64 };
        Side { content: if side.told { SideContent::Bytes(bytes) } else { known }, mode: 0o644 }
    };
    fn drafts<'a, 's: 'a>(
        origin: &'a Origin,
        changes: &[[Option<Content>; 2]],
        manner: &Manner,
        side: impl Fn(Content) -> Side<'s>,
    ) -> Vec<Draft<'a>> {
        let draft = |sides: &[Option<Content>; 2]| Draft {
            before: sides[0].map(&side),
            after: sides[1].map(&side),
            manner: manner.clone(),
            ..draft(origin, "/a", None, None)
        };
        changes.iter().map(draft).collect()
    }
    for step in steps {
        match step {
            Step::Begin(whose, changes) => {
                let origin = origin(*whose);
                let begun = journal.begin(&drafts(&origin, changes, &Manner::InPlace, side), Moment(now));
                match model.add(*whose, changes, None, now) {
                    true => assert_eq!(begun.unwrap().last(), Some(&ChangeId(model.last))),
                    false => assert!(matches!(begun, Err(JournalError::NoRoom { .. })), "{begun:?}"),
                }
            }
            Step::Record(whose, changes) => {
                let origin = origin(*whose);
                let recorded = journal.record(&drafts(&origin, changes, &Manner::Found, side), Moment(now));
                assert_eq!(recorded.is_ok(), model.add(*whose, changes, Some(Outcome::Done), now));
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
                model.running.clear();
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
    let whose = prop::option::weighted(0.6, (0..2_u8, 0..4_u64));
    let step = prop_oneof![
        4 => (whose.clone(), changes.clone()).prop_map(|(whose, changes)| Step::Begin(whose, changes)),
        3 => (whose, changes).prop_map(|(whose, changes)| Step::Record(whose, changes)),
        5 => (0..6_usize, outcome).prop_map(|(back, outcome)| Step::Settle(back, outcome)),
        1 => (0..CONTENTS).prop_map(Step::Keep),
        1 => (0..2_u8, 0..CONTENTS).prop_map(|(path, content)| Step::Watch(path, content)),
        1 => (0..2_u8).prop_map(Step::Forget),
        2 => Just(Step::Prune),
        1 => Just(Step::Reopen),
        // The clock may be set back.
        2 => (-6..8_i64).prop_map(Step::Wait),
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
