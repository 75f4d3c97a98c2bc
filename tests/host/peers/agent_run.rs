//! A run of a third-party agent: started over real pipes with a home of its own, prompted, and shut down. The result is
//! one text.

use bowline_access::audit;
use bowline_history::changes::ChangeSource;
use bowline_history::undo::ChangeSelection;
use bowline_host::{Connection, HostSession, SessionOptions};
use bowline_policy::audit::{AuditAction, AuditSubject};
use bowline_protocol::accumulator::MessageKind;
use bowline_wire::ShutdownGrace;
use bowline_workspace::workspace::Workspace;
use test_support::TEST_TIMEOUT;
use test_support::host_harness::HostHarness;
use test_support::processes::processes_in;
use test_support::wait::wait_until_async;
use tokio::process::Command;

/// A running agent in a harness.
pub(crate) struct PeerAgentRun {
    pub(crate) lab: HostHarness,
    pub(crate) session: HostSession,
    connection: Connection,
    /// The part that has already been reported.
    reported: ReportCursor,
}

#[derive(Default)]
struct ReportCursor {
    messages: usize,
    calls: usize,
    questions: usize,
    shown: usize,
    changes: usize,
    entries: usize,
}

impl PeerAgentRun {
    /// Starts an agent whose environment has only a home, a path and `variables`, and opens a session.
    pub(crate) async fn start(lab: HostHarness, command: &[String], variables: &[(&str, &str)]) -> Self {
        let home = lab.base().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let mut agent = Command::new(&command[0]);
        agent.args(&command[1..]).current_dir(lab.path("")).env_clear();
        agent
            .env("HOME", &home)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(variables.iter().copied());
        let connection = with_timeout(lab.host.spawn(agent)).await.unwrap();
        let session = with_timeout(connection.new_session(SessionOptions::default())).await.unwrap();
        Self { lab, session, connection, reported: ReportCursor::default() }
    }

    /// Continues with another session in the same connection.
    pub(crate) async fn open_another_session(&mut self) {
        self.session = with_timeout(self.connection.new_session(SessionOptions::default())).await.unwrap();
        (self.reported.messages, self.reported.calls) = (0, 0);
    }

    /// Sends a prompt, and reports the result.
    pub(crate) async fn turn(&mut self, prompt: &str) -> String {
        let end = with_timeout(self.session.prompt_text(prompt)).await;
        let end = match end {
            Ok(end) => format!("turn {} ended: {:?}\n", end.turn, end.stop_reason),
            Err(error) => format!("the turn failed: {error}\n"),
        };
        // The exit of a command is recorded when it happens, even if the agent does not wait for it.
        let count = |shown: &[String], what| shown.iter().filter(|event| event.starts_with(what)).count();
        let ended = |shown: &[String]| count(shown, "TerminalStarted") == count(shown, "TerminalEnded");
        with_timeout(self.lab.user.wait_until(|_, shown| ended(shown))).await;
        let told = self.report_news();
        self.normalize(end + &told)
    }

