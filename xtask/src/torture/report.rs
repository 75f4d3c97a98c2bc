//! The report of a run: a table by style, a table by front, and the story of each lost line.

use super::checker::LostLine;
use super::record::TortureEvent;
use super::round::{RoundReport, StyleReport};
use super::style::{EntryPoint, SaveStyle};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The number of lost lines per style and front with a full story; the others are only named.
const MAX_STORIES: usize = 3;

/// The totals in a row of a table.
#[derive(Debug, Clone, Copy, Default)]
struct TableRow {
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

impl TableRow {
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

/// The totals of all rounds so far.
#[derive(Debug, Default)]
pub(super) struct TortureReport {
    styles: BTreeMap<SaveStyle, TableRow>,
    fronts: BTreeMap<EntryPoint, TableRow>,
    story_counts: BTreeMap<(EntryPoint, SaveStyle), usize>,
    lost: usize,
}

impl TortureReport {
    /// Adds a round, and returns the stories of its lost lines.
    pub(super) fn add(&mut self, front: EntryPoint, seed: u64, round: RoundReport) -> String {
        let mut stories = String::new();
        self.fronts.entry(front).or_default().kills += round.kills;
        for (style, report) in round.styles {
            let row = self.styles.entry(style).or_default();
            row.add(&report);
            row.kills += round.kills;
            self.fronts.entry(front).or_default().add(&report);
            self.lost += report.account.lost.len();
            let told = self.story_counts.entry((front, style)).or_default();
            for lost in &report.account.lost {
                stories += &format_heading(front, style, seed, lost);
                if *told < MAX_STORIES {
                    stories += &format_timeline(lost);
                }
                *told += 1;
            }
        }
        stories
    }

    /// Returns the number of lines that are not accounted for.
    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    /// Formats the tables.
    pub(super) fn format_tables(&self) -> String {
        let styles = format_table("style", self.styles.iter().map(|(style, row)| (style.name(), row)));
        let fronts = format_table("front", self.fronts.iter().map(|(front, row)| (front.name(), row)));
        format!("{styles}\n{fronts}\nmerges are counted where an answer tells of them: engine and mcp\n")
    }
}

fn format_table<'r>(title: &str, rows: impl Iterator<Item = (&'static str, &'r TableRow)>) -> String {
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

fn format_heading(front: EntryPoint, style: SaveStyle, seed: u64, lost: &LostLine) -> String {
    let (line, style, front) = (&lost.line.line, style.name(), front.name());
    format!("unaccounted: {line:?}, saved by {style} (front {front}, seed {seed})\n")
}

/// Formats the events around a loss, with times in milliseconds from the save.
fn format_timeline(lost: &LostLine) -> String {
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
    for TortureEvent { at, actor, text: event, .. } in &lost.timeline {
        _ = writeln!(text, "  {:>+9.1} ms {actor:<6} {event}", milliseconds(*at));
    }
    text
}
