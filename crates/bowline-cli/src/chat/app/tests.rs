//! Events in, actions and state out.

use std::sync::Arc;

use bowline_host::{Question, Reply};
use bowline_state::accumulator::SessionAccumulator;
use bowline_state::grants::Holder;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::question::{Answer, Choice, Item, Keep, Occasion};
use bowline_state::schema::v1::{
    AvailableCommand, AvailableCommandsUpdate, ContentChunk, Notice, SessionNotification, SessionUpdate,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use expect_test::expect;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::chat::changes::Listed;
use crate::chat::draw::{Colours, draw};
use crate::chat::event::Restart;

/// A conversation, its agent's side, and the time.
pub(crate) struct Bench {
    pub(crate) app: App,
    pub(crate) session: SessionAccumulator,
    pub(crate) now: Duration,
}

impl Bench {
    /// Returns a conversation that has begun.
    pub(crate) fn new() -> Self {
        let app = App::new("agent".to_owned(), "/p".to_owned(), "~/project".to_owned());
        let mut bench = Self { app, session: SessionAccumulator::new(), now: Duration::from_secs(100) };
        bench.open("s1", false);
        bench
    }

    /// Returns a conversation that waits for its agent.
    pub(crate) fn unopened() -> Self {
        Self { app: App::new("a".to_owned(), "/".to_owned(), "/".to_owned()), ..Self::new() }
    }

    pub(crate) fn open(&mut self, session: &str, goes_on: bool) -> Vec<Action> {
        self.session = SessionAccumulator::new();
        self.session.opened(&session.to_owned().into(), None, None).unwrap();
        self.event(Event::Opened(Box::new(Opened {
            session: session.to_owned().into(),
            agent: "Tester".to_owned(),
            snapshot: self.session.snapshot(),
            goes_on,
            remark: None,
            can: Can { list: true, reopen: true },
        })))
    }

    pub(crate) fn event(&mut self, event: Event) -> Vec<Action> {
        self.app.handle(event, self.now)
    }

    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.event(Event::Tick)
    }

    /// Has the agent send an update.
    pub(crate) fn update(&mut self, update: SessionUpdate) {
        self.session.apply(&SessionNotification::new("s1", update)).unwrap();
        self.event(Event::Updated("s1".into(), self.session.snapshot()));
    }

    /// Has the agent send an update, as it is on the wire.
    pub(crate) fn wire(&mut self, json: &str) {
        self.update(serde_json::from_str(json).unwrap());
    }

    pub(crate) fn says(&mut self, text: &str) {
        self.update(SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into())));
    }

    pub(crate) fn key(&mut self, code: KeyCode) -> Vec<Action> {
        self.event(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    pub(crate) fn control(&mut self, character: char) -> Vec<Action> {
        self.event(Event::Key(KeyEvent::new(KeyCode::Char(character), KeyModifiers::CONTROL)))
    }

    /// Presses the key of each character.
    pub(crate) fn types(&mut self, text: &str) -> Vec<Action> {
        text.chars().flat_map(|character| self.key(KeyCode::Char(character))).collect()
    }

    /// Says something.
    pub(crate) fn prompt(&mut self, text: &str) -> Vec<Action> {
        self.event(Event::Paste(text.to_owned()));
        self.key(KeyCode::Enter)
    }

    /// Looks at what is on the screen for a while, with the hands off the keyboard.
    pub(crate) fn look(&mut self) {
        self.screen();
        self.event(Event::Tick);
        self.wait(QUIET);
    }

    /// Presses the key of each character, one after the other.
    pub(crate) fn types_at(&mut self, gap: Duration, text: &str) -> Vec<Action> {
        let press = |character| {
            self.screen();
            self.wait(gap);
            self.key(KeyCode::Char(character))
        };
        text.chars().flat_map(press).collect()
    }

    /// Returns what is on a screen of 80 columns and 24 rows.
    pub(crate) fn screen(&mut self) -> String {
        self.screen_of(80, 24)
    }

    pub(crate) fn screen_of(&mut self, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(&mut self.app, frame, Colours::On)).unwrap();
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n");
        lines.collect::<String>().trim_end().to_owned() + "\n"
    }
}

