//! Tests of the viewport.

use super::*;

fn viewport(height: u16, len: usize) -> Viewport {
    let mut view = Viewport::default();
    view.set_size(height, len);
    view
}

#[test]
fn keys_scroll_and_stop_at_both_ends() {
    let mut view = viewport(5, 20);
    let mut top = |code| {
        assert!(view.handle_key(code));
        view.top()
    };
    assert_eq!(top(KeyCode::Up), 0);
    assert_eq!(top(KeyCode::Char('j')), 1);
    assert_eq!(top(KeyCode::PageDown), 5);
    assert_eq!(top(KeyCode::End), 15);
    assert_eq!(top(KeyCode::Down), 15);
    assert_eq!(top(KeyCode::PageUp), 11);
    assert_eq!(top(KeyCode::Home), 0);
    assert!(!view.handle_key(KeyCode::Enter));
    assert_eq!(view.describe_position().as_deref(), Some("1–5 of 20"));
}

#[test]
fn lines_come_into_sight_with_some_before_them() {
    let mut view = viewport(9, 40);
    view.reveal(5..6);
    assert_eq!(view.top(), 0);
    view.reveal(10..12);
    assert_eq!(view.top(), 3);
    view.reveal(4..5);
    assert_eq!(view.top(), 2);
    // More than fits: its start is shown.
    view.reveal(20..40);
    assert_eq!(view.top(), 18);
}

#[test]
fn with_more_room_there_is_nothing_to_scroll() {
    let mut view = viewport(5, 20);
    view.handle_key(KeyCode::End);
    view.set_size(30, 20);
    assert_eq!((view.top(), view.describe_position()), (0, None));
    view.set_size(0, 20);
    view.handle_key(KeyCode::PageDown);
    assert_eq!(view.top(), 1);
}
