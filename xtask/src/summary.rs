//! What the steps of a run came to: a table, and a closing line that a machine can read.

use std::fmt;
use std::time::{Duration, Instant};

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Passed,
    /// It did not, and why.
    Failed(String),
    /// It could not be done here, and why.
    Skipped(String),
}

impl Outcome {
    /// Tells success from failure.
    pub fn of(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }

    /// Says what is missing here. A person sees that it was skipped; where nobody looks it is a failure.
    pub fn missing(what: impl Into<String>, ci: bool) -> Self {
        let what = what.into();
        if ci {
            Self::Failed(format!("{what} (CI=true: nothing may be skipped)"))
        } else {
            Self::Skipped(what)
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The step.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub time: Duration,
}

impl Row {
    /// Does something and notes how it ended and how long it took.
    pub fn timed(name: impl Into<String>, action: impl FnOnce() -> Outcome) -> Self {
        let start = Instant::now();
        let outcome = action();
        Self { name: name.into(), outcome, time: start.elapsed() }
    }
}

/// Every step of a run in the order they were taken.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The steps.
    pub rows: Vec<Row>,
}

impl Summary {
    /// Whether any step failed.
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_)))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for Row { name, outcome, time } in &self.rows {
            let (word, why, count) = match outcome {
                Outcome::Passed => ("ok", "", &mut passed),
                Outcome::Failed(why) => ("FAILED", why.as_str(), &mut failed),
                Outcome::Skipped(why) => ("skipped", why.as_str(), &mut skipped),
            };
            *count += 1;
            let line = format!("{word:<7}  {name:<width$}  {:>6.1} s  {why}", time.as_secs_f64());
            writeln!(f, "{}", line.trim_end())?;
        }
        write!(f, "\n{passed} passed, {failed} failed")?;
        if skipped > 0 {
            write!(f, ", {skipped} skipped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Row, Summary};
    use expect_test::{Expect, expect};
    use std::time::Duration;

    fn check(rows: &[(&str, Outcome, u64)], failed: bool, expected: Expect) {
        let row = |(name, outcome, millis): &(&str, Outcome, u64)| Row {
            name: (*name).to_owned(),
            outcome: outcome.clone(),
            time: Duration::from_millis(*millis),
        };
        let summary = Summary { rows: rows.iter().map(row).collect() };
        assert_eq!(summary.failed(), failed);
        expected.assert_eq(&summary.to_string());
    }

    #[test]
    fn a_clean_run_ends_with_its_counts() {
        check(
            &[("fmt", Outcome::Passed, 340), ("clippy", Outcome::Passed, 61_000)],
            false,
            expect![[r#"
                ok       fmt        0.3 s
                ok       clippy    61.0 s

                2 passed, 0 failed"#]],
        );
    }

    #[test]
    fn failures_and_skips_say_why() {
        check(
            &[
                ("fmt", Outcome::Failed("cargo ended with exit status: 1".into()), 100),
                ("peer python", Outcome::missing("Python 3.11 is not installed", false), 0),
                ("peer node", Outcome::missing("Node 20 is not installed", true), 0),
            ],
            true,
            expect![[r#"
                FAILED   fmt             0.1 s  cargo ended with exit status: 1
                skipped  peer python     0.0 s  Python 3.11 is not installed
                FAILED   peer node       0.0 s  Node 20 is not installed (CI=true: nothing may be skipped)

                0 passed, 2 failed, 1 skipped"#]],
        );
    }
}
