//! Tests of the reversal of appends.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::changes::{ChangeId, ChangeOrigin, ChangeSource, FileState};
use bowline_text::time::Timestamp;

fn change(before: &str, after: &str) -> Change {
    let state = |text: &str| {
        Some(FileState { hash: ContentHash::digest(text.as_bytes()), size: text.len() as u64, mode: 0o644 })
    };
    Change {
        id: ChangeId(1),
        at: Timestamp(0),
        origin: ChangeOrigin::default(),
        source: ChangeSource::Written,
        path: "/log".to_owned(),
        before: state(before),
        after: state(after),
        moved_from: None,
        reverses: Vec::new(),
    }
}

fn tail_of<'a>(before: &'a str, after: &'a str) -> &'a str {
    after.strip_prefix(before).or(before.strip_prefix(after)).unwrap()
}

/// Rows of `before after current`: how a change of the end is reverted.
fn check(rows: &str, expected: Expect) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
    let mut shown = String::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let [before, after, current] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let (change, tail) = (change(before, after), tail_of(before, after).as_bytes());
        let step = TailStep { change: &change, tail };
        let planned = match plan_tail_reversal(current.len() as u64, current.as_bytes(), &[step]) {
            Some(TailPlan::Cut(bytes)) => format!("cut {}", text(&bytes)),
            Some(TailPlan::Append(bytes)) => format!("append {}", text(&bytes)),
            None => "no plan".to_owned(),
        };
        let moved = plan_moved_tail_reversal(current.len() as u64, current.as_bytes(), &[step]);
        let moved = if moved.is_some() && planned == "no plan" { "moved" } else { &planned };
        let rebuilt = step.rebuild_contents(current.as_bytes());
        let rebuilt = rebuilt.map_or("not proven".to_owned(), |(before, after)| {
            format!("from {} to {}", text(&before), text(&after))
        });
        writeln!(shown, "{row}: {moved}, {rebuilt}").unwrap();
    }
    expected.assert_eq(&shown);
}

#[test]
fn an_append_is_cut_off_while_it_is_at_the_end() {
    check(
        "
        log; log;new; log;new;
        log; log;new; LOG;new;
        log; log;new; log;new;more;
        log; log;new; log;more;new;
        log; log;new; longer;new;
        log; log;new; l;new;
        log; log;new; new;
        log; log;new; longer;new;more;
        log; log;new; log;
        log; log;new; log;NEW;
        log; log;log; log;
        ",
        expect![[r#"
            log; log;new; log;new;: cut new;, from log; to log;new;
            log; log;new; LOG;new;: cut new;, from LOG; to LOG;new;
            log; log;new; log;new;more;: no plan, from log;more; to log;new;more;
            log; log;new; log;more;new;: moved, from log;more; to log;more;new;
            log; log;new; longer;new;: moved, from longer; to longer;new;
            log; log;new; l;new;: moved, from l; to l;new;
            log; log;new; new;: no plan, from  to new;
            log; log;new; longer;new;more;: no plan, not proven
            log; log;new; log;: no plan, from log; to log;new;
            log; log;new; log;NEW;: no plan, from log; to log;new;
            log; log;log; log;: no plan, from log; to log;log;
        "#]],
    );
}

#[test]
fn what_was_cut_off_is_appended_again() {
    check(
        "
        log;new; log; log;
        log;new; log; LOG;
        log;new; log; log;more;
        log;new; log; longer;
        ",
        expect![[r#"
            log;new; log; log;: append new;, from log;new; to log;
            log;new; log; LOG;: append new;, from LOG;new; to LOG;
            log;new; log; log;more;: no plan, from log;more;new; to log;more;
            log;new; log; longer;: no plan, from longer;new; to longer;
        "#]],
    );
}

#[test]
fn consecutive_appends_are_cut_off_together() {
    let changes = [change("a", "ab"), change("ab", "abc"), change("abc", "abcd")];
    let tails = [b"b", b"c", b"d"];
    let steps: Vec<_> =
        changes.iter().zip(&tails).map(|(change, tail)| TailStep { change, tail: *tail }).collect();
    let newest_first: Vec<_> = steps.iter().rev().copied().collect();
    assert_eq!(plan_tail_reversal(4, b"bcd", &newest_first), Some(TailPlan::Cut(b"bcd".to_vec())));
    assert_eq!(plan_tail_reversal(4, b"bXd", &newest_first), None, "one is no longer there");
    assert_eq!(plan_tail_reversal(4, b"bcd", &steps), None, "they are in another order");
    assert_eq!(plan_tail_reversal(4, b"d", &[]), None);
    assert_eq!(plan_moved_tail_reversal(9, b"bcd", &newest_first), Some(TailPlan::Cut(b"bcd".to_vec())));
    assert_eq!(plan_moved_tail_reversal(9, b"bXd", &newest_first), None, "one is no longer there");
    assert_eq!(plan_moved_tail_reversal(1, b"bcd", &newest_first), None, "they were removed");
    assert_eq!(sum_tails(&steps), Some(b"bcd".to_vec()));
    let cut = change("abcd", "abc");
    let undone = [steps, vec![TailStep { change: &cut, tail: b"d" }]].concat();
    assert_eq!(sum_tails(&undone), Some(b"bc".to_vec()));
    assert_eq!(sum_tails(&undone[3..]), None, "it removed what was there before");
    assert_eq!(plan_tail_reversal(3, b"bc", &[undone[3], undone[1]]), None, "one adds and one removes");
}
