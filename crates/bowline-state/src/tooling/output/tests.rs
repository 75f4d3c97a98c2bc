//! What is new in an output, and what is shown of a long one.

use proptest::prelude::*;

use super::{MAX_SHOWN, News, clip, since};

#[test]
fn what_was_dropped_at_the_start_is_not_told_again() {
    let news = |seen, now| since(seen, now);
    assert_eq!(news("", "one\n"), News { text: "one\n", gap: false });
    assert_eq!(news("one\n", "one\n"), News { text: "", gap: false });
    assert_eq!(news("one\ntwo\n", "one\ntwo\nthree\n"), News { text: "three\n", gap: false });
    assert_eq!(news("one\ntwo\n", "two\nthree\n"), News { text: "three\n", gap: false });
    assert_eq!(news("one\ntwo\n", "four\n"), News { text: "four\n", gap: true });
    // So little may be the same by chance.
    assert_eq!(news("one\n", "\nfour\n"), News { text: "\nfour\n", gap: true });
}

proptest! {
    #[test]
    fn nothing_new_is_left_out_and_little_is_repeated(
        seen in "[abä\n]{0,30}",
        more in "[abä\n]{0,30}",
        dropped in any::<prop::sample::Index>(),
    ) {
        let all = format!("{seen}{more}");
        let starts: Vec<usize> = all.char_indices().map(|(at, _)| at).chain([all.len()]).collect();
        let now = &all[*dropped.get(&starts)..];
        let News { text, gap } = since(&seen, now);
        prop_assert!(now.ends_with(text));
        if !gap && now.len() >= more.len() {
            // The longest overlap is taken, so what is told is at most what is new.
            prop_assert!(more.ends_with(text), "{text:?} of {more:?}");
        }
    }

    #[test]
    fn what_is_shown_is_within_bounds_and_says_what_is_not(text in "([ab]{0,50}\n|ä){0,40}", times in 1_usize..200) {
        let text = text.repeat(times);
        let shown = clip(&text);
        prop_assert!(shown.len() <= MAX_SHOWN + 40);
        prop_assert_eq!(shown == text, text.len() <= MAX_SHOWN);
    }
}
