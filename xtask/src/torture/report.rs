//! What a run prints: a table by style and one by front, and the story of each line that is lost.

use super::checker::LostLine;
use super::record::Event;
use super::round::{RoundReport, StyleReport};
use super::style::{Front, Style};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The story of so many lost lines of a style and front is told in full; the others are named.
const MOST_STORIES: usize = 3;

/// The sums of a row of a table.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    saves: usize,
    writes: usize,
    merges: usize,
    conflicts: usize,
    undos: usize,
    kills: usize,
    in_file: usize,
    in_journal: usize,
    reported: usize,
    lost: usize,
}

impl Row {
    fn add(&mut self, report: &StyleReport) {
        self.saves += report.saves;
        self.writes += report.writes;
        self.merges += report.merges;
        self.conflicts += report.conflicts;
        self.undos += report.undos;
        self.in_file += report.account.in_file;
        self.in_journal += report.account.in_journal;
        self.reported += report.account.reported;
        self.lost += report.account.lost.len();
    }

    fn columns(&self) -> [(&'static str, usize); 10] {
        [
            ("saves", self.saves),
            ("agent writes", self.writes),
            ("merges", self.merges),
            ("refused", self.conflicts),
            ("undos", self.undos),
            ("kills", self.kills),
            ("in file", self.in_file),
            ("in journal", self.in_journal),
            ("reported", self.reported),
            ("unaccounted", self.lost),
        ]
    }
}

/// What came of all rounds so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    styles: BTreeMap<Style, Row>,
    fronts: BTreeMap<Front, Row>,
    told: BTreeMap<(Front, Style), usize>,
    lost: usize,
}

impl Report {
    /// Adds a round, and returns the stories of the lines that it lost.
    pub(super) fn add(&mut self, front: Front, seed: u64, round: RoundReport) -> String {
        let mut stories = String::new();
        self.fronts.entry(front).or_default().kills += round.kills;
        for (style, report) in round.styles {
            let row = self.styles.entry(style).or_default();
            row.add(&report);
            row.kills += round.kills;
            self.fronts.entry(front).or_default().add(&report);
            self.lost += report.account.lost.len();
            let told = self.told.entry((front, style)).or_default();
            for lost in &report.account.lost {
                stories += &heading(front, style, seed, lost);
                if *told < MOST_STORIES {
                    stories += &timeline(lost);
                }
                *told += 1;
            }
        }
        stories
    }

    /// Returns how many lines nothing accounts for.
    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    /// Returns the tables.
    pub(super) fn tables(&self) -> String {
        let styles = table("style", self.styles.iter().map(|(style, row)| (style.name(), row)));
        let fronts = table("front", self.fronts.iter().map(|(front, row)| (front.name(), row)));
        format!("{styles}\n{fronts}\nmerges are counted where an answer tells of them: engine and mcp\n")
    }
}

fn table<'r>(title: &str, rows: impl Iterator<Item = (&'static str, &'r Row)>) -> String {
    let mut text = String::new();
    for (number, (name, row)) in rows.enumerate() {
        if number == 0 {
            let head: String = row.columns().iter().map(|(head, _)| format!(" {head:>12}")).collect();
            // Writing to a string cannot fail.
            _ = writeln!(text, "{title:<9}{head}");
        }
        let cells: String = row.columns().iter().map(|(_, cell)| format!(" {cell:>12}")).collect();
        _ = writeln!(text, "{name:<9}{cells}");
    }
    text
}

fn heading(front: Front, style: Style, seed: u64, lost: &LostLine) -> String {
    let (line, style, front) = (&lost.line.line, style.name(), front.name());
    format!("unaccounted: {line:?}, saved by {style} (front {front}, seed {seed})\n")
}

/// Returns what happened around the loss, in milliseconds from the save.
fn timeline(lost: &LostLine) -> String {
    let owed = &lost.line;
    let milliseconds = |at: u64| (i128::from(at) - i128::from(owed.saved_at)) as f64 / 1000.0;
    let mut text = String::new();
    let seen = |at: Option<u64>, never: &str| {
        at.map_or_else(|| never.to_owned(), |at| format!("{:+.1} ms", milliseconds(at)))
    };
    _ = writeln!(
        text,
        "  last seen on disk by its program: {}; missing since: {}",
        seen(owed.last_seen, "never"),
        seen(owed.missing_since, "not noticed")
    );
    for Event { at, actor, text: event, .. } in &lost.timeline {
        _ = writeln!(text, "  {:>+9.1} ms {actor:<6} {event}", milliseconds(*at));
    }
    text
}
