//! The directory of a round: a project, a home directory for Bowline, and the records of the actors.
//!
//! It is removed when the round ends, with or without success.

use super::agent::TortureAgentOptions;
use super::style::SaveStyle;
use anyhow::Context as _;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The number of Bowline's last messages that a failure shows.
const MAX_NOTICES: usize = 20;

/// The programs under torture.
#[derive(Debug, Clone)]
pub(super) struct TorturePrograms {
    pub(super) bowline: PathBuf,
    /// This program: it starts itself as saving program, agent and engine.
    pub(super) torture: PathBuf,
}

/// The directory of a round.
#[derive(Debug)]
pub(super) struct RoundDir {
    base: PathBuf,
    pub(super) programs: TorturePrograms,
    pub(super) seed: u64,
    pub(super) styles: Vec<SaveStyle>,
}

impl RoundDir {
    /// Creates the directories, and the files of the saving programs.
    pub(super) fn create(
        scratch: &Path,
        programs: &TorturePrograms,
        seed: u64,
        styles: &[SaveStyle],
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(scratch)?;
        let base = scratch.canonicalize()?.join(format!("{}-{seed}", std::process::id()));
        let scene = Self { base, programs: programs.clone(), seed, styles: styles.to_vec() };
        for directory in [scene.project(), scene.home(), scene.base.join("records"), scene.agent_record_dir()]
        {
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        for style in styles {
            let text = format!("# {}\nagent -\n-\nshared one\nshared two\n-\n", style.name());
            fs::write(scene.saved_file(*style), text)?;
        }
        Ok(scene)
    }

    pub(super) fn project(&self) -> PathBuf {
        self.base.join("project")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    pub(super) fn saved_file(&self, style: SaveStyle) -> PathBuf {
        self.project().join(style.file_name())
    }

    /// Returns the file in which an actor records its events.
    pub(super) fn record_file(&self, actor: &str) -> PathBuf {
        self.base.join("records").join(actor)
    }

    /// Returns the directory in which the agent records its events, with a file for each style.
    pub(super) fn agent_record_dir(&self) -> PathBuf {
        self.base.join("agent")
    }

    /// Returns the file whose existence ends the round.
    pub(super) fn stop_file(&self) -> PathBuf {
        self.base.join("stop")
    }

    /// Returns the file that saving programs, editor and agent lock when they write to the disk without Bowline.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.base.join("lock")
    }

    /// Returns the file with all messages of Bowline's processes to their user.
    pub(super) fn notices_file(&self) -> PathBuf {
        self.base.join("notices")
    }

    /// Returns the last messages of Bowline and the other programs to their user.
    pub(super) fn last_notices(&self) -> String {
        let notices = fs::read_to_string(self.notices_file()).unwrap_or_default();
        let skipped = notices.lines().count().saturating_sub(MAX_NOTICES);
        notices.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }

    /// Returns the agent's progress, as the size of its records in bytes.
    pub(super) fn agent_progress(&self) -> u64 {
        let length = |style: &SaveStyle| {
            fs::metadata(self.agent_record_dir().join(style.name())).map_or(0, |found| found.len())
        };
        self.styles.iter().map(length).sum()
    }

    /// Ends the round for every actor.
    pub(super) fn end_round(&self) {
        // If not even an empty file can be created, the actors fail on their own files.
        File::create(self.stop_file()).ok();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop_file().exists()
    }

    /// Returns the options of the agent's process with the given number.
    pub(super) fn agent_options(&self, process: u64, operations: usize) -> TortureAgentOptions {
        TortureAgentOptions {
            project: self.project(),
            styles: self.styles.clone(),
            seed: self.seed.wrapping_mul(1000).wrapping_add(process),
            operations,
            records: self.agent_record_dir(),
            stop: self.stop_file(),
            direct: None,
        }
    }

    /// Returns a command that inherits only the search path from the caller's environment. Its messages to the user go
    /// to [`notices_file`].
    ///
    /// [`notices_file`]: Self::notices_file
    pub(super) fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let notices = OpenOptions::new().append(true).create(true).open(self.notices_file())?;
        let mut command = Command::new(program);
        command.current_dir(self.project()).env_clear().env("HOME", self.home());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(notices);
        Ok(command)
    }

    /// Runs `bowline` to completion.
    pub(super) fn run_bowline(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.command(&self.programs.bowline)?;
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().with_context(|| format!("cannot run bowline {}", arguments.join(" ")))
    }

    /// Appends a command's messages to the user.
    pub(super) fn add_notice(&self, text: &[u8]) -> anyhow::Result<()> {
        use std::io::Write as _;
        let mut notices: File = OpenOptions::new().append(true).create(true).open(self.notices_file())?;
        Ok(notices.write_all(text)?)
    }
}

impl Drop for RoundDir {
    fn drop(&mut self) {
        // Leftovers are harmless, since the parent directory is used only for this.
        fs::remove_dir_all(&self.base).ok();
    }
}
