//! Tests of the picker.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use expect_test::expect;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn picker() -> Picker {
    let row = |label: &str, is_current| PickerRow {
        label: label.to_owned(),
        description: "what it is".to_owned(),
        is_current,
    };
    Picker::new("Model", vec![row("small", false), row("large", true), row("largest\u{1b}[2J", false)])
}

fn press(picker: &mut Picker, keys: &[KeyCode]) -> Option<PickerOutcome> {
    let mut outcome = None;
    for code in keys {
        outcome = picker.handle_key(KeyEvent::new(*code, KeyModifiers::NONE));
    }
    outcome
}

#[test]
fn what_holds_now_is_chosen_first() {
    assert_eq!(press(&mut picker(), &[KeyCode::Enter]), Some(PickerOutcome::Chosen(1)));
    assert_eq!(
        press(&mut picker(), &[KeyCode::Up, KeyCode::Up, KeyCode::Enter]),
        Some(PickerOutcome::Chosen(0))
    );
    assert_eq!(
        press(&mut picker(), &[KeyCode::End, KeyCode::Down, KeyCode::Enter]),
        Some(PickerOutcome::Chosen(2))
    );
    assert_eq!(press(&mut picker(), &[KeyCode::Esc]), Some(PickerOutcome::Closed));
}

#[test]
fn typing_narrows_it_down() {
    let mut picker = picker();
    let keys = [KeyCode::Char('E'), KeyCode::Char('s'), KeyCode::Char('t')];
    assert_eq!(press(&mut picker, &keys), None);
    assert_eq!(press(&mut picker, &[KeyCode::Enter]), Some(PickerOutcome::Chosen(2)));
    assert_eq!(press(&mut picker, &[KeyCode::Char('!'), KeyCode::Enter]), None, "nothing fits");
    assert_eq!(press(&mut picker, &[KeyCode::Backspace, KeyCode::Enter]), Some(PickerOutcome::Chosen(2)));
}

#[test]
fn it_is_drawn_on_any_screen() {
    let draw = |columns, rows| {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| picker().draw(frame, frame.area())).unwrap();
        terminal.backend().to_string()
    };
    for (columns, rows) in [(1, 1), (3, 2), (10, 5), (200, 50)] {
        draw(columns, rows);
    }
    expect![[r#"
        "                                                        "
        "  ┌ Model ───────────────────────────────────────────┐  "
        "  │❯                                                 │  "
        "  │  small  what it is                               │  "
        "  │● large  what it is                               │  "
        "  │  largest\u{1b}[2J  what it is                    │  "
        "  └ Enter choose · Esc close · type to narrow down ──┘  "
        "                                                        "
        "                                                        "
    "#]]
    .assert_eq(&draw(56, 9));
}
