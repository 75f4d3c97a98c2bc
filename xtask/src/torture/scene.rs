//! Where a round takes place: a project, a home for Bowline beside it, and the records of the actors. It is removed in the
//! end, whatever came of the round.

use super::agent::AgentPlan;
use super::style::Style;
use anyhow::Context as _;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// So many lines of what Bowline told are shown where something failed.
const MOST_NOTICES: usize = 20;

/// The programs under torture.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) bowline: PathBuf,
    /// This program: it starts itself as saving program, agent and engine.
    pub(super) torture: PathBuf,
}

/// The directory of a round.
#[derive(Debug)]
pub(super) struct Scene {
    base: PathBuf,
    pub(super) programs: Programs,
    pub(super) seed: u64,
    pub(super) styles: Vec<Style>,
}

impl Scene {
    /// Makes the directories and the files that the saving programs work on.
    pub(super) fn create(
        scratch: &Path,
        programs: &Programs,
        seed: u64,
        styles: &[Style],
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(scratch)?;
        let base = scratch.canonicalize()?.join(format!("{}-{seed}", std::process::id()));
        let scene = Self { base, programs: programs.clone(), seed, styles: styles.to_vec() };
        for directory in [scene.project(), scene.home(), scene.base.join("records"), scene.agent_records()] {
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        for style in styles {
            let text = format!("# {}\nagent -\n-\nshared one\nshared two\n-\n", style.name());
            fs::write(scene.file(*style), text)?;
        }
        Ok(scene)
    }

    pub(super) fn project(&self) -> PathBuf {
        self.base.join("project")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    pub(super) fn file(&self, style: Style) -> PathBuf {
        self.project().join(style.file_name())
    }

    /// Where an actor records what it does.
    pub(super) fn record(&self, actor: &str) -> PathBuf {
        self.base.join("records").join(actor)
    }

    /// Where the agent records what it does, a file for each style.
    pub(super) fn agent_records(&self) -> PathBuf {
        self.base.join("agent")
    }

    /// The file whose existence ends the round.
    pub(super) fn stop(&self) -> PathBuf {
        self.base.join("stop")
    }

    /// The file that saving programs, editor and agent lock where they write to the disk beside Bowline.
    pub(super) fn lock(&self) -> PathBuf {
        self.base.join("lock")
    }

    /// What Bowline told its user, of all processes.
    pub(super) fn notices(&self) -> PathBuf {
        self.base.join("notices")
    }

    /// Returns the last of what Bowline and the others told their user.
    pub(super) fn last_notices(&self) -> String {
        let notices = fs::read_to_string(self.notices()).unwrap_or_default();
        let skipped = notices.lines().count().saturating_sub(MOST_NOTICES);
        notices.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }

    /// Returns how much the agent has done, in bytes of its records.
    pub(super) fn agent_progress(&self) -> u64 {
        let length = |style: &Style| {
            fs::metadata(self.agent_records().join(style.name())).map_or(0, |found| found.len())
        };
        self.styles.iter().map(length).sum()
    }

    /// Ends the round for every actor.
    pub(super) fn end_round(&self) {
        // Where not even an empty file can be made, the actors end by the failures of their own files.
        File::create(self.stop()).ok();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop().exists()
    }

    /// Returns what the agent does in its process of a number.
    pub(super) fn agent_plan(&self, process: u64, operations: usize) -> AgentPlan {
        AgentPlan {
            project: self.project(),
            styles: self.styles.clone(),
            seed: self.seed.wrapping_mul(1000).wrapping_add(process),
            operations,
            records: self.agent_records(),
            stop: self.stop(),
            direct: None,
        }
    }

    /// Returns a program with nothing of the caller's environment but the search path. It tells its user in [`notices`].
    ///
    /// [`notices`]: Self::notices
    pub(super) fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let notices = OpenOptions::new().append(true).create(true).open(self.notices())?;
        let mut command = Command::new(program);
        command.current_dir(self.project()).env_clear().env("HOME", self.home());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(notices);
        Ok(command)
    }

    /// Runs `bowline` to its end.
    pub(super) fn bowline(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.command(&self.programs.bowline)?;
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().with_context(|| format!("cannot run bowline {}", arguments.join(" ")))
    }

    /// Adds what a command told its user.
    pub(super) fn add_notice(&self, text: &[u8]) -> anyhow::Result<()> {
        use std::io::Write as _;
        let mut notices: File = OpenOptions::new().append(true).create(true).open(self.notices())?;
        Ok(notices.write_all(text)?)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // What cannot be removed lies below a directory that is for this alone.
        fs::remove_dir_all(&self.base).ok();
    }
}
