//! Verification of a log: which lines were altered, removed, moved, added or cut off, and where.
//!
//! The verifier works on bytes, line by line across all files, in bounded memory. It continues after each finding, and
//! distinguishes the traces of a crash from deliberate tampering.

use std::collections::VecDeque;

use memchr::memmem;

use super::report::{AuditDefect, LogPosition, RepairNote, VerificationReport};
use super::{AuditAction, AuditAnchor, AuditRecord, ChainHead, ChainLink, MAX_FINDINGS};
use bowline_text::hash::ContentHash;

/// The maximum number of gaps kept open in case the missing lines come later. Further gaps are reported as removed.
const MAX_OPEN_GAPS: usize = 64;
/// The number of recent lines whose hashes are kept, to distinguish a copy from a forgery.
const MAX_RECENT_HASHES: usize = 256;

/// A line as later lines refer to it. For an altered line it is unknown which of the two hashes is the original.
#[derive(Debug, Clone, Copy)]
struct VerifierHead {
    seq: u64,
    hashes: [ContentHash; 2],
}

#[derive(Debug)]
struct SequenceGap {
    from: u64,
    to: u64,
    position: LogPosition,
}

/// A line that does not have the form of an entry. A later repair note may explain it.
#[derive(Debug)]
struct UnreadableLine {
    position: LogPosition,
    hash: ContentHash,
    bytes: u64,
}

/// Verifies a log, line by line.
#[derive(Debug)]
pub struct AuditVerifier {
    anchor: Option<AuditAnchor>,
    position: LogPosition,
    report: VerificationReport,
    /// The line with the highest number.
    head: Option<VerifierHead>,
    /// The number of the last line read.
    last_seq: u64,
    recent_hashes: VecDeque<(u64, ContentHash)>,
    gaps: Vec<SequenceGap>,
    /// Unreadable lines since the head, which may be the missing ones.
    unreadable_since_head: u64,
    /// The number of the first line after the anchor that the anchor should cover.
    first_unanchored: Option<u64>,
    unexplained_line: Option<UnreadableLine>,
    /// Set if the last line of the file is unterminated: whether its entry is complete.
    unterminated_line: Option<bool>,
}

impl AuditVerifier {
    /// Starts verifying a log against its anchor; `None` if that is missing or unreadable.
    #[must_use]
    pub fn new(anchor: Option<AuditAnchor>) -> Self {
        Self {
            anchor,
            position: LogPosition { file: String::new(), line: 0 },
            report: VerificationReport::default(),
            head: None,
            last_seq: 0,
            recent_hashes: VecDeque::new(),
            gaps: Vec::new(),
            unreadable_since_head: 0,
            first_unanchored: None,
            unexplained_line: None,
            unterminated_line: None,
        }
    }

    /// Starts the next file, in the order in which the files were written.
    pub fn start_file(&mut self, name: &str) {
        if self.unterminated_line.take().is_some() {
            self.report_defect(AuditDefect::Unreadable);
        }
        self.position = LogPosition { file: name.to_owned(), line: 0 };
        self.report.files += 1;
    }

    /// Verifies the next line of the file, given without its newline. `ended` is false if the newline is missing, as
    /// only the last line's may be.
    pub fn verify_line(&mut self, line: &[u8], ended: bool) {
        self.position.line += 1;
        let frame = ChainLink::parse(line);
        if !ended {
            self.unterminated_line = Some(frame.is_some_and(|frame| frame.is_intact));
        }
        match frame {
            Some(frame) if frame.is_intact => {
                self.read_repair_note(line, frame.seq);
                self.report.entries += 1;
                self.note_unanchored(frame.seq);
                self.verify_entry(frame);
            }
            Some(frame) => {
                self.report_unexplained_line();
                self.verify_altered_line(frame);
            }
            None if ended => {
                self.report_unexplained_line();
                self.unreadable_since_head += 1;
                self.unexplained_line = Some(UnreadableLine {
                    position: self.position.clone(),
                    hash: ContentHash::digest(line),
                    bytes: line.len() as u64,
                });
            }
            None => self.report_unexplained_line(),
        }
    }

