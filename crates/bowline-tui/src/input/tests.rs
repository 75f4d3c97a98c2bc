//! Tests of the prompt input: typing, history and paste.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;

use super::*;

fn press(input: &mut PromptInput, code: KeyCode) -> InputOutcome {
    input.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(input: &mut PromptInput, text: &str) {
    for character in text.chars() {
        press(input, KeyCode::Char(character));
    }
}

#[test]
fn enter_sends_and_other_enters_begin_a_line() {
    let mut input = PromptInput::default();
    type_text(&mut input, "one");
    input.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT));
    type_text(&mut input, "two");
    input.handle_key(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL));
    input.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::SHIFT));
    type_text(&mut input, "four");
    assert_eq!(press(&mut input, KeyCode::Enter), InputOutcome::Submitted("one\ntwo\n\nfour".to_owned()));
    assert!(input.is_empty());
    assert_eq!(press(&mut input, KeyCode::Enter), InputOutcome::Ignored);
}

#[test]
fn what_was_sent_is_recalled_and_the_draft_kept() {
    let mut input = PromptInput::default();
    for text in ["first", "second\nline", "second\nline"] {
        input.insert(text);
        press(&mut input, KeyCode::Enter);
    }
    type_text(&mut input, "draft");
    press(&mut input, KeyCode::Up);
    assert_eq!(input.text(), "second\nline");
    press(&mut input, KeyCode::Up);
    assert_eq!(input.text(), "second\nline", "the cursor goes to the first line");
    press(&mut input, KeyCode::Up);
    assert_eq!(input.text(), "first");
    press(&mut input, KeyCode::Up);
    assert_eq!(input.text(), "first");
    press(&mut input, KeyCode::Down);
    press(&mut input, KeyCode::Down);
    assert_eq!(input.text(), "draft");
}

#[test]
fn what_is_pasted_cannot_steer_anything() {
    let mut input = PromptInput::default();
    input.insert("a\r\nb\rc\u{1b}[2J\u{7}\td");
    assert_eq!(input.text(), "a\nb\nc[2J\td");
}

#[test]
fn there_is_an_end_to_what_can_be_written() {
    let mut input = PromptInput::default();
    assert_eq!(input.insert(&"x".repeat(MAX_INPUT - 1)), InputOutcome::Edited);
    assert_eq!(input.insert("yy"), InputOutcome::Full);
    assert_eq!(press(&mut input, KeyCode::Char('y')), InputOutcome::Full);
    assert_eq!(press(&mut input, KeyCode::Backspace), InputOutcome::Edited);
    assert_eq!(input.row_count(80, 8), 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn what_is_pasted_is_what_is_sent(text in "[a-z日é\u{301} \n]{1,60}") {
        prop_assume!(!text.trim().is_empty());
        let mut input = PromptInput::default();
        input.insert(&text);
        prop_assert_eq!(press(&mut input, KeyCode::Enter), InputOutcome::Submitted(text));
    }

    #[test]
    fn a_token_is_replaced_whole(before in "[a-z日 ]{0,20}", token in "[a-zé\u{301}日]{0,8}") {
        let mut input = PromptInput::default();
        input.insert(&format!("{before} @{token}"));
        input.replace_before_cursor(token.chars().count() + 1, "@done ");
        prop_assert_eq!(input.text(), format!("{before} @done "));
    }
}