pub(crate) fn question(number: u64) -> Event {
    let operation = Operation { kind: Kind::Execute, target: Target::Described("make tea".to_owned()) };
    Event::Asked(Arc::new(Question {
        id: QuestionId(number),
        holder: Holder { session: "s1".to_owned(), turn: Some(1) },
        call: None,
        agent: Some("Tester".to_owned()),
        occasion: Occasion::Request,
        title: format!("Question {number}"),
        items: vec![Item::plain(operation)],
        dangers: Vec::new(),
        because: "nobody said otherwise".to_owned(),
        suggestions: Vec::new(),
        offers: Vec::new(),
    }))
}

fn files(names: &[&str], truncated: bool) -> Event {
    Event::Files { names: names.iter().map(|name| (*name).to_owned()).collect(), truncated }
}

fn prompt(text: &str) -> Vec<Action> {
    vec![Action::Prompt(text.to_owned())]
}

#[test]
fn a_prompt_begins_a_turn_and_its_end_ends_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.prompt("hello"), prompt("hello"));
    assert!(bench.app.turn.is_some() && bench.app.input.is_empty());
    assert_eq!(bench.event(Event::TurnEnded(Ok(StopReason::EndTurn))), []);
    assert!(bench.app.turn.is_none());
    assert_eq!(bench.prompt("  \n "), [], "nothing is said by blanks");
}

#[test]
fn prompts_wait_for_the_turn_and_for_each_other() {
    let mut bench = Bench::new();
    bench.prompt("first");
    for text in ["second", "third", "fourth"] {
        assert_eq!(bench.prompt(text), []);
    }
    bench.control('q');
    assert_eq!(bench.app.input.text(), "fourth", "the last one comes back first");
    bench.control('c');
    assert_eq!(bench.event(Event::TurnEnded(Ok(StopReason::EndTurn))), prompt("second"));
    assert_eq!(bench.event(Event::TurnEnded(Ok(StopReason::EndTurn))), prompt("third"));
    for number in 0..9 {
        assert_eq!(bench.prompt(&number.to_string()), []);
    }
    assert_eq!(bench.app.input.text(), "8", "what is refused is not lost");
    assert!(bench.app.flashing().unwrap().contains("8 prompts wait already"));
}

#[test]
fn what_waits_is_given_back_when_its_turn_was_cancelled() {
    let mut bench = Bench::new();
    bench.prompt("first");
    bench.prompt("second");
    bench.prompt("third");
    bench.types("more");
    assert_eq!(bench.key(KeyCode::Esc), [Action::Cancel]);
    assert_eq!(bench.key(KeyCode::Esc), [], "once is enough");
    assert_eq!(bench.event(Event::TurnEnded(Ok(StopReason::Cancelled))), []);
    assert_eq!(bench.app.input.text(), "second\nthird\nmore");
    assert!(bench.app.queued.is_empty());
}

#[test]
fn a_prompt_before_the_agent_is_there_waits_for_it() {
    let mut bench = Bench::unopened();
    assert_eq!(bench.prompt("early"), []);
    assert_eq!(bench.open("s1", false), prompt("early"));
}

#[test]
fn ctrl_c_cancels_and_twice_leaves() {
    let mut bench = Bench::new();
    bench.prompt("first");
    assert_eq!(bench.control('c'), [Action::Cancel]);
    assert_eq!(bench.control('c'), [Action::Quit]);
    let mut bench = Bench::new();
    bench.types("draft");
    assert_eq!(bench.control('c'), []);
    assert!(bench.app.input.is_empty());
    bench.wait(Duration::from_secs(4));
    assert_eq!(bench.control('c'), [], "that was long ago");
    bench.types("x");
    assert_eq!(bench.control('c'), [], "something else came between");
    assert_eq!(bench.control('c'), [Action::Quit]);
    let mut bench = Bench::new();
    bench.types("x");
    assert_eq!(bench.control('d'), [], "there is something written");
    bench.control('c');
    assert_eq!(bench.control('d'), [Action::Quit]);
}

