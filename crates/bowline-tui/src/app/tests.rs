//! Tests of the conversation's state: events in, actions and state out.

use std::sync::Arc;

use bowline_host::{Question, QuestionReply};
use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::{AnswerChoice, AnswerLifetime, QuestionItem, QuestionTrigger};
use bowline_protocol::accumulator::SessionAccumulator;
use bowline_protocol::schema::v1::{
    AvailableCommand, AvailableCommandsUpdate, ContentChunk, Notice, SessionNotification, SessionUpdate,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use expect_test::expect;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::event::RestartTarget;
use crate::panes::changes::RecentChanges;
use crate::view::draw::{Colours, draw};

/// A conversation, the agent's side of it, and the time.
pub(crate) struct AppFixture {
    pub(crate) app: App,
    pub(crate) session: SessionAccumulator,
    pub(crate) now: Duration,
}

impl AppFixture {
    /// Returns a conversation with an open session.
    pub(crate) fn new() -> Self {
        let app = App::new("agent".to_owned(), "/p".to_owned(), "~/project".to_owned());
        let mut fixture = Self { app, session: SessionAccumulator::new(), now: Duration::from_secs(100) };
        fixture.open("s1", false);
        fixture
    }

    /// Returns a conversation that waits for its agent.
    pub(crate) fn unopened() -> Self {
        Self { app: App::new("a".to_owned(), "/".to_owned(), "/".to_owned()), ..Self::new() }
    }

    pub(crate) fn open(&mut self, session: &str, keeps_transcript: bool) -> Vec<ChatAction> {
        self.session = SessionAccumulator::new();
        self.session.apply_session_setup(&session.to_owned().into(), None, None).unwrap();
        self.send_event(ChatEvent::SessionOpened(Box::new(OpenedChatSession {
            session: session.to_owned().into(),
            agent: "Tester".to_owned(),
            snapshot: self.session.snapshot(),
            keeps_transcript,
            note: None,
            session_features: SessionFeatures { can_list: true, can_reopen: true },
        })))
    }

    pub(crate) fn send_event(&mut self, event: ChatEvent) -> Vec<ChatAction> {
        self.app.handle_event(event, self.now)
    }

    pub(crate) fn advance(&mut self, time: Duration) -> Vec<ChatAction> {
        self.now += time;
        self.send_event(ChatEvent::Tick)
    }

    /// Has the agent send an update.
    pub(crate) fn update(&mut self, update: SessionUpdate) {
        self.session.apply(&SessionNotification::new("s1", update)).unwrap();
        self.send_event(ChatEvent::SessionUpdated("s1".into(), self.session.snapshot()));
    }

    /// Has the agent send an update in wire format.
    pub(crate) fn update_json(&mut self, json: &str) {
        self.update(serde_json::from_str(json).unwrap());
    }

    pub(crate) fn agent_says(&mut self, text: &str) {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into())));
    }

    pub(crate) fn press(&mut self, code: KeyCode) -> Vec<ChatAction> {
        self.send_event(ChatEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    pub(crate) fn press_ctrl(&mut self, character: char) -> Vec<ChatAction> {
        self.send_event(ChatEvent::Key(KeyEvent::new(KeyCode::Char(character), KeyModifiers::CONTROL)))
    }

    /// Presses the key of each character.
    pub(crate) fn type_text(&mut self, text: &str) -> Vec<ChatAction> {
        text.chars().flat_map(|character| self.press(KeyCode::Char(character))).collect()
    }

    /// Sends a prompt.
    pub(crate) fn submit_prompt(&mut self, text: &str) -> Vec<ChatAction> {
        self.send_event(ChatEvent::Paste(text.to_owned()));
        self.press(KeyCode::Enter)
    }

    /// Lets time pass without key presses, as a user reads the screen.
    pub(crate) fn read_screen(&mut self) {
        self.render();
        self.send_event(ChatEvent::Tick);
        self.advance(ANSWER_QUIET_TIME);
    }

    /// Presses the key of each character, with a pause between them.
    pub(crate) fn type_with_gap(&mut self, gap: Duration, text: &str) -> Vec<ChatAction> {
        let press = |character| {
            self.render();
            self.advance(gap);
            self.press(KeyCode::Char(character))
        };
        text.chars().flat_map(press).collect()
    }

    /// Renders a screen of 80 columns and 24 rows.
    pub(crate) fn render(&mut self) -> String {
        self.render_sized(80, 24)
    }

    pub(crate) fn render_sized(&mut self, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(&mut self.app, frame, Colours::On)).unwrap();
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n");
        lines.collect::<String>().trim_end().to_owned() + "\n"
    }
}