    /// Returns the report.
    #[must_use]
    pub fn finish(mut self) -> VerificationReport {
        self.report_unexplained_line();
        if let Some(whole) = self.unterminated_line {
            self.report_defect(AuditDefect::Torn { whole });
        }
        for gap in std::mem::take(&mut self.gaps) {
            self.report.add_finding(Some(gap.position), AuditDefect::Removed { from: gap.from, to: gap.to });
        }
        self.report.findings.sort_by(|a, b| a.position.cmp(&b.position));
        let position = (self.position.line > 0).then(|| self.position.clone());
        let last = self.head.map_or(0, |head| head.seq);
        match self.anchor {
            None if self.report.files > 0 => self.report.add_finding(position, AuditDefect::NoAnchor),
            Some(anchor) if last < anchor.head.seq => {
                let from = anchor.first_seq.max(last + 1);
                self.report.add_finding(position, AuditDefect::TailRemoved { from, to: anchor.head.seq });
            }
            _ => {
                if let Some(from) = self.first_unanchored {
                    self.report.add_finding(position, AuditDefect::Unanchored { from, to: last.max(from) });
                }
            }
        }
        self.report
    }

    fn report_defect(&mut self, defect: AuditDefect) {
        self.report.add_finding(Some(self.position.clone()), defect);
    }

    /// Records whether a line comes after the anchor.
    fn note_unanchored(&mut self, seq: u64) {
        if self.anchor.is_some_and(|anchor| seq > anchor.head.seq) {
            self.first_unanchored.get_or_insert(seq);
        }
    }

    /// Processes an intact line, at any position.
    fn verify_entry(&mut self, frame: ChainLink) {
        if self.anchor.is_some_and(|anchor| anchor.head.seq == frame.seq && anchor.head.hash != frame.hash) {
            self.report_defect(AuditDefect::Replaced { seq: frame.seq });
        }
        let is_first = self.anchor.is_some_and(|anchor| anchor.first_seq == frame.seq);
        if is_first && self.anchor.is_some_and(|anchor| anchor.first_prev != frame.prev) {
            self.report_defect(AuditDefect::Unlinked { seq: frame.seq });
        }
        let Some(head) = self.head else { return self.start_chain(frame) };
        if frame.seq <= head.seq {
            return self.verify_out_of_order(frame, head);
        }
        let missing = frame.seq - head.seq - 1;
        if missing == 0 && !head.hashes.contains(&frame.prev) {
            self.report_defect(AuditDefect::Unlinked { seq: frame.seq });
        }
        if missing > self.unreadable_since_head {
            self.record_gap(head.seq + 1, frame.seq - 1);
        }
        self.advance_head(frame.seq, [frame.hash; 2]);
    }

    fn start_chain(&mut self, frame: ChainLink) {
        let (first, prev) = match self.anchor {
            Some(anchor) if frame.seq > 1 => (anchor.first_seq, None),
            _ => (1, Some(ContentHash::UNKNOWN)),
        };
        if let Some(anchor) = self.anchor
            && frame.seq > first.saturating_add(self.unreadable_since_head)
        {
            // If the end of the chain is missing too, the missing start cannot extend beyond the anchor's head.
            let to = (frame.seq - 1).min(anchor.head.seq.max(first));
            self.report_defect(AuditDefect::StartRemoved { from: first, to });
        }
        if frame.seq == 1 && prev.is_some_and(|prev| prev != frame.prev) {
            self.report_defect(AuditDefect::Unlinked { seq: 1 });
        }
        self.report.range = Some((frame.seq, frame.seq));
        self.advance_head(frame.seq, [frame.hash; 2]);
    }

