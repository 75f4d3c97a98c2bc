//! The summary of a run: a table of its steps, and a closing line for machines.

use std::fmt;
use std::time::{Duration, Instant};

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// The step succeeded.
    Passed,
    /// The step failed, with the reason.
    Failed(String),
    /// The step is impossible on this machine, with the reason.
    Skipped(String),
}

impl StepOutcome {
    /// Converts a result into `Passed` or `Failed`.
    pub fn from_result(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }

    /// Returns the outcome of a step whose prerequisite is missing: skipped for a person, failed in an unattended run.
    pub fn missing(what: impl Into<String>, ci: bool) -> Self {
        let what = what.into();
        if ci {
            Self::Failed(format!("{what} (CI=true: nothing may be skipped)"))
        } else {
            Self::Skipped(what)
        }
    }
}

/// A row of the table: one step.
#[derive(Debug, Clone)]
pub struct SummaryRow {
    /// The step's name.
    pub name: String,
    /// How it ended.
    pub outcome: StepOutcome,
    /// How long it took.
    pub time: Duration,
}

impl SummaryRow {
    /// Runs an action, and records its outcome and duration.
    pub fn timed(name: impl Into<String>, action: impl FnOnce() -> StepOutcome) -> Self {
        let start = Instant::now();
        let outcome = action();
        Self { name: name.into(), outcome, time: start.elapsed() }
    }
}

/// The steps of a run, in the order in which they ran.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    /// The steps.
    pub rows: Vec<SummaryRow>,
}

impl RunSummary {
    /// Returns whether any step failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, StepOutcome::Failed(_)))
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for SummaryRow { name, outcome, time } in &self.rows {
            let (word, why, count) = match outcome {
                StepOutcome::Passed => ("ok", "", &mut passed),
                StepOutcome::Failed(why) => ("FAILED", why.as_str(), &mut failed),
                StepOutcome::Skipped(why) => ("skipped", why.as_str(), &mut skipped),
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
    use super::{RunSummary, StepOutcome, SummaryRow};
    use expect_test::{Expect, expect};
    use std::time::Duration;

    fn check(rows: &[(&str, StepOutcome, u64)], failed: bool, expected: Expect) {
        let row = |(name, outcome, millis): &(&str, StepOutcome, u64)| SummaryRow {
            name: (*name).to_owned(),
            outcome: outcome.clone(),
            time: Duration::from_millis(*millis),
        };
        let summary = RunSummary { rows: rows.iter().map(row).collect() };
        assert_eq!(summary.has_failures(), failed);
        expected.assert_eq(&summary.to_string());
    }

    #[test]
    fn a_clean_run_ends_with_its_counts() {
        check(
            &[("fmt", StepOutcome::Passed, 340), ("clippy", StepOutcome::Passed, 61_000)],
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
                ("fmt", StepOutcome::Failed("cargo ended with exit status: 1".into()), 100),
                ("peer python", StepOutcome::missing("Python 3.11 is not installed", false), 0),
                ("peer node", StepOutcome::missing("Node 20 is not installed", true), 0),
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
