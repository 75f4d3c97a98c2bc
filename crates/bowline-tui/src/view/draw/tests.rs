//! Tests of whole screens of 80 columns and 24 rows.

use std::time::Duration;

use bowline_protocol::schema::v1::StopReason;
use crossterm::event::KeyCode;
use expect_test::expect;

use crate::app::tests::{AppFixture, permission_event};
use crate::event::ChatEvent;

/// A turn with many kinds of items.
fn busy_turn() -> AppFixture {
    let mut fixture = AppFixture::new();
    fixture.submit_prompt("Fix the off-by-one in the parser, please.\nAnd run the tests.");
    for json in [
        r#"{"sessionUpdate":"session_info_update","title":"Fix the parser"}"#,
        r#"{"sessionUpdate":"usage_update","used":12400,"size":200000,"cost":{"amount":0.0312,"currency":"USD"}}"#,
        r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"The loop ends too early.\nOr does it?"}}"#,
        r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Read src/parser.rs","kind":"read","status":"completed"}"#,
        r#"{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Edit src/parser.rs","kind":"edit","status":"in_progress"}"#,
        r#"{"sessionUpdate":"plan","entries":[
            {"content":"Find the fault","priority":"high","status":"completed"},
            {"content":"Mend it","priority":"high","status":"in_progress"},
            {"content":"Run the tests","priority":"low","status":"pending"}]}"#,
    ] {
        fixture.update_json(json);
    }
    fixture.now += Duration::from_millis(2300);
    fixture.update_json(r#"{"sessionUpdate":"tool_call_update","toolCallId":"t2","status":"completed","content":[
        {"type":"diff","path":"/p/src/parser.rs","oldText":"a\nfor i in 0..n - 1 {\nb\n","newText":"a\nfor i in 0..n {\nb\n"}]}"#);
    fixture.update_json(r#"{"sessionUpdate":"tool_call","toolCallId":"t3","title":"cargo test","kind":"execute","status":"failed",
        "content":[{"type":"content","content":{"type":"text","text":"error: no such command: `tset`"}}]}"#);
    fixture.agent_says("The loop **missed** the last line; `0..n` is right. See [the docs](https://a.b/c).");
    fixture
}

