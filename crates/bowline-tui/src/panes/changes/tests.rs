//! Tests of the changes pane: what it shows, and what its keys undo.

use bowline_history::changes::{ChangeOrigin, ChangeSource, FileState};
use bowline_history::undo::{changes_to_redo, changes_to_undo};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::view::widgets::test_util::{any_key, any_size, any_text, draw_to_buffer, draw_to_text, key_event};

fn file_state(text: &str) -> FileState {
    FileState { hash: ContentHash::digest(text.as_bytes()), size: text.len() as u64, mode: 0o644 }
}

fn entry(id: i64, turn: u64, path: &str, before: Option<&str>, after: Option<&str>) -> ChangeEntry {
    let change = Change {
        id: ChangeId(id),
        at: Timestamp(id * 61_000),
        origin: ChangeOrigin {
            session: Some("s1".to_owned()),
            turn: Some(turn),
            call: Some(format!("call-{id}")),
            command: None,
        },
        source: ChangeSource::Written,
        path: path.to_owned(),
        moved_from: None,
        before: before.map(file_state),
        after: after.map(file_state),
        reverses: Vec::new(),
    };
    ChangeEntry {
        record: ListedChange { change, is_in_effect: true, is_uncertain: false },
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
        title: (turn == 2).then(|| "Tidy up".to_owned()),
    }
}

/// A change that is attributed to no session.
fn user_entry(id: i64, path: &str, before: Option<&str>, after: Option<&str>) -> ChangeEntry {
    let mut entry = entry(id, 1, path, before, after);
    (entry.record.change.origin, entry.record.change.source) =
        (ChangeOrigin::default(), ChangeSource::Observed);
    entry
}

fn undo_entry(id: i64, reversed: i64, hunks: Option<Vec<usize>>) -> ChangeEntry {
    let mut undo = entry(id, 9, "/w/src/a.rs", Some("x"), Some("y"));
    undo.record.change.origin = ChangeOrigin::default();
    undo.record.change.reverses = vec![Reversal { change: ChangeId(reversed), hunks }];
    undo
}

fn recent_changes(entries: Vec<ChangeEntry>) -> RecentChanges {
    RecentChanges { entries, older_counts: OlderCounts::default() }
}

const BEFORE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
const AFTER: &str = "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\n";

fn entries() -> Vec<ChangeEntry> {
    let mut observed = entry(3, 2, "/w/target/log", None, Some("built\n"));
    observed.record.change.source = ChangeSource::Observed;
    observed.record.change.origin.command = Some("cargo build".to_owned());
    vec![
        entry(1, 1, "/w/src/a.rs", Some(BEFORE), Some(AFTER)),
        entry(2, 1, "/w/README.md", None, Some("# W\n")),
        observed,
        entry(4, 1, "/w/src/a.rs", Some(AFTER), Some(BEFORE)),
    ]
}

fn check(changes: &mut ChangesPane, (width, height): (u16, u16), expected: Expect) {
    expected.assert_eq(&draw_to_text(width, height, |frame, area| changes.draw(frame, area)));
}

/// Draws the pane, so that keys refer to what is visible, and presses the keys. Actions are completed at once.
fn press(changes: &mut ChangesPane, keys: &[KeyCode]) -> Vec<ChangesAction> {
    let actions = keys.iter().filter_map(|code| {
        draw_to_buffer(80, 24, |frame, area| changes.draw(frame, area));
        changes.handle_key(key_event(*code)).inspect(|_| (changes.is_busy, changes.message) = (false, None))
    });
    actions.collect()
}

const fn letter(letter: char) -> KeyCode {
    KeyCode::Char(letter)
}

