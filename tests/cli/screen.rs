//! The screen fixture: the real program in a real pseudo-terminal, in the project of a [`CliFixture`].

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use bowline_tests::pty::{PtySession, terminal_command};
use test_support::wait::wait_until_async;
use tokio::process::Child;

use crate::fixture::{CliFixture, bowline};

/// The program in a terminal.
pub(crate) struct Screen {
    session: PtySession,
}

impl Screen {
    /// Starts the program in a terminal of 80 columns and 24 rows.
    pub(crate) fn start(scene: &CliFixture, arguments: &[&str]) -> Self {
        Self::start_with(scene, arguments, &[])
    }

    /// Starts it with additional environment variables.
    pub(crate) fn start_with(scene: &CliFixture, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let command = terminal_command(&bowline(), &scene.project(), &scene.home());
        let command = command.args(arguments).envs(variables.iter().copied());
        Self { session: PtySession::start(command) }
    }

    /// Starts it from a shell that ignores the end of its terminal, and so does not pass it on.
    pub(crate) fn start_below_shell(scene: &CliFixture, arguments: &[&str]) -> Self {
        let command = terminal_command(Path::new("/bin/sh"), &scene.project(), &scene.home());
        let command = command.args(["-c", "trap '' HUP; \"$@\"; exit", "sh"]).arg(bowline()).args(arguments);
        Self { session: PtySession::start(command) }
    }

    /// Closes the terminal, as a connection that breaks does, and returns the program.
    pub(crate) fn hang_up(self) -> Child {
        self.session.hang_up()
    }
}

impl Deref for Screen {
    type Target = PtySession;

    fn deref(&self) -> &PtySession {
        &self.session
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut PtySession {
        &mut self.session
    }
}

/// Returns the ids of a process's descendants.
pub(crate) fn descendants(process: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![process];
    while let Some(parent) = open.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(
                children.split_whitespace().filter_map(|id| id.parse().ok()).filter(|id| found.insert(*id)),
            );
        }
    }
    found
}

/// Returns the process of Bowline's own agent below a process, as opposed to its supervisors.
pub(crate) fn find_agent_descendant(process: u32) -> Option<u32> {
    descendants(process).into_iter().find(|id| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"agent")
    })
}

/// Returns whether a process is running. A zombie is not.
pub(crate) fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

/// Waits until a process is stopped.
pub(crate) async fn wait_until_stopped(process: u32) {
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('T'))
    };
    wait_until_async(&format!("the stop of process {process}"), is_stopped).await;
}