    /// Reports the news: the agent's messages, operations and questions, the changes, and the audit log.
    fn report_news(&mut self) -> String {
        let mut text = String::new();
        let snapshot = self.session.snapshot();
        let said = snapshot.messages().filter(|message| message.kind == MessageKind::Agent);
        for message in said.skip(self.reported.messages) {
            self.reported.messages += 1;
            text += "says\n";
            text.extend(message.text().lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n"));
        }
        for call in snapshot.tool_calls().skip(self.reported.calls) {
            self.reported.calls += 1;
            text += &format!("call {:?} {:?}: {}\n", call.kind, call.status, call.title);
        }
        for question in self.lab.user.questions().iter().skip(self.reported.questions) {
            self.reported.questions += 1;
            text += "question\n";
            text.extend(question.to_text().lines().map(|line| format!("  {line}\n")));
        }
        let shown = self.lab.user.events();
        for event in &shown[self.reported.shown..] {
            if event.starts_with("Violation") || event.starts_with("Notice") {
                text += &format!("! {event}\n");
            }
        }
        self.reported.shown = shown.len();
        let changes = self.lab.host.workspace().changes(&ChangeSelection::default()).unwrap();
        for changed in &changes[self.reported.changes..] {
            let origin = &changed.change.origin;
            let who = match (origin.session.as_deref(), origin.turn) {
                (Some(session), Some(turn)) => format!("{session} in turn {turn}"),
                (Some(session), None) => format!("{session} between turns"),
                // Unsaved text of an editor belongs to the user, and is saved before an agent's change.
                (None, _) => "no session".to_owned(),
            };
            let how = if changed.change.source == ChangeSource::Written { "wrote" } else { "found" };
            let by = origin.command.as_ref().map(|command| format!(" with {command}")).unwrap_or_default();
            text += &format!("journal: {how} {} by {who}{by}\n", changed.change.path);
        }
        self.reported.changes = changes.len();
        text + &self.report_log()
    }

    /// Reports the operations in the audit log since the last report.
    fn report_log(&mut self) -> String {
        let (directory, _) = self.audit_paths();
        let entries: Vec<_> = audit::read_entries(&directory, audit::AuditFilter::default())
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        let mut lines = Vec::new();
        for record in &entries[self.reported.entries..] {
            let entry = &record.entry;
            assert_eq!(entry.session.as_deref(), Some(&*self.session.id().0), "{entry:?}");
            let subject = match &entry.subject {
                AuditSubject::Path { requested: asked, .. } => asked,
                AuditSubject::Command { line, .. } => line,
                AuditSubject::Url(text) | AuditSubject::Text(text) => text,
                AuditSubject::None => "",
            };
            let its_name = matches!(entry.action, AuditAction::TerminalKill | AuditAction::TerminalRelease);
            let subject = if its_name { "the terminal" } else { subject };
            let exit = entry.exit.as_deref().map(|exit| format!(": {exit}")).unwrap_or_default();
            let line =
                format!("audit: {} {} by {} {subject}{exit}", entry.action, entry.decision, entry.decided_by);
            let of_a_command = matches!(entry.action, AuditAction::TerminalExit | AuditAction::Observed);
            lines.push((of_a_command, line.trim_end().to_owned() + "\n"));
        }
        // An agent may release a terminal before or after the exit of its command is recorded.
        lines.sort_by_key(|(of_a_command, _)| *of_a_command);
        let text = lines.into_iter().map(|(_, line)| line).collect();
        self.reported.entries = entries.len();
        text
    }

    fn audit_paths(&self) -> (std::path::PathBuf, std::path::PathBuf) {
        let places = self.lab.paths();
        let journal = Workspace::journal_directory(&places.state, self.lab.host.workspace().roots());
        let anchor = places.anchors.join(journal.file_name().unwrap());
        (journal.join("audit"), anchor)
    }

    /// Replaces the parts of a text that differ between runs.
    fn normalize(&self, text: String) -> String {
        let base = self.lab.base();
        let real = std::fs::canonicalize(base).unwrap();
        let text = replace_times(&text);
        text.replace(&*self.session.id().0, "$SESSION")
            .replace(real.to_str().unwrap(), "$BASE")
            .replace(base.to_str().unwrap(), "$BASE")
    }

    /// Ends the session and the agent. No process may be left running, and the audit log must be intact.
    pub(crate) async fn end(self) {
        let (directory, anchor) = self.audit_paths();
        let Self { lab, session, connection, .. } = self;
        drop(session);
        assert!(!processes_in(lab.base()).is_empty(), "the agent is there until it is shown out");
        let exit =
            with_timeout(connection.shutdown(ShutdownGrace::default())).await.expect("the host started it");
        // Killed processes may take a moment to exit.
        let what = format!("the end of {:?}", processes_in(lab.base()));
        wait_until_async(&what, || processes_in(lab.base()).is_empty()).await;
        let report = audit::verify(&directory, &anchor).unwrap();
        assert!(report.is_intact() && report.notes.is_empty(), "{report:?}\n{exit}");
    }
}

/// Removes numbers that are timestamps, which agents use in the ids of their tool calls.
fn replace_times(text: &str) -> String {
    let is_time = |word: &&str| word.len() >= 13 && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = text.split_inclusive('_').map(|word| match word.strip_suffix('_') {
        Some(number) if is_time(&number) => "$TIME_",
        _ => word,
    });
    words.collect()
}

async fn with_timeout<T>(doing: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, doing).await.expect("it ends")
}
