//! The report of the agent benchmark: a table for people and one JSON object for programs.

use super::SessionCosts;
use crate::files::Comparison;
use crate::files::report::BenchTarget;
use crate::wire::align;

/// Our agent starts at least this many times faster.
const START_TARGET: BenchTarget = BenchTarget::AtLeast(20.0);
/// Our agent reports its first tool call at least this many times sooner.
const FIRST_CALL_TARGET: BenchTarget = BenchTarget::AtLeast(5.0);
/// Our agent ends a turn with one command at least this many times sooner.
const TURN_TARGET: BenchTarget = BenchTarget::AtLeast(5.0);
/// An idle session takes at most this many KiB.
const IDLE_KIB_TARGET: BenchTarget = BenchTarget::AtMost(64.0);

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct AgentMeasurements {
    /// From starting an agent to its response to `initialize`.
    pub starts: Comparison,
    /// From a prompt to the first tool call.
    pub first_call: Comparison,
    /// From a prompt to its response, with one command between.
    pub turns: Comparison,
    /// The microseconds per command, in one turn of ours with many.
    pub command_us: f64,
    /// The milliseconds in which a new process of ours loads a session with many turns.
    pub load_ms: f64,
    /// Many sessions in one process: ours, and theirs.
    pub sessions: [Option<SessionCosts>; 2],
    /// The average number of cores used by other processes meanwhile.
    pub other_cores: f64,
}

impl AgentMeasurements {
    pub(super) fn set_sessions(&mut self, at: usize, sessions: SessionCosts) {
        self.sessions[at] = Some(sessions);
    }
}

/// The report of a run.
#[derive(Debug)]
pub struct AgentBenchReport {
    names: [String; 2],
    measured: AgentMeasurements,
}

impl AgentBenchReport {
    /// Creates the report for two agents, ours first.
    pub fn new(names: [String; 2], measured: AgentMeasurements) -> Self {
        Self { names, measured }
    }

