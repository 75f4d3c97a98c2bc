//! Tests of the changes pane: what it shows, and what its keys undo.

use bowline_history::changes::{ChangeOrigin, ChangeSource, FileState};
use bowline_history::undo::{changes_to_redo, changes_to_undo};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::chat::widgets::test_util::{any_key, any_size, any_text, draw_to_buffer, draw_to_text, key_event};

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

fn undo_entry(id: i64, of: i64, hunks: Option<Vec<usize>>) -> ChangeEntry {
    let mut undo = entry(id, 9, "/w/src/a.rs", Some("x"), Some("y"));
    undo.record.change.origin = ChangeOrigin::default();
    undo.record.change.reverses = vec![Reversal { change: ChangeId(of), hunks }];
    undo
}

fn recent_changes(entries: Vec<ChangeEntry>) -> RecentChanges {
    RecentChanges { entries, older_counts: OlderCounts::default() }
}

const BEFORE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
const AFTER: &str = "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\n";

fn entries() -> Vec<ChangeEntry> {
    let mut found = entry(3, 2, "/w/target/log", None, Some("built\n"));
    found.record.change.source = ChangeSource::Observed;
    found.record.change.origin.command = Some("cargo build".to_owned());
    vec![
        entry(1, 1, "/w/src/a.rs", Some(BEFORE), Some(AFTER)),
        entry(2, 1, "/w/README.md", None, Some("# W\n")),
        found,
        entry(4, 1, "/w/src/a.rs", Some(AFTER), Some(BEFORE)),
    ]
}

fn check(changes: &mut ChangesPane, (width, height): (u16, u16), expected: Expect) {
    expected.assert_eq(&draw_to_text(width, height, |frame, area| changes.draw(frame, area)));
}

/// Draws the pane, so that keys refer to what is visible, and presses the keys. Actions are completed at once.
fn press(changes: &mut ChangesPane, keys: &[KeyCode]) -> Vec<ChangesAction> {
    let pressed = keys.iter().filter_map(|code| {
        draw_to_buffer(80, 24, |frame, area| changes.draw(frame, area));
        changes.handle_key(key_event(*code)).inspect(|_| (changes.is_busy, changes.message) = (false, None))
    });
    pressed.collect()
}

const fn letter(letter: char) -> KeyCode {
    KeyCode::Char(letter)
}

#[test]
fn however_often_edits_are_undone_and_redone_the_newest_are_listed() {
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
    let changed = entries.iter().map(|entry| entry.record.clone()).collect();
    let (kept, older) = select_newest(changed, 5);
    let ids: Vec<i64> = kept.iter().map(|changed| changed.change.id.0).collect();
    assert_eq!(ids, [3, 4, 5, 6, 7, 8, 105, 106, 107, 108, 109]);
    assert_eq!(older, OlderCounts { agents: 2, others: 4 });
    entries.retain(|entry| ids.contains(&entry.record.change.id.0));
    let shown = draw_to_text(60, 24, |frame, area| {
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
    .assert_eq(&shown);
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
fn on_a_wide_screen_the_list_stands_beside() {
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
    let all = ['u', 'U', 'T', 'S', 'r', 'R', 'v', 'n', 'p', 'j', 'k'].map(letter);
    assert_eq!(press(&mut changes, &all), []);
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
    let who = ChangeOwner::Session("s1".to_owned());
    let path = Some("/w/src/a.rs".to_owned());
    let file =
        ChangeSelection { path, owner: who.clone(), only_explained: true, ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('U')]), [ChangesAction::Undo(file)]);
    let turn = ChangeSelection { only_explained: true, ..ChangeSelection::turn("s1", 1) };
    assert_eq!(press(&mut changes, &[letter('T')]), [ChangesAction::Undo(turn)]);
    let session = ChangeSelection { owner: who.clone(), only_explained: true, ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('S')]), [ChangesAction::Undo(session)]);
    let last = ChangeSelection { owner: who, limit: Some(1), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('R')]), [ChangesAction::Redo(last)]);
    assert_eq!(press(&mut changes, &[KeyCode::F(5)]), [ChangesAction::Refresh]);
}