#[test]
fn an_agent_that_does_not_end_its_turn_can_be_ended() {
    let mut bench = Bench::new();
    bench.prompt("work");
    assert_eq!(bench.key(KeyCode::Esc), [Action::Cancel]);
    bench.wait(Duration::from_secs(4));
    assert!(!bench.screen().contains("ends the agent"));
    assert_eq!(bench.key(KeyCode::Esc), []);
    bench.wait(Duration::from_secs(2));
    assert!(bench.screen().contains("cancelling 6.0s · Esc again ends the agent"));
    assert_eq!(bench.key(KeyCode::Esc), [Action::EndAgent]);
    assert_eq!(bench.key(KeyCode::Esc), [], "once is enough");
    bench.event(Event::TurnEnded(Err("the connection is closed".to_owned())));
    bench.event(Event::Died("it was ended".to_owned()));
    assert!(bench.screen().contains("start it again"));
}

#[test]
fn a_session_that_is_not_opened_is_given_up() {
    let mut bench = Bench::new();
    bench.key(KeyCode::F(3));
    assert!(bench.screen().contains("asking the agent for its sessions"));
    bench.event(Event::Sessions(Ok(vec![SessionInfo::new("s2", "/")])));
    bench.key(KeyCode::Down);
    assert_eq!(bench.key(KeyCode::Enter), [Action::Open(Some("s2".into()))]);
    bench.wait(Duration::from_secs(7));
    assert!(bench.screen().contains("opening the session 7.0s · Esc gives it up"));
    assert!(bench.app.is_moving());
    assert_eq!(bench.key(KeyCode::Esc), [Action::GiveUp]);
    bench.event(Event::NotOpened { why: "given up".to_owned(), alive: true });
    assert_eq!((&bench.app.stage, bench.app.session()), (&Stage::Ready, Some(&"s1".into())));
    // A list that comes when nobody waits for it any more is in nobody's way.
    bench.key(KeyCode::F(3));
    bench.key(KeyCode::Esc);
    bench.event(Event::Sessions(Ok(Vec::new())));
    assert!(bench.app.pane.is_none());
}

#[test]
fn a_turn_that_takes_too_long_is_cancelled_once() {
    let mut bench = Bench::new();
    bench.app.limit = Some(Duration::from_secs(10));
    bench.prompt("work");
    assert_eq!(bench.wait(Duration::from_secs(9)), []);
    assert_eq!(bench.wait(Duration::from_secs(2)), [Action::Cancel]);
    assert_eq!(bench.wait(Duration::from_secs(2)), []);
}

#[test]
fn questions_are_answered_one_after_the_other() {
    let mut bench = Bench::new();
    bench.prompt("work");
    assert_eq!(bench.event(question(1)), [Action::Bell]);
    bench.event(question(2));
    bench.event(question(3));
    bench.look();
    assert_eq!(bench.types("y"), [Action::Answer(QuestionId(1), Reply::allow())]);
    bench.look();
    bench.event(Event::Withdrawn(QuestionId(2)));
    assert_eq!(bench.types("n"), [], "it was not in sight before");
    bench.look();
    assert_eq!(bench.types("n"), [Action::Answer(QuestionId(3), Reply::deny())]);
    assert_eq!(bench.types("y"), [], "there is nothing to answer: it is typed");
    assert_eq!(bench.app.input.text(), "y");
}

#[test]
fn a_held_key_answers_one_question_and_no_more() {
    let mut bench = Bench::new();
    bench.prompt("work");
    for number in 1..6 {
        bench.event(question(number));
    }
    bench.look();
    assert_eq!(bench.types("y").len(), 1);
    assert_eq!(bench.types_at(Duration::from_millis(660), "y"), [], "the first repeat comes late");
    assert_eq!(bench.types_at(Duration::from_millis(30), &"y".repeat(100)), []);
    bench.look();
    for kind in [KeyEventKind::Repeat, KeyEventKind::Release] {
        let held = KeyEvent::new_with_kind(KeyCode::Char('y'), KeyModifiers::NONE, kind);
        assert_eq!(bench.event(Event::Key(held)), []);
    }
    assert_eq!(bench.app.questions.len(), 4);
    assert_eq!(bench.app.input.text(), "", "nobody was writing");
    bench.look();
    assert_eq!(bench.types("n").len(), 1, "another key is not that one held");
}

