//! Tests of the line editor.

use proptest::prelude::*;

use super::*;
use crate::view::widgets::test_util::{any_key, any_text, ctrl_key, key_event, line_text};

/// Presses keys one after the other: `<` and `>` move left and right, `^` and `$` to the start and the end, `!`
/// deletes.
fn type_keys(keys: &str) -> String {
    let mut editor = LineEditor::default();
    for letter in keys.chars() {
        editor.handle_key(match letter {
            '<' => key_event(KeyCode::Left),
            '>' => key_event(KeyCode::Right),
            '^' => key_event(KeyCode::Home),
            '$' => ctrl_key('e'),
            '!' => key_event(KeyCode::Delete),
            '#' => key_event(KeyCode::Backspace),
            '%' => ctrl_key('w'),
            '&' => ctrl_key('u'),
            letter => key_event(KeyCode::Char(letter)),
        });
    }
    editor.text().to_owned()
}

#[test]
fn keys_edit_at_the_cursor() {
    assert_eq!(type_keys("abc<<x"), "axbc");
    assert_eq!(type_keys("漢字<#x"), "x字");
    assert_eq!(type_keys("abc^!$d"), "bcd");
    assert_eq!(type_keys("one two  %three"), "one three");
    assert_eq!(type_keys("one two<<&"), "wo");
    assert_eq!(type_keys("##!<>"), "");
}

#[test]
fn there_is_an_end_to_what_it_takes() {
    let mut editor = LineEditor::new(&"é".repeat(MAX_TEXT));
    assert_eq!(editor.text().len(), MAX_TEXT);
    editor.paste("more");
    editor.handle_key(key_event(KeyCode::Char('x')));
    assert_eq!(editor.text().len(), MAX_TEXT);
}

#[test]
fn the_cursor_is_always_in_sight() {
    let mut editor = LineEditor::new("a long line of text");
    assert_eq!(line_text(&editor.render(8, true)), "…f text ");
    editor.handle_key(key_event(KeyCode::Home));
    assert_eq!(line_text(&editor.render(8, true)), "a long …");
    assert_eq!(line_text(&editor.render(8, false)), "a long …");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_breaks_it(
        start in any_text(),
        keys in proptest::collection::vec(any_key(), 0..30),
        width in 0..40_u16,
    ) {
        let mut editor = LineEditor::new(&start);
        for key in keys {
            editor.handle_key(key);
            prop_assert!(editor.text().is_char_boundary(editor.cursor));
            for focused in [true, false] {
                prop_assert!(cells::text_width(&line_text(&editor.render(width, focused))) <= usize::from(width));
            }
        }
    }
}