#[test]
fn what_is_undone_is_marked_and_redo_names_its_undo() {
    let mut changed = entries();
    changed.push(undo_entry(5, 1, Some(vec![1])));
    changed.push(undo_entry(6, 2, None));
    changed[1].record.is_in_effect = false;
    let mut changes = ChangesPane::new(recent_changes(changed));
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
fn what_the_keys_mean_is_there_to_be_taken_back() {
    let mut changed = entries();
    changed.push(undo_entry(5, 1, Some(vec![1])));
    // One undo reverted two changes of a file, and is redone whole.
    let mut both = undo_entry(6, 2, None);
    both.record.change.reverses.push(Reversal { change: ChangeId(3), hunks: None });
    changed.push(both);
    changed[1].record.is_in_effect = false;
    changed[2].record.is_in_effect = false;
    let history: Vec<Change> = changed.iter().map(|entry| entry.change().clone()).collect();
    let mut changes = ChangesPane::new(recent_changes(changed));
    let mut meant = |keys: &[KeyCode]| match press(&mut changes, keys).as_slice() {
        [ChangesAction::Undo(selection)] => changes_to_undo(&history, selection),
        [ChangesAction::Redo(selection)] => changes_to_redo(&history, selection),
        other => panic!("{other:?}"),
    };
    let ids = |ids: &[i64]| ids.iter().copied().map(ChangeId).collect::<Vec<_>>();
    assert_eq!(meant(&[letter('u')]), ids(&[4]));
    assert_eq!(meant(&[letter('U')]), ids(&[4, 1]));
    assert_eq!(meant(&[letter('T')]), ids(&[4, 1]));
    assert_eq!(meant(&[letter('k'), letter('n'), letter('r')]), ids(&[5]));
    // This hunk is already undone.
    assert_eq!(meant(&[letter('u')]), ids(&[]));
    assert_eq!(meant(&[KeyCode::End, letter('r')]), ids(&[6]));
}

#[test]
fn an_update_keeps_the_place() {
    let mut changes = ChangesPane::new(recent_changes(entries()));
    press(&mut changes, &[letter('n')]);
    let mut more = entries();
    more.push(entry(7, 3, "/w/new", None, Some("n\n")));
    changes.update(recent_changes(more));
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
fn a_key_means_a_hunk_also_before_its_change_was_drawn() {
    let undone = |changes: &mut ChangesPane| match changes
        .handle_key(key_event(letter('u')))
        .inspect(|_| changes.is_busy = false)
    {
        Some(ChangesAction::Undo(ChangeSelection { change: Some(change), .. })) => {
            (change.change.0, change.hunks)
        }
        other => panic!("{other:?}"),
    };
    let mut changes = ChangesPane::new(recent_changes(entries()));
    assert_eq!(undone(&mut changes), (4, Some(vec![0])));
    press(&mut changes, &[letter('n')]);
    assert_eq!(undone(&mut changes), (4, Some(vec![1])));
    changes.update(recent_changes(entries()));
    assert_eq!(undone(&mut changes), (4, Some(vec![1])));
    changes.handle_key(key_event(letter('j')));
    assert_eq!(undone(&mut changes), (2, Some(vec![0])));
}

#[test]
fn what_is_known_only_in_part_has_no_hunks() {
    let mut half = entry(8, 1, "/w/a", Some("a\n"), Some("b\n"));
    half.before = None;
    let mut changes = ChangesPane::new(recent_changes(vec![half]));
    let whole = Reversal { change: ChangeId(8), hunks: None };
    let selection = ChangeSelection { change: Some(whole), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('u')]), [ChangesAction::Undo(selection)]);
}

#[test]
fn what_is_not_kept_can_only_be_taken_back_whole() {
    let mut lost = entry(8, 1, "/w/image.png", None, None);
    lost.record.change.after = Some(file_state("x"));
    lost.record.is_uncertain = true;
    let mut changes = ChangesPane::new(recent_changes(vec![lost]));
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
    let whole = Reversal { change: ChangeId(8), hunks: None };
    let selection = ChangeSelection { change: Some(whole), ..ChangeSelection::default() };
    assert_eq!(press(&mut changes, &[letter('u')]), [ChangesAction::Undo(selection)]);
}

