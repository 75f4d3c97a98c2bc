//! The report of the proxy benchmark: a table for people and one JSON object for programs.

use super::cost::MessageCost;
use crate::files::report::BenchTarget;
use crate::wire::{BenchPhase, align, median};

/// The names of our route and of the routes that it is compared with.
const BOWLINE: &str = "bowline";
const NONE: &str = "none";
const CONDUCTOR: &str = "conductor";

/// A message costs the proxy less processor time than this many microseconds.
const MESSAGE_US: BenchTarget = BenchTarget::AtMost(20.0);
/// Our proxy relays at least this many times as many messages as the conductor.
const TIMES_CONDUCTOR: BenchTarget = BenchTarget::AtLeast(10.0);

/// A cost: its name, its accessor and its target.
type CostRow = (&'static str, fn(&MessageCost) -> f64, BenchTarget);

/// The measurements of one route.
#[derive(Debug, Default)]
pub struct RouteMeasurements {
    /// The route's name.
    pub name: String,
    /// The rates of the phases in each round.
    pub rounds: Vec<[f64; BenchPhase::ALL.len()]>,
    /// The cost of a message in the process between.
    pub cost: Option<MessageCost>,
}

impl RouteMeasurements {
    /// Creates empty measurements.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn rates(&self, phase: BenchPhase) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| round[phase as usize])
    }
}

/// The measurements of every route.
#[derive(Debug)]
pub struct ProxyBenchReport {
    routes: Vec<RouteMeasurements>,
    other_cores: f64,
}

impl ProxyBenchReport {
    /// Creates the report with the routes in this order; `others` is the average number of cores used by other
    /// processes meanwhile.
    pub fn new(ways: Vec<RouteMeasurements>, others: f64) -> Self {
        Self { routes: ways, other_cores: others }
    }

    /// Returns a row for each measurement and a column for each route, then the ratios of ours to the direct route and
    /// to the conductor, the target, and whether it is met.
    pub fn table(&self) -> String {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.routes.iter().map(|way| way.name.clone()));
        rows[0].extend(["ours / none", "ours / conductor", "target", ""].map(str::to_owned));
        for phase in BenchPhase::ALL {
            let target = match phase {
                BenchPhase::Seq | BenchPhase::Inflight64 | BenchPhase::Stream => TIMES_CONDUCTOR,
                // The time is spent on the bytes themselves.
                BenchPhase::Read1m | BenchPhase::Read16m => BenchTarget::None,
            };
            let mut row = vec![format!("{} {}", phase.name(), phase.unit())];
            row.extend(self.routes.iter().map(|way| format_value(median(way.rates(phase)), 0)));
            let conductor = self.ratio(CONDUCTOR, phase);
            row.extend([format_value(self.ratio(NONE, phase), 2), format_value(conductor, 1)]);
            row.extend([target.to_text(), target.verdict(conductor).to_owned()]);
            rows.push(row);
        }
        let costs: [CostRow; 5] = [
            ("processor us/update", |cost| cost.update_us, MESSAGE_US),
            ("processor us/message, one by one", |cost| cost.message_us, MESSAGE_US),
            ("processor ms/message of 10 MB", |cost| cost.large_ms, BenchTarget::None),
            ("peak MiB, small messages", |cost| cost.peak_mib[0], BenchTarget::None),
            ("peak MiB, messages of 10 MB", |cost| cost.peak_mib[1], BenchTarget::None),
        ];
        for (name, value, target) in costs {
            let of = |way: &RouteMeasurements| way.cost.as_ref().map(value);
            let mut row = vec![name.to_owned()];
            row.extend(self.routes.iter().map(|way| format_value(of(way), 1)));
            let ours = self.find_route(BOWLINE).and_then(of);
            let ratio = ours.zip(self.find_route(CONDUCTOR).and_then(of)).map(|(ours, theirs)| ours / theirs);
            row.extend([
                String::new(),
                format_value(ratio, 2),
                target.to_text(),
                target.verdict(ours).to_owned(),
            ]);
            rows.push(row);
        }
        format!("{}other programs used {:.2} cores meanwhile\n", align(&rows), self.other_cores)
    }

    /// Returns the summary in one line. Missing measurements are `null`.
    pub fn summary(&self) -> String {
        let mut fields = Vec::new();
        for phase in BenchPhase::ALL {
            fields.push((format!("{}_to_none", phase.name()), self.ratio(NONE, phase)));
            fields.push((format!("{}_to_conductor", phase.name()), self.ratio(CONDUCTOR, phase)));
        }
        let cost = self.find_route(BOWLINE).and_then(|way| way.cost);
        fields.push(("update_us".to_owned(), cost.map(|cost| cost.update_us)));
        fields.push(("message_us".to_owned(), cost.map(|cost| cost.message_us)));
        fields.push(("large_ms".to_owned(), cost.map(|cost| cost.large_ms)));
        fields.push(("peak_mib".to_owned(), cost.map(|cost| cost.peak_mib[0])));
        fields.push(("peak_large_mib".to_owned(), cost.map(|cost| cost.peak_mib[1])));
        let number =
            |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.2}"));
        let fields: Vec<String> =
            fields.into_iter().map(|(name, value)| format!(r#""{name}":{}"#, number(value))).collect();
        format!("{{{}}}", fields.join(","))
    }

    fn find_route(&self, name: &str) -> Option<&RouteMeasurements> {
        self.routes.iter().find(|way| way.name == name)
    }

    /// Returns the median of the ratios of ours to another within each round, because a slow round is slow for both.
    fn ratio(&self, to: &str, phase: BenchPhase) -> Option<f64> {
        let (ours, other) = (self.find_route(BOWLINE)?, self.find_route(to)?);
        median(ours.rates(phase).zip(other.rates(phase)).map(|(ours, other)| ours / other))
    }
}

