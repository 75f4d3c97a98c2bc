//! What was measured, as a table for people and one JSON object for programs.

use crate::bench::{align, median};
use crate::files::Sides;
use crate::files::report::Target;

/// A read through the host has at least this part of the speed of the same wire with `read_to_string` behind it.
const READS: Target = Target::AtLeast(0.6);
/// A command's output is taken in at least this part of the speed of a plain reader.
const OUTPUT: Target = Target::AtLeast(0.8);
/// What a host grows by is bounded by what it keeps of an output, whatever the command puts out.
const GROWN_MIB: Target = Target::AtMost(16.0);

/// Reads, so many at once.
#[derive(Debug, Default)]
pub struct Reads {
    /// How many wait for their answer at any time.
    pub inflight: usize,
    /// Against the same wire with `read_to_string` behind it.
    pub bare: Sides,
    /// Against the same wire with a text in memory behind it.
    pub memory: Sides,
}

/// Reads of many files of different sizes and depths, so many at once.
#[derive(Debug, Default)]
pub struct MixedReads {
    /// How many wait for their answer at any time.
    pub inflight: usize,
    /// Against the same wire with `read_to_string` behind it.
    pub bare: Sides,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Reads of one file one after the other, and 64 at once.
    pub reads: [Reads; 2],
    /// Reads of many files one after the other, and 64 at once.
    pub mixes: [MixedReads; 2],
    /// Writes, against the same wire with a plain durable write behind it.
    pub writes: Sides,
    /// Short commands, against the standard library's `output`.
    pub starts: Sides,
    /// For each MiB of commands' outputs, against a plain reader.
    pub outputs: Vec<(String, Sides)>,
    /// How many MiB those commands put out.
    pub output_mib: u64,
    /// By how many MiB the host grew meanwhile.
    pub grown_mib: f64,
    /// The microseconds of an entry of the audit log.
    pub append_us: Vec<f64>,
    /// How many cores were not ours meanwhile.
    pub others: f64,
}

impl Default for Measured {
    fn default() -> Self {
        let reads = |inflight| Reads { inflight, ..Reads::default() };
        Self {
            reads: [reads(1), reads(64)],
            mixes: [1, 64].map(|inflight| MixedReads { inflight, bare: Sides::default() }),
            writes: Sides::default(),
            starts: Sides::default(),
            outputs: Vec::new(),
            output_mib: 0,
            grown_mib: 0.0,
            append_us: Vec::new(),
            others: 0.0,
        }
    }
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    measured: Measured,
}

impl Report {
    /// Reports on what was measured.
    pub fn new(measured: Measured) -> Self {
        Self { measured }
    }

    /// Returns a row for each measurement: the medians of both sides, the median of the ratios within the rounds, what it
    /// should be, and whether it is.
    pub fn table(&self) -> String {
        let measured = &self.measured;
        let mut rows = vec![["", "host", "peer", "ratio", "target", ""].map(str::to_owned).to_vec()];
        let mut compare = |name: String, unit: &str, per: f64, sides: &Sides, target: Target| {
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
                target.text(),
                verdict,
            ]);
        };
        for Reads { inflight, bare, memory } in &measured.reads {
            let name = format!("reads, {}", at_once(*inflight));
            compare(name.clone(), "/s", 1.0, bare, READS);
            compare(format!("{name}, peer: from memory"), "/s", 1.0, memory, Target::None);
        }
        for MixedReads { inflight, bare } in &measured.mixes {
            compare(format!("reads of many files, {}", at_once(*inflight)), "/s", 1.0, bare, Target::None);
        }
        compare("writes".to_owned(), "/s", 1.0, &measured.writes, Target::None);
        compare("short commands".to_owned(), "/s", 1.0, &measured.starts, Target::None);
        for (name, sides) in &measured.outputs {
            compare(format!("output: {name}"), "MiB/s", 1.0, sides, OUTPUT);
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
            GROWN_MIB.text(),
            GROWN_MIB.verdict(grown).to_owned(),
        ]);
        let mut entry = vec!["an entry of the audit log".to_owned(), cell(self.append_us(), "us")];
        entry.resize(6, String::new());
        rows.push(entry);
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), measured.others)
    }

    /// Returns the summary, one line. What was not measured is `null`.
    pub fn summary(&self) -> String {
        let measured = &self.measured;
        let [one, many] = &measured.reads;
        let [one_mixed, many_mixed] = &measured.mixes;
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
            ("terminal_start".to_owned(), measured.starts.times_faster()),
        ];
        let named =
            |(name, sides): &(String, Sides)| (format!("terminal_output_{name}"), sides.times_faster());
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

fn at_once(inflight: usize) -> String {
    if inflight == 1 { "one at a time".to_owned() } else { format!("{inflight} in flight") }
}

#[cfg(test)]
mod tests;
