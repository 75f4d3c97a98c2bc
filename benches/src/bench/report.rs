//! What was measured, as a table for people and one JSON object for programs.

use std::fmt::Write;

use super::client::Cpu;
use super::phase::Phase;

/// Ours, in the table and in the summary.
const OURS: &str = "bowline";
/// The official Rust SDK, which every ratio is to.
const OFFICIAL: &str = "rust";
/// The minimal hand-written pair.
const FLOOR: &str = "floor";

/// The phases of small messages, whose processor time is told: that of a large one is its bytes'.
const SMALL: [Phase; 3] = [Phase::Seq, Phase::Inflight64, Phase::Stream];

/// What one pair did.
#[derive(Debug, Default)]
pub struct Measured {
    /// The pair's name.
    pub name: String,
    /// The rates of each round's phases.
    pub rounds: Vec<[f64; Phase::ALL.len()]>,
    /// The processor time of each round's phases, in as many rounds as it was counted.
    pub cpu: Vec<[Option<Cpu>; Phase::ALL.len()]>,
    /// The milliseconds from each start to the answer to `initialize`.
    pub starts: Vec<f64>,
    /// The MiB that the agent grew by while its reader stopped.
    pub stalled_mib: Option<f64>,
}

impl Measured {
    /// Starts with nothing measured.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Returns the median of the starts, `None` before the first.
    pub fn start_ms(&self) -> Option<f64> {
        median(self.starts.iter().copied())
    }

    fn rates(&self, phase: Phase) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| round[phase as usize])
    }

    /// Returns the medians of both ends' processor time, `None` if it was never counted.
    fn cpu(&self, phase: Phase) -> Option<Cpu> {
        let each = |end: fn(&Cpu) -> f64| {
            median(self.cpu.iter().filter_map(|round| round[phase as usize].as_ref()).map(end))
        };
        Some(Cpu { client_us: each(|cpu| cpu.client_us)?, agent_us: each(|cpu| cpu.agent_us)? })
    }
}

/// What every pair did.
#[derive(Debug)]
pub struct Report {
    pairs: Vec<Measured>,
    others: f64,
}

impl Report {
    /// Reports on the pairs in this order; `others` is how many cores were not ours while they ran.
    pub fn new(pairs: Vec<Measured>, others: f64) -> Self {
        Self { pairs, others }
    }

    /// Returns a row for each phase and a column for each pair: the median, in brackets the ratio to the
    /// official SDK, and how far the rounds lie apart.
    pub fn table(&self) -> String {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.pairs.iter().map(|pair| pair.name.clone()));
        for phase in Phase::ALL {
            rows.push(
                self.row(format!("{} {}", phase.name(), phase.unit()), |pair| self.rate_cell(pair, phase)),
            );
            if phase == Phase::Seq {
                let micros =
                    |pair: &Measured| median(pair.rates(phase)).map(|rate| format!("{:.1}", 1e6 / rate));
                rows.push(self.row("seq us/read".to_owned(), micros));
            }
        }
        for phase in SMALL {
            let both = |pair: &Measured| {
                let Cpu { client_us, agent_us } = pair.cpu(phase)?;
                Some(format!("{client_us:.1} + {agent_us:.1}"))
            };
            rows.push(self.row(format!("{} cpu us/message, client + agent", phase.name()), both));
        }
        rows.push(self.row("start ms".to_owned(), |pair| Some(format!("{:.1}", pair.start_ms()?))));
        rows.push(
            self.row("stalled growth MiB".to_owned(), |pair| Some(format!("{:.1}", pair.stalled_mib?))),
        );
        format!("{}other programs used {:.2} cores in the rounds\n", align(&rows), self.others)
    }

    /// Returns the summary, one line. What cannot be told without one of the pairs is `null`.
    pub fn summary(&self) -> String {
        let (ours, official, floor) = (self.pair(OURS), self.pair(OFFICIAL), self.pair(FLOOR));
        let mut fields = Vec::new();
        for phase in [Phase::Seq, Phase::Inflight64, Phase::Stream, Phase::Read1m, Phase::Read16m] {
            fields.push(format!(r#""{}":{}"#, phase.name(), number(ratio(ours, official, phase))));
        }
        let to_floor: Option<Vec<_>> = Phase::ALL.iter().map(|&phase| ratio(ours, floor, phase)).collect();
        let lowest = to_floor.and_then(|ratios| ratios.into_iter().reduce(f64::min));
        fields.push(format!(r#""floor":{}"#, number(lowest)));
        fields.push(format!(r#""stalled_growth_mib":{}"#, number(ours.and_then(|pair| pair.stalled_mib))));
        fields.push(format!(r#""start_ms":{}"#, self.each_pair(Measured::start_ms)));
        for phase in SMALL {
            let us = |pair: &Measured| pair.cpu(phase).map(|cpu| cpu.client_us + cpu.agent_us);
            fields.push(format!(r#""{}_cpu_us":{}"#, phase.name(), self.each_pair(us)));
        }
        format!("{{{}}}", fields.join(","))
    }

    fn row(&self, name: String, cell: impl Fn(&Measured) -> Option<String>) -> Vec<String> {
        let cells = self.pairs.iter().map(|pair| cell(pair).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(name).chain(cells).collect()
    }

    /// Returns a JSON object with a number for each pair.
    fn each_pair(&self, value: impl Fn(&Measured) -> Option<f64>) -> String {
        let fields = self.pairs.iter().map(|pair| {
            let name = serde_json::json!(pair.name);
            format!("{name}:{}", number(value(pair)))
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    fn rate_cell(&self, pair: &Measured, phase: Phase) -> Option<String> {
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

    fn pair(&self, name: &str) -> Option<&Measured> {
        self.pairs.iter().find(|pair| pair.name == name)
    }
}

/// Returns the median of the ratios within each round: what slows a round down slows both.
fn ratio(pair: Option<&Measured>, to: Option<&Measured>, phase: Phase) -> Option<f64> {
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

    use super::{Cpu, Measured, Report};

    fn measured(name: &str, rounds: &[f64]) -> Measured {
        let cpu = |rate| Some(Cpu { client_us: 1e3 / rate, agent_us: 3e3 / rate });
        Measured {
            name: name.to_owned(),
            rounds: rounds.iter().map(|&rate| [rate, rate * 2.0, rate, rate, rate * 10.0]).collect(),
            cpu: rounds.iter().map(|&rate| [rate, rate * 2.0, rate, rate, rate * 10.0].map(cpu)).collect(),
            starts: vec![rounds[0], 2.5],
            stalled_mib: Some(0.125),
        }
    }

    fn check(pairs: Vec<Measured>, expect: Expect) {
        let report = Report::new(pairs, 0.5);
        expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // Both halve in the second round, and the ratio stays.
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
        // Of a pair for whose rounds there was no time only the calibration is known.
        let floor = Measured { cpu: Vec::new(), ..measured("floor", &[500.0]) };
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
