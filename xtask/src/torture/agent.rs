//! The agent: it reads and writes the files of all saving programs as fast as it can, and never removes a user's line.

use super::random::Random;
use super::record::EventRecorder;
use super::style::{SaveStyle, is_user_line};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The number of its own lines that the agent keeps in a file.
const MAX_OWN_LINES: usize = 12;

/// What an agent does.
#[derive(Debug, Clone, clap::Args)]
pub struct TortureAgentOptions {
    /// The directory of the files
    #[arg(long)]
    pub project: PathBuf,
    /// Whose files it works on
    #[arg(long, required = true, value_delimiter = ',')]
    pub styles: Vec<SaveStyle>,
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

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The file's text.
    Text(String),
    /// The file does not exist.
    Missing,
    /// The read was refused.
    Refused(String),
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Written; the response does not mention a merge.
    Written,
    /// Written, and merged with other changes.
    Merged,
    /// The write was refused.
    Refused(String),
}

/// The agent's access to files.
pub trait AgentFiles {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome>;

    /// Writes a file.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome>;
}

/// One process of the agent, over all its turns.
pub struct TortureAgent {
    options: TortureAgentOptions,
    random: Random,
    // Invariant: one for each style in `options`.
    recorders: BTreeMap<SaveStyle, EventRecorder>,
    line_count: usize,
    // The last text sent, by file: an agent may write again without reading first.
    last_sent: BTreeMap<SaveStyle, String>,
}

impl TortureAgent {
    /// Starts an agent.
    ///
    /// # Errors
    /// Fails when the record cannot be opened.
    pub fn new(plan: &TortureAgentOptions) -> io::Result<Self> {
        let random = Random::new(plan.seed, "agent");
        let open = |style: &SaveStyle| Ok((*style, EventRecorder::open(&plan.records.join(style.name()))?));
        let records = plan.styles.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self {
            options: plan.clone(),
            random,
            recorders: records,
            line_count: 0,
            last_sent: BTreeMap::new(),
        })
    }

    /// Returns whether the round is over.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.options.stop.exists()
    }

    /// Reads and writes for one turn, or until the round is over.
    ///
    /// # Errors
    /// Fails when the connection is closed.
    pub fn work(&mut self, files: &mut dyn AgentFiles) -> io::Result<()> {
        for _ in 0..self.options.operations {
            if self.is_stopped() {
                return Ok(());
            }
            let style = self.choose_style();
            let path = self.options.project.join(style.file_name());
            let known = self.last_sent.get(&style).cloned().filter(|_| self.random.chance(25));
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
            self.record_event(style, &format!("{said} {}{why}", describe_text(&new)))?;
            match outcome {
                WriteOutcome::Refused(_) => drop(self.last_sent.remove(&style)),
                _ => drop(self.last_sent.insert(style, new)),
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        files: &mut dyn AgentFiles,
        style: SaveStyle,
        path: &Path,
    ) -> io::Result<Option<String>> {
        match files.read(path)? {
            ReadOutcome::Text(text) => {
                self.record_event(style, &format!("read {}", describe_text(&text)))?;
                Ok(Some(text))
            }
            // Creates a missing file, as agents do.
            ReadOutcome::Missing if self.random.chance(50) => {
                self.record_event(style, "read: there is no such file, creates it")?;
                Ok(Some(String::new()))
            }
            ReadOutcome::Missing => {
                self.record_event(style, "read: there is no such file")?;
                Ok(None)
            }
            ReadOutcome::Refused(why) => {
                self.record_event(style, &format!("read refused: {why}"))?;
                Ok(None)
            }
        }
    }

    pub(super) fn choose_style(&mut self) -> SaveStyle {
        let at = self.random.below(self.options.styles.len());
        self.options.styles.get(at).copied().unwrap_or(SaveStyle::InPlace)
    }

    pub(super) fn record_event(&mut self, style: SaveStyle, text: &str) -> io::Result<()> {
        self.recorders.get_mut(&style).map_or(Ok(()), |record| record.record(style.name(), text))
    }

    pub(super) fn options(&self) -> &TortureAgentOptions {
        &self.options
    }

    /// Returns the text with one more line of the agent: usually next to its other lines, sometimes between the user's.
    /// Removes old lines of the agent, and keeps all others byte for byte, an incomplete line included.
    pub(super) fn rewrite(&mut self, text: &str) -> String {
        self.line_count += 1;
        let new = format!("agent {}-{}\n", std::process::id(), self.line_count);
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let own: Vec<usize> = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.starts_with("agent "))
            .map(|(at, _)| at)
            .collect();
        let first = own.first().copied();
        if own.len() >= MAX_OWN_LINES {
            let oldest = own.get(self.random.below(own.len())).copied().unwrap_or_default();
            lines.remove(oldest);
        }
        let last_is_complete = lines.last().is_none_or(|line| line.ends_with('\n'));
        let end = if last_is_complete { lines.len() } else { lines.len() - 1 };
        let at = match first {
            Some(first) if self.random.chance(70) => first.min(end),
            _ => self.random.below(end + 1),
        };
        lines.insert(at, &new);
        lines.concat()
    }
}

/// Describes a text by its size and the newest user line in it.
pub(super) fn describe_text(text: &str) -> String {
    let user = text.lines().filter(|line| is_user_line(line));
    let newest = user.clone().filter_map(|line| line.split(' ').next()).max().unwrap_or("none");
    format!("{} bytes, {} user lines, newest {newest}", text.len(), user.count())
}

#[cfg(test)]
mod tests {
    use super::{TortureAgent, TortureAgentOptions};
    use crate::torture::style::SaveStyle;

    #[test]
    fn an_agent_removes_no_line_of_a_user() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = TortureAgentOptions {
            project: scratch.path().to_owned(),
            styles: vec![SaveStyle::Held],
            seed: 1,
            operations: 1,
            records: scratch.path().to_owned(),
            stop: scratch.path().join("stop"),
            direct: None,
        };
        let mut agent = TortureAgent::new(&plan).unwrap();
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
        assert!(text.matches("agent ").count() <= super::MAX_OWN_LINES);
    }
}