fn format_value(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::{MessageCost, ProxyBenchReport, RouteMeasurements};

    #[test]
    fn ours_is_compared_with_nothing_and_with_the_conductor() {
        let way = |name: &str, rate: f64, cost: Option<f64>| RouteMeasurements {
            name: name.to_owned(),
            rounds: vec![[rate; 5], [rate * 2.0; 5]],
            cost: cost.map(|us| MessageCost {
                update_us: us,
                message_us: us * 10.0,
                large_ms: 5.0,
                peak_mib: [4.0, 30.0],
            }),
        };
        let ways = vec![
            way("none", 1000.0, None),
            way("bowline", 500.0, Some(3.0)),
            way("conductor", 25.0, Some(60.0)),
        ];
        let report = ProxyBenchReport::new(ways, 0.25);
        expect![[r#"
                                              none  bowline  conductor  ours / none  ours / conductor  target
            seq reads/s                       1500      750         38         0.50              20.0    ≥ 10     met
            inflight64 reads/s                1500      750         38         0.50              20.0    ≥ 10     met
            read_1m MB/s                      1500      750         38         0.50              20.0
            read_16m MB/s                     1500      750         38         0.50              20.0
            stream chunks/s                   1500      750         38         0.50              20.0    ≥ 10     met
            processor us/update                  -      3.0       60.0                           0.05    ≤ 20     met
            processor us/message, one by one     -     30.0      600.0                           0.05    ≤ 20  MISSED
            processor ms/message of 10 MB        -      5.0        5.0                           1.00
            peak MiB, small messages             -      4.0        4.0                           1.00
            peak MiB, messages of 10 MB          -     30.0       30.0                           1.00
            other programs used 0.25 cores meanwhile
            {"seq_to_none":0.50,"seq_to_conductor":20.00,"inflight64_to_none":0.50,"inflight64_to_conductor":20.00,"read_1m_to_none":0.50,"read_1m_to_conductor":20.00,"read_16m_to_none":0.50,"read_16m_to_conductor":20.00,"stream_to_none":0.50,"stream_to_conductor":20.00,"update_us":3.00,"message_us":30.00,"large_ms":5.00,"peak_mib":4.00,"peak_large_mib":30.00}
        "#]].assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }

    #[test]
    fn what_is_not_there_is_not_compared() {
        let report = ProxyBenchReport::new(vec![RouteMeasurements::new("bowline")], 0.0);
        expect![[r#"
                                              bowline  ours / none  ours / conductor  target
            seq reads/s                             -            -                 -    ≥ 10  not measured
            inflight64 reads/s                      -            -                 -    ≥ 10  not measured
            read_1m MB/s                            -            -                 -
            read_16m MB/s                           -            -                 -
            stream chunks/s                         -            -                 -    ≥ 10  not measured
            processor us/update                     -                              -    ≤ 20  not measured
            processor us/message, one by one        -                              -    ≤ 20  not measured
            processor ms/message of 10 MB           -                              -
            peak MiB, small messages                -                              -
            peak MiB, messages of 10 MB             -                              -
            other programs used 0.00 cores meanwhile
            {"seq_to_none":null,"seq_to_conductor":null,"inflight64_to_none":null,"inflight64_to_conductor":null,"read_1m_to_none":null,"read_1m_to_conductor":null,"read_16m_to_none":null,"read_16m_to_conductor":null,"stream_to_none":null,"stream_to_conductor":null,"update_us":null,"message_us":null,"large_ms":null,"peak_mib":null,"peak_large_mib":null}
        "#]].assert_eq(&format!("{}{}\n", report.table(), report.summary()));
    }
}