pub(crate) fn permission_event(number: u64) -> ChatEvent {
    let operation =
        Operation { kind: OperationKind::Execute, target: OperationTarget::Described("make tea".to_owned()) };
    ChatEvent::PermissionRequested(Arc::new(Question {
        id: QuestionId(number),
        holder: GrantHolder { session: "s1".to_owned(), turn: Some(1) },
        call: None,
        agent: Some("Tester".to_owned()),
        trigger: QuestionTrigger::PermissionRequest,
        title: format!("Question {number}"),
        items: vec![QuestionItem::new(operation)],
        dangers: Vec::new(),
        reason: "no rule applies".to_owned(),
        suggestions: Vec::new(),
        agent_options: Vec::new(),
    }))
}

fn files_event(names: &[&str], truncated: bool) -> ChatEvent {
    ChatEvent::FilesListed { names: names.iter().map(|name| (*name).to_owned()).collect(), truncated }
}

fn prompt_actions(text: &str) -> Vec<ChatAction> {
    vec![ChatAction::SendPrompt(text.to_owned())]
}

#[test]
fn a_prompt_begins_a_turn_and_its_end_ends_it() {
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.submit_prompt("hello"), prompt_actions("hello"));
    assert!(fixture.app.turn.is_some() && fixture.app.input.is_empty());
    assert_eq!(fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn))), []);
    assert!(fixture.app.turn.is_none());
    assert_eq!(fixture.submit_prompt("  \n "), [], "nothing is said by blanks");
}

#[test]
fn prompts_wait_for_the_turn_and_for_each_other() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("first");
    for text in ["second", "third", "fourth"] {
        assert_eq!(fixture.submit_prompt(text), []);
    }
    fixture.press_ctrl('q');
    assert_eq!(fixture.app.input.text(), "fourth", "the last one comes back first");
    fixture.press_ctrl('c');
    assert_eq!(fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn))), prompt_actions("second"));
    assert_eq!(fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn))), prompt_actions("third"));
    for number in 0..9 {
        assert_eq!(fixture.submit_prompt(&number.to_string()), []);
    }
    assert_eq!(fixture.app.input.text(), "8", "what is refused is not lost");
    assert!(fixture.app.flash_text().unwrap().contains("8 prompts wait already"));
}

#[test]
fn queued_prompts_return_to_the_input_after_a_cancel() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("first");
    fixture.submit_prompt("second");
    fixture.submit_prompt("third");
    fixture.type_text("more");
    assert_eq!(fixture.press(KeyCode::Esc), [ChatAction::CancelTurn]);
    assert_eq!(fixture.press(KeyCode::Esc), [], "once is enough");
    assert_eq!(fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::Cancelled))), []);
    assert_eq!(fixture.app.input.text(), "second\nthird\nmore");
    assert!(fixture.app.queued_prompts.is_empty());
}

#[test]
fn a_prompt_before_the_agent_is_there_waits_for_it() {
    let mut fixture = AppFixture::unopened();
    assert_eq!(fixture.submit_prompt("early"), []);
    assert_eq!(fixture.open("s1", false), prompt_actions("early"));
}

#[test]
fn ctrl_c_cancels_and_twice_leaves() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("first");
    assert_eq!(fixture.press_ctrl('c'), [ChatAction::CancelTurn]);
    assert_eq!(fixture.press_ctrl('c'), [ChatAction::Quit]);
    let mut fixture = AppFixture::new();
    fixture.type_text("draft");
    assert_eq!(fixture.press_ctrl('c'), []);
    assert!(fixture.app.input.is_empty());
    fixture.advance(Duration::from_secs(4));
    assert_eq!(fixture.press_ctrl('c'), [], "that was long ago");
    fixture.type_text("x");
    assert_eq!(fixture.press_ctrl('c'), [], "something else came between");
    assert_eq!(fixture.press_ctrl('c'), [ChatAction::Quit]);
    let mut fixture = AppFixture::new();
    fixture.type_text("x");
    assert_eq!(fixture.press_ctrl('d'), [], "there is something written");
    fixture.press_ctrl('c');
    assert_eq!(fixture.press_ctrl('d'), [ChatAction::Quit]);
}

