//! Tests of new output, and of the truncation of long output.

use proptest::prelude::*;

use super::{MAX_OUTPUT_BYTES, NewOutput, clip_output, output_since};

#[test]
fn what_was_dropped_at_the_start_is_not_told_again() {
    let new_output = |seen, now| output_since(seen, now);
    assert_eq!(new_output("", "one\n"), NewOutput { text: "one\n", has_gap: false });
    assert_eq!(new_output("one\n", "one\n"), NewOutput { text: "", has_gap: false });
    assert_eq!(new_output("one\ntwo\n", "one\ntwo\nthree\n"), NewOutput { text: "three\n", has_gap: false });
    assert_eq!(new_output("one\ntwo\n", "two\nthree\n"), NewOutput { text: "three\n", has_gap: false });
    assert_eq!(new_output("one\ntwo\n", "four\n"), NewOutput { text: "four\n", has_gap: true });
    // Such a short overlap may be a coincidence.
    assert_eq!(new_output("one\n", "\nfour\n"), NewOutput { text: "\nfour\n", has_gap: true });
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
        let NewOutput { text, has_gap } = output_since(&seen, now);
        prop_assert!(now.ends_with(text));
        if !has_gap && now.len() >= more.len() {
            // The longest overlap is used, so the result is at most the new part.
            prop_assert!(more.ends_with(text), "{text:?} of {more:?}");
        }
    }

    #[test]
    fn what_is_shown_is_within_bounds_and_says_what_is_not(text in "([ab]{0,50}\n|ä){0,40}", times in 1_usize..200) {
        let text = text.repeat(times);
        let shown = clip_output(&text);
        prop_assert!(shown.len() <= MAX_OUTPUT_BYTES + 40);
        prop_assert_eq!(shown == text, text.len() <= MAX_OUTPUT_BYTES);
    }
}