#[test]
fn what_may_be_the_users_is_behind_a_key_and_undone_only_by_name() {
    let mut changed = entries();
    changed.push(user_entry(8, "/w/notes.txt", None, Some("mine\n")));
    let mut found = entry(9, 2, "/w/src/b.rs", Some("x\n"), Some("y\n"));
    found.record.change.source = ChangeSource::Observed;
    found.record.change.origin.call = None;
    changed.push(found);
    let mut changes = ChangesPane::new(recent_changes(changed));
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
    for other in [letter('u'), letter('U'), letter('n'), letter('Y'), KeyCode::Enter, KeyCode::Esc] {
        assert_eq!(press(&mut changes, &[letter('u'), other]), [], "{other:?}");
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
    let found = ChangeSelection {
        path: Some("/w/src/b.rs".to_owned()),
        owner: ChangeOwner::Session("s1".to_owned()),
        ..ChangeSelection::default()
    };
    assert_eq!(press(&mut changes, &[letter('y')]), [ChangesAction::Undo(found)]);
    // An agent's change needs no confirmation, wherever it is listed.
    assert_eq!(press(&mut changes, &[KeyCode::Home, letter('u')]).len(), 1);
}

#[test]
fn a_confirmation_ends_with_what_it_is_for() {
    let changed = vec![user_entry(8, "/w/notes.txt", None, Some("mine\n"))];
    let mut changes = ChangesPane::new(recent_changes(changed.clone()));
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
    changes.update(recent_changes(changed));
    assert_eq!(press(&mut changes, &[letter('y')]), []);
}

#[test]
fn what_nobody_did_belongs_to_no_turn() {
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
    let alone = ChangeSelection {
        change: Some(Reversal { change: ChangeId(8), hunks: None }),
        ..ChangeSelection::default()
    };
    let undone = press(&mut changes, &[letter('U'), letter('y')]);
    assert_eq!(undone, [ChangesAction::Undo(alone)], "and not what others changed");
}

#[test]
fn one_thing_is_taken_back_at_a_time() {
    let mut changes = ChangesPane::new(recent_changes(entries()));
    assert!(changes.handle_key(key_event(letter('T'))).is_some());
    assert_eq!(changes.handle_key(key_event(letter('R'))), None);
    let shown = |changes: &mut ChangesPane| draw_to_text(80, 24, |frame, area| changes.draw(frame, area));
    assert!(shown(&mut changes).contains("wait: what was asked for before"));
    changes.finish_action("undone in 3 files".to_owned());
    assert!(shown(&mut changes).contains("undone in 3 files"));
    assert!(changes.handle_key(key_event(letter('R'))).is_some());
    assert!(shown(&mut changes).contains("redoing …"));
}

fn any_entries() -> impl Strategy<Value = Vec<ChangeEntry>> {
    let text = || proptest::option::of(any_text());
    let one =
        (1..4_u64, any_text(), text(), text(), 0..12_i64).prop_map(|(turn, path, before, after, of)| {
            let mut entry = entry(0, turn, &path, before.as_deref(), after.as_deref());
            let hunks = (of % 2 == 0).then(|| vec![0, 1]);
            entry.record.change.reverses = vec![Reversal { change: ChangeId(of), hunks }];
            entry.record.is_in_effect = of % 3 != 0;
            entry
        });
    proptest::collection::vec(one, 0..8).prop_map(|mut entries| {
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
    fn nothing_breaks_it(
        first in any_entries(),
        second in any_entries(),
        steps in proptest::collection::vec((any_key(), any_size()), 1..24),
    ) {
        let mut changes = ChangesPane::new(recent_changes(first.clone()));
        let half = steps.len() / 2;
        for (at, (pressed, (width, height))) in steps.into_iter().enumerate() {
            if at == half {
                changes.update(recent_changes(second.clone()));
            }
            let known = if at < half { &first } else { &second };
            if let Some(ChangesAction::Undo(ChangeSelection { change: Some(Reversal { change, hunks }), .. })) = changes.handle_key(pressed) {
                let entry = known.iter().find(|entry| entry.change().id == change);
                prop_assert!(entry.is_some_and(|entry| entry.change().reverses.is_empty()));
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let count = entry.map_or(0, |entry| bowline_text::diff::compute_hunks(&text(&entry.before), &text(&entry.after)).len());
                prop_assert!(hunks.iter().flatten().all(|hunk| *hunk < count));
            }
            draw_to_buffer(width, height, |frame, area| changes.draw(frame, area));
        }
    }
}
