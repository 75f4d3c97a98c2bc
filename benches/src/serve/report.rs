//! The report of the server benchmark: a table for people and one JSON object for programs.

use serde_json::{Map, json};

use crate::files::report::BenchTarget;
use crate::wire::{align, median};

/// Our server passes on at least this many times as many messages as the SDK's.
const TIMES_SDK: BenchTarget = BenchTarget::AtLeast(3.0);
/// A WebSocket carries at least this part of what the same agent behind the same proxy carries on stdio.
const OF_STDIO: BenchTarget = BenchTarget::AtLeast(0.5);
/// Of 100 updates of many sessions, 99 arrive within this many milliseconds.
const LATE_MS: BenchTarget = BenchTarget::AtMost(20.0);
/// A session takes at most this much memory of the server.
const SESSION_KIB: BenchTarget = BenchTarget::AtMost(200.0);

/// The rates of one route, round by round.
#[derive(Debug, Default)]
pub struct RouteRates {
    /// The route's name.
    pub name: String,
    /// Updates in a second.
    pub updates: Vec<f64>,
    /// Reads of 200 bytes in a second, 64 at once.
    pub reads: Vec<f64>,
}

impl RouteRates {
    /// Creates empty rates.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// Many sessions at once.
#[derive(Debug, Default)]
pub struct SessionTimes {
    /// The milliseconds from the agent to the client, of each update.
    pub late_ms: Vec<f64>,
    /// The server's memory for each session.
    pub session_kib: f64,
}

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct ServeMeasurements {
    /// The routes, in the order of the table.
    pub routes: Vec<RouteRates>,
    /// The milliseconds from the request for a stream to the first missed update.
    pub reconnect_ms: Vec<f64>,
    /// Many sessions at once.
    pub sessions: SessionTimes,
    /// The average number of cores used by other processes meanwhile.
    pub other_cores: f64,
}

/// The report of a run.
#[derive(Debug)]
pub struct ServeBenchReport {
    measured: ServeMeasurements,
}

/// A value with its name in the summary, its text and its target.
struct Row {
    name: &'static str,
    text: &'static str,
    value: Option<f64>,
    target: BenchTarget,
}

impl ServeBenchReport {
    /// Creates the report.
    #[must_use]
    pub fn new(measured: ServeMeasurements) -> Self {
        Self { measured }
    }

    /// Returns the rates of each route, then a row for each ratio and value with its target, and whether it is met.
    #[must_use]
    pub fn table(&self) -> String {
        let mut rates = vec![["", "updates/s", "reads/s, 64 at once"].map(str::to_owned).to_vec()];
        for route in &self.measured.routes {
            let show = |rates: &[f64]| show(median(rates.iter().copied()), 0);
            rates.push(vec![route.name.clone(), show(&route.updates), show(&route.reads)]);
        }
        let mut rows = vec![["", "", "target", ""].map(str::to_owned).to_vec()];
        for row in self.rows() {
            let verdict = row.target.verdict(row.value).to_owned();
            rows.push(vec![row.text.to_owned(), show(row.value, 2), row.target.to_text(), verdict]);
        }
        let others = format!("other programs used {:.2} cores meanwhile\n", self.measured.other_cores);
        [align(&rates), align(&rows), others].concat()
    }

    /// Returns the values as one JSON object.
    #[must_use]
    pub fn summary(&self) -> String {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        let members = self.rows().map(|row| (row.name.to_owned(), json!(row.value.map(round))));
        json!(members.into_iter().collect::<Map<_, _>>()).to_string()
    }

