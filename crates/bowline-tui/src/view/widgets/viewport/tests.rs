//! Tests of the viewport.

use super::*;

fn viewport(height: u16, len: usize) -> Viewport {
    let mut viewport = Viewport::default();
    viewport.set_size(height, len);
    viewport
}

#[test]
fn keys_scroll_and_stop_at_both_ends() {
    let mut viewport = viewport(5, 20);
    let mut top = |code| {
        assert!(viewport.handle_key(code));
        viewport.top()
    };
    assert_eq!(top(KeyCode::Up), 0);
    assert_eq!(top(KeyCode::Char('j')), 1);
    assert_eq!(top(KeyCode::PageDown), 5);
    assert_eq!(top(KeyCode::End), 15);
    assert_eq!(top(KeyCode::Down), 15);
    assert_eq!(top(KeyCode::PageUp), 11);
    assert_eq!(top(KeyCode::Home), 0);
    assert!(!viewport.handle_key(KeyCode::Enter));
    assert_eq!(viewport.describe_position().as_deref(), Some("1–5 of 20"));
}

#[test]
fn lines_come_into_sight_with_some_before_them() {
    let mut viewport = viewport(9, 40);
    viewport.reveal(5..6);
    assert_eq!(viewport.top(), 0);
    viewport.reveal(10..12);
    assert_eq!(viewport.top(), 3);
    viewport.reveal(4..5);
    assert_eq!(viewport.top(), 2);
    // More than fits: its start is shown.
    viewport.reveal(20..40);
    assert_eq!(viewport.top(), 18);
}

#[test]
fn with_more_room_there_is_nothing_to_scroll() {
    let mut viewport = viewport(5, 20);
    viewport.handle_key(KeyCode::End);
    viewport.set_size(30, 20);
    assert_eq!((viewport.top(), viewport.describe_position()), (0, None));
    viewport.set_size(0, 20);
    viewport.handle_key(KeyCode::PageDown);
    assert_eq!(viewport.top(), 1);
}