#[test]
fn an_agent_that_does_not_end_its_turn_can_be_ended() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    assert_eq!(fixture.press(KeyCode::Esc), [ChatAction::CancelTurn]);
    fixture.advance(Duration::from_secs(4));
    assert!(!fixture.render().contains("ends the agent"));
    assert_eq!(fixture.press(KeyCode::Esc), []);
    fixture.advance(Duration::from_secs(2));
    assert!(fixture.render().contains("cancelling 6.0s · Esc again ends the agent"));
    assert_eq!(fixture.press(KeyCode::Esc), [ChatAction::EndAgent]);
    assert_eq!(fixture.press(KeyCode::Esc), [], "once is enough");
    fixture.send_event(ChatEvent::TurnEnded(Err("the connection is closed".to_owned())));
    fixture.send_event(ChatEvent::AgentExited("it was ended".to_owned()));
    assert!(fixture.render().contains("start it again"));
}

#[test]
fn a_session_that_is_not_opened_is_given_up() {
    let mut fixture = AppFixture::new();
    fixture.press(KeyCode::F(3));
    assert!(fixture.render().contains("asking the agent for its sessions"));
    fixture.send_event(ChatEvent::SessionsListed(Ok(vec![SessionInfo::new("s2", "/")])));
    fixture.press(KeyCode::Down);
    assert_eq!(fixture.press(KeyCode::Enter), [ChatAction::OpenSession(Some("s2".into()))]);
    fixture.advance(Duration::from_secs(7));
    assert!(fixture.render().contains("opening the session 7.0s · Esc gives it up"));
    assert!(fixture.app.is_animated());
    assert_eq!(fixture.press(KeyCode::Esc), [ChatAction::AbandonOpening]);
    fixture
        .send_event(ChatEvent::SessionOpenFailed { reason: "given up".to_owned(), is_agent_running: true });
    assert_eq!((&fixture.app.status, fixture.app.session()), (&AgentStatus::Ready, Some(&"s1".into())));
    // A list that arrives after the user has moved on is ignored.
    fixture.press(KeyCode::F(3));
    fixture.press(KeyCode::Esc);
    fixture.send_event(ChatEvent::SessionsListed(Ok(Vec::new())));
    assert!(fixture.app.pane.is_none());
}

#[test]
fn a_turn_that_takes_too_long_is_cancelled_once() {
    let mut fixture = AppFixture::new();
    fixture.app.turn_timeout = Some(Duration::from_secs(10));
    fixture.submit_prompt("work");
    assert_eq!(fixture.advance(Duration::from_secs(9)), []);
    assert_eq!(fixture.advance(Duration::from_secs(2)), [ChatAction::CancelTurn]);
    assert_eq!(fixture.advance(Duration::from_secs(2)), []);
}

#[test]
fn questions_are_answered_one_after_the_other() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    assert_eq!(fixture.send_event(permission_event(1)), [ChatAction::RingBell]);
    fixture.send_event(permission_event(2));
    fixture.send_event(permission_event(3));
    fixture.read_screen();
    assert_eq!(fixture.type_text("y"), [ChatAction::AnswerPermission(QuestionId(1), QuestionReply::allow())]);
    fixture.read_screen();
    fixture.send_event(ChatEvent::PermissionWithdrawn(QuestionId(2)));
    assert_eq!(fixture.type_text("n"), [], "it was not in sight before");
    fixture.read_screen();
    assert_eq!(fixture.type_text("n"), [ChatAction::AnswerPermission(QuestionId(3), QuestionReply::deny())]);
    assert_eq!(fixture.type_text("y"), [], "there is nothing to answer: it is typed");
    assert_eq!(fixture.app.input.text(), "y");
}

#[test]
fn a_held_key_answers_one_question_and_no_more() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    for number in 1..6 {
        fixture.send_event(permission_event(number));
    }
    fixture.read_screen();
    assert_eq!(fixture.type_text("y").len(), 1);
    assert_eq!(fixture.type_with_gap(Duration::from_millis(660), "y"), [], "the first repeat comes late");
    assert_eq!(fixture.type_with_gap(Duration::from_millis(30), &"y".repeat(100)), []);
    fixture.read_screen();
    for kind in [KeyEventKind::Repeat, KeyEventKind::Release] {
        let key = KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, kind);
        assert_eq!(fixture.send_event(ChatEvent::Key(key)), []);
    }
    assert_eq!(fixture.app.pending_approvals.len(), 4);
    assert_eq!(fixture.app.input.text(), "", "the user was not writing");
    fixture.read_screen();
    assert_eq!(fixture.type_text("n").len(), 1, "another key is not that one held");
}

#[test]
fn an_idle_user_can_answer_at_once() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.advance(Duration::from_secs(3));
    fixture.send_event(permission_event(1));
    let screen = fixture.render();
    assert!(screen.contains("y allow once  n reject"), "the keys are in sight at once:\n{screen}");
    fixture.send_event(ChatEvent::Tick);
    fixture.advance(REACTION_TIME);
    assert_eq!(fixture.type_text("y").len(), 1);
}

