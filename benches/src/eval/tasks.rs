//! The tasks: the files in the project, the prompt, and the check of the result.
//!
//! Names, numbers, paths and wording come from a seed, so that an agent cannot be tuned to one text. A third of the
//! tasks is held out: their results are only reported, and never used to tune prompts and tools.

mod answers;
mod edits;
mod repairs;
mod words;

use anyhow::{Result, bail};
use test_support::host_harness::HostHarness;

pub(super) use words::SeededWords;

/// The state after the agent's turn.
pub(super) struct TaskResult<'a> {
    /// The project.
    pub(super) lab: &'a HostHarness,
    /// The agent's messages.
    pub(super) answer: &'a str,
}

/// The set that a task belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskSet {
    /// Used to tune prompts and tools.
    Tuning,
    /// Used only for the report.
    HeldOut,
}

impl TaskSet {
    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tuning => "tuning",
            Self::HeldOut => "held-out",
        }
    }
}

/// Returns the defect of a result, if any.
type ResultCheck = Box<dyn Fn(&TaskResult<'_>) -> Option<String>>;

/// A task.
pub(super) struct EvalTask {
    pub(super) name: &'static str,
    pub(super) set: TaskSet,
    pub(super) description: &'static str,
    /// The project's files.
    pub(super) files: Vec<(String, String)>,
    /// A file that is open in an editor, and its unsaved text.
    pub(super) unsaved: Option<(String, String)>,
    /// The prompt for a model.
    pub(super) prompt: String,
    /// The prompt for the offline model, which understands only commands.
    pub(super) offline_prompt: String,
    pub(super) check: ResultCheck,
    /// A command that must succeed after the turn.
    pub(super) success_command: Option<String>,
}

impl EvalTask {
    /// Creates a task with an empty project that accepts every result.
    fn new(name: &'static str, set: TaskSet, about: &'static str) -> Self {
        Self {
            name,
            set,
            description: about,
            files: Vec::new(),
            unsaved: None,
            prompt: String::new(),
            offline_prompt: String::new(),
            check: Box::new(|_| None),
            success_command: None,
        }
    }

    fn with_file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    fn with_unsaved(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.unsaved = Some((name.into(), text.into()));
        self
    }

    fn with_prompt(mut self, prompt: impl Into<String>, by_hand: impl Into<String>) -> Self {
        (self.prompt, self.offline_prompt) = (prompt.into(), by_hand.into());
        self
    }

    fn with_check(mut self, judge: impl Fn(&TaskResult<'_>) -> Option<String> + 'static) -> Self {
        self.check = Box::new(judge);
        self
    }

    /// Requires the answer to contain a word.
    fn expect_answer(self, word: impl Into<String>) -> Self {
        let word = word.into();
        self.with_check(move |ended| {
            (!ended.answer.contains(&word)).then(|| format!("the answer does not name {word}"))
        })
    }

    /// Requires a file to have this text, except for trailing white space.
    fn expect_file(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let (name, text) = (name.into(), text.into());
        self.with_check(move |ended| check_file(ended, &name, &text))
    }

    fn expect_success(mut self, command: impl Into<String>) -> Self {
        self.success_command = Some(command.into());
        self
    }
}

/// Returns every task for a seed, the simplest first.
fn all_tasks(seed: u64) -> Vec<EvalTask> {
    let words = SeededWords::new(seed);
    [answers::answer_tasks(&words), edits::edit_tasks(&words), repairs::repair_tasks(&words)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the tasks for a seed: of one set or both, or only the one with this name.
pub(super) fn select_tasks(seed: u64, set: Option<TaskSet>, only: Option<&str>) -> Result<Vec<EvalTask>> {
    let mut chosen = all_tasks(seed);
    if let Some(only) = only {
        let names: Vec<_> = chosen.iter().map(|challenge| challenge.name).collect();
        if !names.contains(&only) {
            bail!("no task `{only}`; there are: {}", names.join(", "));
        }
    }
    chosen.retain(|challenge| {
        set.is_none_or(|set| set == challenge.set) && only.is_none_or(|only| only == challenge.name)
    });
    Ok(chosen)
}

fn check_file(ended: &TaskResult<'_>, name: &str, text: &str) -> Option<String> {
    match ended.lab.read_file(name) {
        Ok(found) if found.trim_end() == text.trim_end() => None,
        Ok(found) => Some(format!("{name} holds {found:?}")),
        Err(_) => Some(format!("there is no {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_tasks_is_held_out_and_names_are_unique() {
        let tasks = all_tasks(1);
        let held_out = tasks.iter().filter(|task| task.set == TaskSet::HeldOut).count();
        assert_eq!((tasks.len(), held_out), (24, 8));
        let mut names: Vec<_> = tasks.iter().map(|task| task.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 24);
    }

    #[test]
    fn a_seed_changes_every_task_and_is_always_the_same() {
        let prompts = |seed| all_tasks(seed).into_iter().map(|task| task.prompt).collect::<Vec<_>>();
        assert_eq!(prompts(1), prompts(1));
        let first = prompts(1);
        let others: Vec<_> = (2..12).map(prompts).collect();
        let is_drawn = |at: usize| others.iter().any(|other| other[at] != first[at]);
        assert!((0..first.len()).all(is_drawn));
    }
}
