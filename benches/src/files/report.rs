//! The report of the files benchmark: a table for people and one JSON object for programs.

use super::comparison::Comparison;
use super::extension::ExtensionTimes;
use super::growth::GrowthTimes;
use super::window_reads::{WindowPosition, WindowTimes};
use crate::wire::{align, median};

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct FilesMeasurements {
    /// Windows of the huge file, by position.
    pub windows: [WindowTimes; WindowPosition::ALL.len()],
    /// Whole reads, by file size. Those below 1 MiB are for information only.
    pub whole_reads: Vec<(u64, Comparison)>,
    /// Whole reads of many files of 1 MiB, in turn.
    pub many_reads: Comparison,
    /// Consecutive edits of a file, by its size.
    pub edits: Vec<(u64, Comparison)>,
    /// Writes over a text that the journal does not have, by file size. They are for information only.
    pub writes: Vec<(u64, Comparison)>,
    /// The milliseconds of diffs of 100,000 lines.
    pub diff_ms: Vec<f64>,
    /// The milliseconds of merges of 100,000 lines.
    pub merge_ms: Vec<f64>,
    /// The file extension.
    pub extension: ExtensionTimes,
    /// The scans.
    pub scans: ScanTimes,
    /// The memory growth of the operations.
    pub memory_growths: Vec<MemoryGrowth>,
    /// Large repositories, and journals of many changes.
    pub growth: GrowthTimes,
    /// The average number of cores used by other processes meanwhile.
    pub other_cores: f64,
}

/// The milliseconds of scans, round by round.
#[derive(Debug, Default)]
pub struct ScanTimes {
    /// Of an unknown tree.
    pub first: Vec<f64>,
    /// Of a known tree.
    pub repeat: Vec<f64>,
    /// Of a tree that the journal knows from the last run, including the start of the watch.
    pub restart: Vec<f64>,
    /// Of ten changed files that the watch reported.
    pub watched: Vec<f64>,
}

/// The memory growth of a process.
#[derive(Debug)]
pub struct MemoryGrowth {
    /// The operation.
    pub name: String,
    /// The size of the file in MiB, 0 for small ones.
    pub file_mib: u64,
    /// Whether the operation read a window, whose growth must not depend on the file's size.
    pub is_window: bool,
    /// The growth in MiB.
    pub mib: f64,
}

/// The target of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BenchTarget {
    AtLeast(f64),
    AtMost(f64),
    None,
}

/// A repeated window is at least this many times faster than reading the whole file.
const WINDOW_REPEAT: BenchTarget = BenchTarget::AtLeast(1000.0);
/// A repeated window takes at most this many milliseconds.
const WINDOW_REPEAT_MS: BenchTarget = BenchTarget::AtMost(1.0);
/// The first window is no slower than reading the whole file.
const WINDOW_FIRST: BenchTarget = BenchTarget::AtLeast(1.0);
/// A whole read reaches at least this fraction of the speed of `read_to_string`.
const WHOLE_READ: BenchTarget = BenchTarget::AtLeast(0.8);
/// A journalled write takes at most this many times as long as a plain one.
const JOURNALLED_WRITE: BenchTarget = BenchTarget::AtMost(3.0);
/// Files written in a batch take a fraction of the time of single writes.
const BATCH: BenchTarget = BenchTarget::AtLeast(5.0);
/// An append costs what is appended, not the file.
const APPEND: BenchTarget = BenchTarget::AtMost(2.0);
/// A second scan costs a fraction of the first.
const SCAN_REPEAT: BenchTarget = BenchTarget::AtLeast(2.0);
/// The scan of a repository in the next run takes at most this many times as long as `git status`.
const NEXT_SCAN: BenchTarget = BenchTarget::AtMost(2.0);
/// A search takes at most this many times as long as ripgrep.
const SEARCH: BenchTarget = BenchTarget::AtMost(1.3);
/// A write takes as long in a large journal as in a new one.
const LATE_WRITES: BenchTarget = BenchTarget::AtMost(1.5);
/// The memory of a scan of a large repository, beyond that of the process.
const SCAN_MIB: BenchTarget = BenchTarget::AtMost(64.0);
/// Windows of a large file take no more memory than those of a small one, except for the pages of its line index.
const PEAK_GROWTH_MIB: BenchTarget = BenchTarget::AtMost(1.0);

impl BenchTarget {
    pub(crate) fn to_text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
            Self::None => String::new(),
        }
    }

    pub(crate) fn verdict(self, value: Option<f64>) -> &'static str {
        let is_met = match (self, value) {
            (Self::None, _) => return "",
            (_, None) => return "not measured",
            (Self::AtLeast(least), Some(value)) => value >= least,
            (Self::AtMost(most), Some(value)) => value <= most,
        };
        if is_met { "met" } else { "MISSED" }
    }
}

/// The report of a run.
#[derive(Debug)]
pub struct FilesBenchReport {
    measured: FilesMeasurements,
}