#[test]
fn a_question_leaves_the_conversation_in_sight() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.agent_says("I am going to make tea.");
    fixture.type_text("wait, ");
    fixture.send_event(permission_event(1));
    expect![[r#"
         Tester                                                               ~/project
        ❯ work

        I am going to make tea.













        ❯ wait,
        ────────────────────────────────────────────────────────────────────────────────
        Tester asks: Question 1
        Asked because no rule applies
        ─ a moment ─────────────────────────────────────────────────────────────────────
        something that it does by itself, in its own words: make tea
        y allow once  n reject  r reject, why…  Ctrl-C cancel  ? help
    "#]]
    .assert_eq(&fixture.render());
}

#[test]
fn settings_survive_an_agent_restart() {
    let mut fixture = AppFixture::new();
    let option = |value: &str| {
        let json = serde_json::json!({"id": "model", "name": "Model", "type": "select", "currentValue": value,
            "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]});
        serde_json::from_value::<SessionConfigOption>(json).unwrap()
    };
    fixture.update_json(r#"{"sessionUpdate":"session_info_update","title":"About tea"}"#);
    fixture.send_event(ChatEvent::ConfigOptionsChanged(vec![option("b")]));
    fixture.send_event(ChatEvent::ModeChanged("careful".to_owned().into()));
    fixture.send_event(ChatEvent::AgentExited("it ended with 1".to_owned()));
    fixture.press_ctrl('r');
    assert_eq!(fixture.open("s1", false), [ChatAction::SetMode("careful".to_owned().into())]);
    assert!(fixture.render().starts_with(" Tester · About tea"), "{}", fixture.render());
    fixture.open("s2", false);
    assert!(!fixture.render().contains("About tea"));
}

#[test]
fn commands_of_its_own_are_not_sent_to_the_agent() {
    use bowline_conversation::slash_command::UndoTarget;
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.submit_prompt("/undo 2"), [ChatAction::UndoTurns(UndoTarget::Turns(2))]);
    assert_eq!(fixture.submit_prompt("/changes"), [ChatAction::ListChanges]);
    assert_eq!(fixture.submit_prompt("/sessions"), [ChatAction::ListSessions]);
    assert_eq!(fixture.submit_prompt("/new"), [ChatAction::OpenSession(None)]);
    fixture.open("s2", false);
    assert_eq!(fixture.submit_prompt("/compact"), prompt_actions("/compact"));
    assert_eq!(fixture.submit_prompt("/undo"), [], "a turn goes on");
    assert_eq!(fixture.submit_prompt("/quit"), [ChatAction::Quit]);
}

#[test]
fn help_also_lists_the_chats_own_commands() {
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.submit_prompt("/help"), prompt_actions("/help"));
    let screen = fixture.render();
    assert!(screen.contains("this terminal adds /undo, /changes, /new, /sessions, /quit"), "{screen}");
}

#[test]
fn a_user_shell_command_runs_beside_the_agent() {
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.submit_prompt("! make tea"), [ChatAction::RunShell("make tea".to_owned())]);
    assert_eq!(fixture.submit_prompt("!again"), [], "one at a time");
    fixture.press_ctrl('c');
    fixture.advance(Duration::from_secs(6));
    assert!(fixture.render().contains("!make tea 6.0s · Esc ends it"), "{}", fixture.render());
    fixture.send_event(ChatEvent::ShellEnded(Ok("hot\nended: 0".to_owned())));
    let screen = fixture.render();
    assert!(screen.contains("❯ ! make tea") && screen.contains("  hot\n  ended: 0"), "{screen}");
    fixture.submit_prompt("!sleep 9");
    assert_eq!(fixture.press(KeyCode::Esc), [ChatAction::EndShell]);
    fixture.send_event(ChatEvent::ShellEnded(Ok("too late".to_owned())));
    assert!(!fixture.render().contains("too late"));
}

#[test]
fn a_question_that_was_not_drawn_is_not_answered() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.send_event(permission_event(1));
    fixture.advance(Duration::from_secs(60));
    assert_eq!(fixture.type_text("y"), []);
    // Drawing may take long, and keys pressed meanwhile are handled after it.
    fixture.render();
    fixture.now += Duration::from_secs(60);
    assert_eq!(fixture.type_text("y"), []);
    fixture.read_screen();
    assert_eq!(fixture.type_text("y").len(), 1);
}