#[test]
fn who_was_not_typing_answers_at_once() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.wait(Duration::from_secs(3));
    bench.event(question(1));
    let screen = bench.screen();
    assert!(screen.contains("y allow once  n reject"), "the keys are in sight at once:\n{screen}");
    bench.event(Event::Tick);
    bench.wait(REACTION);
    assert_eq!(bench.types("y").len(), 1);
}

#[test]
fn a_question_leaves_the_conversation_in_sight() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.says("I am going to make tea.");
    bench.types("wait, ");
    bench.event(question(1));
    expect![[r#"
         Tester                                                               ~/project
        ❯ work

        I am going to make tea.













        ❯ wait,
        ────────────────────────────────────────────────────────────────────────────────
        Tester asks: Question 1
        Asked because nobody said otherwise
        ─ a moment ─────────────────────────────────────────────────────────────────────
        something that it does by itself, in its own words: make tea
        y allow once  n reject  r reject, why…  Ctrl-C cancel  ? help
    "#]]
    .assert_eq(&bench.screen());
}

#[test]
fn what_was_set_survives_that_the_agent_is_started_again() {
    let mut bench = Bench::new();
    let option = |value: &str| {
        let json = serde_json::json!({"id": "model", "name": "Model", "type": "select", "currentValue": value,
            "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]});
        serde_json::from_value::<SessionConfigOption>(json).unwrap()
    };
    bench.wire(r#"{"sessionUpdate":"session_info_update","title":"About tea"}"#);
    bench.event(Event::Options(vec![option("b")]));
    bench.event(Event::Mode("careful".to_owned().into()));
    bench.event(Event::Died("it ended with 1".to_owned()));
    bench.control('r');
    assert_eq!(bench.open("s1", false), [Action::SetMode("careful".to_owned().into())]);
    assert!(bench.screen().starts_with(" Tester · About tea"), "{}", bench.screen());
    bench.open("s2", false);
    assert!(!bench.screen().contains("About tea"));
}

#[test]
fn commands_of_its_own_are_not_sent_to_the_agent() {
    use bowline_state::slash::Undo;
    let mut bench = Bench::new();
    assert_eq!(bench.prompt("/undo 2"), [Action::UndoTurns(Undo::Turns(2))]);
    assert_eq!(bench.prompt("/changes"), [Action::ListChanges]);
    assert_eq!(bench.prompt("/sessions"), [Action::ListSessions]);
    assert_eq!(bench.prompt("/new"), [Action::Open(None)]);
    bench.open("s2", false);
    assert_eq!(bench.prompt("/compact"), prompt("/compact"));
    assert_eq!(bench.prompt("/undo"), [], "a turn goes on");
    assert_eq!(bench.prompt("/quit"), [Action::Quit]);
}

#[test]
fn help_of_the_agent_is_joined_by_the_conversations_own_commands() {
    let mut bench = Bench::new();
    assert_eq!(bench.prompt("/help"), prompt("/help"));
    let screen = bench.screen();
    assert!(screen.contains("this terminal adds /undo, /changes, /new, /sessions, /quit"), "{screen}");
}

#[test]
fn a_command_of_the_persons_own_runs_beside_the_agent() {
    let mut bench = Bench::new();
    assert_eq!(bench.prompt("! make tea"), [Action::RunShell("make tea".to_owned())]);
    assert_eq!(bench.prompt("!again"), [], "one at a time");
    bench.control('c');
    bench.wait(Duration::from_secs(6));
    assert!(bench.screen().contains("!make tea 6.0s · Esc ends it"), "{}", bench.screen());
    bench.event(Event::ShellEnded(Ok("hot\nended: 0".to_owned())));
    let screen = bench.screen();
    assert!(screen.contains("❯ ! make tea") && screen.contains("  hot\n  ended: 0"), "{screen}");
    bench.prompt("!sleep 9");
    assert_eq!(bench.key(KeyCode::Esc), [Action::EndShell]);
    bench.event(Event::ShellEnded(Ok("too late".to_owned())));
    assert!(!bench.screen().contains("too late"));
}

#[test]
fn a_question_that_was_not_drawn_is_not_answered() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.event(question(1));
    bench.wait(Duration::from_secs(60));
    assert_eq!(bench.types("y"), []);
    // A drawing may take long, and what is pressed meanwhile is handled after it.
    bench.screen();
    bench.now += Duration::from_secs(60);
    assert_eq!(bench.types("y"), []);
    bench.look();
    assert_eq!(bench.types("y").len(), 1);
}

#[test]
fn who_was_typing_goes_on_with_it_and_answers_nothing() {
    let mut bench = Bench::new();
    bench.prompt("work");
    let gap = Duration::from_millis(130);
    bench.types_at(gap, "is it so that ");
    bench.event(question(1));
    assert_eq!(bench.types_at(gap, "this is too thin? what should happen"), []);
    assert_eq!(bench.key(KeyCode::Enter), [], "nothing is sent that is not in sight");
    assert_eq!(bench.app.input.text(), "is it so that this is too thin? what should happen");
    bench.look();
    assert_eq!(bench.types("y"), [Action::Answer(QuestionId(1), Reply::allow())]);
    assert_eq!(bench.app.input.text(), "is it so that this is too thin? what should happen");
}

#[test]
fn typing_in_a_form_answers_no_question_and_goes_on() {
    let mut bench = Bench::new();
    let schema = serde_json::json!({"sessionId": "s1", "mode": "form", "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let request = Arc::new(serde_json::from_value(schema).unwrap());
    bench.event(Event::Elicited { number: 1, agent: None, request });
    let gap = Duration::from_millis(200);
    bench.types_at(gap, "Maria Annabe");
    bench.event(question(1));
    assert_eq!(bench.types_at(gap, "lla Clara"), []);
    bench.event(Event::Withdrawn(QuestionId(1)));
    assert!(bench.screen().contains("Maria Annabella Clara"), "{}", bench.screen());
}

#[test]
fn keys_of_a_pane_answer_no_question() {
    let mut bench = Bench::new();
    bench.key(KeyCode::F(2));
    bench.event(Event::Changes(Ok(Listed::default())));
    bench.look();
    bench.event(question(1));
    assert_eq!(bench.types_at(Duration::from_millis(200), "nny"), []);
    assert_eq!(bench.app.questions.len(), 1);
}

#[test]
fn nothing_is_answered_on_a_screen_that_is_too_small() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.event(question(1));
    bench.look();
    bench.screen_of(20, 5);
    bench.wait(Duration::from_secs(10));
    assert_eq!(bench.types("y"), []);
    assert_eq!(bench.key(KeyCode::F(2)), []);
    assert_eq!(bench.control('c'), [Action::Cancel]);
    bench.screen();
    assert_eq!(bench.types("y"), [], "it has only just come back");
    bench.look();
    assert_eq!(bench.types("y").len(), 1);
}

#[test]
fn ctrl_c_cancels_also_while_something_is_asked() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.event(question(1));
    assert_eq!(bench.control('c'), [Action::Cancel]);
}

#[test]
fn a_dead_agent_can_be_started_again() {
    let mut bench = Bench::new();
    bench.prompt("work");
    bench.event(Event::Died("it ended with 1".to_owned()));
    assert_eq!(bench.event(Event::TurnEnded(Err("the connection is closed".to_owned()))), []);
    bench.wait(Duration::from_secs(1));
    assert_eq!(bench.types("r"), [Action::Restart(Restart::SameSession)]);
    assert_eq!(bench.app.stage, Stage::Opening("starting Tester again".to_owned()));
    bench.event(Event::NotOpened { why: "no such program".to_owned(), alive: false });
    assert_eq!(bench.control('n'), [Action::Restart(Restart::NewSession)]);
    bench.open("s2", true);
    assert_eq!(bench.app.stage, Stage::Ready);
    let screen = bench.screen();
    assert!(screen.contains("❯ work"), "what was said before stays: {screen}");
    assert!(screen.contains("the agent is gone: no such program"), "so do last words: {screen}");
}

#[test]
fn who_types_while_the_agent_dies_goes_on_typing() {
    let mut bench = Bench::new();
    bench.prompt("work");
    let sentence = "a long quite important question, never lost";
    let (before, after) = sentence.split_at(10);
    bench.types(before);
    bench.event(Event::Died("it ended with 1".to_owned()));
    for character in after.chars() {
        bench.wait(Duration::from_millis(130));
        assert_eq!(bench.key(KeyCode::Char(character)), [], "{character:?}");
    }
    bench.wait(Duration::from_secs(5));
    assert_eq!(bench.types("q"), [], "something is written: it goes on");
    assert_eq!(bench.app.input.text(), format!("{sentence}q"));
    assert_eq!(bench.key(KeyCode::Enter), []);
    assert_eq!(bench.control('r'), [Action::Restart(Restart::SameSession)]);
    assert_eq!(bench.app.input.text(), format!("{sentence}q"));
    // Nothing is written yet, and the first letter comes right after the window.
    let mut bench = Bench::new();
    bench.event(Event::Died("it ended with 1".to_owned()));
    bench.wait(Duration::from_millis(500));
    assert_eq!(bench.types("question"), []);
    assert_eq!(bench.app.input.text(), "question");
}

#[test]
fn why_an_agent_is_gone_and_the_keys_are_in_sight_on_every_screen() {
    let mut bench = Bench::new();
    let last: String = (0..30).map(|number| format!("\n  line {number}")).collect();
    bench.event(Event::Died(format!("the agent ended: exit status: 7; its last words:{last}")));
    for (columns, rows) in [(80, 24), (60, 24), (40, 16)] {
        let screen = bench.screen_of(columns, rows);
        for text in ["exit status: 7", "line 29", "session", "q quit"] {
            assert!(screen.contains(text), "{text} at {columns}x{rows}:\n{screen}");
        }
    }
}

#[test]
fn what_cannot_be_had_at_the_start_ends_it_unless_something_was_written() {
    let mut bench = Bench::unopened();
    assert_eq!(bench.event(Event::Refused("there is no session x".to_owned())), [Action::Quit]);
    let mut bench = Bench::unopened();
    bench.prompt("early");
    assert_eq!(bench.event(Event::Refused("there is no session x".to_owned())), []);
    assert_eq!(bench.app.input.text(), "early");
    let screen = bench.screen();
    assert!(screen.contains("No session could be opened") && screen.contains("no session x"), "{screen}");
}

#[test]
fn what_bowline_itself_allows_is_in_sight() {
    use bowline_state::policy::Preset;
    let mut bench = Bench::new();
    let mut shown = |allowed: Allowed| {
        bench.app.allowed = allowed;
        let screen = bench.screen();
        (screen.replace('\n', " "), screen.lines().last().unwrap_or_default().to_owned())
    };
    let ask = Allowed::default();
    for (allowed, word, sentence) in [
        (Allowed { preset: Preset::AcceptEdits, ..ask }, "edits allowed", "without a question"),
        (Allowed { preset: Preset::Full, rules: 2, ..ask }, "everything allowed +2 rules", "runs commands"),
        (Allowed { preset: Preset::Full, read_only: true, ..ask }, "read only", "is denied"),
        (Allowed { rules: 1, ..ask }, "1 rule", "You have 1 rule"),
    ] {
        let (screen, last) = shown(allowed);
        assert!(last.contains(word) && screen.contains(sentence), "{last}\n{screen}");
    }
    assert!(!shown(ask).1.contains("allowed"));
}

#[test]
fn one_can_go_on_with_what_was_said_to_an_agent_that_can() {
    let mut bench = Bench::new();
    assert_eq!(bench.app.worth_going_on(), None, "nothing was said");
    bench.prompt("hello");
    assert_eq!(bench.app.worth_going_on(), Some(&"s1".into()));
    bench.app.can.reopen = false;
    assert_eq!(bench.app.worth_going_on(), None);
    bench.open("s2", false);
    assert_eq!(bench.app.worth_going_on(), None, "nothing was said in this one");
}

#[test]
fn a_session_is_chosen_when_no_turn_goes_on() {
    let mut bench = Bench::new();
    bench.prompt("work");
    assert_eq!(bench.key(KeyCode::F(3)), []);
    bench.event(Event::TurnEnded(Ok(StopReason::EndTurn)));
    assert_eq!(bench.key(KeyCode::F(3)), [Action::ListSessions]);
    let info = |id: &str| SessionInfo::new(id.to_owned(), "/");
    bench.event(Event::Sessions(Ok(vec![info("s1"), info("s2")])));
    assert_eq!(bench.key(KeyCode::Enter), [], "it is the one that is open");
    bench.key(KeyCode::F(3));
    bench.event(Event::Sessions(Ok(vec![info("s1"), info("s2")])));
    bench.key(KeyCode::Down);
    assert_eq!(bench.key(KeyCode::Enter), [Action::Open(Some("s2".into()))]);
    bench.event(Event::NotOpened { why: "gone".to_owned(), alive: true });
    assert_eq!(bench.app.stage, Stage::Ready);
    bench.key(KeyCode::F(3));
    bench.event(Event::Sessions(Ok(vec![])));
    assert_eq!(bench.key(KeyCode::Enter), [Action::Open(None)]);
}

#[test]
fn what_another_session_says_is_not_shown() {
    let mut bench = Bench::new();
    let mut other = SessionAccumulator::new();
    let update = SessionUpdate::AgentMessageChunk(ContentChunk::new("from elsewhere".into()));
    other.apply(&SessionNotification::new("s9", update)).unwrap();
    bench.event(Event::Updated("s9".into(), other.snapshot()));
    assert!(bench.app.conversation.is_empty());
}

#[test]
fn commands_and_files_are_completed() {
    let mut bench = Bench::new();
    let commands =
        vec![AvailableCommand::new("compact", "makes room"), AvailableCommand::new("cost", "tells")];
    bench.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands)));
    bench.types("/co");
    bench.key(KeyCode::Down);
    assert_eq!(bench.key(KeyCode::Enter), [], "it completes, and sends nothing");
    assert_eq!(bench.app.input.text(), "/compact ");
    assert_eq!(bench.key(KeyCode::Enter), prompt("/compact "));
    bench.event(Event::TurnEnded(Ok(StopReason::EndTurn)));
    assert_eq!(bench.types("see @ma"), [Action::ListFiles]);
    bench.event(files(&["src/", "src/main.rs", "README"], false));
    bench.key(KeyCode::Tab);
    assert_eq!(bench.app.input.text(), "see @src/main.rs ");
    assert_eq!(bench.app.completion, None);
}

