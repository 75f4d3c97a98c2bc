//! Verifying a log: what was changed, removed, moved, added or cut off, and where.
//!
//! The verifier looks at bytes, line by line over all files, and remembers little. It goes on after each finding, and
//! tells what is left behind by a crash from what only a hand does.

use std::collections::VecDeque;

use memchr::memmem;

use super::report::{Fault, Note, Place, Report};
use super::{Action, Anchor, Chain, Frame, MAX_FINDINGS, Record};
use crate::changes::ContentHash;

/// So many places where lines are missing are kept open, in case the lines come later. More are reported as removed.
const MAX_GAPS: usize = 64;
/// Of so many of the latest lines the hash is known, to tell a copy from a forgery.
const RECENT: usize = 256;

/// A line as those that follow refer to it. Of one that was changed it is not known which hash is the old one.
#[derive(Debug, Clone, Copy)]
struct Link {
    seq: u64,
    hashes: [ContentHash; 2],
}

#[derive(Debug)]
struct Gap {
    from: u64,
    to: u64,
    place: Place,
}

/// A line that has not the form of an entry. A note that follows may explain it.
#[derive(Debug)]
struct Scrap {
    place: Place,
    hash: ContentHash,
    bytes: u64,
}

/// Verifies a log that is given to it line by line.
#[derive(Debug)]
pub struct Verifier {
    anchor: Option<Anchor>,
    place: Place,
    report: Report,
    /// The line with the highest number.
    head: Option<Link>,
    /// The number of the line that was read last.
    cursor: u64,
    recent: VecDeque<(u64, ContentHash)>,
    gaps: Vec<Gap>,
    /// Lines since the head that could not be read, and may be the ones that are missing.
    lost: u64,
    /// The number of the first line after the anchor that the anchor should know.
    unanchored: Option<u64>,
    scrap: Option<Scrap>,
    /// The last line of the file has no end; says whether its entry is whole.
    unended: Option<bool>,
}

impl Verifier {
    /// Begins to verify a log against its anchor; none if that is missing or unreadable.
    #[must_use]
    pub fn new(anchor: Option<Anchor>) -> Self {
        Self {
            anchor,
            place: Place { file: String::new(), line: 0 },
            report: Report::default(),
            head: None,
            cursor: 0,
            recent: VecDeque::new(),
            gaps: Vec::new(),
            lost: 0,
            unanchored: None,
            scrap: None,
            unended: None,
        }
    }

    /// Goes on to the next file, in the order in which they were written.
    pub fn file(&mut self, name: &str) {
        if self.unended.take().is_some() {
            self.found(Fault::Unreadable);
        }
        self.place = Place { file: name.to_owned(), line: 0 };
        self.report.files += 1;
    }

    /// Looks at the next line of the file, without its end. `ended` says whether it has one: only the last may not.
    pub fn line(&mut self, line: &[u8], ended: bool) {
        self.place.line += 1;
        let frame = Frame::read(line);
        if !ended {
            self.unended = Some(frame.is_some_and(|frame| frame.whole));
        }
        match frame {
            Some(frame) if frame.whole => {
                self.note(line, frame.seq);
                self.report.entries += 1;
                self.compare(frame.seq);
                self.entry(frame);
            }
            Some(frame) => {
                self.give_up_scrap();
                self.changed(frame);
            }
            None if ended => {
                self.give_up_scrap();
                self.lost += 1;
                self.scrap = Some(Scrap {
                    place: self.place.clone(),
                    hash: ContentHash::of(line),
                    bytes: line.len() as u64,
                });
            }
            None => self.give_up_scrap(),
        }
    }