#[test]
fn typing_is_not_taken_as_an_answer() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    let gap = Duration::from_millis(130);
    fixture.type_with_gap(gap, "is it so that ");
    fixture.send_event(permission_event(1));
    assert_eq!(fixture.type_with_gap(gap, "this is too thin? what should happen"), []);
    assert_eq!(fixture.press(KeyCode::Enter), [], "nothing is sent that is not in sight");
    assert_eq!(fixture.app.input.text(), "is it so that this is too thin? what should happen");
    fixture.read_screen();
    assert_eq!(fixture.type_text("y"), [ChatAction::AnswerPermission(QuestionId(1), QuestionReply::allow())]);
    assert_eq!(fixture.app.input.text(), "is it so that this is too thin? what should happen");
}

#[test]
fn typing_in_a_form_answers_no_question_and_goes_on() {
    let mut fixture = AppFixture::new();
    let schema = serde_json::json!({"sessionId": "s1", "mode": "form", "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let request = Arc::new(serde_json::from_value(schema).unwrap());
    fixture.send_event(ChatEvent::ElicitationRequested { id: 1, agent: None, request });
    let gap = Duration::from_millis(200);
    fixture.type_with_gap(gap, "Maria Annabe");
    fixture.send_event(permission_event(1));
    assert_eq!(fixture.type_with_gap(gap, "lla Clara"), []);
    fixture.send_event(ChatEvent::PermissionWithdrawn(QuestionId(1)));
    assert!(fixture.render().contains("Maria Annabella Clara"), "{}", fixture.render());
}

#[test]
fn keys_of_a_pane_answer_no_question() {
    let mut fixture = AppFixture::new();
    fixture.press(KeyCode::F(2));
    fixture.send_event(ChatEvent::ChangesListed(Ok(RecentChanges::default())));
    fixture.read_screen();
    fixture.send_event(permission_event(1));
    assert_eq!(fixture.type_with_gap(Duration::from_millis(200), "nny"), []);
    assert_eq!(fixture.app.pending_approvals.len(), 1);
}

#[test]
fn nothing_is_answered_on_a_screen_that_is_too_small() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.send_event(permission_event(1));
    fixture.read_screen();
    fixture.render_sized(20, 5);
    fixture.advance(Duration::from_secs(10));
    assert_eq!(fixture.type_text("y"), []);
    assert_eq!(fixture.press(KeyCode::F(2)), []);
    assert_eq!(fixture.press_ctrl('c'), [ChatAction::CancelTurn]);
    fixture.render();
    assert_eq!(fixture.type_text("y"), [], "it has only just come back");
    fixture.read_screen();
    assert_eq!(fixture.type_text("y").len(), 1);
}

#[test]
fn ctrl_c_cancels_also_while_something_is_asked() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.send_event(permission_event(1));
    assert_eq!(fixture.press_ctrl('c'), [ChatAction::CancelTurn]);
}

#[test]
fn a_dead_agent_can_be_started_again() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    fixture.send_event(ChatEvent::AgentExited("it ended with 1".to_owned()));
    assert_eq!(fixture.send_event(ChatEvent::TurnEnded(Err("the connection is closed".to_owned()))), []);
    fixture.advance(Duration::from_secs(1));
    assert_eq!(fixture.type_text("r"), [ChatAction::Restart(RestartTarget::SameSession)]);
    assert_eq!(fixture.app.status, AgentStatus::Opening("starting Tester again".to_owned()));
    fixture.send_event(ChatEvent::SessionOpenFailed {
        reason: "no such program".to_owned(),
        is_agent_running: false,
    });
    assert_eq!(fixture.press_ctrl('n'), [ChatAction::Restart(RestartTarget::NewSession)]);
    fixture.open("s2", true);
    assert_eq!(fixture.app.status, AgentStatus::Ready);
    let screen = fixture.render();
    assert!(screen.contains("❯ work"), "what was said before stays: {screen}");
    assert!(screen.contains("the agent is gone: no such program"), "so do last words: {screen}");
}

