//! The report of the wire benchmark: a table for people and one JSON object for programs.

use std::fmt::Write;

use super::client::MessageCpuTime;
use super::phase::BenchPhase;

/// The name of our pair.
const OURS: &str = "bowline";
/// The official Rust SDK, the reference of every ratio.
const OFFICIAL: &str = "rust";
/// The minimal hand-written pair.
const FLOOR: &str = "floor";

/// The phases of small messages, whose processor time is reported; for large messages it depends on the bytes alone.
const SMALL_MESSAGE_PHASES: [BenchPhase; 3] = [BenchPhase::Seq, BenchPhase::Inflight64, BenchPhase::Stream];

/// The measurements of one pair.
#[derive(Debug, Default)]
pub struct PairMeasurements {
    /// The pair's name.
    pub name: String,
    /// The rates of the phases in each round.
    pub rounds: Vec<[f64; BenchPhase::ALL.len()]>,
    /// The processor time of the phases, in each round in which it was available.
    pub cpu: Vec<[Option<MessageCpuTime>; BenchPhase::ALL.len()]>,
    /// The milliseconds from each start to the response to `initialize`.
    pub starts: Vec<f64>,
    /// The agent's growth while its reader stalled, in MiB.
    pub stalled_mib: Option<f64>,
}

impl PairMeasurements {
    /// Creates empty measurements.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns the median of the starts, or `None` before the first.
    pub fn start_ms(&self) -> Option<f64> {
        median(self.starts.iter().copied())
    }

    fn rates(&self, phase: BenchPhase) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| round[phase as usize])
    }

    /// Returns the medians of both ends' processor time, or `None` if it was never available.
    fn cpu(&self, phase: BenchPhase) -> Option<MessageCpuTime> {
        let each = |end: fn(&MessageCpuTime) -> f64| {
            median(self.cpu.iter().filter_map(|round| round[phase as usize].as_ref()).map(end))
        };
        Some(MessageCpuTime { client_us: each(|cpu| cpu.client_us)?, agent_us: each(|cpu| cpu.agent_us)? })
    }
}

/// The measurements of every pair.
#[derive(Debug)]
pub struct WireBenchReport {
    pairs: Vec<PairMeasurements>,
    other_cores: f64,
}

impl WireBenchReport {
    /// Creates the report with the pairs in this order; `others` is the average number of cores used by other processes
    /// meanwhile.
    pub fn new(pairs: Vec<PairMeasurements>, others: f64) -> Self {
        Self { pairs, other_cores: others }
    }

