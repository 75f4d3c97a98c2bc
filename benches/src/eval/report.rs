//! The report of an evaluation: a table for people and one JSON object for programs.

use serde_json::json;

use super::TaskSet;
use crate::wire::align;

/// The result of one task.
#[derive(Debug)]
pub struct TaskAttempt {
    /// The task's name.
    pub name: String,
    /// The set of the task.
    pub set: TaskSet,
    /// Why the task is not solved, if it is not.
    pub failure: Option<String>,
    /// How long the agent took.
    pub seconds: f64,
    /// The titles of the agent's tool calls, in order.
    pub calls: Vec<String>,
    /// The agent's messages.
    pub said: String,
}

impl TaskAttempt {
    /// Describes the result for progress output: with the agent's messages if the task is not solved.
    pub(super) fn describe(&self) -> String {
        let calls = self.calls.join("; ");
        match &self.failure {
            None => format!("solved ({calls})"),
            Some(why) => format!("NOT solved: {why} ({calls})\n{}", quote_end(&self.said)),
        }
    }
}

/// Returns the end of a long message, which is its most informative part.
fn quote_end(said: &str) -> String {
    const MOST: usize = 2000;
    let start = said.ceil_char_boundary(said.len().saturating_sub(MOST));
    said[start..].lines().map(|line| format!("         > {line}\n")).collect()
}

/// The results of all tasks.
#[derive(Debug)]
pub struct EvalReport {
    model: String,
    seed: u64,
    attempts: Vec<TaskAttempt>,
}

impl EvalReport {
    /// Creates the report for a model and a seed, with the tasks in this order.
    pub fn new(model: String, seed: u64, attempts: Vec<TaskAttempt>) -> Self {
        Self { model, seed, attempts }
    }

    /// Returns a row for each task.
    pub fn table(&self) -> String {
        let mut rows = vec![["task", "set", "seconds", "tool calls"].map(str::to_owned).to_vec()];
        rows.extend(self.attempts.iter().map(|attempt| {
            let (set, seconds) = (attempt.set.name().to_owned(), format!("{:.1}", attempt.seconds));
            vec![attempt.name.clone(), set, seconds, attempt.calls.len().to_string()]
        }));
        let ends = self.attempts.iter().map(|attempt| attempt.failure.as_deref().unwrap_or("solved"));
        let table = align(&rows);
        let lines = table.lines().zip(std::iter::once("").chain(ends));
        lines.map(|(line, end)| format!("{line}  {end}").trim_end().to_owned() + "\n").collect()
    }

    /// Returns the number of tasks in a set, and how many of them are solved.
    fn score(&self, set: TaskSet) -> serde_json::Value {
        let of_set = || self.attempts.iter().filter(|attempt| attempt.set == set);
        let solved = of_set().filter(|attempt| attempt.failure.is_none()).count();
        json!({ "tasks": of_set().count(), "solved": solved })
    }

    /// Returns the summary in one line.
    pub fn summary(&self) -> String {
        let solved = self.attempts.iter().filter(|attempt| attempt.failure.is_none()).count();
        let seconds: f64 = self.attempts.iter().map(|attempt| attempt.seconds).sum();
        let calls: usize = self.attempts.iter().map(|attempt| attempt.calls.len()).sum();
        let failed: Vec<&str> = self
            .attempts
            .iter()
            .filter(|attempt| attempt.failure.is_some())
            .map(|attempt| attempt.name.as_str())
            .collect();
        let seconds = (seconds * 10.0).round() / 10.0;
        json!({
            "model": self.model, "seed": self.seed, "tasks": self.attempts.len(), "solved": solved,
            "tuning": self.score(TaskSet::Tuning), "held_out": self.score(TaskSet::HeldOut), "failed": failed,
            "seconds": seconds, "tool_calls": calls,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::{EvalReport, TaskAttempt, TaskSet};

    #[test]
    fn the_last_line_says_how_many_are_solved() {
        let result = |name: &str, set, failure: Option<&str>, seconds, calls: &[&str]| TaskAttempt {
            name: name.to_owned(),
            set,
            failure: failure.map(str::to_owned),
            seconds,
            calls: calls.iter().map(ToString::to_string).collect(),
            said: "It is\ndone.".to_owned(),
        };
        let results = vec![
            result("answer", TaskSet::Tuning, None, 12.34, &["Read notes.txt"]),
            result(
                "rename",
                TaskSet::HeldOut,
                Some("greet is still in main.sh"),
                100.0,
                &["List", "Read main.sh"],
            ),
        ];
        let verdicts: String = results.iter().map(|attempt| attempt.describe() + "\n").collect();
        let report = EvalReport::new("compatible/small".to_owned(), 7, results);
        expect![[r#"
            solved (Read notes.txt)
            NOT solved: greet is still in main.sh (List; Read main.sh)
                     > It is
                     > done.

            task         set  seconds  tool calls
            answer    tuning     12.3           1  solved
            rename  held-out    100.0           2  greet is still in main.sh
            {"model":"compatible/small","seed":7,"tasks":2,"solved":1,"tuning":{"tasks":1,"solved":1},"held_out":{"tasks":1,"solved":0},"failed":["rename"],"seconds":112.3,"tool_calls":3}
        "#]].assert_eq(&format!("{verdicts}{}{}\n", report.table(), report.summary()));
    }
}
