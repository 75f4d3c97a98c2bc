//! A visit of an agent that we did not write: started over real pipes in a home of its own, given prompts, and shown out;
//! all that came of it is one text.

use bowline_host::{Connection, Session, SessionOptions};
use bowline_state::accumulator::MessageKind;
use bowline_state::audit::{Action, Subject};
use bowline_state::changes::Source;
use bowline_state::undo::Selection;
use bowline_wire::Grace;
use bowline_workspace::audit;
use bowline_workspace::workspace::Workspace;
use test_support::PATIENCE;
use test_support::lab::Lab;
use test_support::processes::working_in;
use tokio::process::Command;

/// An agent at work for a lab.
pub(crate) struct Visit {
    pub(crate) lab: Lab,
    pub(crate) session: Session,
    connection: Connection,
    /// What has been told already.
    told: Told,
}

#[derive(Default)]
struct Told {
    messages: usize,
    calls: usize,
    questions: usize,
    shown: usize,
    changes: usize,
    entries: usize,
}

impl Visit {
    /// Starts an agent with nothing in its environment but a home of its own, a path, and `variables`; and opens a session.
    pub(crate) async fn begin(lab: Lab, command: &[String], variables: &[(&str, &str)]) -> Self {
        let home = lab.base().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let mut agent = Command::new(&command[0]);
        agent.args(&command[1..]).current_dir(lab.path("")).env_clear();
        agent
            .env("HOME", &home)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(variables.iter().copied());
        let connection = in_time(lab.host.spawn(agent)).await.unwrap();
        let session = in_time(connection.new_session(SessionOptions::default())).await.unwrap();
        Self { lab, session, connection, told: Told::default() }
    }

    /// Goes on with another session of the same connection.
    pub(crate) async fn another_session(&mut self) {
        self.session = in_time(self.connection.new_session(SessionOptions::default())).await.unwrap();
        (self.told.messages, self.told.calls) = (0, 0);
    }

    /// Sends a prompt, and tells what came of it.
    pub(crate) async fn turn(&mut self, prompt: &str) -> String {
        let end = in_time(self.session.prompt_text(prompt)).await;
        let end = match end {
            Ok(end) => format!("turn {} ended: {:?}\n", end.turn, end.stop),
            Err(error) => format!("the turn failed: {error}\n"),
        };
        // A command's end is recorded when it has ended, whatever the agent waits for.
        let count = |shown: &[String], what| shown.iter().filter(|event| event.starts_with(what)).count();
        let ended = |shown: &[String]| count(shown, "TerminalStarted") == count(shown, "TerminalEnded");
        in_time(self.lab.desk.until(|_, shown| ended(shown))).await;
        let told = self.tell();
        self.plain(end + &told)
    }