    /// Processes a line whose number is not above that of the head.
    fn verify_out_of_order(&mut self, frame: ChainLink, head: VerifierHead) {
        let seq = frame.seq;
        if let Some(at) = self.gaps.iter().position(|gap| (gap.from..=gap.to).contains(&seq)) {
            if self.last_seq.checked_add(1) != Some(seq) {
                self.report_defect(AuditDefect::Reordered { seq, after: self.last_seq });
            }
            self.last_seq = seq;
            let gap = self.gaps.swap_remove(at);
            let position = gap.position.clone();
            if gap.from < seq {
                self.gaps.push(SequenceGap { from: gap.from, to: seq - 1, position: position.clone() });
            }
            if seq < gap.to {
                self.gaps.push(SequenceGap { from: seq + 1, to: gap.to, position });
            }
            return;
        }
        let known = self.recent_hashes.iter().find(|(known, _)| *known == seq);
        let defect = match known {
            Some((_, hash)) if *hash == frame.hash => AuditDefect::Duplicated { seq },
            Some(_) => AuditDefect::Inserted { seq },
            None if self.report.range.is_some_and(|(first, _)| seq < first) => {
                AuditDefect::Reordered { seq, after: head.seq }
            }
            None => AuditDefect::Repeated { seq },
        };
        self.report_defect(defect);
    }

    /// Processes a line that has the form of an entry but was altered.
    fn verify_altered_line(&mut self, frame: ChainLink) {
        let start = self.anchor.map_or(ChainHead::EMPTY, |anchor| ChainHead {
            seq: anchor.first_seq.saturating_sub(1),
            hash: anchor.first_prev,
        });
        let head = self.head.unwrap_or(VerifierHead { seq: start.seq, hashes: [start.hash; 2] });
        let next = head.seq.saturating_add(1);
        // Either its number or its link is probably the original.
        if frame.seq == next || head.hashes.contains(&frame.prev) {
            self.report_defect(AuditDefect::Changed { seq: next });
            self.report.range.get_or_insert((next, next));
            self.advance_head(next, [frame.hash, frame.computed_hash]);
        } else {
            self.report_defect(AuditDefect::Changed { seq: frame.seq });
            self.unreadable_since_head += 1;
        }
    }

    fn record_gap(&mut self, from: u64, to: u64) {
        if self.gaps.len() < MAX_OPEN_GAPS {
            self.gaps.push(SequenceGap { from, to, position: self.position.clone() });
        } else {
            self.report_defect(AuditDefect::Removed { from, to });
        }
    }

    fn advance_head(&mut self, seq: u64, hashes: [ContentHash; 2]) {
        self.head = Some(VerifierHead { seq, hashes });
        self.last_seq = seq;
        self.unreadable_since_head = 0;
        if let Some((_, last)) = &mut self.report.range {
            *last = seq;
        }
        if self.recent_hashes.len() == MAX_RECENT_HASHES {
            self.recent_hashes.pop_front();
        }
        self.recent_hashes.push_back((seq, hashes[0]));
    }

    /// Records a repair note. A note about a torn line contains the hash of the remaining bytes.
    fn read_repair_note(&mut self, line: &[u8], seq: u64) {
        let is_note = memmem::find(line, br#""operation":"log/repair""#).is_some();
        let record = is_note.then(|| AuditRecord::parse(line)).flatten();
        let Some(entry) =
            record.map(|record| record.entry).filter(|entry| entry.action == AuditAction::Repair)
        else {
            return self.report_unexplained_line();
        };
        let explained = |unreadable: &UnreadableLine| {
            entry.before == Some(unreadable.hash) && entry.bytes == Some(unreadable.bytes)
        };
        if self.unexplained_line.as_ref().is_some_and(explained) {
            self.unexplained_line = None;
            self.unreadable_since_head = self.unreadable_since_head.saturating_sub(1);
        }
        self.report_unexplained_line();
        if self.report.notes.len() < MAX_FINDINGS {
            let text = entry.reason.unwrap_or_default();
            self.report.notes.push(RepairNote { position: self.position.clone(), seq, text });
        }
    }

    /// Reports the pending unreadable line, which no note explained.
    fn report_unexplained_line(&mut self) {
        if let Some(unreadable) = self.unexplained_line.take() {
            self.report.add_finding(Some(unreadable.position), AuditDefect::Unreadable);
        }
    }
}