    /// Returns a row for each measurement: the medians of both sides, the ratio of theirs to ours, its target, and
    /// whether the target is met.
    pub fn table(&self) -> String {
        let measured = &self.measured;
        let [ours, theirs] = self.names.clone();
        let mut rows =
            vec![vec![String::new(), ours, theirs, "ratio".into(), "target".into(), String::new()]];
        let mut push =
            |name: &str, cells: [Option<f64>; 2], unit: &str, ratio: Option<f64>, target: BenchTarget| {
                let [ours, theirs] = cells.map(|value| cell(value, unit));
                let shown = ratio.map(|ratio| format!("{ratio:.1}")).unwrap_or_default();
                rows.push(vec![
                    name.to_owned(),
                    ours,
                    theirs,
                    shown,
                    target.to_text(),
                    target.verdict(ratio).to_owned(),
                ]);
            };
        for (name, sides, target) in [
            ("start to initialize", &measured.starts, START_TARGET),
            ("prompt to first tool call", &measured.first_call, FIRST_CALL_TARGET),
            ("turn with one command", &measured.turns, TURN_TARGET),
        ] {
            push(name, [sides.our_ms(), sides.their_ms()], "ms", sides.times_faster(), target);
        }
        let call = (measured.command_us > 0.0).then_some(measured.command_us);
        push("one of many commands in a turn", [call, None], "us", None, BenchTarget::None);
        let load = (measured.load_ms > 0.0).then_some(measured.load_ms);
        push("loading a session with many turns", [load, None], "ms", None, BenchTarget::None);
        let each =
            |value: fn(&SessionCosts) -> f64| measured.sessions.map(|sessions| Some(value(&sessions?)));
        let counts = each(|sessions| sessions.count as f64);
        push("sessions in one process", counts, "", None, BenchTarget::None);
        let open = each(|sessions| sessions.open_ms);
        push("opening a session", open, "ms", times_ours(open), BenchTarget::None);
        let turn = each(|sessions| sessions.turn_ms);
        push("turn with one command, all open", turn, "ms", times_ours(turn), BenchTarget::None);
        let process = each(|sessions| sessions.process_mib);
        push("memory with all open", process, "MiB", times_ours(process), BenchTarget::None);
        let idle = each(|sessions| sessions.idle_kib);
        push("memory of an idle session", idle, "KiB", times_ours(idle), BenchTarget::None);
        if let Some(row) = rows.last_mut() {
            row[4] = IDLE_KIB_TARGET.to_text() + " KiB";
            row[5] = IDLE_KIB_TARGET.verdict(idle[0]).to_owned();
        }
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), measured.other_cores)
    }

    /// Returns the summary in one line. Missing measurements are `null`.
    pub fn summary(&self) -> String {
        let measured = &self.measured;
        let [ours, theirs] = measured.sessions;
        let both = |value: fn(&SessionCosts) -> f64| {
            times_ours([ours, theirs].map(|sessions| Some(value(&sessions?))))
        };
        let fields = [
            ("start", measured.starts.times_faster()),
            ("first_call", measured.first_call.times_faster()),
            ("turn", measured.turns.times_faster()),
            ("open_session", both(|sessions| sessions.open_ms)),
            ("memory", both(|sessions| sessions.process_mib)),
            ("start_ms", measured.starts.our_ms()),
            ("first_call_ms", measured.first_call.our_ms()),
            ("turn_ms", measured.turns.our_ms()),
            ("call_us", (measured.command_us > 0.0).then_some(measured.command_us)),
            ("load_ms", (measured.load_ms > 0.0).then_some(measured.load_ms)),
            ("sessions", ours.map(|sessions| sessions.count as f64)),
            ("idle_session_kib", ours.map(|sessions| sessions.idle_kib)),
            ("process_mib", ours.map(|sessions| sessions.process_mib)),
            ("turn_ms_all_open", ours.map(|sessions| sessions.turn_ms)),
        ];
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| {
                let value = value.map_or_else(|| "null".to_owned(), |value| format!("{value:.2}"));
                format!(r#""{name}":{value}"#)
            })
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Returns the ratio of theirs to ours.
fn times_ours([ours, theirs]: [Option<f64>; 2]) -> Option<f64> {
    Some(theirs? / ours?).filter(|ratio| ratio.is_finite())
}

fn cell(value: Option<f64>, unit: &str) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if unit.is_empty() => format!("{value:.0}"),
        Some(value) => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::{AgentBenchReport, AgentMeasurements, SessionCosts};
    use crate::files::Comparison;

    fn check(measured: AgentMeasurements, expect: Expect) {
        let report = AgentBenchReport::new(["bowline", "fast-agent"].map(str::to_owned), measured);
        expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn a_ratio_is_how_many_times_theirs_is_ours() {
        let sides =
            |ours: f64, theirs: f64| Comparison { ours: vec![ours, ours], theirs: vec![theirs, theirs] };
        let sessions = |count, ms: f64, kib: f64| SessionCosts {
            count,
            open_ms: ms,
            idle_kib: kib,
            process_mib: kib,
            turn_ms: ms * 2.0,
        };
        let measured = AgentMeasurements {
            starts: sides(10.0, 900.0),
            first_call: sides(1.0, 4.0),
            turns: sides(2.0, 20.0),
            command_us: 250.0,
            load_ms: 260.0,
            sessions: [Some(sessions(1000, 0.5, 20.0)), Some(sessions(50, 50.0, 200.0))],
            other_cores: 0.5,
        };
        check(
            measured,
            expect![[r#"
                                                    bowline  fast-agent  ratio    target
                start to initialize                 10.0 ms    900.0 ms   90.0      ≥ 20     met
                prompt to first tool call            1.0 ms      4.0 ms    4.0       ≥ 5  MISSED
                turn with one command                2.0 ms     20.0 ms   10.0       ≥ 5     met
                one of many commands in a turn     250.0 us           -
                loading a session with many turns  260.0 ms           -
                sessions in one process                1000          50
                opening a session                    0.5 ms     50.0 ms  100.0
                turn with one command, all open      1.0 ms    100.0 ms  100.0
                memory with all open               20.0 MiB   200.0 MiB   10.0
                memory of an idle session          20.0 KiB   200.0 KiB   10.0  ≤ 64 KiB     met
                other programs used 0.50 cores meanwhile
                {"start":90.00,"first_call":4.00,"turn":10.00,"open_session":100.00,"memory":10.00,"start_ms":10.00,"first_call_ms":1.00,"turn_ms":2.00,"call_us":250.00,"load_ms":260.00,"sessions":1000.00,"idle_session_kib":20.00,"process_mib":20.00,"turn_ms_all_open":1.00}
            "#]],
        );
    }

    #[test]
    fn what_was_not_measured_is_null() {
        check(
            AgentMeasurements::default(),
            expect![[r#"
                                                   bowline  fast-agent  ratio    target
                start to initialize                      -           -             ≥ 20  not measured
                prompt to first tool call                -           -              ≥ 5  not measured
                turn with one command                    -           -              ≥ 5  not measured
                one of many commands in a turn           -           -
                loading a session with many turns        -           -
                sessions in one process                  -           -
                opening a session                        -           -
                turn with one command, all open          -           -
                memory with all open                     -           -
                memory of an idle session                -           -         ≤ 64 KiB  not measured
                other programs used 0.00 cores meanwhile
                {"start":null,"first_call":null,"turn":null,"open_session":null,"memory":null,"start_ms":null,"first_call_ms":null,"turn_ms":null,"call_us":null,"load_ms":null,"sessions":null,"idle_session_kib":null,"process_mib":null,"turn_ms_all_open":null}
            "#]],
        );
    }
}
