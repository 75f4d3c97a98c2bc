//! The report of the host benchmark: a table for people and one JSON object for programs.

use crate::files::Comparison;
use crate::files::report::BenchTarget;
use crate::wire::{align, median};

/// A read through the host reaches at least this fraction of the speed of the same wire backed by `read_to_string`.
const READ_TARGET: BenchTarget = BenchTarget::AtLeast(0.6);
/// A command's output is consumed at least at this fraction of the speed of a plain reader.
const OUTPUT_TARGET: BenchTarget = BenchTarget::AtLeast(0.8);
/// The host's growth is bounded by the part of an output that it keeps, however much the command prints.
const GROWN_MIB_TARGET: BenchTarget = BenchTarget::AtMost(16.0);

/// Reads at one level of concurrency.
#[derive(Debug, Default)]
pub struct ReadComparison {
    /// The number of concurrent reads.
    pub inflight: usize,
    /// Against the same wire backed by `read_to_string`.
    pub bare: Comparison,
    /// Against the same wire backed by a text in memory.
    pub memory: Comparison,
}

/// Reads of many files of different sizes and depths, at one level of concurrency.
#[derive(Debug, Default)]
pub struct MixedReadComparison {
    /// The number of concurrent reads.
    pub inflight: usize,
    /// Against the same wire backed by `read_to_string`.
    pub bare: Comparison,
}

/// The measurements of a run.
#[derive(Debug)]
pub struct HostMeasurements {
    /// Sequential reads of one file, and 64 concurrent ones.
    pub reads: [ReadComparison; 2],
    /// Sequential reads of many files, and 64 concurrent ones.
    pub mixed_reads: [MixedReadComparison; 2],
    /// Writes, against the same wire backed by a plain durable write.
    pub writes: Comparison,
    /// Short commands, against the standard library's `output`.
    pub command_starts: Comparison,
    /// The times per MiB of commands' outputs, against a plain reader.
    pub outputs: Vec<(String, Comparison)>,
    /// The size of those outputs in MiB.
    pub output_mib: u64,
    /// The host's growth meanwhile, in MiB.
    pub grown_mib: f64,
    /// The microseconds per entry of the audit log.
    pub append_us: Vec<f64>,
    /// The average number of cores used by other processes meanwhile.
    pub other_cores: f64,
}

impl Default for HostMeasurements {
    fn default() -> Self {
        let reads = |inflight| ReadComparison { inflight, ..ReadComparison::default() };
        Self {
            reads: [reads(1), reads(64)],
            mixed_reads: [1, 64]
                .map(|inflight| MixedReadComparison { inflight, bare: Comparison::default() }),
            writes: Comparison::default(),
            command_starts: Comparison::default(),
            outputs: Vec::new(),
            output_mib: 0,
            grown_mib: 0.0,
            append_us: Vec::new(),
            other_cores: 0.0,
        }
    }
}

/// The report of a run.
#[derive(Debug)]
pub struct HostBenchReport {
    measured: HostMeasurements,
}

impl HostBenchReport {
    /// Creates the report.
    pub fn new(measured: HostMeasurements) -> Self {
        Self { measured }
    }

    /// Returns a row for each measurement: the medians of both sides, the median of the ratios within the rounds, its
    /// target, and whether the target is met.
    pub fn table(&self) -> String {
        let measured = &self.measured;
        let mut rows = vec![["", "host", "peer", "ratio", "target", ""].map(str::to_owned).to_vec()];
        let mut compare = |name: String, unit: &str, per: f64, sides: &Comparison, target: BenchTarget| {
            let rate = |ms: Option<f64>| {
                ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.0} {unit}", per * 1e3 / ms))
            };
            let ratio = sides.times_faster();
            let shown = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let verdict = target.verdict(ratio).to_owned();
            rows.push(vec![
                name,
                rate(sides.our_ms()),
                rate(sides.their_ms()),
                shown,
                target.to_text(),
                verdict,
            ]);
        };
        for ReadComparison { inflight, bare, memory } in &measured.reads {
            let name = format!("reads, {}", concurrency_text(*inflight));
            compare(name.clone(), "/s", 1.0, bare, READ_TARGET);
            compare(format!("{name}, peer: from memory"), "/s", 1.0, memory, BenchTarget::None);
        }
        for MixedReadComparison { inflight, bare } in &measured.mixed_reads {
            compare(
                format!("reads of many files, {}", concurrency_text(*inflight)),
                "/s",
                1.0,
                bare,
                BenchTarget::None,
            );
        }
        compare("writes".to_owned(), "/s", 1.0, &measured.writes, BenchTarget::None);
        compare("short commands".to_owned(), "/s", 1.0, &measured.command_starts, BenchTarget::None);
        for (name, sides) in &measured.outputs {
            compare(format!("output: {name}"), "MiB/s", 1.0, sides, OUTPUT_TARGET);
        }
        let grown = self.grown_mib();
        let cell = |value: Option<f64>, unit: &str| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} {unit}"))
        };
        rows.push(vec![
            format!("memory, {} MiB put out", measured.output_mib),
            cell(grown, "MiB"),
            String::new(),
            String::new(),
            GROWN_MIB_TARGET.to_text(),
            GROWN_MIB_TARGET.verdict(grown).to_owned(),
        ]);
        let mut entry = vec!["an entry of the audit log".to_owned(), cell(self.append_us(), "us")];
        entry.resize(6, String::new());
        rows.push(entry);
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), measured.other_cores)
    }

    /// Returns the summary in one line. Missing measurements are `null`.
    pub fn summary(&self) -> String {
        let measured = &self.measured;
        let [one, many] = &measured.reads;
        let [one_mixed, many_mixed] = &measured.mixed_reads;
        let mut fields = vec![
            ("reads".to_owned(), one.bare.times_faster()),
            ("reads_inflight64".to_owned(), many.bare.times_faster()),
            ("reads_memory".to_owned(), one.memory.times_faster()),
            ("reads_memory_inflight64".to_owned(), many.memory.times_faster()),
            ("reads_per_s".to_owned(), one.bare.our_ms().map(|ms| 1e3 / ms)),
            ("reads_inflight64_per_s".to_owned(), many.bare.our_ms().map(|ms| 1e3 / ms)),
            ("reads_mixed".to_owned(), one_mixed.bare.times_faster()),
            ("reads_mixed_inflight64".to_owned(), many_mixed.bare.times_faster()),
            ("writes".to_owned(), measured.writes.times_faster()),
            ("terminal_start".to_owned(), measured.command_starts.times_faster()),
        ];
        let named =
            |(name, sides): &(String, Comparison)| (format!("terminal_output_{name}"), sides.times_faster());
        fields.extend(measured.outputs.iter().map(named));
        fields.push(("audit_append_us".to_owned(), self.append_us()));
        fields.push(("output_growth_mib".to_owned(), self.grown_mib()));
        let number =
            |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.3}"));
        let fields: Vec<_> =
            fields.into_iter().map(|(name, value)| format!(r#""{name}":{}"#, number(value))).collect();
        format!("{{{}}}", fields.join(","))
    }

    fn append_us(&self) -> Option<f64> {
        median(self.measured.append_us.iter().copied())
    }

    fn grown_mib(&self) -> Option<f64> {
        (!self.measured.outputs.is_empty()).then_some(self.measured.grown_mib)
    }
}

fn concurrency_text(inflight: usize) -> String {
    if inflight == 1 { "one at a time".to_owned() } else { format!("{inflight} in flight") }
}

#[cfg(test)]
mod tests;