#[test]
fn typing_continues_when_the_agent_dies() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    let sentence = "a long quite important question, never lost";
    let (before, after) = sentence.split_at(10);
    fixture.type_text(before);
    fixture.send_event(ChatEvent::AgentExited("it ended with 1".to_owned()));
    for character in after.chars() {
        fixture.advance(Duration::from_millis(130));
        assert_eq!(fixture.press(KeyCode::Char(character)), [], "{character:?}");
    }
    fixture.advance(Duration::from_secs(5));
    assert_eq!(fixture.type_text("q"), [], "something is written: it goes on");
    assert_eq!(fixture.app.input.text(), format!("{sentence}q"));
    assert_eq!(fixture.press(KeyCode::Enter), []);
    assert_eq!(fixture.press_ctrl('r'), [ChatAction::Restart(RestartTarget::SameSession)]);
    assert_eq!(fixture.app.input.text(), format!("{sentence}q"));
    // The input is empty, and the first letter comes right after the window.
    let mut fixture = AppFixture::new();
    fixture.send_event(ChatEvent::AgentExited("it ended with 1".to_owned()));
    fixture.advance(Duration::from_millis(500));
    assert_eq!(fixture.type_text("question"), []);
    assert_eq!(fixture.app.input.text(), "question");
}

#[test]
fn exit_reason_and_keys_are_visible_at_every_size() {
    let mut fixture = AppFixture::new();
    let lines: String = (0..30).map(|number| format!("\n  line {number}")).collect();
    fixture.send_event(ChatEvent::AgentExited(format!(
        "the agent ended: exit status: 7; its last words:{lines}"
    )));
    for (columns, rows) in [(80, 24), (60, 24), (40, 16)] {
        let screen = fixture.render_sized(columns, rows);
        for text in ["exit status: 7", "line 29", "session", "q quit"] {
            assert!(screen.contains(text), "{text} at {columns}x{rows}:\n{screen}");
        }
    }
}

#[test]
fn a_refused_start_quits_unless_a_prompt_was_typed() {
    let mut fixture = AppFixture::unopened();
    assert_eq!(
        fixture.send_event(ChatEvent::StartRefused("there is no session x".to_owned())),
        [ChatAction::Quit]
    );
    let mut fixture = AppFixture::unopened();
    fixture.submit_prompt("early");
    assert_eq!(fixture.send_event(ChatEvent::StartRefused("there is no session x".to_owned())), []);
    assert_eq!(fixture.app.input.text(), "early");
    let screen = fixture.render();
    assert!(screen.contains("No session could be opened") && screen.contains("no session x"), "{screen}");
}

#[test]
fn the_permission_preset_is_visible() {
    use bowline_policy::policy::Preset;
    let mut fixture = AppFixture::new();
    let mut render_with = |permissions: PermissionSummary| {
        fixture.app.permissions = permissions;
        let screen = fixture.render();
        (screen.replace('\n', " "), screen.lines().last().unwrap_or_default().to_owned())
    };
    let ask = PermissionSummary::default();
    for (permissions, label, sentence) in [
        (PermissionSummary { preset: Preset::AcceptEdits, ..ask }, "edits allowed", "without a question"),
        (
            PermissionSummary { preset: Preset::Full, rule_count: 2, ..ask },
            "everything allowed +2 rules",
            "runs commands",
        ),
        (PermissionSummary { preset: Preset::Full, is_read_only: true, ..ask }, "read only", "is denied"),
        (PermissionSummary { rule_count: 1, ..ask }, "1 rule", "You have 1 rule"),
    ] {
        let (screen, last) = render_with(permissions);
        assert!(last.contains(label) && screen.contains(sentence), "{last}\n{screen}");
    }
    assert!(!render_with(ask).1.contains("allowed"));
}

#[test]
fn only_used_sessions_of_capable_agents_are_resumable() {
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.app.resumable_session(), None, "nothing was said");
    fixture.submit_prompt("hello");
    assert_eq!(fixture.app.resumable_session(), Some(&"s1".into()));
    fixture.app.session_features.can_reopen = false;
    assert_eq!(fixture.app.resumable_session(), None);
    fixture.open("s2", false);
    assert_eq!(fixture.app.resumable_session(), None, "nothing was said in this one");
}

#[test]
fn a_session_is_chosen_when_no_turn_goes_on() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("work");
    assert_eq!(fixture.press(KeyCode::F(3)), []);
    fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn)));
    assert_eq!(fixture.press(KeyCode::F(3)), [ChatAction::ListSessions]);
    let info = |id: &str| SessionInfo::new(id.to_owned(), "/");
    fixture.send_event(ChatEvent::SessionsListed(Ok(vec![info("s1"), info("s2")])));
    assert_eq!(fixture.press(KeyCode::Enter), [], "it is the one that is open");
    fixture.press(KeyCode::F(3));
    fixture.send_event(ChatEvent::SessionsListed(Ok(vec![info("s1"), info("s2")])));
    fixture.press(KeyCode::Down);
    assert_eq!(fixture.press(KeyCode::Enter), [ChatAction::OpenSession(Some("s2".into()))]);
    fixture.send_event(ChatEvent::SessionOpenFailed { reason: "gone".to_owned(), is_agent_running: true });
    assert_eq!(fixture.app.status, AgentStatus::Ready);
    fixture.press(KeyCode::F(3));
    fixture.send_event(ChatEvent::SessionsListed(Ok(vec![])));
    assert_eq!(fixture.press(KeyCode::Enter), [ChatAction::OpenSession(None)]);
}