impl FilesBenchReport {
    /// Creates the report.
    pub fn new(measured: FilesMeasurements) -> Self {
        Self { measured }
    }

    /// Returns a row for each measurement: the medians of both sides, their ratio within the rounds, its target, and
    /// whether the target is met.
    pub fn table(&self) -> String {
        let measured = &self.measured;
        let heads = ["", "bowline", "peer", "ratio", "target", ""];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        let mut compare = |name: String, sides: &Comparison, ratio: Option<f64>, target: BenchTarget| {
            rows.push(row(name, (ms(sides.our_ms()), ms(sides.their_ms())), (ratio, target)));
        };
        for (position, spot) in WindowPosition::ALL.iter().zip(&measured.windows) {
            let name = format!("window first {}", position.name());
            compare(name, &spot.first, spot.first.times_faster(), WINDOW_FIRST);
        }
        for (position, spot) in WindowPosition::ALL.iter().zip(&measured.windows) {
            let name = format!("window repeat {}", position.name());
            compare(name, &spot.repeat, spot.repeat.times_faster(), WINDOW_REPEAT);
        }
        for (bytes, sides) in &measured.whole_reads {
            let target = if *bytes < 1 << 20 { BenchTarget::None } else { WHOLE_READ };
            compare(format!("whole read {}", size(*bytes)), sides, sides.times_faster(), target);
        }
        let many = measured.many_reads.times_faster();
        compare("whole read 1 MiB, many files".to_owned(), &measured.many_reads, many, WHOLE_READ);
        for (bytes, sides) in &measured.edits {
            let name = format!("journalled write {}", size(*bytes));
            compare(name, sides, sides.times_slower(), JOURNALLED_WRITE);
        }
        for (bytes, sides) in &measured.writes {
            let name = format!("journalled write over new text {}", size(*bytes));
            compare(name, sides, sides.times_slower(), BenchTarget::None);
        }
        let ExtensionTimes { list, batch, append, base64 } = &measured.extension;
        compare("list 10,000 entries".to_owned(), list, list.times_faster(), BenchTarget::None);
        compare("batch of 1,000 writes (peer: single)".to_owned(), batch, batch.times_faster(), BATCH);
        compare("1,000 appends to 100 MB (peer: to 0)".to_owned(), append, append.times_slower(), APPEND);
        compare("base64 read 64 MiB".to_owned(), base64, base64.times_faster(), BenchTarget::None);
        let scans = Comparison { ours: measured.scans.repeat.clone(), theirs: measured.scans.first.clone() };
        compare("scan again (peer: first)".to_owned(), &scans, scans.times_faster(), SCAN_REPEAT);
        let growth = &measured.growth;
        compare(
            "repository, next run (peer: git status)".to_owned(),
            &growth.next,
            growth.next.times_slower(),
            NEXT_SCAN,
        );
        compare(
            "repository, search (peer: rg)".to_owned(),
            &growth.search,
            growth.search.times_slower(),
            SEARCH,
        );
        let late = growth.late_writes.times_slower();
        compare("last of many writes (peer: first)".to_owned(), &growth.late_writes, late, LATE_WRITES);
        let mut alone = |name: &str, cell: String, value: Option<f64>, target: BenchTarget| {
            let mut row = row(name.to_owned(), (cell, String::new()), (None, BenchTarget::None));
            row[4] = target.to_text();
            row[5] = target.verdict(value).to_owned();
            rows.push(row);
        };
        let worst = self.window_repeat_ms();
        alone("window repeat, worst", ms(worst), worst, WINDOW_REPEAT_MS);
        let others = [
            ("scan, next run", &measured.scans.restart),
            ("scan, watched", &measured.scans.watched),
            ("repository, first scan", &growth.first_ms),
            ("undo of many changes", &growth.undo_ms),
            ("diff 100k lines", &measured.diff_ms),
            ("merge 100k lines", &measured.merge_ms),
        ];
        for (name, times) in others {
            let took = median(times.iter().copied());
            alone(name, ms(took), took, BenchTarget::None);
        }
        for grown in &measured.memory_growths {
            let of = if grown.file_mib == 0 { String::new() } else { format!(" of {} MiB", grown.file_mib) };
            let name = format!("memory: {}{of}", grown.name);
            alone(&name, mib(Some(grown.mib)), Some(grown.mib), BenchTarget::None);
        }
        for grown in &growth.memory {
            alone(&format!("memory: {}", grown.name), mib(Some(grown.mib)), Some(grown.mib), SCAN_MIB);
        }
        let growth = self.peak_growth_mib();
        alone("memory: windows, with the file", mib(growth), growth, PEAK_GROWTH_MIB);
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), measured.other_cores)
    }

    /// Returns the summary in one line. Missing measurements are `null`.
    pub fn summary(&self) -> String {
        let measured = &self.measured;
        let windows = &measured.windows;
        let firsts = windows.each_ref().map(|spot| spot.first.times_faster());
        let repeats = windows.each_ref().map(|spot| spot.repeat.times_faster());
        let (small, wholes): (Vec<_>, Vec<_>) =
            measured.whole_reads.iter().partition(|(bytes, _)| *bytes < 1 << 20);
        let faster =
            |sides: &[&(u64, Comparison)]| lowest(sides.iter().map(|(_, sides)| sides.times_faster()));
        let ScanTimes { first, repeat, restart, watched } = &measured.scans;
        let scan_repeat = Comparison { ours: repeat.clone(), theirs: first.clone() }.times_faster();
        let mut fields = vec![
            ("whole_read".to_owned(), faster(&wholes)),
            ("small_read".to_owned(), faster(&small)),
            ("many_read".to_owned(), measured.many_reads.times_faster()),
            ("window_first".to_owned(), lowest(firsts.into_iter())),
            ("window_repeat".to_owned(), lowest(repeats.into_iter())),
            ("window_repeat_ms".to_owned(), self.window_repeat_ms()),
        ];
        for (kind, ratios) in [("first", firsts), ("repeat", repeats)] {
            let named = |(position, ratio): (&WindowPosition, _)| {
                (format!("window_{kind}_{}", position.name()), ratio)
            };
            fields.extend(WindowPosition::ALL.iter().zip(ratios).map(named));
        }
        let slower =
            |sides: &[(u64, Comparison)]| highest(sides.iter().map(|(_, sides)| sides.times_slower()));
        let of = |values: &[f64]| median(values.iter().copied());
        let growth = &measured.growth;
        fields.extend(
            [
                ("journalled_write", slower(&measured.edits)),
                ("journalled_write_new", slower(&measured.writes)),
                ("list", measured.extension.list.times_faster()),
                ("batch", measured.extension.batch.times_faster()),
                ("append", measured.extension.append.times_slower()),
                ("base64_read", measured.extension.base64.times_faster()),
                ("diff_100k_ms", of(&measured.diff_ms)),
                ("merge_100k_ms", of(&measured.merge_ms)),
                ("scan_repeat", scan_repeat),
                ("scan_first_ms", of(first)),
                ("scan_repeat_ms", of(repeat)),
                ("scan_restart_ms", of(restart)),
                ("scan_watched_ms", of(watched)),
                ("repository_first_ms", of(&growth.first_ms)),
                ("repository_next", growth.next.times_slower()),
                ("repository_next_ms", growth.next.our_ms()),
                ("repository_search", growth.search.times_slower()),
                ("repository_mib", highest(growth.memory.iter().map(|grown| Some(grown.mib)))),
                ("late_write", growth.late_writes.times_slower()),
                ("undo_many_ms", of(&growth.undo_ms)),
                ("peak_mib", self.peak_mib(|_| true)),
                ("peak_growth_mib", self.peak_growth_mib()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let number =
            |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.3}"));
        let fields: Vec<_> =
            fields.into_iter().map(|(name, value)| format!(r#""{name}":{}"#, number(value))).collect();
        format!("{{{}}}", fields.join(","))
    }

    fn window_repeat_ms(&self) -> Option<f64> {
        highest(self.measured.windows.iter().map(|spot| spot.repeat.our_ms()))
    }

    /// Returns the largest growth of a window's read, among the files whose size satisfies `of`.
    fn peak_mib(&self, of: impl Fn(u64) -> bool) -> Option<f64> {
        let windows =
            self.measured.memory_growths.iter().filter(|grown| grown.is_window && of(grown.file_mib));
        highest(windows.map(|grown| Some(grown.mib)))
    }

    /// Returns how much more memory the windows of the largest file take than those of the smallest.
    fn peak_growth_mib(&self) -> Option<f64> {
        let windows = || {
            self.measured.memory_growths.iter().filter(|grown| grown.is_window).map(|grown| grown.file_mib)
        };
        let (smallest, largest) = (windows().min()?, windows().max()?);
        let of = |file| self.peak_mib(|file_mib| file_mib == file);
        Some((of(largest)? - of(smallest)?).max(0.0))
    }
}

fn row(
    name: String,
    (ours, theirs): (String, String),
    (ratio, target): (Option<f64>, BenchTarget),
) -> Vec<String> {
    let shown = match ratio {
        None => String::new(),
        Some(ratio) if ratio < 100.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
    };
    let verdict = target.verdict(ratio).to_owned();
    vec![name, ours, theirs, shown, target.to_text(), verdict]
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3} ms"))
}

fn mib(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} MiB"))
}

fn size(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// Returns the lowest value, or `None` if one is missing or there are none.
fn lowest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.reduce(|one, other| Some(one?.min(other?))).flatten()
}

/// Returns the highest value, or `None` if one is missing or there are none.
fn highest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.reduce(|one, other| Some(one?.max(other?))).flatten()
}

#[cfg(test)]
mod tests;
