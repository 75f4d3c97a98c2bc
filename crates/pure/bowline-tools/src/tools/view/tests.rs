//! Tests of the windows shown to a model, and of the resulting knowledge.

use std::sync::Arc;

use proptest::prelude::*;

use super::{MAX_BYTES, MAX_LINES, ViewSource, text_version, view_text};
use bowline_history::ledger::{Knowledge, Ledger};

#[test]
fn windows_are_told_by_their_lines() {
    let text = Arc::new("a\nb\nc\n".to_owned());
    let source = ViewSource { text: &text, is_whole: true };
    let describe = |first, limit| {
        let view = view_text(source, first, limit);
        (view.describe_range(), view.text.to_owned(), view.next_line)
    };
    assert_eq!(describe(1, None), ("all of it, 3 lines".to_owned(), "a\nb\nc\n".to_owned(), None));
    assert_eq!(describe(2, Some(1)), ("lines 2-2 of 3".to_owned(), "b\n".to_owned(), Some(3)));
    assert!(view_text(source, 5, None).is_past_end);
}

#[test]
fn a_file_that_does_not_fit_is_known_in_part() {
    let text = Arc::new("x\n".repeat(MAX_LINES as usize + 1));
    let source = ViewSource { text: &text, is_whole: true };
    let (mut ledger, shown) = (Ledger::default(), view_text(source, 1, None));
    assert_eq!(shown.next_line, Some(u64::from(MAX_LINES) + 1));
    shown.record_seen(&mut ledger, "/f", source);
    assert!(matches!(ledger.knowledge("/f", text_version(&text)), Knowledge::Partial(_)));
    view_text(source, MAX_LINES + 1, None).record_seen(&mut ledger, "/f", source);
    // Windows that together cover the file count as the whole.
    assert_eq!(ledger.knowledge("/f", text_version(&text)), Knowledge::Windows(text_version(&text)));
}

proptest! {
    #[test]
    fn going_on_shows_every_line_once(lines in prop::collection::vec("[a-zé]{0,40}", 0..200), limit in 1_u32..40) {
        let text = Arc::new(lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        let source = ViewSource { text: &text, is_whole: true };
        let (mut seen, mut at) = (String::new(), 1);
        loop {
            let shown = view_text(source, at, Some(limit));
            prop_assert!(shown.text.len() <= MAX_BYTES);
            seen.push_str(shown.text);
            match shown.next_line {
                Some(next) => at = u32::try_from(next).unwrap(),
                None => break,
            }
        }
        prop_assert_eq!(&seen, &*text);
    }
}