    /// Tells what is new: what the agent said, did and asked, and what was changed and recorded.
    fn tell(&mut self) -> String {
        let mut text = String::new();
        let snapshot = self.session.snapshot();
        let said = snapshot.messages().filter(|message| message.kind == MessageKind::Agent);
        for message in said.skip(self.told.messages) {
            self.told.messages += 1;
            text += "says\n";
            text.extend(message.text().lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n"));
        }
        for call in snapshot.tool_calls().skip(self.told.calls) {
            self.told.calls += 1;
            text += &format!("call {:?} {:?}: {}\n", call.kind, call.status, call.title);
        }
        for question in self.lab.desk.asked().iter().skip(self.told.questions) {
            self.told.questions += 1;
            text += "question\n";
            text.extend(question.text().lines().map(|line| format!("  {line}\n")));
        }
        let shown = self.lab.desk.shown();
        for event in &shown[self.told.shown..] {
            if event.starts_with("Breach") || event.starts_with("Notice") {
                text += &format!("! {event}\n");
            }
        }
        self.told.shown = shown.len();
        let changes = self.lab.host.workspace().changes(&Selection::default()).unwrap();
        for changed in &changes[self.told.changes..] {
            let origin = &changed.change.origin;
            let who = match (origin.session.as_deref(), origin.turn) {
                (Some(session), Some(turn)) => format!("{session} in turn {turn}"),
                (Some(session), None) => format!("{session} between turns"),
                // What an editor has not saved is the person's, and is on disk before an agent's change is.
                (None, _) => "nobody's session".to_owned(),
            };
            let how = if changed.change.source == Source::Written { "wrote" } else { "found" };
            let by = origin.command.as_ref().map(|command| format!(" with {command}")).unwrap_or_default();
            text += &format!("journal: {how} {} by {who}{by}\n", changed.change.path);
        }
        self.told.changes = changes.len();
        text + &self.log()
    }

    /// Tells what the audit log says of operations since it was told last.
    fn log(&mut self) -> String {
        let (directory, _) = self.audit_log();
        let entries: Vec<_> = audit::entries(&directory, audit::Filter::default())
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        let mut lines = Vec::new();
        for record in &entries[self.told.entries..] {
            let entry = &record.entry;
            assert_eq!(entry.session.as_deref(), Some(&*self.session.id().0), "{entry:?}");
            let subject = match &entry.subject {
                Subject::Path { asked, .. } => asked,
                Subject::Command { line, .. } => line,
                Subject::Url(text) | Subject::Text(text) => text,
                Subject::None => "",
            };
            let its_name = matches!(entry.action, Action::TerminalKill | Action::TerminalRelease);
            let subject = if its_name { "the terminal" } else { subject };
            let exit = entry.exit.as_deref().map(|exit| format!(": {exit}")).unwrap_or_default();
            let line = format!("audit: {} {} by {} {subject}{exit}", entry.action, entry.decision, entry.by);
            let of_a_command = matches!(entry.action, Action::TerminalExit | Action::Observed);
            lines.push((of_a_command, line.trim_end().to_owned() + "\n"));
        }
        // An agent may release a terminal before or after the end of its command is recorded.
        lines.sort_by_key(|(of_a_command, _)| *of_a_command);
        let text = lines.into_iter().map(|(_, line)| line).collect();
        self.told.entries = entries.len();
        text
    }

    fn audit_log(&self) -> (std::path::PathBuf, std::path::PathBuf) {
        let places = self.lab.places();
        let journal = Workspace::journal_directory(&places.state, self.lab.host.workspace().roots());
        let anchor = places.anchors.join(journal.file_name().unwrap());
        (journal.join("audit"), anchor)
    }

    /// Shows a text as it is every time.
    fn plain(&self, text: String) -> String {
        let base = self.lab.base();
        let real = std::fs::canonicalize(base).unwrap();
        let text = without_times(&text);
        text.replace(&*self.session.id().0, "$SESSION")
            .replace(real.to_str().unwrap(), "$BASE")
            .replace(base.to_str().unwrap(), "$BASE")
    }

    /// Ends the session and the agent: nothing of either is left running, and the audit log is whole.
    pub(crate) async fn end(self) {
        let (directory, anchor) = self.audit_log();
        let Self { lab, session, connection, .. } = self;
        drop(session);
        assert!(!working_in(lab.base()).is_empty(), "the agent is there until it is shown out");
        let exit = in_time(connection.shutdown(Grace::default())).await.expect("the host started it");
        // What was killed may take a moment to be gone.
        let gone = async {
            while !working_in(lab.base()).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let gone = tokio::time::timeout(PATIENCE, gone).await;
        assert!(gone.is_ok(), "left running: {:?}", working_in(lab.base()));
        let report = audit::verify(&directory, &anchor).unwrap();
        assert!(report.is_intact() && report.notes.is_empty(), "{report:?}\n{exit}");
    }
}

/// Leaves out numbers that are times: agents name their tool calls by them.
fn without_times(text: &str) -> String {
    let is_time = |word: &&str| word.len() >= 13 && word.bytes().all(|byte| byte.is_ascii_digit());
    let words = text.split_inclusive('_').map(|word| match word.strip_suffix('_') {
        Some(number) if is_time(&number) => "$TIME_",
        _ => word,
    });
    words.collect()
}

async fn in_time<T>(doing: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, doing).await.expect("it ends")
}