    /// Returns what was found.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.give_up_scrap();
        if let Some(whole) = self.unended {
            self.found(Fault::Torn { whole });
        }
        for gap in std::mem::take(&mut self.gaps) {
            self.report.add(Some(gap.place), Fault::Removed { from: gap.from, to: gap.to });
        }
        self.report.findings.sort_by(|a, b| a.place.cmp(&b.place));
        let place = (self.place.line > 0).then(|| self.place.clone());
        let last = self.head.map_or(0, |head| head.seq);
        match self.anchor {
            None if self.report.files > 0 => self.report.add(place, Fault::NoAnchor),
            Some(anchor) if last < anchor.end.seq => {
                let from = anchor.first.max(last + 1);
                self.report.add(place, Fault::TailCut { from, to: anchor.end.seq });
            }
            _ => {
                if let Some(from) = self.unanchored {
                    self.report.add(place, Fault::Unanchored { from, to: last.max(from) });
                }
            }
        }
        self.report
    }

    fn found(&mut self, fault: Fault) {
        self.report.add(Some(self.place.clone()), fault);
    }

    /// Notes whether a line comes after the anchor.
    fn compare(&mut self, seq: u64) {
        if self.anchor.is_some_and(|anchor| seq > anchor.end.seq) {
            self.unanchored.get_or_insert(seq);
        }
    }

    /// Takes a line that is what was sealed, wherever it stands.
    fn entry(&mut self, frame: Frame) {
        if self.anchor.is_some_and(|anchor| anchor.end.seq == frame.seq && anchor.end.hash != frame.hash) {
            self.found(Fault::Replaced { seq: frame.seq });
        }
        let is_first = self.anchor.is_some_and(|anchor| anchor.first == frame.seq);
        if is_first && self.anchor.is_some_and(|anchor| anchor.first_prev != frame.prev) {
            self.found(Fault::Unlinked { seq: frame.seq });
        }
        let Some(head) = self.head else { return self.begin(frame) };
        if frame.seq <= head.seq {
            return self.behind(frame, head);
        }
        let missing = frame.seq - head.seq - 1;
        if missing == 0 && !head.hashes.contains(&frame.prev) {
            self.found(Fault::Unlinked { seq: frame.seq });
        }
        if missing > self.lost {
            self.missing(head.seq + 1, frame.seq - 1);
        }
        self.advance(frame.seq, [frame.hash; 2]);
    }

    fn begin(&mut self, frame: Frame) {
        let (first, prev) = match self.anchor {
            Some(anchor) if frame.seq > 1 => (anchor.first, None),
            _ => (1, Some(ContentHash::UNKNOWN)),
        };
        if let Some(anchor) = self.anchor
            && frame.seq > first.saturating_add(self.lost)
        {
            // With the end of the chain missing as well, the anchor's own end is the last that can be missing here.
            let to = (frame.seq - 1).min(anchor.end.seq.max(first));
            self.found(Fault::StartRemoved { from: first, to });
        }
        if frame.seq == 1 && prev.is_some_and(|prev| prev != frame.prev) {
            self.found(Fault::Unlinked { seq: 1 });
        }
        self.report.range = Some((frame.seq, frame.seq));
        self.advance(frame.seq, [frame.hash; 2]);
    }

    /// Takes a line whose number is not higher than that of the head.
    fn behind(&mut self, frame: Frame, head: Link) {
        let seq = frame.seq;
        if let Some(at) = self.gaps.iter().position(|gap| (gap.from..=gap.to).contains(&seq)) {
            if self.cursor.checked_add(1) != Some(seq) {
                self.found(Fault::Reordered { seq, after: self.cursor });
            }
            self.cursor = seq;
            let gap = self.gaps.swap_remove(at);
            let place = gap.place.clone();
            if gap.from < seq {
                self.gaps.push(Gap { from: gap.from, to: seq - 1, place: place.clone() });
            }
            if seq < gap.to {
                self.gaps.push(Gap { from: seq + 1, to: gap.to, place });
            }
            return;
        }
        let known = self.recent.iter().find(|(known, _)| *known == seq);
        let fault = match known {
            Some((_, hash)) if *hash == frame.hash => Fault::Duplicated { seq },
            Some(_) => Fault::Inserted { seq },
            None if self.report.range.is_some_and(|(first, _)| seq < first) => {
                Fault::Reordered { seq, after: head.seq }
            }
            None => Fault::Repeated { seq },
        };
        self.found(fault);
    }

    /// Takes a line that has the form of an entry and is not what was sealed.
    fn changed(&mut self, frame: Frame) {
        let start = self.anchor.map_or(Chain::EMPTY, |anchor| Chain {
            seq: anchor.first.saturating_sub(1),
            hash: anchor.first_prev,
        });
        let head = self.head.unwrap_or(Link { seq: start.seq, hashes: [start.hash; 2] });
        let next = head.seq.saturating_add(1);
        // Either its number or its link is likely to be what it was.
        if frame.seq == next || head.hashes.contains(&frame.prev) {
            self.found(Fault::Changed { seq: next });
            self.report.range.get_or_insert((next, next));
            self.advance(next, [frame.hash, frame.computed]);
        } else {
            self.found(Fault::Changed { seq: frame.seq });
            self.lost += 1;
        }
    }

    fn missing(&mut self, from: u64, to: u64) {
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(Gap { from, to, place: self.place.clone() });
        } else {
            self.found(Fault::Removed { from, to });
        }
    }

    fn advance(&mut self, seq: u64, hashes: [ContentHash; 2]) {
        self.head = Some(Link { seq, hashes });
        self.cursor = seq;
        self.lost = 0;
        if let Some((_, last)) = &mut self.report.range {
            *last = seq;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, hashes[0]));
    }

    /// Keeps what the log says about itself. A note about a torn line names the hash of what is left of it.
    fn note(&mut self, line: &[u8], seq: u64) {
        let is_note = memmem::find(line, br#""operation":"log/repair""#).is_some();
        let record = is_note.then(|| Record::read(line)).flatten();
        let Some(entry) = record.map(|record| record.entry).filter(|entry| entry.action == Action::Repair)
        else {
            return self.give_up_scrap();
        };
        let explained = |scrap: &Scrap| entry.before == Some(scrap.hash) && entry.bytes == Some(scrap.bytes);
        if self.scrap.as_ref().is_some_and(explained) {
            self.scrap = None;
            self.lost = self.lost.saturating_sub(1);
        }
        self.give_up_scrap();
        if self.report.notes.len() < MAX_FINDINGS {
            let text = entry.reason.unwrap_or_default();
            self.report.notes.push(Note { place: self.place.clone(), seq, text });
        }
    }

    /// Reports a line that nothing explains.
    fn give_up_scrap(&mut self) {
        if let Some(scrap) = self.scrap.take() {
            self.report.add(Some(scrap.place), Fault::Unreadable);
        }
    }
}
