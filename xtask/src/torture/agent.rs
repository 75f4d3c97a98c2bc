//! An agent that reads and writes the files of all saving programs as fast as it can, and never removes a user's line.

use super::random::Random;
use super::record::Recorder;
use super::style::{Style, is_user_line};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// So many lines of its own the agent keeps in a file.
const MOST_LINES: usize = 12;

/// What an agent does.
#[derive(Debug, Clone, clap::Args)]
pub struct AgentPlan {
    /// The directory of the files
    #[arg(long)]
    pub project: PathBuf,
    /// Whose files it works on
    #[arg(long, required = true, value_delimiter = ',')]
    pub styles: Vec<Style>,
    /// The seed of the round and the number of the process in it
    #[arg(long)]
    pub seed: u64,
    /// How many writes a turn has
    #[arg(long)]
    pub operations: usize,
    /// The directory in which it records what it does, a file for each style
    #[arg(long)]
    pub records: PathBuf,
    /// A file whose existence ends it
    #[arg(long)]
    pub stop: PathBuf,
    /// Writes to the disk itself, with this file locked, in place of asking the client
    #[arg(long)]
    pub direct: Option<PathBuf>,
}

/// What a read came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The text.
    Text(String),
    /// There is no such file.
    Missing,
    /// It was refused.
    Refused(String),
}

/// What a write came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Done, and the answer does not mention a merge.
    Written,
    /// Done, merged with changes of others.
    Merged,
    /// It was refused.
    Refused(String),
}

/// How an agent reaches files.
pub trait Files {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails when the other side is gone.
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome>;

    /// Writes a file.
    ///
    /// # Errors
    /// Fails when the other side is gone.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome>;
}

/// One process of the agent, over all its turns.
pub struct Agent {
    plan: AgentPlan,
    random: Random,
    // Invariant: there is one for each style of the plan.
    records: BTreeMap<Style, Recorder>,
    lines: usize,
    // What was sent last, by file: an agent may write again without a look.
    sent: BTreeMap<Style, String>,
}

impl Agent {
    /// Starts an agent.
    ///
    /// # Errors
    /// Fails when the record cannot be opened.
    pub fn new(plan: &AgentPlan) -> io::Result<Self> {
        let random = Random::new(plan.seed, "agent");
        let open = |style: &Style| Ok((*style, Recorder::open(&plan.records.join(style.name()))?));
        let records = plan.styles.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { plan: plan.clone(), random, records, lines: 0, sent: BTreeMap::new() })
    }

    /// Whether the round is over.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.plan.stop.exists()
    }

    /// Reads and writes for one turn, or until the round is over.
    ///
    /// # Errors
    /// Fails when the other side is gone.
    pub fn work(&mut self, files: &mut dyn Files) -> io::Result<()> {
        for _ in 0..self.plan.operations {
            if self.is_stopped() {
                return Ok(());
            }
            let style = self.choose_style();
            let path = self.plan.project.join(style.file_name());
            let known = self.sent.get(&style).cloned().filter(|_| self.random.percent(25));
            let text = match known {
                Some(sent) => sent,
                None => match self.read(files, style, &path)? {
                    Some(text) => text,
                    None => continue,
                },
            };
            let new = self.rewrite(&text);
            let outcome = files.write(&path, &new)?;
            let said = match &outcome {
                WriteOutcome::Written => "wrote",
                WriteOutcome::Merged => "merged",
                WriteOutcome::Refused(_) => "refused",
            };
            let why = match &outcome {
                WriteOutcome::Refused(why) => format!(": {}", why.chars().take(120).collect::<String>()),
                _ => String::new(),
            };
            self.note(style, &format!("{said} {}{why}", describe_text(&new)))?;
            match outcome {
                WriteOutcome::Refused(_) => drop(self.sent.remove(&style)),
                _ => drop(self.sent.insert(style, new)),
            }
        }
        Ok(())
    }

    fn read(&mut self, files: &mut dyn Files, style: Style, path: &Path) -> io::Result<Option<String>> {
        match files.read(path)? {
            ReadOutcome::Text(text) => {
                self.note(style, &format!("read {}", describe_text(&text)))?;
                Ok(Some(text))
            }
            // As agents do: a file that is not there is made.
            ReadOutcome::Missing if self.random.percent(50) => {
                self.note(style, "read: there is no such file, creates it")?;
                Ok(Some(String::new()))
            }
            ReadOutcome::Missing => {
                self.note(style, "read: there is no such file")?;
                Ok(None)
            }
            ReadOutcome::Refused(why) => {
                self.note(style, &format!("read refused: {why}"))?;
                Ok(None)
            }
        }
    }

    pub(super) fn choose_style(&mut self) -> Style {
        let at = self.random.below(self.plan.styles.len());
        self.plan.styles.get(at).copied().unwrap_or(Style::InPlace)
    }

    pub(super) fn note(&mut self, style: Style, text: &str) -> io::Result<()> {
        self.records.get_mut(&style).map_or(Ok(()), |record| record.record(style.name(), text))
    }

    pub(super) fn plan(&self) -> &AgentPlan {
        &self.plan
    }

    /// Returns a text with one line of the agent more: most often where its lines are, at times between the user's. Old
    /// lines of its own go, the others stay byte for byte, also one that is not complete.
    pub(super) fn rewrite(&mut self, text: &str) -> String {
        self.lines += 1;
        let new = format!("agent {}-{}\n", std::process::id(), self.lines);
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let own: Vec<usize> = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.starts_with("agent "))
            .map(|(at, _)| at)
            .collect();
        let first = own.first().copied();
        if own.len() >= MOST_LINES {
            let oldest = own.get(self.random.below(own.len())).copied().unwrap_or_default();
            lines.remove(oldest);
        }
        let last_is_complete = lines.last().is_none_or(|line| line.ends_with('\n'));
        let end = if last_is_complete { lines.len() } else { lines.len() - 1 };
        let at = match first {
            Some(first) if self.random.percent(70) => first.min(end),
            _ => self.random.below(end + 1),
        };
        lines.insert(at, &new);
        lines.concat()
    }
}

/// Says how much text there is and which line of the user is the newest in it.
pub(super) fn describe_text(text: &str) -> String {
    let user = text.lines().filter(|line| is_user_line(line));
    let newest = user.clone().filter_map(|line| line.split(' ').next()).max().unwrap_or("none");
    format!("{} bytes, {} user lines, newest {newest}", text.len(), user.count())
}

#[cfg(test)]
mod tests {
    use super::{Agent, AgentPlan};
    use crate::torture::style::Style;

    #[test]
    fn an_agent_removes_no_line_of_a_user() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = AgentPlan {
            project: scratch.path().to_owned(),
            styles: vec![Style::Held],
            seed: 1,
            operations: 1,
            records: scratch.path().to_owned(),
            stop: scratch.path().join("stop"),
            direct: None,
        };
        let mut agent = Agent::new(&plan).unwrap();
        let mut text = "# held\nheld-1-000001 a\nheld-1-000002 b\nheld-1-0000".to_owned();
        let user = |text: &str| {
            let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("agent "));
            lines.collect::<String>()
        };
        let before = user(&text);
        for _ in 0..100 {
            text = agent.rewrite(&text);
            assert_eq!(user(&text), before);
        }
        assert!(text.matches("agent ").count() <= super::MOST_LINES);
    }
}
