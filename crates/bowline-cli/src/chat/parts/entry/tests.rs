//! What keys make of a line of text.

use proptest::prelude::*;

use super::*;
use crate::chat::parts::testing::{any_key, control, key, plain, texts};

/// Presses keys one after the other: `<` and `>` go left and right, `^` and `$` to the start and the end, `!` deletes.
fn typed(keys: &str) -> String {
    let mut entry = Entry::default();
    for letter in keys.chars() {
        entry.key(match letter {
            '<' => key(KeyCode::Left),
            '>' => key(KeyCode::Right),
            '^' => key(KeyCode::Home),
            '$' => control('e'),
            '!' => key(KeyCode::Delete),
            '#' => key(KeyCode::Backspace),
            '%' => control('w'),
            '&' => control('u'),
            letter => key(KeyCode::Char(letter)),
        });
    }
    entry.text().to_owned()
}

#[test]
fn keys_edit_at_the_cursor() {
    assert_eq!(typed("abc<<x"), "axbc");
    assert_eq!(typed("漢字<#x"), "x字");
    assert_eq!(typed("abc^!$d"), "bcd");
    assert_eq!(typed("one two  %three"), "one three");
    assert_eq!(typed("one two<<&"), "wo");
    assert_eq!(typed("##!<>"), "");
}

#[test]
fn there_is_an_end_to_what_it_takes() {
    let mut entry = Entry::new(&"é".repeat(MAX_TEXT));
    assert_eq!(entry.text().len(), MAX_TEXT);
    entry.paste("more");
    entry.key(key(KeyCode::Char('x')));
    assert_eq!(entry.text().len(), MAX_TEXT);
}

#[test]
fn the_cursor_is_always_in_sight() {
    let mut entry = Entry::new("a long line of text");
    assert_eq!(plain(&entry.line(8, true)), "…f text ");
    entry.key(key(KeyCode::Home));
    assert_eq!(plain(&entry.line(8, true)), "a long …");
    assert_eq!(plain(&entry.line(8, false)), "a long …");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_breaks_it(
        start in texts(),
        keys in proptest::collection::vec(any_key(), 0..30),
        width in 0..40_u16,
    ) {
        let mut entry = Entry::new(&start);
        for key in keys {
            entry.key(key);
            prop_assert!(entry.text().is_char_boundary(entry.cursor));
            for focused in [true, false] {
                prop_assert!(cells::width(&plain(&entry.line(width, focused))) <= usize::from(width));
            }
        }
    }
}
