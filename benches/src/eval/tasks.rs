//! The tasks: what lies in the project, what the agent is asked, and how the outcome is judged.
//!
//! Names, numbers, paths and wording come from a seed, so that an agent cannot be tuned to one text. A third of the tasks
//! is held out: it is looked at only to report, never while prompts and tools are tuned.

mod answers;
mod edits;
mod repairs;
mod words;

use anyhow::{Result, bail};
use test_support::lab::Lab;

pub(super) use words::Words;

/// What is there when the agent has ended its turn.
pub(super) struct Ended<'a> {
    /// The project.
    pub(super) lab: &'a Lab,
    /// What the agent said.
    pub(super) said: &'a str,
}

/// Whether a task is one to tune by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// It is.
    Tuning,
    /// It is only for the report.
    HeldOut,
}

impl Set {
    /// Returns its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tuning => "tuning",
            Self::HeldOut => "held-out",
        }
    }
}

/// Returns what is wrong with an outcome.
type Judge = Box<dyn Fn(&Ended<'_>) -> Option<String>>;

/// A task.
pub(super) struct Challenge {
    pub(super) name: &'static str,
    pub(super) set: Set,
    pub(super) about: &'static str,
    /// The project's files.
    pub(super) files: Vec<(String, String)>,
    /// A file that an editor has open, and what was typed into it and not saved.
    pub(super) unsaved: Option<(String, String)>,
    /// What a model is asked.
    pub(super) prompt: String,
    /// What the offline model is told, which knows commands only.
    pub(super) by_hand: String,
    pub(super) judge: Judge,
    /// A command that must then succeed.
    pub(super) command: Option<String>,
}

impl Challenge {
    /// Begins a task with nothing in the project, whatever comes of it.
    fn new(name: &'static str, set: Set, about: &'static str) -> Self {
        Self {
            name,
            set,
            about,
            files: Vec::new(),
            unsaved: None,
            prompt: String::new(),
            by_hand: String::new(),
            judge: Box::new(|_| None),
            command: None,
        }
    }

    fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    fn unsaved(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.unsaved = Some((name.into(), text.into()));
        self
    }

    fn asks(mut self, prompt: impl Into<String>, by_hand: impl Into<String>) -> Self {
        (self.prompt, self.by_hand) = (prompt.into(), by_hand.into());
        self
    }

    fn judged(mut self, judge: impl Fn(&Ended<'_>) -> Option<String> + 'static) -> Self {
        self.judge = Box::new(judge);
        self
    }

    /// The answer has to name this.
    fn says(self, word: impl Into<String>) -> Self {
        let word = word.into();
        self.judged(move |ended| {
            (!ended.said.contains(&word)).then(|| format!("the answer does not name {word}"))
        })
    }

    /// A file has to hold this, but for spaces and line ends after it.
    fn leaves(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let (name, text) = (name.into(), text.into());
        self.judged(move |ended| holds(ended, &name, &text))
    }

    fn passes(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

/// Returns every task for a seed, the simplest first.
fn all(seed: u64) -> Vec<Challenge> {
    let words = Words::new(seed);
    [answers::all(&words), edits::all(&words), repairs::all(&words)].into_iter().flatten().collect()
}

/// Returns the tasks for a seed, of one set or both, or only the one of this name.
pub(super) fn chosen(seed: u64, set: Option<Set>, only: Option<&str>) -> Result<Vec<Challenge>> {
    let mut chosen = all(seed);
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

fn holds(ended: &Ended<'_>, name: &str, text: &str) -> Option<String> {
    match ended.lab.get(name) {
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
        let tasks = all(1);
        let held_out = tasks.iter().filter(|task| task.set == Set::HeldOut).count();
        assert_eq!((tasks.len(), held_out), (24, 8));
        let mut names: Vec<_> = tasks.iter().map(|task| task.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 24);
    }

    #[test]
    fn a_seed_changes_every_task_and_is_always_the_same() {
        let prompts = |seed| all(seed).into_iter().map(|task| task.prompt).collect::<Vec<_>>();
        assert_eq!(prompts(1), prompts(1));
        let first = prompts(1);
        let others: Vec<_> = (2..12).map(prompts).collect();
        let is_drawn = |at: usize| others.iter().any(|other| other[at] != first[at]);
        assert!((0..first.len()).all(is_drawn));
    }
}
