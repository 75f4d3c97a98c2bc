//! Folding of audit entries: a log has one entry for the beginning of an operation and one for its end, and people want
//! to see one.

use std::collections::{HashMap, HashSet};

use super::{AuditAction, AuditDecision, AuditEntry, AuditRecord, AuditSubject};

/// The reason of an entry that is written before a change is made.
const BEGIN_REASON: &str = "begins";

/// Entries that are hidden because a later entry repeats them with more detail.
#[derive(Debug, Default)]
pub struct FoldedEntries {
    hidden: HashSet<u64>,
    // Beginnings whose end has not been found yet, by operation.
    pending_operations: HashMap<OperationKey, u64>,
}

/// The key that identifies an operation.
type OperationKey = (Option<String>, Option<String>, String, AuditSubject);

impl FoldedEntries {
    /// Adds an entry; entries must be added oldest first.
    pub fn add(&mut self, record: &AuditRecord) {
        let entry = &record.entry;
        match entry_phase(entry) {
            EntryPhase::Begin => _ = self.pending_operations.insert(operation_key(entry), record.seq),
            EntryPhase::End => self.hidden.extend(self.pending_operations.remove(&operation_key(entry))),
            EntryPhase::Redundant => _ = self.hidden.insert(record.seq),
            EntryPhase::Complete => {}
        }
    }

    /// Returns whether another entry covers this one.
    #[must_use]
    pub fn is_hidden(&self, record: &AuditRecord) -> bool {
        self.hidden.contains(&record.seq)
    }
}

enum EntryPhase {
    Begin,
    End,
    /// The end of an operation that another entry already covers.
    Redundant,
    Complete,
}

fn entry_phase(entry: &AuditEntry) -> EntryPhase {
    let is_allowed = entry.decision == AuditDecision::Allowed;
    match &entry.action {
        _ if entry.reason.as_deref() == Some(BEGIN_REASON) => EntryPhase::Begin,
        AuditAction::TerminalCreate if is_allowed => EntryPhase::Begin,
        AuditAction::TerminalRelease if is_allowed => EntryPhase::Redundant,
        AuditAction::Write | AuditAction::TerminalExit => EntryPhase::End,
        _ => EntryPhase::Complete,
    }
}

fn operation_key(entry: &AuditEntry) -> OperationKey {
    let name = match &entry.action {
        AuditAction::TerminalExit => AuditAction::TerminalCreate.as_str().to_owned(),
        action => action.as_str().to_owned(),
    };
    (entry.session.clone(), entry.call.clone(), name, entry.subject.clone())
}

#[cfg(test)]
mod tests {
    use crate::audit::{AuditAction, AuditDecision, AuditEntry, AuditRecord, AuditSubject};
    use bowline_text::time::Timestamp;
    use expect_test::expect;

    use super::FoldedEntries;

    fn record(seq: u64, action: AuditAction, path: &str, reason: Option<&str>) -> AuditRecord {
        let mut entry = AuditEntry::new(Timestamp(0), action);
        entry.subject = AuditSubject::Path { requested: path.to_owned(), resolved: None };
        entry.reason = reason.map(str::to_owned);
        entry.decision = AuditDecision::Allowed;
        AuditRecord { seq, entry }
    }

    #[test]
    fn an_operation_is_shown_once_and_one_without_an_end_stays() {
        let records = [
            record(1, AuditAction::Read, "/a", None),
            record(2, AuditAction::Write, "/a", Some("begins")),
            record(3, AuditAction::Write, "/b", Some("begins")),
            record(4, AuditAction::Write, "/a", None),
            record(5, AuditAction::TerminalCreate, "/c", None),
            record(6, AuditAction::TerminalRelease, "/t", None),
            record(7, AuditAction::TerminalExit, "/c", Some("killed")),
            record(8, AuditAction::Write, "/a", None),
        ];
        let mut folded = FoldedEntries::default();
        records.iter().for_each(|record| folded.add(record));
        let shown: Vec<u64> =
            records.iter().filter(|record| !folded.is_hidden(record)).map(|record| record.seq).collect();
        expect!["[1, 3, 4, 7, 8]"].assert_eq(&format!("{shown:?}"));
    }
}