#[test]
fn a_notice_of_the_agent_is_shown_once() {
    let mut bench = Bench::new();
    bench.update(SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, "the key expires")));
    bench.says("hello");
    assert_eq!(bench.screen().matches("the key expires").count(), 1);
}

#[test]
fn what_is_too_long_is_refused_and_said() {
    let mut bench = Bench::new();
    bench.event(Event::Paste("x".repeat((1 << 20) + 1)));
    assert!(bench.app.input.is_empty());
    assert!(bench.app.flashing().unwrap().contains("too long"));
}

#[test]
fn changes_are_shown_to_whoever_asked_and_has_not_left() {
    let mut bench = Bench::new();
    assert_eq!(bench.key(KeyCode::F(2)), [Action::ListChanges]);
    bench.event(Event::Changes(Ok(Listed::default())));
    assert!(matches!(bench.app.pane, Some(Pane::Changes(_))));
    assert_eq!(bench.event(Event::TakenBack(Ok("undone in 1 file".to_owned()))), [Action::ListChanges]);
    bench.key(KeyCode::Esc);
    bench.event(Event::Changes(Ok(Listed::default())));
    assert!(bench.app.pane.is_none());
}

#[test]
fn what_is_remarked_before_a_session_is_open_stays_in_sight() {
    let mut bench = Bench::unopened();
    bench.event(Event::Remark(Tone::Warning, "a write was interrupted".to_owned()));
    bench.open("s1", false);
    assert!(bench.screen().contains("a write was interrupted"));
    bench.open("s2", false);
    assert!(!bench.screen().contains("a write was interrupted"), "that was of the session before");
}

