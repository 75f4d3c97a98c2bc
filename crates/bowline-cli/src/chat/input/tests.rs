//! What is typed, recalled and pasted.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;

use super::*;

fn press(input: &mut Input, code: KeyCode) -> Typed {
    input.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(input: &mut Input, text: &str) {
    for character in text.chars() {
        press(input, KeyCode::Char(character));
    }
}

#[test]
fn enter_sends_and_other_enters_begin_a_line() {
    let mut input = Input::default();
    write(&mut input, "one");
    input.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT));
    write(&mut input, "two");
    input.key(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL));
    input.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::SHIFT));
    write(&mut input, "four");
    assert_eq!(press(&mut input, KeyCode::Enter), Typed::Sent("one\ntwo\n\nfour".to_owned()));
    assert!(input.is_empty());
    assert_eq!(press(&mut input, KeyCode::Enter), Typed::Ignored);
}

#[test]
fn what_was_sent_is_recalled_and_the_draft_kept() {
    let mut input = Input::default();
    for text in ["first", "second\nline", "second\nline"] {
        input.insert(text);
        press(&mut input, KeyCode::Enter);
    }
    write(&mut input, "draft");
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
    let mut input = Input::default();
    input.insert("a\r\nb\rc\u{1b}[2J\u{7}\td");
    assert_eq!(input.text(), "a\nb\nc[2J\td");
}

#[test]
fn there_is_an_end_to_what_can_be_written() {
    let mut input = Input::default();
    assert_eq!(input.insert(&"x".repeat(MAX_INPUT - 1)), Typed::Edited);
    assert_eq!(input.insert("yy"), Typed::Full);
    assert_eq!(press(&mut input, KeyCode::Char('y')), Typed::Full);
    assert_eq!(press(&mut input, KeyCode::Backspace), Typed::Edited);
    assert_eq!(input.rows(80, 8), 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn what_is_pasted_is_what_is_sent(text in "[a-z日é\u{301} \n]{1,60}") {
        prop_assume!(!text.trim().is_empty());
        let mut input = Input::default();
        input.insert(&text);
        prop_assert_eq!(press(&mut input, KeyCode::Enter), Typed::Sent(text));
    }

    #[test]
    fn a_token_is_replaced_whole(before in "[a-z日 ]{0,20}", token in "[a-zé\u{301}日]{0,8}") {
        let mut input = Input::default();
        input.insert(&format!("{before} @{token}"));
        input.complete(token.chars().count() + 1, "@done ");
        prop_assert_eq!(input.text(), format!("{before} @done "));
    }
}
