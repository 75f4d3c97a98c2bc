//! Which entries tell of the same operation: a log has one for its beginning and one for its end, and people want to see one.

use std::collections::{HashMap, HashSet};

use bowline_state::audit::{Action, Decision, Entry, Record, Subject};

/// What an entry says that is written before something is changed.
const BEGINS: &str = "begins";

/// The entries that need not be shown, as a later one tells the same and more.
#[derive(Debug, Default)]
pub(super) struct Folded {
    hidden: HashSet<u64>,
    // The beginnings whose end has not been found yet, by what they are about.
    open: HashMap<Operation, u64>,
}

/// What an operation is known by.
type Operation = (Option<String>, Option<String>, String, Subject);

impl Folded {
    /// Takes the entries in, the oldest first.
    pub(super) fn add(&mut self, record: &Record) {
        let entry = &record.entry;
        match step(entry) {
            Step::Begin => _ = self.open.insert(operation(entry), record.seq),
            Step::End => self.hidden.extend(self.open.remove(&operation(entry))),
            Step::Noise => _ = self.hidden.insert(record.seq),
            Step::Whole => {}
        }
    }

    /// Says whether an entry is told of by another one.
    pub(super) fn hides(&self, record: &Record) -> bool {
        self.hidden.contains(&record.seq)
    }
}

enum Step {
    Begin,
    End,
    /// The end of something that has been told of.
    Noise,
    Whole,
}

fn step(entry: &Entry) -> Step {
    let is_allowed = entry.decision == Decision::Allowed;
    match &entry.action {
        _ if entry.reason.as_deref() == Some(BEGINS) => Step::Begin,
        Action::TerminalCreate if is_allowed => Step::Begin,
        Action::TerminalRelease if is_allowed => Step::Noise,
        Action::Write | Action::TerminalExit => Step::End,
        _ => Step::Whole,
    }
}

fn operation(entry: &Entry) -> Operation {
    let name = match &entry.action {
        Action::TerminalExit => Action::TerminalCreate.word().to_owned(),
        action => action.word().to_owned(),
    };
    (entry.session.clone(), entry.call.clone(), name, entry.subject.clone())
}

#[cfg(test)]
mod tests {
    use bowline_state::audit::{Action, Decision, Entry, Record, Subject};
    use bowline_state::changes::Moment;
    use expect_test::expect;

    use super::Folded;

    fn record(seq: u64, action: Action, path: &str, reason: Option<&str>) -> Record {
        let mut entry = Entry::new(Moment(0), action);
        entry.subject = Subject::Path { asked: path.to_owned(), resolved: None };
        entry.reason = reason.map(str::to_owned);
        entry.decision = Decision::Allowed;
        Record { seq, entry }
    }

    #[test]
    fn an_operation_is_shown_once_and_one_without_an_end_stays() {
        let records = [
            record(1, Action::Read, "/a", None),
            record(2, Action::Write, "/a", Some("begins")),
            record(3, Action::Write, "/b", Some("begins")),
            record(4, Action::Write, "/a", None),
            record(5, Action::TerminalCreate, "/c", None),
            record(6, Action::TerminalRelease, "/t", None),
            record(7, Action::TerminalExit, "/c", Some("killed")),
            record(8, Action::Write, "/a", None),
        ];
        let mut folded = Folded::default();
        records.iter().for_each(|record| folded.add(record));
        let shown: Vec<u64> =
            records.iter().filter(|record| !folded.hides(record)).map(|record| record.seq).collect();
        expect!["[1, 3, 4, 7, 8]"].assert_eq(&format!("{shown:?}"));
    }
}