/// Any key that a person can press.
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
    let held = proptest::sample::select(vec![
        KeyModifiers::NONE,
        KeyModifiers::NONE,
        KeyModifiers::SHIFT,
        KeyModifiers::CONTROL,
        KeyModifiers::ALT,
    ]);
    (code, held).prop_map(|(code, held)| KeyEvent::new(code, held))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_key_on_no_screen_breaks_it(
        keys in proptest::collection::vec(any_key(), 0..60),
        sizes in proptest::collection::vec((1u16..120, 1u16..40), 1..4),
        pasted in "\\PC{0,40}",
    ) {
        let mut bench = Bench::new();
        bench.says("# Title\n\n- one\n- two\n\n日本語 and `code`");
        bench.wire(r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Run\tit","kind":"execute","status":"failed",
            "content":[{"type":"diff","path":"/a","oldText":"a\n","newText":"b\n"}]}"#);
        bench.wire(r#"{"sessionUpdate":"plan","entries":[{"content":"x","priority":"low","status":"in_progress"}]}"#);
        bench.event(files(&["src/日.rs"], false));
        bench.event(Event::Paste(pasted));
        for (at, key) in keys.into_iter().enumerate() {
            for action in bench.event(Event::Key(key)) {
                match action {
                    Action::ListSessions => { bench.event(Event::Sessions(Ok(Vec::new()))); }
                    Action::ListChanges => { bench.event(Event::Changes(Ok(Listed::default()))); }
                    Action::Cancel => { bench.event(Event::TurnEnded(Ok(StopReason::Cancelled))); }
                    _ => {}
                }
            }
            if at == 20 {
                bench.event(question(1));
            }
            let (columns, rows) = sizes[at % sizes.len()];
            bench.screen_of(columns, rows);
        }
    }

    #[test]
    fn no_keys_that_are_pressed_fast_answer_a_question(
        before in "[ -~]{0,8}",
        keys in proptest::collection::vec((any_key(), 0u64..300), 0..24),
        withdrawn in 0usize..24,
    ) {
        let mut bench = Bench::new();
        bench.prompt("work");
        bench.types(&before);
        for number in 1..4 {
            bench.event(question(number));
        }
        for (at, (key, gap)) in keys.into_iter().enumerate() {
            bench.screen();
            bench.wait(Duration::from_millis(gap / 2));
            if at == withdrawn {
                bench.event(Event::Withdrawn(QuestionId(1)));
            }
            bench.wait(Duration::from_millis(gap.div_ceil(2)));
            let actions = bench.event(Event::Key(key));
            prop_assert!(!actions.iter().any(|action| matches!(action, Action::Answer(..))), "{actions:?}");
        }
    }
}

