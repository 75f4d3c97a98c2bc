//! What was measured, as a table for people and one JSON object for programs.

use super::Sessions;
use crate::bench::align;
use crate::files::Sides;
use crate::files::report::Target;

/// Ours is there at least so many times sooner.
const START: Target = Target::AtLeast(20.0);
/// Ours reports its first tool call at least so many times sooner.
const FIRST_CALL: Target = Target::AtLeast(5.0);
/// Ours ends a turn with one command at least so many times sooner.
const TURN: Target = Target::AtLeast(5.0);
/// A session that does nothing takes at most so many KiB.
const IDLE_KIB: Target = Target::AtMost(64.0);

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// From starting an agent to its answer to `initialize`.
    pub starts: Sides,
    /// From a prompt to the first tool call.
    pub first_call: Sides,
    /// From a prompt to its answer, with one command between.
    pub turns: Sides,
    /// The microseconds of each of many commands in one turn of ours.
    pub call_us: f64,
    /// Many sessions in one process: ours, and theirs.
    pub sessions: [Option<Sessions>; 2],
    /// How many cores were not ours meanwhile.
    pub others: f64,
}

impl Measured {
    pub(super) fn push_sessions(&mut self, at: usize, sessions: Sessions) {
        self.sessions[at] = Some(sessions);
    }
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    names: [String; 2],
    measured: Measured,
}

impl Report {
    /// Reports on what was measured of two agents, ours first.
    pub fn new(names: [String; 2], measured: Measured) -> Self {
        Self { names, measured }
    }