#[test]
fn a_turn_at_work() {
    expect![[r#"
         Tester · Fix the parser                                              ~/project
        ❯ Fix the off-by-one in the parser, please.
          And run the tests.

        ▸ Thought: The loop ends too early. …

        ▸ ✓ read   Read src/parser.rs                                              <0.1s
        ▸ ✓ edit   Edit src/parser.rs  +1 −1                                        2.3s
        ▾ ✗ run    cargo test                                                      <0.1s
          error: no such command: `tset`

        The loop missed the last line; 0..n is right. See the docs (https://a.b/c).








        Plan 1/3  ◐ Mend it
        ────────────────────────────────────────────────────────────────────────────────
        ❯  Say something; / for commands, @ for files, F1 for help
         ⠸ working 2.3s  12k/200k 6% $0.03                         Esc cancel · F1 help
    "#]]
    .assert_eq(&busy_turn().render());
}

#[test]
fn calls_are_opened_and_the_whole_plan_is_shown() {
    let mut fixture = busy_turn();
    fixture.press(KeyCode::F(6));
    fixture.press(KeyCode::Tab);
    fixture.press(KeyCode::Enter);
    fixture.press(KeyCode::Up);
    fixture.press(KeyCode::Enter);
    expect![[r#"
         Tester · Fix the parser                                              ~/project
        ❯ Fix the off-by-one in the parser, please.
          And run the tests.

        ▸ Thought: The loop ends too early. …

        ▸ ✓ read   Read src/parser.rs                                              <0.1s
        ▾ ✓ edit   Edit src/parser.rs  +1 −1                                        2.3s
          src/parser.rs  +1 −1
          @@ -1,3 +1,3 @@
          1 1  a
          2   -for i in 0..n - 1 {
            2 +for i in 0..n {
          3 3  b
        ▸ ✗ run    cargo test                                                      <0.1s

        The loop missed the last line; 0..n is right. See the docs (https://a.b/c).
        Plan 1/3
          ✓ Find the fault
          ◐ Mend it
          ○ Run the tests
        ────────────────────────────────────────────────────────────────────────────────
        ❯  Say something; / for commands, @ for files, F1 for help
         ⠸ working 2.3s  12k/200k 6% $0.03              Enter open · Tab back · F1 help
    "#]]
    .assert_eq(&fixture.render());
}

#[test]
fn the_first_screen() {
    expect![[r#"
         Tester                                                               ~/project

        Tester is ready in ~/project. What it wants to change or run and your rules do
        not allow, you are asked about. F2 shows what it changed and takes it back.

        For example:
          ❯ What does this project do?
          ❯ Explain @README.md in three sentences
          ❯ Run the tests and fix what fails

        /undo takes back what the last turn changed.










        ────────────────────────────────────────────────────────────────────────────────
        ❯  Say something; / for commands, @ for files, F1 for help
         ● ready                                                                F1 help
    "#]]
    .assert_eq(&AppFixture::new().render());
}

#[test]
fn a_dead_agent() {
    let mut fixture = busy_turn();
    fixture.send_event(ChatEvent::AgentExited("the agent ended: exit status: 101; its last words:\nthread 'main' panicked at src/main.rs:1:1:\nboom".to_owned()));
    expect![[r#"
         Tester · Fix the parser                                              ~/project
        ❯ Fix the off-by-one in the parser, please.
          And run the tests.

        ▸┌ The agent is gone ─────────────────────────────────────────────────────────┐
         │the agent ended: exit status: 101; its last words:                          │
        ▸│thread 'main' panicked at src/main.rs:1:1:                                  │s
        ▸│boom                                                                        │s
        ▾│                                                                            │s
         │r start it again and go on · n start it with a new session · q quit         │
         └ what was said is still here: PgUp, PgDn ───────────────────────────────────┘
        The loop missed the last line; 0..n is right. See the docs (https://a.b/c).

        ! the agent is gone: the agent ended: exit status: 101; its last words:
          thread 'main' panicked at src/main.rs:1:1:
          boom




        Plan 1/3  ◐ Mend it
        ────────────────────────────────────────────────────────────────────────────────
        ❯  Say something; / for commands, @ for files, F1 for help
         ✗ the agent is gone  12k/200k 6% $0.03                                 F1 help
    "#]]
    .assert_eq(&fixture.render());
}

#[test]
fn a_small_screen_and_one_that_is_too_small() {
    let mut fixture = busy_turn();
    expect![[r#"
         Tester · Fix the parser      ~/project
        ▾ ✗ run    cargo test              <0.1s
          error: no such command: `tset`

        The loop missed the last line; 0..n is
        right. See the docs (https://a.b/c).
        Plan 1/3  ◐ Mend it
        ────────────────────────────────────────
        ❯  Say something; / for commands, @ for
         ⠸ working 2.3s  1…Esc cancel · F1 help
    "#]]
    .assert_eq(&fixture.render_sized(40, 10));
    expect![[r#"
        too small:
        20x6 needed
    "#]]
    .assert_eq(&fixture.render_sized(12, 4));
}

#[test]
fn several_questions_wait() {
    let mut fixture = busy_turn();
    fixture.send_event(permission_event(1));
    fixture.send_event(permission_event(2));
    expect![[r#"
        Tester asks: Question 1
        Asked because no rule applies
        ─ 1 more question · a moment ───────────────────────────────
        something that it does by itself, in its own words: make tea






        y allow once  n reject
        r reject, why…  Ctrl-C cancel  ? help
    "#]]
    .assert_eq(&fixture.render_sized(60, 12));
}

#[test]
fn a_prompt_waits_and_one_is_written() {
    let mut fixture = busy_turn();
    fixture.submit_prompt("and then\nwrite it down");
    fixture.type_text("/");
    fixture.type_text("x");
    let screen = fixture.render();
    let last: Vec<&str> = screen.lines().rev().take(4).collect();
    expect![[r#"
        next: and then write it down
        ────────────────────────────────────────────────────────────────────────────────
        ❯ /x
         ⠸ working 2.3s  12k/200k 6% $0.03                         Esc cancel · F1 help
    "#]]
    .assert_eq(&last.into_iter().rev().map(|line| line.to_owned() + "\n").collect::<String>());
}

#[test]
fn new_messages_do_not_scroll_the_text_being_read() {
    let mut fixture = AppFixture::new();
    let long: String = (0..60).map(|number| format!("line {number}\n\n")).collect();
    fixture.agent_says(&long);
    fixture.render();
    fixture.press(KeyCode::PageUp);
    let before = fixture.render();
    fixture.agent_says("and more\n\nand more");
    let after = fixture.render();
    let messages = |screen: &str| screen.lines().skip(1).take(15).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(messages(&before), messages(&after));
    assert!(after.contains("more below"));
    fixture.send_event(ChatEvent::TurnEnded(Ok(StopReason::EndTurn)));
    fixture.press(KeyCode::PageDown);
    fixture.press(KeyCode::PageDown);
    assert!(fixture.render().contains("and more"));
    assert!(!fixture.render().contains("more below"));
}