#[test]
fn undo_entries_do_not_push_out_the_newest_edits() {
    let mut entries = vec![entry(1, 1, "/w/old", None, Some("x")), entry(2, 1, "/w/older", None, Some("x"))];
    entries.extend((3..8).map(|id| entry(id, 2, &format!("/w/file{id}"), None, Some("x"))));
    entries.push(undo_entry(8, 3, Some(vec![0])));
    let mut redone = undo_entry(9, 7, None);
    redone.record.is_in_effect = false;
    entries.push(redone);
    // Each undoes the one before.
    entries.extend((10..100).map(|id| undo_entry(id, id - 1, None)));
    entries.push(undo_entry(100, 1, None));
    // Nor do the user's own changes.
    entries.extend((101..110).map(|id| user_entry(id, &format!("/w/mine{id}"), None, Some("x"))));
    let changes = entries.iter().map(|entry| entry.record.clone()).collect();
    let (kept, older_counts) = select_newest(changes, 5);
    let ids: Vec<i64> = kept.iter().map(|listed| listed.change.id.0).collect();
    assert_eq!(ids, [3, 4, 5, 6, 7, 8, 105, 106, 107, 108, 109]);
    assert_eq!(older_counts, OlderCounts { agents: 2, others: 4 });
    entries.retain(|entry| ids.contains(&entry.record.change.id.0));
    let screen = draw_to_text(60, 24, |frame, area| {
        ChangesPane::new(RecentChanges {
            entries: entries.clone(),
            older_counts: OlderCounts { agents: 308, others: 9 },
        })
        .draw(frame, area);
    });
    expect![[r#"
        ─ changes by agents in /w ───── 308 older: bowline changes ─
        turn 2 of s1: Tidy up
        p file3                                                +1 −0
          file4                                                +1 −0
          file5                                                +1 −0
          file6                                                +1 −0
          file7                                                +1 −0
        ─ hunk 1 of 1 ──────────────────────────────────────────────
        /w/file7
        change 7 · written through Bowline · 00:07:07 UTC · call
        call-7
          new file
          @@ -0,0 +1 @@
        ▌   1 +x
        ▌     \ No newline at end of file








        u undo  r redo  U file  T turn  S session  Tab diff  ? help
    "#]]
    .assert_eq(&screen);
}

#[test]
fn changes_are_listed_by_turn_and_file_with_the_newest_chosen() {
    check(
        &mut ChangesPane::new(recent_changes(entries())),
        (80, 24),
        expect![[r#"
            ─ changes by agents in /w ──────────────────────────────────────────────────────
            turn 1 of session s1
              src/a.rs                                                                 +2 −1
              src/a.rs                                                                 +1 −2
              README.md                                                                +1 −0
            turn 2 of s1: Tidy up
              target/log (by a command)                                                +1 −0
            ─ hunk 1 of 2 ──────────────────────────────────────────────────────────────────
            /w/src/a.rs
            change 4 · written through Bowline · 00:04:04 UTC · call call-4
              @@ -1,4 +1,4 @@
            ▌  1    -ONE
            ▌     1 +one
               2  2  two
               3  3  three
               4  4  four
              @@ -8,4 +8,3 @@
               8  8  eight
               9  9  nine
              10 10  ten
              11    -eleven


            u undo  r redo  U file  T turn  S session  Tab diff  n p hunk  Esc close  ? help
        "#]],
    );
}

#[test]
fn on_a_narrow_screen_there_is_less_of_each() {
    check(
        &mut ChangesPane::new(recent_changes(entries())),
        (20, 5),
        expect![[r#"
            ─ changes by agen…──
              src/a.rs     +1 −2
            ─ hunk 1 of 2 ──────
            /w/src/a.rs
            u undo  r redo  ?
        "#]],
    );
    check(
        &mut ChangesPane::new(recent_changes(entries())),
        (40, 14),
        expect![[r#"
            ─ changes by agents in /w ──────────────
            turn 1 of session s1
              src/a.rs                         +2 −1
              src/a.rs                         +1 −2
              README.md                        +1 −0
            ─ hunk 1 of 2 ──────── lines 1–7 of 14 ─
            /w/src/a.rs
            change 4 · written through Bowline ·
            00:04:04 UTC · call call-4
              @@ -1,4 +1,4 @@
            ▌  1    -ONE
            ▌     1 +one
               2  2  two
            u undo  r redo  U file  T turn  ? help
        "#]],
    );
}

#[test]
fn a_wide_screen_shows_list_and_diff_side_by_side() {
    check(
        &mut ChangesPane::new(recent_changes(entries())),
        (130, 12),
        expect![[r#"
            ─ changes by agents in /w ──────────────── ─ hunk 1 of 2 ────────────────────────────────────────────────────── lines 1–10 of 13 ─
            turn 1 of session s1                       /w/src/a.rs
              src/a.rs                           +2 −1 change 4 · written through Bowline · 00:04:04 UTC · call call-4
              src/a.rs                           +1 −2   @@ -1,4 +1,4 @@
              README.md                          +1 −0 ▌  1    -ONE
            turn 2 of s1: Tidy up                      ▌     1 +one
              target/log (by a command)          +1 −0    2  2  two
                                                          3  3  three
                                                          4  4  four
                                                         @@ -8,4 +8,3 @@
                                                          8  8  eight
            u undo  r redo  U file  T turn  S session  Tab diff  n p hunk  Esc close  ? help
        "#]],
    );
}

#[test]
fn with_no_changes_there_is_nothing_to_take_back() {
    let mut changes = ChangesPane::new(recent_changes(Vec::new()));
    check(
        &mut changes,
        (40, 5),
        expect![[r#"
            Nothing was changed here.



            Esc close  ? help
        "#]],
    );
    let keys = ['u', 'U', 'T', 'S', 'r', 'R', 'v', 'n', 'p', 'j', 'k'].map(letter);
    assert_eq!(press(&mut changes, &keys), []);
    assert_eq!(press(&mut changes, &[letter('q')]), [ChangesAction::Close]);
}

#[test]
fn keys_take_back_the_hunk_the_file_the_turn_the_session() {
    let mut changes = ChangesPane::new(recent_changes(entries()));
    let hunk = |hunk| ChangeSelection {
        change: Some(Reversal { change: ChangeId(4), hunks: Some(vec![hunk]) }),
        ..ChangeSelection::default()
    };
    assert_eq!(press(&mut changes, &[letter('u')]), [ChangesAction::Undo(hunk(0))]);
    assert_eq!(press(&mut changes, &[letter('n'), letter('u')]), [ChangesAction::Undo(hunk(1))]);
    let owner = ChangeOwner::Session("s1".to_owned());
    let path = Some("/w/src/a.rs".to_owned());
    let file =
        ChangeSelection { path, owner: owner.clone(), only_explained: true, ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('U')]), [ChangesAction::Undo(file)]);
    let turn = ChangeSelection { only_explained: true, ..ChangeSelection::turn("s1", 1) };
    assert_eq!(press(&mut changes, &[letter('T')]), [ChangesAction::Undo(turn)]);
    let session =
        ChangeSelection { owner: owner.clone(), only_explained: true, ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('S')]), [ChangesAction::Undo(session)]);
    let last = ChangeSelection { owner, limit: Some(1), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('R')]), [ChangesAction::Redo(last)]);
    assert_eq!(press(&mut changes, &[KeyCode::F(5)]), [ChangesAction::Refresh]);
}

#[test]
fn undone_changes_are_marked_and_redo_names_the_undo() {
    let mut entries = entries();
    entries.push(undo_entry(5, 1, Some(vec![1])));
    entries.push(undo_entry(6, 2, None));
    entries[1].record.is_in_effect = false;
    let mut changes = ChangesPane::new(recent_changes(entries));
    press(&mut changes, &[letter('k'), KeyCode::Tab, letter('j')]);
    check(
        &mut changes,
        (80, 24),
        expect![[r#"
            ─ changes by agents in /w ──────────────────────────────────────────────────────
            turn 1 of session s1
            p src/a.rs                                                                 +2 −1
              src/a.rs                                                                 +1 −2
            u README.md                                                                +1 −0
            turn 2 of s1: Tidy up
              target/log (by a command)                                                +1 −0
            ─ hunk 2 of 2 ──────────────────────────────────────────────────────────────────
            /w/src/a.rs
            change 1 · written through Bowline · 00:01:01 UTC · call call-1 · partly undone
              @@ -1,4 +1,4 @@
               1    -one
                  1 +ONE
               2  2  two
               3  3  three
               4  4  four
              @@ -8,3 +8,4 @@
               8  8  eight
               9  9  nine
              10 10  ten
            ▌u   11 +eleven


            u undo  r redo  U file  T turn  S session  Tab diff  n p hunk  Esc close  ? help
        "#]],
    );
    let redo = |undo| {
        let change = Some(Reversal { change: ChangeId(undo), hunks: None });
        ChangesAction::Redo(ChangeSelection { change, ..ChangeSelection::default() })
    };
    assert_eq!(press(&mut changes, &[letter('r')]), [redo(5)]);
    assert_eq!(press(&mut changes, &[letter('p'), letter('r')]), []);
    check(
        &mut changes,
        (50, 12),
        expect![[r#"
            ─ changes by agents in /w ────────────────────────
            turn 1 of session s1
            p src/a.rs                                   +2 −1
              src/a.rs                                   +1 −2
            ─ hunk 1 of 2 ────────────────── lines 2–6 of 14 ─
            change 1 · written through Bowline · 00:01:01 UTC
            · call call-1 · partly undone
              @@ -1,4 +1,4 @@
            ▌  1    -one
            ▌     1 +ONE
            this is not undone
            u undo  r redo  U file  T turn  S session  ? help
        "#]],
    );
    assert_eq!(press(&mut changes, &[KeyCode::Tab, KeyCode::End, letter('k'), letter('r')]), [redo(6)]);
}

#[test]
fn keys_select_changes_that_can_be_undone() {
    let mut entries = entries();
    entries.push(undo_entry(5, 1, Some(vec![1])));
    // One undo reverted two changes of a file, and is redone whole.
    let mut undo = undo_entry(6, 2, None);
    undo.record.change.reverses.push(Reversal { change: ChangeId(3), hunks: None });
    entries.push(undo);
    entries[1].record.is_in_effect = false;
    entries[2].record.is_in_effect = false;
    let history: Vec<Change> = entries.iter().map(|entry| entry.change().clone()).collect();
    let mut changes = ChangesPane::new(recent_changes(entries));
    let mut selected_changes = |keys: &[KeyCode]| match press(&mut changes, keys).as_slice() {
        [ChangesAction::Undo(selection)] => changes_to_undo(&history, selection),
        [ChangesAction::Redo(selection)] => changes_to_redo(&history, selection),
        actions => panic!("{actions:?}"),
    };
    let ids = |ids: &[i64]| ids.iter().copied().map(ChangeId).collect::<Vec<_>>();
    assert_eq!(selected_changes(&[letter('u')]), ids(&[4]));
    assert_eq!(selected_changes(&[letter('U')]), ids(&[4, 1]));
    assert_eq!(selected_changes(&[letter('T')]), ids(&[4, 1]));
    assert_eq!(selected_changes(&[letter('k'), letter('n'), letter('r')]), ids(&[5]));
    // This hunk is already undone.
    assert_eq!(selected_changes(&[letter('u')]), ids(&[]));
    assert_eq!(selected_changes(&[KeyCode::End, letter('r')]), ids(&[6]));
}

#[test]
fn an_update_keeps_the_place() {
    let mut changes = ChangesPane::new(recent_changes(entries()));
    press(&mut changes, &[letter('n')]);
    let mut updated = entries();
    updated.push(entry(7, 3, "/w/new", None, Some("n\n")));
    changes.update(recent_changes(updated));
    changes.show_message("nothing to undo".to_owned());
    check(
        &mut changes,
        (60, 16),
        expect![[r#"
            ─ changes by agents in /w ──────────────────────────────────
            turn 1 of session s1
              src/a.rs                                             +2 −1
              src/a.rs                                             +1 −2
              README.md                                            +1 −0
            ─ hunk 2 of 2 ─────────────────────────── lines 7–14 of 14 ─
               2  2  two
               3  3  three
               4  4  four
              @@ -8,4 +8,3 @@
               8  8  eight
               9  9  nine
              10 10  ten
            ▌ 11    -eleven
            nothing to undo
            u undo  r redo  U file  T turn  S session  Tab diff  ? help
        "#]],
    );
    changes.update(recent_changes(entries().into_iter().take(1).collect()));
    check(
        &mut changes,
        (60, 12),
        expect![[r#"
            ─ changes by agents in /w/src ──────────────────────────────
            turn 1 of session s1
              a.rs                                                 +2 −1
            ─ hunk 1 of 2 ──────────────────────────── lines 1–6 of 14 ─
            /w/src/a.rs
            change 1 · written through Bowline · 00:01:01 UTC · call
            call-1
              @@ -1,4 +1,4 @@
            ▌  1    -one
            ▌     1 +ONE
            nothing to undo
            u undo  r redo  U file  T turn  S session  Tab diff  ? help
        "#]],
    );
    changes.update(recent_changes(Vec::new()));
    assert_eq!(press(&mut changes, &[letter('u')]), []);
}

#[test]
fn keys_select_hunks_before_the_first_draw() {
    let undo_selection = |changes: &mut ChangesPane| match changes
        .handle_key(key_event(letter('u')))
        .inspect(|_| changes.is_busy = false)
    {
        Some(ChangesAction::Undo(ChangeSelection { change: Some(change), .. })) => {
            (change.change.0, change.hunks)
        }
        action => panic!("{action:?}"),
    };
    let mut changes = ChangesPane::new(recent_changes(entries()));
    assert_eq!(undo_selection(&mut changes), (4, Some(vec![0])));
    press(&mut changes, &[letter('n')]);
    assert_eq!(undo_selection(&mut changes), (4, Some(vec![1])));
    changes.update(recent_changes(entries()));
    assert_eq!(undo_selection(&mut changes), (4, Some(vec![1])));
    changes.handle_key(key_event(letter('j')));
    assert_eq!(undo_selection(&mut changes), (2, Some(vec![0])));
}

#[test]
fn partly_known_changes_have_no_hunks() {
    let mut partial = entry(8, 1, "/w/a", Some("a\n"), Some("b\n"));
    partial.before = None;
    let mut changes = ChangesPane::new(recent_changes(vec![partial]));
    let reversal = Reversal { change: ChangeId(8), hunks: None };
    let selection = ChangeSelection { change: Some(reversal), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('u')]), [ChangesAction::Undo(selection)]);
}

#[test]
fn changes_without_text_are_undone_whole() {
    let mut unkept = entry(8, 1, "/w/image.png", None, None);
    unkept.record.change.after = Some(file_state("x"));
    unkept.record.is_uncertain = true;
    let mut changes = ChangesPane::new(recent_changes(vec![unkept]));
    check(
        &mut changes,
        (60, 10),
        expect![[r#"
            ─ changes by agents in /w ──────────────────────────────────
            turn 1 of session s1
            ? image.png                                          no text
            ────────────────────────────────────────────────────────────
            /w/image.png
            change 8 · written through Bowline · 00:08:08 UTC · call
            call-8 · interrupted; outcome unknown
            The text is not kept, or it is no text.

            u undo  r redo  U file  T turn  S session  Tab diff  ? help
        "#]],
    );
    let reversal = Reversal { change: ChangeId(8), hunks: None };
    let selection = ChangeSelection { change: Some(reversal), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('u')]), [ChangesAction::Undo(selection)]);
}

#[test]
fn possible_user_changes_are_hidden_and_undone_only_explicitly() {
    let mut entries = entries();
    entries.push(user_entry(8, "/w/notes.txt", None, Some("mine\n")));
    let mut observed = entry(9, 2, "/w/src/b.rs", Some("x\n"), Some("y\n"));
    observed.record.change.source = ChangeSource::Observed;
    observed.record.change.origin.call = None;
    entries.push(observed);
    let mut changes = ChangesPane::new(recent_changes(entries));
    check(
        &mut changes,
        (80, 12),
        expect![[r#"
        ─ changes by agents in /w ───────────────────────────── 2 more may be yours: a ─
        turn 1 of session s1
          src/a.rs                                                                 +2 −1
          src/a.rs                                                                 +1 −2
        ─ hunk 1 of 2 ──────────────────────────────────────────────── lines 1–6 of 13 ─
        /w/src/a.rs
        change 4 · written through Bowline · 00:04:04 UTC · call call-4
          @@ -1,4 +1,4 @@
        ▌  1    -ONE
        ▌     1 +one
           2  2  two
        u undo  r redo  U file  T turn  S session  Tab diff  n p hunk  a all  ? help
    "#]],
    );
    assert_eq!(press(&mut changes, &[KeyCode::End, letter('a'), KeyCode::End]), []);
    check(
        &mut changes,
        (80, 16),
        expect![[r#"
            ─ all changes in /w ────────────────────────────────────────────────────────────
            turn 2 of s1: Tidy up
              target/log (by a command)                                                +1 −0
              src/b.rs (may be yours)                                                  +1 −1
            not by an agent
              notes.txt (may be yours)                                                 +1 −0
            ─ hunk 1 of 1 ──────────────────────────────────────────────────────────────────
            /w/notes.txt
            change 8 · found on disk · 00:08:08 UTC
              new file
              @@ -0,0 +1 @@
            ▌   1 +mine



            u undo  r redo  U file  T turn  S session  Tab diff  n p hunk  a agents only  ?
        "#]],
    );
    // Neither Enter nor Esc nor a second press undoes it, and none of them closes the pane.
    for key in [letter('u'), letter('U'), letter('n'), letter('Y'), KeyCode::Enter, KeyCode::Esc] {
        assert_eq!(press(&mut changes, &[letter('u'), key]), [], "{key:?}");
    }
    assert_eq!(press(&mut changes, &[letter('u')]), []);
    check(
        &mut changes,
        (80, 16),
        expect![[r#"
        ─ all changes in /w ────────────────────────────────────────────────────────────
          target/log (by a command)                                                +1 −0
          src/b.rs (may be yours)                                                  +1 −1
        not by an agent
          notes.txt (may be yours)                                                 +1 −0
        ─ hunk 1 of 1 ──────────────────────────────────────────────────────────────────
        /w/notes.txt
        change 8 · found on disk · 00:08:08 UTC
          new file
          @@ -0,0 +1 @@
        ▌   1 +mine


        Undoing deletes notes.txt. No agent is known to have changed it: it may be your
        own work.
        y undo notes.txt  any other key keep it
    "#]],
    );
    let hunk = Reversal { change: ChangeId(8), hunks: Some(vec![0]) };
    let selection = ChangeSelection { change: Some(hunk), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('y')]), [ChangesAction::Undo(selection)]);
    // A change observed during an agent's turn may be the user's, too.
    press(&mut changes, &[letter('k'), letter('U')]);
    check(
        &mut changes,
        (40, 12),
        expect![[r#"
        ─ all changes in /w ────────────────────
          target/log (by a command)        +1 −0
          src/b.rs (may be yours)          +1 −1
        ─ hunk 1 of 1 ───────── lines 2–5 of 5 ─
        change 9 · found on disk · 00:09:09 UTC
          @@ -1 +1 @@
        ▌ 1   -x
        ▌   1 +y
        Undoing changes src/b.rs. No agent is
        known to have changed it: it may be
        your own work.
        y undo src/b.rs  any other key keep it
    "#]],
    );
    let selection = ChangeSelection {
        path: Some("/w/src/b.rs".to_owned()),
        owner: ChangeOwner::Session("s1".to_owned()),
        ..ChangeSelection::default()
    };
    assert_eq!(press(&mut changes, &[letter('y')]), [ChangesAction::Undo(selection)]);
    // An agent's change needs no confirmation, wherever it is listed.
    assert_eq!(press(&mut changes, &[KeyCode::Home, letter('u')]).len(), 1);
}

#[test]
fn an_update_drops_a_pending_confirmation() {
    let entries = vec![user_entry(8, "/w/notes.txt", None, Some("mine\n"))];
    let mut changes = ChangesPane::new(recent_changes(entries.clone()));
    check(
        &mut changes,
        (60, 4),
        expect![[r#"
        No agent changed anything here. 1 other change may be
        yours: a

        a all  Esc close  ? help
    "#]],
    );
    press(&mut changes, &[letter('a'), letter('u')]);
    changes.update(recent_changes(entries));
    assert_eq!(press(&mut changes, &[letter('y')]), []);
}

#[test]
fn user_changes_belong_to_no_turn() {
    let mut changes = ChangesPane::new(recent_changes(vec![user_entry(8, "/w/a", None, Some("a\n"))]));
    assert_eq!(press(&mut changes, &[letter('a'), letter('T'), letter('S')]), []);
    check(
        &mut changes,
        (60, 10),
        expect![[r#"
        ─ all changes in /w ────────────────────────────────────────
          a (may be yours)                                     +1 −0
        ─ hunk 1 of 1 ───────────────────────────── lines 2–5 of 5 ─
        change 8 · found on disk · 00:08:08 UTC
          new file
          @@ -0,0 +1 @@
        ▌   1 +a
        this change belongs to no session: u and U take back it
        alone
        u undo  r redo  U file  T turn  S session  Tab diff  ? help
    "#]],
    );
    let selection = ChangeSelection {
        change: Some(Reversal { change: ChangeId(8), hunks: None }),
        ..ChangeSelection::default()
    };
    let actions = press(&mut changes, &[letter('U'), letter('y')]);
    assert_eq!(actions, [ChangesAction::Undo(selection)], "and not what others changed");
}

#[test]
fn one_thing_is_taken_back_at_a_time() {
    let mut changes = ChangesPane::new(recent_changes(entries()));
    assert!(changes.handle_key(key_event(letter('T'))).is_some());
    assert_eq!(changes.handle_key(key_event(letter('R'))), None);
    let render = |changes: &mut ChangesPane| draw_to_text(80, 24, |frame, area| changes.draw(frame, area));
    assert!(render(&mut changes).contains("wait: what was asked for before"));
    changes.finish_action("undone in 3 files".to_owned());
    assert!(render(&mut changes).contains("undone in 3 files"));
    assert!(changes.handle_key(key_event(letter('R'))).is_some());
    assert!(render(&mut changes).contains("redoing …"));
}

fn any_entries() -> impl Strategy<Value = Vec<ChangeEntry>> {
    let text = || proptest::option::of(any_text());
    let any_entry = (1..4_u64, any_text(), text(), text(), 0..12_i64).prop_map(
        |(turn, path, before, after, reversed)| {
            let mut entry = entry(0, turn, &path, before.as_deref(), after.as_deref());
            let hunks = (reversed % 2 == 0).then(|| vec![0, 1]);
            entry.record.change.reverses = vec![Reversal { change: ChangeId(reversed), hunks }];
            entry.record.is_in_effect = reversed % 3 != 0;
            entry
        },
    );
    proptest::collection::vec(any_entry, 0..8).prop_map(|mut entries| {
        for (id, entry) in (0..).zip(&mut entries) {
            let change = &mut entry.record.change;
            change.id = ChangeId(id);
            // Only earlier changes can be reversed.
            change.reverses.retain(|reversal| reversal.change < change.id);
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_keys_and_entries_are_handled(
        first in any_entries(),
        second in any_entries(),
        steps in proptest::collection::vec((any_key(), any_size()), 1..24),
    ) {
        let mut changes = ChangesPane::new(recent_changes(first.clone()));
        let half = steps.len() / 2;
        for (index, (key, (width, height))) in steps.into_iter().enumerate() {
            if index == half {
                changes.update(recent_changes(second.clone()));
            }
            let entries = if index < half { &first } else { &second };
            if let Some(ChangesAction::Undo(ChangeSelection { change: Some(Reversal { change, hunks }), .. })) = changes.handle_key(key) {
                let entry = entries.iter().find(|entry| entry.change().id == change);
                prop_assert!(entry.is_some_and(|entry| entry.change().reverses.is_empty()));
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let count = entry.map_or(0, |entry| bowline_text::diff::compute_hunks(&text(&entry.before), &text(&entry.after)).len());
                prop_assert!(hunks.iter().flatten().all(|hunk| *hunk < count));
            }
            draw_to_buffer(width, height, |frame, area| changes.draw(frame, area));
        }
    }
}