    /// Returns a row for each measurement: the medians of both sides, how many times theirs is ours, what that should be,
    /// and whether it is.
    pub fn table(&self) -> String {
        let measured = &self.measured;
        let [ours, theirs] = self.names.clone();
        let mut rows =
            vec![vec![String::new(), ours, theirs, "ratio".into(), "target".into(), String::new()]];
        let mut push =
            |name: &str, cells: [Option<f64>; 2], unit: &str, ratio: Option<f64>, target: Target| {
                let [ours, theirs] = cells.map(|value| cell(value, unit));
                let shown = ratio.map(|ratio| format!("{ratio:.1}")).unwrap_or_default();
                rows.push(vec![
                    name.to_owned(),
                    ours,
                    theirs,
                    shown,
                    target.text(),
                    target.verdict(ratio).to_owned(),
                ]);
            };
        for (name, sides, target) in [
            ("start to initialize", &measured.starts, START),
            ("prompt to first tool call", &measured.first_call, FIRST_CALL),
            ("turn with one command", &measured.turns, TURN),
        ] {
            push(name, [sides.our_ms(), sides.their_ms()], "ms", sides.times_faster(), target);
        }
        let call = (measured.call_us > 0.0).then_some(measured.call_us);
        push("one of many commands in a turn", [call, None], "us", None, Target::None);
        let each = |value: fn(&Sessions) -> f64| measured.sessions.map(|sessions| Some(value(&sessions?)));
        let counts = each(|sessions| sessions.count as f64);
        push("sessions in one process", counts, "", None, Target::None);
        let open = each(|sessions| sessions.open_ms);
        push("opening a session", open, "ms", ratio(open), Target::None);
        let turn = each(|sessions| sessions.turn_ms);
        push("turn with one command, all open", turn, "ms", ratio(turn), Target::None);
        let process = each(|sessions| sessions.process_mib);
        push("memory with all open", process, "MiB", ratio(process), Target::None);
        let idle = each(|sessions| sessions.idle_kib);
        push("memory of an idle session", idle, "KiB", ratio(idle), Target::None);
        if let Some(row) = rows.last_mut() {
            row[4] = IDLE_KIB.text() + " KiB";
            row[5] = IDLE_KIB.verdict(idle[0]).to_owned();
        }
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), measured.others)
    }

    /// Returns the summary, one line. What was not measured is `null`.
    pub fn summary(&self) -> String {
        let measured = &self.measured;
        let [ours, theirs] = measured.sessions;
        let both =
            |value: fn(&Sessions) -> f64| ratio([ours, theirs].map(|sessions| Some(value(&sessions?))));
        let fields = [
            ("start", measured.starts.times_faster()),
            ("first_call", measured.first_call.times_faster()),
            ("turn", measured.turns.times_faster()),
            ("open_session", both(|sessions| sessions.open_ms)),
            ("memory", both(|sessions| sessions.process_mib)),
            ("start_ms", measured.starts.our_ms()),
            ("first_call_ms", measured.first_call.our_ms()),
            ("turn_ms", measured.turns.our_ms()),
            ("call_us", (measured.call_us > 0.0).then_some(measured.call_us)),
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

/// Returns how many times theirs is ours.
fn ratio([ours, theirs]: [Option<f64>; 2]) -> Option<f64> {
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

    use super::{Measured, Report, Sessions};
    use crate::files::Sides;

    fn check(measured: Measured, expect: Expect) {
        let report = Report::new(["bowline", "fast-agent"].map(str::to_owned), measured);
        expect.assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn a_ratio_is_how_many_times_theirs_is_ours() {
        let sides = |ours: f64, theirs: f64| Sides { ours: vec![ours, ours], theirs: vec![theirs, theirs] };
        let sessions = |count, ms: f64, kib: f64| Sessions {
            count,
            open_ms: ms,
            idle_kib: kib,
            process_mib: kib,
            turn_ms: ms * 2.0,
        };
        let measured = Measured {
            starts: sides(10.0, 900.0),
            first_call: sides(1.0, 4.0),
            turns: sides(2.0, 20.0),
            call_us: 250.0,
            sessions: [Some(sessions(1000, 0.5, 20.0)), Some(sessions(50, 50.0, 200.0))],
            others: 0.5,
        };
        check(
            measured,
            expect![[r#"
                                              bowline  fast-agent  ratio    target
            start to initialize               10.0 ms    900.0 ms   90.0      ≥ 20     met
            prompt to first tool call          1.0 ms      4.0 ms    4.0       ≥ 5  MISSED
            turn with one command              2.0 ms     20.0 ms   10.0       ≥ 5     met
            one of many commands in a turn   250.0 us           -
            sessions in one process              1000          50
            opening a session                  0.5 ms     50.0 ms  100.0
            turn with one command, all open    1.0 ms    100.0 ms  100.0
            memory with all open             20.0 MiB   200.0 MiB   10.0
            memory of an idle session        20.0 KiB   200.0 KiB   10.0  ≤ 64 KiB     met
            other programs used 0.50 cores meanwhile
            {"start":90.00,"first_call":4.00,"turn":10.00,"open_session":100.00,"memory":10.00,"start_ms":10.00,"first_call_ms":1.00,"turn_ms":2.00,"call_us":250.00,"sessions":1000.00,"idle_session_kib":20.00,"process_mib":20.00,"turn_ms_all_open":1.00}
        "#]],
        );
    }

    #[test]
    fn what_was_not_measured_is_null() {
        check(
            Measured::default(),
            expect![[r#"
                                             bowline  fast-agent  ratio    target
            start to initialize                    -           -             ≥ 20  not measured
            prompt to first tool call              -           -              ≥ 5  not measured
            turn with one command                  -           -              ≥ 5  not measured
            one of many commands in a turn         -           -
            sessions in one process                -           -
            opening a session                      -           -
            turn with one command, all open        -           -
            memory with all open                   -           -
            memory of an idle session              -           -         ≤ 64 KiB  not measured
            other programs used 0.00 cores meanwhile
            {"start":null,"first_call":null,"turn":null,"open_session":null,"memory":null,"start_ms":null,"first_call_ms":null,"turn_ms":null,"call_us":null,"sessions":null,"idle_session_kib":null,"process_mib":null,"turn_ms_all_open":null}
        "#]],
        );
    }
}