#[test]
fn what_was_rejected_and_what_holds_from_now_on_stays_in_the_conversation() {
    let mut bench = Bench::new();
    bench.prompt("go");
    for keys in ["y", "n", "rno need"] {
        bench.event(question(1));
        for key in keys.chars() {
            bench.look();
            bench.key(KeyCode::Char(key));
        }
        bench.key(KeyCode::Enter);
        assert!(bench.app.questions.is_empty(), "{keys}");
    }
    let screen = bench.screen();
    let mut told: Vec<String> =
        screen.lines().filter(|line| line.contains("you ")).map(|line| line.trim().to_owned()).collect();
    let Event::Asked(asked) = question(2) else { panic!("it is a question") };
    let approval = Approval::new(asked, Vec::new());
    for keep in [Keep::Once, Keep::Turn, Keep::Session, Keep::Project, Keep::Always] {
        let (choice, scope) = (Choice::Allow, Vec::new());
        let answer = Answer { choice, keep, scope, reason: None, option: None, text: None };
        told.extend(approval.remembered(&Reply::Answered(answer)));
    }
    told.extend(approval.remembered(&Reply::Nobody));
    expect![[r#"
        · you rejected “Question 1”
        · you rejected “Question 1”: o need
        you allowed “Question 2”, for this turn
        you allowed “Question 2”, for this session
    "#]]
    .assert_eq(&(told.join("\n") + "\n"));
}

#[test]
fn names_that_are_not_known_are_said_to_be_more() {
    let mut bench = Bench::new();
    bench.types("see @other");
    bench.event(files(&["src/", "README"], true));
    assert_eq!(bench.app.flashing(), Some("@ knows the first 2 names of this workspace: write others whole"));
}
