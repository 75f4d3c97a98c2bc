//! Tests of retention: the contents that the journal returns, and those that it drops.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bowline_history::changes::{ChangeOrigin, ChangeOutcome, Reversal};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{
    ApplyMethod, ChangeDraft, ChangeFilter, DraftContent, DraftSide, Journal, MAX_COMMAND_BYTES,
    MAX_TEXT_BYTES, Retention,
};
use expect_test::expect;
use tempfile::TempDir;

use super::fixture::{
    KEEP_EVERYTHING, baseline_row, check, draft, history, list_files, open_journal, random_bytes,
    redact_directory,
};

#[test]
fn changes_come_back_in_order_as_they_were_told() {
    check(
        KEEP_EVERYTHING,
        "
        at 5
        begin /a - one session=s1 turn=1 call=c1
        settle 1 done
        at 6
        begin /a one two ; /b - two session=s1 turn=2 command=make
        settle 2 done 3 done
        record /c #big two source=observed
        record /d - - source=claimed session=s2
        begin /a two one reverses=2;1:0,2;1: manner=in-place
        settle 6 unknown
        begin /b two -
        settle 7 abandoned
        change 7
        change 8
        reopen
        changes
        ",
        expect![[r#"
            [1]
            [2][3]
            [4]
            [5]
            [6]
            [7]
            7 @6 /b two(3 644) -> - Abandoned
            no change 8
            1 @5 /a - -> one(3 644) s1 1 c1 Done
            2 @6 /a one(3 644) -> two(3 644) s1 2 make Done
            3 @6 /b - -> two(3 644) s1 2 make Done
            4 @6 /c big(3 644) -> two(3 644) Observed Done
            5 @6 /d - -> - s2 Claimed Done
            6 @6 /a two(3 644) -> one(3 644) reverses 2 None reverses 1 Some([0, 2]) reverses 1 Some([]) Unknown
        "#]],
    );
}

#[test]
fn a_list_is_narrowed_by_what_is_given() {
    check(
        KEEP_EVERYTHING,
        "
        record /a - 1 session=s1 turn=1 call=c1
        record /b - 2 session=s1 turn=1 call=c2
        record /a 1 3 session=s1 turn=2 call=c3
        record /a 3 4 session=s2 turn=1 call=c1
        record /b 2 5
        changes session=s1
        changes session=s1 turn=1
        changes session=s1 call=c2
        changes path=/a
        changes path=/a limit=2
        changes after=2 before=5
        changes after=1 limit=1
        changes limit=0
        changes session=s3
        ",
        expect![[r#"
            [1]
            [2]
            [3]
            [4]
            [5]
            1 @0 /a - -> 1(1 644) s1 1 c1 Done
            2 @0 /b - -> 2(1 644) s1 1 c2 Done
            3 @0 /a 1(1 644) -> 3(1 644) s1 2 c3 Done
            1 @0 /a - -> 1(1 644) s1 1 c1 Done
            2 @0 /b - -> 2(1 644) s1 1 c2 Done
            2 @0 /b - -> 2(1 644) s1 1 c2 Done
            1 @0 /a - -> 1(1 644) s1 1 c1 Done
            3 @0 /a 1(1 644) -> 3(1 644) s1 2 c3 Done
            4 @0 /a 3(1 644) -> 4(1 644) s2 1 c1 Done
            3 @0 /a 1(1 644) -> 3(1 644) s1 2 c3 Done
            4 @0 /a 3(1 644) -> 4(1 644) s2 1 c1 Done
            3 @0 /a 1(1 644) -> 3(1 644) s1 2 c3 Done
            4 @0 /a 3(1 644) -> 4(1 644) s2 1 c1 Done
            5 @0 /b 2(1 644) -> 5(1 644) Done
        "#]],
    );
}

#[test]
fn an_intent_is_pending_until_it_is_settled() {
    check(
        KEEP_EVERYTHING,
        "
        begin /a - 1 ; /b - 2
        begin /c 1 2 manner=in-place
        pending
        changes
        settle 2 done
        reopen
        pending
        settle 1 done 3 unknown
        pending
        changes
        ",
        expect![[r#"
            [1][2]
            [3]
            1 @0 /a - -> 1(1 644) Rename { temp: ".temp" }
            2 @0 /b - -> 2(1 644) Rename { temp: ".temp" }
            3 @0 /c 1(1 644) -> 2(1 644) InPlace
            1 @0 /a - -> 1(1 644) Rename { temp: ".temp" }
            3 @0 /c 1(1 644) -> 2(1 644) InPlace
            1 @0 /a - -> 1(1 644) Done
            2 @0 /b - -> 2(1 644) Done
            3 @0 /c 1(1 644) -> 2(1 644) Unknown
        "#]],
    );
}

#[test]
fn an_outcome_stays_unless_it_was_unknown() {
    check(
        KEEP_EVERYTHING,
        "
        begin /a - 1 ; /b - 2 ; /c - 3
        settle 1 done 2 abandoned
        settle 1 done
        settle 1 abandoned
        settle 3 unknown 2 done
        pending
        settle 3 unknown
        settle 3 abandoned
        settle 3 done
        settle 9 done
        changes
        ",
        expect![[r#"
            [1][2][3]
            ! change 1 is settled already and cannot be settled otherwise
            ! change 2 is settled already and cannot be settled otherwise
            3 @0 /c - -> 3(1 644) Rename { temp: ".temp" }
            ! change 3 is settled already and cannot be settled otherwise
            ! there is no change 9 in the journal
            1 @0 /a - -> 1(1 644) Done
        "#]],
    );
}

#[test]
fn a_change_that_is_to_be_made_cannot_be_recorded_as_found() {
    check(
        KEEP_EVERYTHING,
        "
        record /a - 1 manner=in-place
        changes
        ",
        expect![[r#"
            ! the change of /a is still to be made: begin it and settle it
        "#]],
    );
}

#[test]
fn names_are_capped_and_a_command_is_cut() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let long = "é".repeat(MAX_TEXT_BYTES / 2);
    let origin = ChangeOrigin { command: Some(format!("a{long}")), ..ChangeOrigin::default() };
    let ids = journal.begin(&[draft(&origin, &long, None, Some(b"1"))], Timestamp(1)).unwrap();
    let kept = journal.change(ids[0]).unwrap().unwrap().change;
    assert_eq!(kept.path, long);
    assert_eq!(kept.origin.command.unwrap().len(), MAX_COMMAND_BYTES - 1);

    let longer = format!("{long}x");
    let drafts = [draft(&origin, "/fits", None, Some(b"2")), draft(&origin, &longer, None, Some(b"3"))];
    let error = journal.begin(&drafts, Timestamp(2)).unwrap_err();
    expect!["the path is 16385 bytes long, the journal takes at most 16384"].assert_eq(&error.to_string());
    assert_eq!(journal.pending_changes().unwrap().len(), 1);
    assert_eq!(journal.content(&ContentHash::digest(b"2")).unwrap(), None);
}

#[test]
fn equal_contents_are_kept_once_and_compressed_where_it_helps() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let origin = ChangeOrigin::default();
    let text = "the same line again\n".repeat(500);
    let noise = random_bytes(1, 9600);
    let contents = [&b""[..], text.as_bytes(), &noise, text.as_bytes()];
    for pair in contents.windows(2) {
        journal.begin(&[draft(&origin, "/a", Some(pair[0]), Some(pair[1]))], Timestamp(1)).unwrap();
    }
    for content in contents {
        assert_eq!(journal.content(&ContentHash::digest(content)).unwrap().as_deref(), Some(content));
    }
    let database = rusqlite::Connection::open(journal.path()).unwrap();
    let mut statement =
        database.prepare("SELECT size, codec, stored < size FROM blobs ORDER BY size").unwrap();
    let rows: Vec<(i64, i64, bool)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(rows, [(0, 0, false), (9600, 0, false), (10_000, 1, true)]);
}

#[test]
fn a_large_content_is_kept_whether_it_compresses_or_not() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let origin = ChangeOrigin::default();
    // The repetitions in the first are further apart than the compression window.
    for large in [random_bytes(1, 1 << 20).repeat(64), random_bytes(2, 60_000).repeat(140)] {
        let ids = journal.begin(&[draft(&origin, "/a", None, Some(&large))], Timestamp(1)).unwrap();
        let kept = journal.change(ids[0]).unwrap().unwrap().change.after.unwrap();
        assert_eq!(kept.size, large.len() as u64);
        assert!(journal.content(&kept.hash).unwrap().unwrap() == large);
    }
}

#[test]
fn the_baseline_comes_back_as_it_was_put() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let rows = [baseline_row("/a", Some(ContentHash::digest(b"1"))), baseline_row("/b", None)];
    journal.update_baseline(&rows, &[]).unwrap();
    drop(journal);
    let (mut journal, _) = open_journal(directory.path());
    assert_eq!(journal.baseline().unwrap(), rows);
    journal.update_baseline(&rows[..1], &["/a".to_owned(), "/b".to_owned(), "/c".to_owned()]).unwrap();
    assert_eq!(journal.baseline().unwrap(), rows[..1]);
}

#[test]
fn contents_stay_as_long_as_a_change_or_the_baseline_refers_to_them() {
    check(
        KEEP_EVERYTHING,
        "
        keep base loose
        watch /a base
        begin /a base new
        settle 1 abandoned
        begin /b #base other
        prune
        blob base
        blob loose
        blob new
        blob other
        forget /a
        prune
        blob base
        settle 2 abandoned
        prune
        blob base
        blob other
        ",
        expect![[r#"
            [1]
            [2]
            PruneReport { changes: 0, blobs: 2, bytes: 8 }
            base is kept: true
            loose is not kept
            new is not kept
            other is kept: true
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            base is kept: true
            PruneReport { changes: 0, blobs: 2, bytes: 9 }
            base is not kept
            other is not kept
        "#]],
    );
}

#[test]
fn what_is_too_old_goes_but_never_what_is_pending_or_newest() {
    check(
        Retention { max_age_ms: 10, ..KEEP_EVERYTHING },
        "
        begin /pending - 1
        record /a - 2
        at 5
        record /a 2 3
        at 15
        prune
        changes
        at 16
        reopen
        changes
        pending
        blob 2
        ",
        expect![[r#"
            [1]
            [2]
            [3]
            PruneReport { changes: 1, blobs: 0, bytes: 0 }
            2 @0 /a - -> ?(1 644) Done
            3 @5 /a 2(1 644) -> 3(1 644) Done
            2 @0 /a - -> ?(1 644) Done
            3 @5 /a 2(1 644) -> 3(1 644) Done
            1 @0 /pending - -> 1(1 644) Rename { temp: ".temp" }
            2 is kept: true
        "#]],
    );
}

#[test]
fn what_is_too_much_goes_oldest_first() {
    check(
        Retention { max_bytes: 100, ..KEEP_EVERYTHING },
        "
        record /a - abcdefghijklmnopqrstuvwxyz0123456789AAAA
        record /a - abcdefghijklmnopqrstuvwxyz0123456789BBBB
        prune
        record /a - abcdefghijklmnopqrstuvwxyz0123456789CCCC
        prune
        record /b - - ; /c - abcdefghijklmnopqrstuvwxyz0123456789BBBB
        record /d - abcdefghijklmnopqrstuvwxyz0123456789DDDD
        prune
        changes
        ",
        expect![[r#"
            [1]
            [2]
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            [3]
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            [4][5]
            [6]
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            1 @0 /a - -> ?(40 644) Done
            2 @0 /a - -> ?(40 644) Done
            3 @0 /a - -> ?(40 644) Done
            4 @0 /b - -> - Done
            5 @0 /c - -> abcdefghijklmnopqrstuvwxyz0123456789BBBB(40 644) Done
            6 @0 /d - -> abcdefghijklmnopqrstuvwxyz0123456789DDDD(40 644) Done
        "#]],
    );
}

#[test]
fn what_was_written_last_stays_however_large_it_is() {
    check(
        Retention { max_bytes: 10, max_age_ms: 0, max_changes: 0 },
        "
        record /a - abcdefghijklmnopqrstuvwxyz
        at 100
        begin /b - ABCDEFGHIJKLMNOPQRSTUVWXYZ ; /c - 01234567890123456789
        settle 2 done 3 done
        at 200
        prune
        reopen
        changes
        blob ABCDEFGHIJKLMNOPQRSTUVWXYZ
        ",
        expect![[r#"
            [1]
            [2][3]
            PruneReport { changes: 1, blobs: 0, bytes: 0 }
            2 @100 /b - -> ABCDEFGHIJKLMNOPQRSTUVWXYZ(26 644) Done
            3 @100 /c - -> 01234567890123456789(20 644) Done
            ABCDEFGHIJKLMNOPQRSTUVWXYZ is kept: true
        "#]],
    );
}

#[test]
fn the_baselines_contents_do_not_push_changes_out() {
    check(
        Retention { max_bytes: 40, ..KEEP_EVERYTHING },
        "
        keep abcdefghijklmnopqrstuvwxyz0123456789AAAA
        watch /a abcdefghijklmnopqrstuvwxyz0123456789AAAA
        record /b - 1
        record /a abcdefghijklmnopqrstuvwxyz0123456789AAAA 2
        prune
        changes
        ",
        expect![[r#"
            [1]
            [2]
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            1 @0 /b - -> 1(1 644) Done
            2 @0 /a abcdefghijklmnopqrstuvwxyz0123456789AAAA(40 644) -> 2(1 644) Done
        "#]],
    );
}

#[test]
fn no_more_changes_are_kept_than_allowed() {
    check(
        Retention { max_changes: 2, ..KEEP_EVERYTHING },
        "
        record /a - 1
        record /a - 2
        begin /a - 3
        record /a - 4
        prune
        changes
        pending
        ",
        expect![[r#"
            [1]
            [2]
            [3]
            [4]
            PruneReport { changes: 2, blobs: 2, bytes: 2 }
            4 @0 /a - -> 4(1 644) Done
            3 @0 /a - -> 3(1 644) Rename { temp: ".temp" }
        "#]],
    );
}

#[test]
fn a_number_is_never_used_again() {
    check(
        Retention { max_age_ms: 0, ..KEEP_EVERYTHING },
        "
        begin /a - 1
        settle 1 abandoned
        reopen
        prune
        record /a - 2
        ",
        expect![[r#"
            [1]
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            [2]
        "#]],
    );
}

#[test]
fn the_latest_turn_of_a_running_session_stays_whatever_its_size_and_the_clock() {
    check(
        Retention { max_bytes: 100, max_age_ms: 10, max_changes: 4 },
        "
        begin /a - old session=s1 turn=1
        settle 1 done
        begin /a old original session=s1 turn=2
        settle 2 done
        begin /a original gone session=s1 turn=2
        settle 3 done
        begin /flood - abcdefghijklmnopqrstuvwxyz*3 session=s1 turn=2
        begin /flood2 - ABCDEFGHIJKLMNOPQRSTUVWXYZ*2 session=s1 turn=2
        record /user - 01234567890123456789012345678901234567890123456789
        at 1000
        prune
        at -1000
        prune
        changes
        blob original
        ",
        expect![[r#"
            [1]
            [2]
            [3]
            [4]
            ! the journal of changes may keep 0 MiB and needs all of it to undo this turn and the latest turns of other running sessions: write less, or go on in a new turn or session
            [5]
            PruneReport { changes: 1, blobs: 0, bytes: 0 }
            PruneReport { changes: 0, blobs: 0, bytes: 0 }
            2 @0 /a old(3 644) -> original(8 644) s1 2 Done
            3 @0 /a original(8 644) -> gone(4 644) s1 2 Done
            5 @0 /user - -> 01234567890123456789012345678901234567890123456789(50 644) Done
            original is kept: true
        "#]],
    );
}

#[test]
fn what_other_processes_need_for_undo_stays_until_they_end() {
    let directory = TempDir::new().unwrap();
    let retention = Retention { max_age_ms: 10, ..KEEP_EVERYTHING };
    let open = |now| Journal::open(directory.path(), retention, Timestamp(now)).unwrap().0;
    let by = |session: &str, turn| ChangeOrigin {
        session: Some(session.to_owned()),
        turn: Some(turn),
        ..ChangeOrigin::default()
    };
    let write = |journal: &mut Journal, origin: &ChangeOrigin, text: &[u8]| {
        let ids = journal.begin(&[draft(origin, "/a", None, Some(text))], Timestamp(0)).unwrap();
        journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    };
    let mut first = open(0);
    write(&mut first, &by("first", 1), b"earlier");
    write(&mut first, &by("first", 2), b"latest");
    let mut second = open(0);
    write(&mut second, &by("second", 1), b"other");
    drop(second);
    let mut third = open(1000);
    write(&mut third, &by("third", 1), b"newest");
    let later = open(2000);
    assert_eq!(
        history(&later),
        "1 /a ? Done\n2 /a latest Done\n3 /a ? Done\n4 /a newest Done\n",
        "the second has ended"
    );
    drop((first, third, later));
    let later = open(3000);
    assert_eq!(history(&later), "1 /a ? Done\n2 /a ? Done\n3 /a ? Done\n4 /a newest Done\n", "all have");
    assert_eq!(list_files(directory.path()).lines().filter(|line| line.contains("session-")).count(), 0);
}

#[test]
fn texts_that_only_the_journal_has_stay_until_they_are_restored() {
    let directory = TempDir::new().unwrap();
    let retention = Retention { max_bytes: 10, max_age_ms: 10, max_changes: 1 };
    let (mut journal, _) = Journal::open(directory.path(), retention, Timestamp(0)).unwrap();
    let (kept, user) = (ChangeOrigin::kept_text(), ChangeOrigin::default());
    let found = |origin, before, after| ChangeDraft {
        method: ApplyMethod::AlreadyApplied,
        ..draft(origin, "/a", Some(before), Some(after))
    };
    let text = journal.record(&[found(&kept, b"the only copy", b"now")], Timestamp(0)).unwrap();
    for now in 1..4 {
        journal.record(&[found(&user, b"now", b"a longer text")], Timestamp(now * 1000)).unwrap();
        journal.prune(Timestamp(now * 1000)).unwrap();
    }
    assert!(history(&journal).starts_with("1 /a now Done\n"), "{}", history(&journal));
    let reverses = [Reversal { change: text[0], hunks: None }];
    let restored = ChangeDraft { reverses: &reverses, ..found(&user, b"now", b"the only copy") };
    journal.record(&[restored], Timestamp(5000)).unwrap();
    journal.record(&[found(&user, b"x", b"y")], Timestamp(9000)).unwrap();
    journal.prune(Timestamp(9000)).unwrap();
    assert_eq!(history(&journal), "6 /a y Done\n", "it is an old change like any other then");
}

#[test]
fn what_was_appended_is_kept_and_pruned_with_its_change() {
    let directory = TempDir::new().unwrap();
    let retention = Retention { max_age_ms: 10, ..KEEP_EVERYTHING };
    let (mut journal, _) = Journal::open(directory.path(), retention, Timestamp(0)).unwrap();
    let origin = ChangeOrigin::default();
    let side = |text: &[u8]| {
        let content = DraftContent::HashOnly { hash: ContentHash::digest(text), size: text.len() as u64 };
        Some(DraftSide { content, mode: 0o644 })
    };
    let append = |path, tail: &[u8]| ChangeDraft {
        before: side(b"log\n"),
        after: side(&[b"log\n", tail].concat()),
        method: ApplyMethod::Tail(tail.to_vec()),
        ..draft(&origin, path, None, None)
    };
    let secret = b"token=0123456789\n";
    let old = journal.begin(&[append("/log", b"old\n"), append("/.env", secret)], Timestamp(0)).unwrap();
    let pending = journal.pending_changes().unwrap();
    assert_eq!(pending[0].method, ApplyMethod::Tail(b"old\n".to_vec()));
    assert_eq!(pending[1].method, ApplyMethod::Tail(secret.to_vec()));
    let outcomes: Vec<_> = old.iter().map(|id| (*id, ChangeOutcome::Done)).collect();
    journal.settle(&outcomes).unwrap();
    journal.prune(Timestamp(1)).unwrap();
    assert_eq!(journal.tail(old[0]).unwrap().as_deref(), Some(&b"old\n"[..]));
    assert_eq!(journal.tail(old[1]).unwrap().as_deref(), Some(&secret[..]));
    let stored = |text: &[u8]| {
        let files =
            ["journal.sqlite", "journal.sqlite-wal"].map(|name| fs::read(directory.path().join(name)));
        files.iter().flatten().any(|bytes| bytes.windows(text.len()).any(|part| part == text))
    };
    assert!(stored(b"old\n") && !stored(secret), "secrets are encrypted");
    assert!(!journal.change(old[0]).unwrap().unwrap().change.is_pruned());

    let abandoned = journal.begin(&[append("/log", b"never\n")], Timestamp(1)).unwrap();
    journal.settle(&[(abandoned[0], ChangeOutcome::Abandoned)]).unwrap();
    let new = journal.begin(&[append("/log", b"new\n")], Timestamp(1000)).unwrap();
    journal.settle(&[(new[0], ChangeOutcome::Done)]).unwrap();
    journal.prune(Timestamp(1000)).unwrap();
    let is_stored = |text: &[u8]| journal.has_content(&ContentHash::digest(text)).unwrap();
    assert_eq!((journal.tail(old[0]).unwrap(), is_stored(b"old\n")), (None, false));
    assert_eq!((journal.tail(abandoned[0]).unwrap(), is_stored(b"never\n")), (None, false));
    assert!(journal.change(old[0]).unwrap().unwrap().change.is_pruned());
    assert_eq!(journal.tail(new[0]).unwrap().as_deref(), Some(&b"new\n"[..]));
}

#[test]
fn pruning_gives_the_space_back() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    let origin = ChangeOrigin::default();
    for seed in 1..=80 {
        let noise = random_bytes(seed, 256 << 10);
        let ids = journal.begin(&[draft(&origin, "/a", None, Some(&noise))], Timestamp(1)).unwrap();
        journal.settle(&[(ids[0], ChangeOutcome::Done)]).unwrap();
    }
    let size = |journal: &Journal| fs::metadata(journal.path()).unwrap().len() >> 20;
    assert!(size(&journal) >= 12);
    drop(journal);
    let retention = Retention { max_bytes: 1 << 20, ..KEEP_EVERYTHING };
    let (journal, _) = Journal::open(directory.path(), retention, Timestamp(2)).unwrap();
    assert!(size(&journal) <= 6, "{} MiB are left", size(&journal));
    let changes = journal.changes(&ChangeFilter::default()).unwrap();
    assert_eq!(changes.iter().filter(|entry| entry.change.is_pruned()).count(), 76);
    assert_eq!(changes.len(), 80, "they are listed");
}

#[test]
fn only_the_owner_can_read_it() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("state/bowline/one");
    let (journal, _) = open_journal(&directory);
    expect![[r#"
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite-shm
        0600 journal.sqlite-wal
        0600 lock
    "#]]
    .assert_eq(&list_files(&directory));
    drop(journal);

    for (name, mode) in [("", 0o755), ("journal.sqlite", 0o644), ("lock", 0o666)] {
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (_journal, _) = open_journal(&directory);
    expect![[r#"
        0700 .
        0600 journal.sqlite
        0600 journal.sqlite-shm
        0600 journal.sqlite-wal
        0600 lock
    "#]]
    .assert_eq(&list_files(&directory));
}

#[test]
fn a_place_that_cannot_be_used_is_an_error_that_names_it() {
    let directory = TempDir::new().unwrap();
    let open = |path: &std::path::Path| Journal::open(path, KEEP_EVERYTHING, Timestamp(0)).unwrap_err();
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    expect!["cannot make the directory $DIR/file: File exists (os error 17)"]
        .assert_eq(&redact_directory(directory.path(), open(&file)));
    expect!["cannot make the directory $DIR/file/below: Not a directory (os error 20)"]
        .assert_eq(&redact_directory(directory.path(), open(&file.join("below"))));

    let taken = directory.path().join("taken");
    fs::create_dir_all(taken.join("journal.sqlite")).unwrap();
    expect!["cannot open $DIR/taken/journal.sqlite: it is not a plain file"]
        .assert_eq(&redact_directory(directory.path(), open(&taken)));

    let linked = directory.path().join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(&file, linked.join("journal.sqlite")).unwrap();
    expect!["cannot open $DIR/linked/journal.sqlite: it is not a plain file"]
        .assert_eq(&redact_directory(directory.path(), open(&linked)));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_directory_may_be_reached_by_a_link() {
    let parent = TempDir::new().unwrap();
    let link = parent.path().join("link");
    fs::create_dir(parent.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    let (mut journal, _) = open_journal(&link);
    let hashes = journal.store_contents(&[b"1"]).unwrap();
    let (other, _) = open_journal(&parent.path().join("real"));
    assert_eq!(other.path(), journal.path());
    assert_eq!(journal.content(&hashes[0]).unwrap(), None, "opening prunes what nothing refers to");
}

#[test]
fn a_journal_that_was_removed_while_open_takes_nothing_more() {
    let directory = TempDir::new().unwrap();
    let (mut journal, _) = open_journal(directory.path());
    fs::remove_file(journal.path()).unwrap();
    let error = journal.store_contents(&[b"1"]).unwrap_err();
    expect!["the journal $DIR/journal.sqlite was moved or removed while it was in use: open it again"]
        .assert_eq(&redact_directory(directory.path(), error));
    let (other, _) = open_journal(directory.path());
    assert!(journal.pending_changes().is_err());
    assert_eq!(history(&other), "");
}