#[test]
fn what_another_session_says_is_not_shown() {
    let mut fixture = AppFixture::new();
    let mut other_session = SessionAccumulator::new();
    let update = SessionUpdate::AgentMessageChunk(ContentChunk::new("from elsewhere".into()));
    other_session.apply(&SessionNotification::new("s9", update)).unwrap();
    fixture.send_event(ChatEvent::SessionUpdated("s9".into(), other_session.snapshot()));
    assert!(fixture.app.conversation.is_empty());
}

#[test]
fn commands_and_files_are_completed() {
    let mut fixture = AppFixture::new();
    let commands =
        vec![AvailableCommand::new("compact", "makes room"), AvailableCommand::new("cost", "tells")];
    fixture.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands)));
    fixture.type_text("/co");
    fixture.press(KeyCode::Down);
    assert_eq!(fixture.press(KeyCode::Enter), [], "it completes, and sends nothing");
    assert_eq!(fixture.app.input.text(), "/compact ");
    assert_eq!(fixture.press(KeyCode::Enter), prompt_actions("/compact "));
    fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn)));
    assert_eq!(fixture.type_text("see @ma"), [ChatAction::ListFiles]);
    fixture.send_event(files_event(&["src/", "src/main.rs", "README"], false));
    fixture.press(KeyCode::Tab);
    assert_eq!(fixture.app.input.text(), "see @src/main.rs ");
    assert_eq!(fixture.app.completion, None);
}

#[test]
fn a_notice_of_the_agent_is_shown_once() {
    let mut fixture = AppFixture::new();
    fixture.update(SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, "the key expires")));
    fixture.agent_says("hello");
    assert_eq!(fixture.render().matches("the key expires").count(), 1);
}

#[test]
fn an_oversized_paste_is_refused() {
    let mut fixture = AppFixture::new();
    fixture.send_event(ChatEvent::Paste("x".repeat((1 << 20) + 1)));
    assert!(fixture.app.input.is_empty());
    assert!(fixture.app.flash_text().unwrap().contains("too long"));
}

#[test]
fn changes_are_shown_unless_the_user_left_the_pane() {
    let mut fixture = AppFixture::new();
    assert_eq!(fixture.press(KeyCode::F(2)), [ChatAction::ListChanges]);
    fixture.send_event(ChatEvent::ChangesListed(Ok(RecentChanges::default())));
    assert!(matches!(fixture.app.pane, Some(OverlayPane::Changes(_))));
    assert_eq!(
        fixture.send_event(ChatEvent::UndoFinished(Ok("undone in 1 file".to_owned()))),
        [ChatAction::ListChanges]
    );
    fixture.press(KeyCode::Esc);
    fixture.send_event(ChatEvent::ChangesListed(Ok(RecentChanges::default())));
    assert!(fixture.app.pane.is_none());
}

#[test]
fn what_is_remarked_before_a_session_is_open_stays_in_sight() {
    let mut fixture = AppFixture::unopened();
    fixture.send_event(ChatEvent::Note(NoteLevel::Warning, "a write was interrupted".to_owned()));
    fixture.open("s1", false);
    assert!(fixture.render().contains("a write was interrupted"));
    fixture.open("s2", false);
    assert!(!fixture.render().contains("a write was interrupted"), "that was of the session before");
}