    /// Returns a row for each phase and a column for each pair: the median, in brackets the ratio to the official SDK,
    /// and the spread of the rounds.
    pub fn table(&self) -> String {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.pairs.iter().map(|pair| pair.name.clone()));
        for phase in BenchPhase::ALL {
            rows.push(
                self.row(format!("{} {}", phase.name(), phase.unit()), |pair| self.rate_cell(pair, phase)),
            );
            if phase == BenchPhase::Seq {
                let micros = |pair: &PairMeasurements| {
                    median(pair.rates(phase)).map(|rate| format!("{:.1}", 1e6 / rate))
                };
                rows.push(self.row("seq us/read".to_owned(), micros));
            }
        }
        for phase in SMALL_MESSAGE_PHASES {
            let both = |pair: &PairMeasurements| {
                let MessageCpuTime { client_us, agent_us } = pair.cpu(phase)?;
                Some(format!("{client_us:.1} + {agent_us:.1}"))
            };
            rows.push(self.row(format!("{} cpu us/message, client + agent", phase.name()), both));
        }
        rows.push(self.row("start ms".to_owned(), |pair| Some(format!("{:.1}", pair.start_ms()?))));
        rows.push(
            self.row("stalled growth MiB".to_owned(), |pair| Some(format!("{:.1}", pair.stalled_mib?))),
        );
        format!("{}other programs used {:.2} cores in the rounds\n", align(&rows), self.other_cores)
    }

    /// Returns the summary in one line. Values that need a missing pair are `null`.
    pub fn summary(&self) -> String {
        let (ours, official, floor) = (self.pair(OURS), self.pair(OFFICIAL), self.pair(FLOOR));
        let mut fields = Vec::new();
        for phase in [
            BenchPhase::Seq,
            BenchPhase::Inflight64,
            BenchPhase::Stream,
            BenchPhase::Read1m,
            BenchPhase::Read16m,
        ] {
            fields.push(format!(r#""{}":{}"#, phase.name(), number(ratio(ours, official, phase))));
        }
        let to_floor: Option<Vec<_>> =
            BenchPhase::ALL.iter().map(|&phase| ratio(ours, floor, phase)).collect();
        let lowest = to_floor.and_then(|ratios| ratios.into_iter().reduce(f64::min));
        fields.push(format!(r#""floor":{}"#, number(lowest)));
        fields.push(format!(r#""stalled_growth_mib":{}"#, number(ours.and_then(|pair| pair.stalled_mib))));
        fields.push(format!(r#""start_ms":{}"#, self.each_pair(PairMeasurements::start_ms)));
        for phase in SMALL_MESSAGE_PHASES {
            let us = |pair: &PairMeasurements| pair.cpu(phase).map(|cpu| cpu.client_us + cpu.agent_us);
            fields.push(format!(r#""{}_cpu_us":{}"#, phase.name(), self.each_pair(us)));
        }
        format!("{{{}}}", fields.join(","))
    }

    fn row(&self, name: String, cell: impl Fn(&PairMeasurements) -> Option<String>) -> Vec<String> {
        let cells = self.pairs.iter().map(|pair| cell(pair).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(name).chain(cells).collect()
    }

    /// Returns a JSON object with a number for each pair.
    fn each_pair(&self, value: impl Fn(&PairMeasurements) -> Option<f64>) -> String {
        let fields = self.pairs.iter().map(|pair| {
            let name = serde_json::json!(pair.name);
            format!("{name}:{}", number(value(pair)))
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    fn rate_cell(&self, pair: &PairMeasurements, phase: BenchPhase) -> Option<String> {
        let rate = median(pair.rates(phase))?;
        let mut cell = format!("{rate:.0}");
        if let Some(ratio) = ratio(Some(pair), self.pair(OFFICIAL), phase) {
            write!(cell, " ({ratio:.2})").ok()?;
        }
        if pair.rounds.len() == 1 {
            return Some(cell);
        }
        let spread = pair.rates(phase).map(|one| (one / rate - 1.0).abs()).fold(0.0, f64::max);
        write!(cell, " ±{:.0}%", spread * 100.0).ok()?;
        Some(cell)
    }

    fn pair(&self, name: &str) -> Option<&PairMeasurements> {
        self.pairs.iter().find(|pair| pair.name == name)
    }
}

/// Returns the median of the ratios within each round, because a slow round is slow for both.
fn ratio(pair: Option<&PairMeasurements>, to: Option<&PairMeasurements>, phase: BenchPhase) -> Option<f64> {
    median(pair?.rates(phase).zip(to?.rates(phase)).map(|(one, other)| one / other))
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| format!("{value:.2}"))
}

/// Pads the first column on the right, the others on the left.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], width(0));
        for (column, cell) in row.iter().enumerate().skip(1) {
            line.push_str(&format!("  {cell:>0$}", width(column)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::{MessageCpuTime, PairMeasurements, WireBenchReport};

    fn measured(name: &str, rounds: &[f64]) -> PairMeasurements {
        let cpu = |rate| Some(MessageCpuTime { client_us: 1e3 / rate, agent_us: 3e3 / rate });
        PairMeasurements {
            name: name.to_owned(),
            rounds: rounds.iter().map(|&rate| [rate, rate * 2.0, rate, rate, rate * 10.0]).collect(),
            cpu: rounds.iter().map(|&rate| [rate, rate * 2.0, rate, rate, rate * 10.0].map(cpu)).collect(),
            starts: vec![rounds[0], 2.5],
            stalled_mib: Some(0.125),
        }
    }

    fn check(pairs: Vec<PairMeasurements>, expect: Expect) {
        let report = WireBenchReport::new(pairs, 0.5);
        expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // Both rates halve in the second round, so the ratio stays the same.
        check(
            vec![
                measured("bowline", &[400.0, 200.0, 400.0]),
                measured("rust", &[100.0, 50.0, 100.0]),
                measured("floor", &[500.0, 250.0, 500.0]),
            ],
            expect![[r#"
                                                                    bowline              rust             floor
                seq reads/s                                 400 (4.00) ±50%   100 (1.00) ±50%   500 (5.00) ±50%
                seq us/read                                          2500.0           10000.0            2000.0
                inflight64 reads/s                          800 (4.00) ±50%   200 (1.00) ±50%  1000 (5.00) ±50%
                read_1m MB/s                                400 (4.00) ±50%   100 (1.00) ±50%   500 (5.00) ±50%
                read_16m MB/s                               400 (4.00) ±50%   100 (1.00) ±50%   500 (5.00) ±50%
                stream chunks/s                            4000 (4.00) ±50%  1000 (1.00) ±50%  5000 (5.00) ±50%
                seq cpu us/message, client + agent                2.5 + 7.5       10.0 + 30.0         2.0 + 6.0
                inflight64 cpu us/message, client + agent         1.2 + 3.8        5.0 + 15.0         1.0 + 3.0
                stream cpu us/message, client + agent             0.2 + 0.8         1.0 + 3.0         0.2 + 0.6
                start ms                                              201.2              51.2             251.2
                stalled growth MiB                                      0.1               0.1               0.1
                other programs used 0.50 cores in the rounds
                {"seq":4.00,"inflight64":4.00,"stream":4.00,"read_1m":4.00,"read_16m":4.00,"floor":0.80,"stalled_growth_mib":0.12,"start_ms":{"bowline":201.25,"rust":51.25,"floor":251.25},"seq_cpu_us":{"bowline":10.00,"rust":40.00,"floor":8.00},"inflight64_cpu_us":{"bowline":5.00,"rust":20.00,"floor":4.00},"stream_cpu_us":{"bowline":1.00,"rust":4.00,"floor":0.80}}
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_told_is_null() {
        // For a pair that ran out of time before its first round, only the calibration is known.
        let floor = PairMeasurements { cpu: Vec::new(), ..measured("floor", &[500.0]) };
        check(
            vec![measured("rust", &[100.0]), floor],
            expect![[r#"
                                                                  rust        floor
                seq reads/s                                 100 (1.00)   500 (5.00)
                seq us/read                                    10000.0       2000.0
                inflight64 reads/s                          200 (1.00)  1000 (5.00)
                read_1m MB/s                                100 (1.00)   500 (5.00)
                read_16m MB/s                               100 (1.00)   500 (5.00)
                stream chunks/s                            1000 (1.00)  5000 (5.00)
                seq cpu us/message, client + agent         10.0 + 30.0            -
                inflight64 cpu us/message, client + agent   5.0 + 15.0            -
                stream cpu us/message, client + agent        1.0 + 3.0            -
                start ms                                          51.2        251.2
                stalled growth MiB                                 0.1          0.1
                other programs used 0.50 cores in the rounds
                {"seq":null,"inflight64":null,"stream":null,"read_1m":null,"read_16m":null,"floor":null,"stalled_growth_mib":null,"start_ms":{"rust":51.25,"floor":251.25},"seq_cpu_us":{"rust":40.00,"floor":null},"inflight64_cpu_us":{"rust":20.00,"floor":null},"stream_cpu_us":{"rust":4.00,"floor":null}}
            "#]],
        );
    }
}