    fn rows(&self) -> [Row; 12] {
        type Rates = fn(&RouteRates) -> &[f64];
        let updates: Rates = |route| &route.updates;
        let reads: Rates = |route| &route.reads;
        let rate = |name: &str, rates: Rates| {
            let route = self.measured.routes.iter().find(|route| route.name == name)?;
            median(rates(route).iter().copied())
        };
        let ratio = |ours: &str, theirs: &str, rates: Rates| Some(rate(ours, rates)? / rate(theirs, rates)?);
        let row = |name, text, value, target| Row { name, text, value, target };
        let sessions = &self.measured.sessions;
        let has_sessions = !sessions.late_ms.is_empty();
        [
            row(
                "updates_sse_to_sdk",
                "updates, event stream / SDK",
                ratio("bowline_sse", "sdk_sse", updates),
                TIMES_SDK,
            ),
            row(
                "updates_ws_to_sdk",
                "updates, WebSocket / SDK",
                ratio("bowline_ws", "sdk_ws", updates),
                TIMES_SDK,
            ),
            row(
                "updates_ws_to_stdio_proxy",
                "updates, WebSocket / stdio with the proxy",
                ratio("bowline_ws", "stdio_proxy", updates),
                OF_STDIO,
            ),
            row(
                "updates_ws_to_stdio",
                "updates, WebSocket / stdio",
                ratio("bowline_ws", "stdio", updates),
                BenchTarget::None,
            ),
            row(
                "reads_sse_to_sdk",
                "reads, event stream / SDK",
                ratio("bowline_sse", "sdk_sse", reads),
                TIMES_SDK,
            ),
            row("reads_ws_to_sdk", "reads, WebSocket / SDK", ratio("bowline_ws", "sdk_ws", reads), TIMES_SDK),
            row(
                "reads_ws_to_stdio_proxy",
                "reads, WebSocket / stdio with the proxy",
                ratio("bowline_ws", "stdio_proxy", reads),
                OF_STDIO,
            ),
            row(
                "reads_ws_to_stdio",
                "reads, WebSocket / stdio",
                ratio("bowline_ws", "stdio", reads),
                BenchTarget::None,
            ),
            row(
                "late_p50_ms",
                "ms to an update of many sessions, median",
                percentile(&sessions.late_ms, 0.5),
                BenchTarget::None,
            ),
            row("late_p99_ms", "the same, 99 of 100", percentile(&sessions.late_ms, 0.99), LATE_MS),
            row(
                "session_kib",
                "KiB for each session",
                has_sessions.then_some(sessions.session_kib),
                SESSION_KIB,
            ),
            row(
                "reconnect_ms",
                "ms from a reconnect to the first missed update",
                median(self.measured.reconnect_ms.iter().copied()),
                BenchTarget::None,
            ),
        ]
    }
}

/// Returns the value below which a part of all values lies.
fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied()
}

fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::{RouteRates, ServeBenchReport, ServeMeasurements, SessionTimes};

    #[test]
    fn our_server_is_compared_with_the_sdks_and_with_stdio() {
        let route = |name: &str, rate: f64| RouteRates {
            name: name.to_owned(),
            updates: vec![rate, rate * 3.0],
            reads: vec![rate],
        };
        let report = ServeBenchReport::new(ServeMeasurements {
            routes: vec![
                route("stdio", 1000.0),
                route("stdio_proxy", 800.0),
                route("bowline_sse", 300.0),
                route("bowline_ws", 600.0),
                route("sdk_sse", 100.0),
                route("sdk_ws", 300.0),
            ],
            reconnect_ms: vec![1.0, 2.0, 4.0],
            sessions: SessionTimes { late_ms: (1..=100).map(f64::from).collect(), session_kib: 50.0 },
            other_cores: 0.5,
        });
        expect![[r#"
                         updates/s  reads/s, 64 at once
            stdio             2000                 1000
            stdio_proxy       1600                  800
            bowline_sse        600                  300
            bowline_ws        1200                  600
            sdk_sse            200                  100
            sdk_ws             600                  300
                                                                    target
            updates, event stream / SDK                       3.00     ≥ 3     met
            updates, WebSocket / SDK                          2.00     ≥ 3  MISSED
            updates, WebSocket / stdio with the proxy         0.75   ≥ 0.5     met
            updates, WebSocket / stdio                        0.60
            reads, event stream / SDK                         3.00     ≥ 3     met
            reads, WebSocket / SDK                            2.00     ≥ 3  MISSED
            reads, WebSocket / stdio with the proxy           0.75   ≥ 0.5     met
            reads, WebSocket / stdio                          0.60
            ms to an update of many sessions, median         51.00
            the same, 99 of 100                             100.00    ≤ 20  MISSED
            KiB for each session                             50.00   ≤ 200     met
            ms from a reconnect to the first missed update    2.00
            other programs used 0.50 cores meanwhile
            {"updates_sse_to_sdk":3.0,"updates_ws_to_sdk":2.0,"updates_ws_to_stdio_proxy":0.75,"updates_ws_to_stdio":0.6,"reads_sse_to_sdk":3.0,"reads_ws_to_sdk":2.0,"reads_ws_to_stdio_proxy":0.75,"reads_ws_to_stdio":0.6,"late_p50_ms":51.0,"late_p99_ms":100.0,"session_kib":50.0,"reconnect_ms":2.0}
        "#]].assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn what_was_not_measured_is_not_compared() {
        let report = ServeBenchReport::new(ServeMeasurements::default());
        expect![[r#"{"updates_sse_to_sdk":null,"updates_ws_to_sdk":null,"updates_ws_to_stdio_proxy":null,"updates_ws_to_stdio":null,"reads_sse_to_sdk":null,"reads_ws_to_sdk":null,"reads_ws_to_stdio_proxy":null,"reads_ws_to_stdio":null,"late_p50_ms":null,"late_p99_ms":null,"session_kib":null,"reconnect_ms":null}"#]].assert_eq(&report.summary());
    }
}