/// Any key that a user can press.
fn any_key() -> impl Strategy<Value = KeyEvent> {
    let code = prop_oneof![
        4 => any::<char>().prop_map(KeyCode::Char),
        4 => proptest::char::range(' ', '~').prop_map(KeyCode::Char),
        1 => (1u8..13).prop_map(KeyCode::F),
        8 => proptest::sample::select(vec![
            KeyCode::Enter, KeyCode::Esc, KeyCode::Tab, KeyCode::BackTab, KeyCode::Backspace, KeyCode::Delete,
            KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right, KeyCode::PageUp, KeyCode::PageDown,
            KeyCode::Home, KeyCode::End, KeyCode::Char('@'), KeyCode::Char('/'), KeyCode::Null,
        ]),
    ];
    let modifiers = proptest::sample::select(vec![
        KeyModifiers::NONE,
        KeyModifiers::NONE,
        KeyModifiers::SHIFT,
        KeyModifiers::CONTROL,
        KeyModifiers::ALT,
    ]);
    (code, modifiers).prop_map(|(code, modifiers)| KeyEvent::new(code, modifiers))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_keys_at_any_size_are_handled(
        keys in proptest::collection::vec(any_key(), 0..60),
        sizes in proptest::collection::vec((1u16..120, 1u16..40), 1..4),
        pasted in "\\PC{0,40}",
    ) {
        let mut fixture = AppFixture::new();
        fixture.agent_says("# Title\n\n- one\n- two\n\n日本語 and `code`");
        fixture.update_json(r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Run\tit","kind":"execute","status":"failed",
            "content":[{"type":"diff","path":"/a","oldText":"a\n","newText":"b\n"}]}"#);
        fixture.update_json(r#"{"sessionUpdate":"plan","entries":[{"content":"x","priority":"low","status":"in_progress"}]}"#);
        fixture.send_event(files_event(&["src/日.rs"], false));
        fixture.send_event(ChatEvent::Paste(pasted));
        for (index, key) in keys.into_iter().enumerate() {
            for action in fixture.send_event(ChatEvent::Key(key)) {
                match action {
                    ChatAction::ListSessions => { fixture.send_event(ChatEvent::SessionsListed(Ok(Vec::new()))); }
                    ChatAction::ListChanges => { fixture.send_event(ChatEvent::ChangesListed(Ok(RecentChanges::default()))); }
                    ChatAction::CancelTurn => { fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::Cancelled))); }
                    _ => {}
                }
            }
            if index == 20 {
                fixture.send_event(permission_event(1));
            }
            let (columns, rows) = sizes[index % sizes.len()];
            fixture.render_sized(columns, rows);
        }
    }

    #[test]
    fn no_keys_that_are_pressed_fast_answer_a_question(
        before in "[ -~]{0,8}",
        keys in proptest::collection::vec((any_key(), 0u64..300), 0..24),
        withdrawn in 0usize..24,
    ) {
        let mut fixture = AppFixture::new();
        fixture.submit_prompt("work");
        fixture.type_text(&before);
        for number in 1..4 {
            fixture.send_event(permission_event(number));
        }
        for (index, (key, gap)) in keys.into_iter().enumerate() {
            fixture.render();
            fixture.advance(Duration::from_millis(gap / 2));
            if index == withdrawn {
                fixture.send_event(ChatEvent::PermissionWithdrawn(QuestionId(1)));
            }
            fixture.advance(Duration::from_millis(gap.div_ceil(2)));
            let actions = fixture.send_event(ChatEvent::Key(key));
            prop_assert!(!actions.iter().any(|action| matches!(action, ChatAction::AnswerPermission(..))), "{actions:?}");
        }
    }
}

#[test]
fn rejections_and_lasting_answers_stay_in_the_conversation() {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("go");
    for keys in ["y", "n", "rno need"] {
        fixture.send_event(permission_event(1));
        for key in keys.chars() {
            fixture.read_screen();
            fixture.press(KeyCode::Char(key));
        }
        fixture.press(KeyCode::Enter);
        assert!(fixture.app.pending_approvals.is_empty(), "{keys}");
    }
    let screen = fixture.render();
    let mut notes: Vec<String> =
        screen.lines().filter(|line| line.contains("you ")).map(|line| line.trim().to_owned()).collect();
    let ChatEvent::PermissionRequested(question) = permission_event(2) else { panic!("it is a question") };
    let approval = ApprovalPane::new(question, Vec::new());
    for lifetime in [
        AnswerLifetime::Once,
        AnswerLifetime::Turn,
        AnswerLifetime::Session,
        AnswerLifetime::Project,
        AnswerLifetime::Always,
    ] {
        notes.extend(approval.describe_reply(&QuestionReply::answer(AnswerChoice::Allow, lifetime)));
    }
    notes.extend(approval.describe_reply(&QuestionReply::NoUser));
    expect![[r#"
        · you rejected “Question 1”
        · you rejected “Question 1”: o need
        you allowed “Question 2”, for this turn
        you allowed “Question 2”, for this session
    "#]]
    .assert_eq(&(notes.join("\n") + "\n"));
}

#[test]
fn an_incomplete_file_list_is_mentioned() {
    let mut fixture = AppFixture::new();
    fixture.type_text("see @other");
    fixture.send_event(files_event(&["src/", "README"], true));
    assert_eq!(
        fixture.app.flash_text(),
        Some("@ knows the first 2 names of this workspace: write others whole")
    );
}
