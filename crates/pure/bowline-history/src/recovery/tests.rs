//! Tests of the recovery of interrupted writes.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

/// Rows of `method before after current temp`, with `-` for nothing.
fn check(rows: &str, expected: Expect) {
    let mut text = String::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let bytes = |at: usize| {
            let word: &str = words[at];
            (word != "-").then(|| word.trim_matches('\'').as_bytes())
        };
        let method = if words[0] == "exchange" { WriteMethod::Exchange } else { WriteMethod::InPlace };
        let (before, after, current, temp) = (bytes(1), bytes(2), bytes(3), bytes(4));
        let (outcome, repair) = decide_recovery(InterruptedWrite { method, before, after, current, temp });
        writeln!(text, "{row} => {outcome:?}, {repair:?}").unwrap();
    }
    expected.assert_eq(&text);
}

/// Rows of `append|cut tail rest`, with `-` for nothing and `''` for no bytes.
#[test]
fn a_change_of_the_end_is_done_whole_or_taken_back() {
    let rows = "
        append new ''
        append new n
        append new new
        append new newer
        append new user
        append new nuser
        append new -
        cut new ''
        cut new ne
        cut new new
        cut new newer
        cut new user
        cut new -
    ";
    let mut text = String::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let words: Vec<&str> = row.split(' ').collect();
        let rest = (words[2] != "-").then(|| words[2].trim_matches('\'').as_bytes());
        let is_append = words[0] == "append";
        let (outcome, repair) =
            decide_tail_recovery(InterruptedTail { is_append, tail: words[1].as_bytes(), rest });
        writeln!(text, "{row} => {outcome:?}, {repair:?}").unwrap();
    }
    expect![[r#"
        append new '' => Abandoned, None
        append new n => Done, Complete
        append new new => Done, None
        append new newer => Done, None
        append new user => Unknown, None
        append new nuser => Unknown, None
        append new - => Unknown, None
        cut new '' => Done, None
        cut new ne => Abandoned, Complete
        cut new new => Abandoned, None
        cut new newer => Abandoned, None
        cut new user => Unknown, None
        cut new - => Unknown, None
    "#]]
    .assert_eq(&text);
}

#[test]
fn an_exchange_is_read_off_the_file_and_what_bears_the_temporary_name() {
    check(
        "
        exchange old new old -
        exchange old new old ''
        exchange old new old ne
        exchange old new old new
        exchange old new new old
        exchange old new new -
        exchange old new user old
        exchange old new user new
        exchange old new user -
        exchange old new new user
        exchange old new user user2
        exchange old new - new
        exchange old new - old
        exchange - new - -
        exchange - new - ne
        exchange - new new -
        exchange - new new new
        exchange - new user new
        exchange - new user -
        exchange old - old -
        exchange old - - old
        exchange old - - -
        exchange old - - user
        exchange old - user old
        exchange old - user user2
        exchange '' new '' ''
        exchange '' new new ''
        exchange old new new ol
        exchange old - - ol
        exchange old new old old
        exchange old new old ol
        ",
        expect![[r#"
            exchange old new old - => Abandoned, None
            exchange old new old '' => Abandoned, RemoveTemp
            exchange old new old ne => Abandoned, RemoveTemp
            exchange old new old new => Abandoned, RemoveTemp
            exchange old new new old => Done, RemoveTemp
            exchange old new new - => Done, None
            exchange old new user old => Done, RemoveTemp
            exchange old new user new => Unknown, RemoveTemp
            exchange old new user - => Unknown, None
            exchange old new new user => Abandoned, ExchangeBack
            exchange old new user user2 => Unknown, KeepTemp
            exchange old new - new => Unknown, RemoveTemp
            exchange old new - old => Done, RemoveTemp
            exchange - new - - => Abandoned, None
            exchange - new - ne => Abandoned, RemoveTemp
            exchange - new new - => Done, None
            exchange - new new new => Done, RemoveTemp
            exchange - new user new => Unknown, RemoveTemp
            exchange - new user - => Unknown, None
            exchange old - old - => Abandoned, None
            exchange old - - old => Done, RemoveTemp
            exchange old - - - => Done, None
            exchange old - - user => Abandoned, RenameBack
            exchange old - user old => Unknown, RemoveTemp
            exchange old - user user2 => Unknown, KeepTemp
            exchange '' new '' '' => Abandoned, RemoveTemp
            exchange '' new new '' => Done, RemoveTemp
            exchange old new new ol => Done, RemoveTemp
            exchange old - - ol => Done, RemoveTemp
            exchange old new old old => Unknown, RemoveTemp
            exchange old new old ol => Unknown, RemoveTemp
        "#]],
    );
}

#[test]
fn a_file_that_is_half_written_in_place_is_written_to_the_end() {
    check(
        "
        in_place aaaa bbbb aaaa -
        in_place aaaa bbbb bbbb -
        in_place aaaa bbbb bbaa -
        in_place aaaa bbbb bxaa -
        in_place aaaa bb bbaa -
        in_place aaaa bb bba -
        in_place aa bbbb aabb -
        in_place aa bbbb aab -
        in_place aa bbbb bbbbb -
        in_place aaaa bbbb bbb -
        in_place aaaa bbbb - -
        in_place - bbbb bb -
        ",
        expect![[r#"
            in_place aaaa bbbb aaaa - => Abandoned, None
            in_place aaaa bbbb bbbb - => Done, None
            in_place aaaa bbbb bbaa - => Done, CompleteWrite
            in_place aaaa bbbb bxaa - => Unknown, None
            in_place aaaa bb bbaa - => Done, CompleteWrite
            in_place aaaa bb bba - => Done, CompleteWrite
            in_place aa bbbb aabb - => Done, CompleteWrite
            in_place aa bbbb aab - => Done, CompleteWrite
            in_place aa bbbb bbbbb - => Unknown, None
            in_place aaaa bbbb bbb - => Unknown, None
            in_place aaaa bbbb - - => Unknown, None
            in_place - bbbb bb - => Unknown, None
        "#]],
    );
}

fn any_content() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(0u8..3, 0..4))
}

proptest! {
    #[test]
    fn nothing_that_only_the_temporary_file_holds_is_thrown_away(
        before in any_content(), after in any_content(), current in any_content(), temp in any_content()
    ) {
        let remains = InterruptedWrite {
            method: WriteMethod::Exchange,
            before: before.as_deref(),
            after: after.as_deref(),
            current: current.as_deref(),
            temp: temp.as_deref(),
        };
        let (outcome, repair) = decide_recovery(remains);
        let Some(temp) = &temp else {
            prop_assert_eq!(repair, Repair::None);
            return Ok(());
        };
        // Both texts of the change are in the journal, and so is any prefix of either.
        let known = before.as_ref().is_some_and(|before| before.starts_with(temp))
            || after.as_ref().is_some_and(|after| after.starts_with(temp));
        if repair == Repair::RemoveTemp {
            prop_assert!(known);
        }
        // A done write is or was in the file; an abandoned one leaves the file as it was or as the repair makes it.
        if outcome == ChangeOutcome::Abandoned && repair == Repair::RemoveTemp {
            prop_assert_eq!(&current, &before);
        }
        if repair == Repair::ExchangeBack {
            prop_assert!(!known && current == after);
        }
        if repair == Repair::RenameBack {
            prop_assert!(current.is_none());
        }
    }
}
