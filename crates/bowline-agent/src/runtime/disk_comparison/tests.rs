//! Tests of which text is the file's, the client's or the disk's, in every case.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;

fn time_at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + seconds)
}

/// A file last modified in a given second. The base was checked in second 10; commands may have run then.
fn disk_file(bytes: &[u8], changed_at: u64) -> DiskContent {
    DiskContent::File(bytes.to_vec(), time_at(changed_at))
}

fn commands_between(first: u64, last: u64) -> CommandTimes {
    CommandTimes { first: Some(time_at(first)), last: Some(time_at(last)), ..CommandTimes::default() }
}

#[test]
fn what_tells_unsaved_text_from_a_stale_buffer() {
    let no_commands = CommandTimes::default();
    let rows: &[(&str, &str, DiskContent, Option<&str>, CommandTimes)] = &[
        ("the same", "one\ntwo\n", disk_file(b"one\ntwo\n", 5), Some("one\n"), commands_between(1, 20)),
        ("not here", "one\n", DiskContent::Unknown, None, commands_between(1, 20)),
        ("new and not saved", "one\n", DiskContent::Missing, None, commands_between(1, 20)),
        ("deleted", "one\n", DiskContent::Missing, Some("one\n"), no_commands),
        ("not saved, never looked at", "one\nmine\n", disk_file(b"one\n", 5), None, no_commands),
        (
            "not saved, no command touched it",
            "one\nmine\n",
            disk_file(b"one\n", 5),
            None,
            commands_between(7, 7),
        ),
        (
            "changed by a command, never looked at",
            "one\n",
            disk_file(b"ONE\n", 8),
            None,
            commands_between(7, 7),
        ),
        ("not saved", "one\nmine\n", disk_file(b"one\n", 5), Some("one\n"), commands_between(7, 20)),
        ("stale", "one\ntwo\n", disk_file(b"ONE\ntwo\n", 15), Some("one\ntwo\n"), commands_between(15, 15)),
        ("changed by others, stale", "one\n", disk_file(b"ONE\n", 15), Some("one\n"), no_commands),
        ("both", "a\nb\nc\nmine\n", disk_file(b"A\nb\nc\n", 15), Some("a\nb\nc\n"), commands_between(15, 15)),
        ("both, at one place", "mine\n", disk_file(b"ONE\n", 15), Some("one\n"), commands_between(15, 15)),
        (
            "saved and typed on",
            "one two three\n",
            disk_file(b"one two\n", 15),
            Some("one\n"),
            commands_between(1, 2),
        ),
        (
            "taken in, not saved",
            "ONE\n2\n3\nmine\n",
            disk_file(b"ONE\n2\n3\n", 15),
            Some("one\n2\n3\n"),
            commands_between(15, 15),
        ),
        (
            "other endings",
            "one\ntwo\n",
            disk_file(b"\xef\xbb\xbfone\r\ntwo", 15),
            Some("old\n"),
            commands_between(15, 15),
        ),
        (
            "stale, other endings",
            "one\ntwo\n",
            disk_file(b"ONE\r\ntwo\r\n", 15),
            Some("one\r\ntwo\r\n"),
            commands_between(15, 15),
        ),
        ("another encoding", "café\n", disk_file(b"caf\xe9\n", 5), None, commands_between(1, 20)),
    ];
    let mut out = String::new();
    for (name, client, disk, base, command_times) in rows {
        let base =
            base.map(|text| ComparisonBase { text: Arc::new(text.to_owned()), checked_at: time_at(10) });
        writeln!(out, "{name}: {:?}", compare_with_disk(client, disk, base.as_ref(), *command_times))
            .unwrap();
    }
    expect![[r#"
        the same: UpToDate
        not here: UpToDate
        new and not saved: UpToDate
        deleted: Deleted
        not saved, never looked at: UpToDate
        not saved, no command touched it: UpToDate
        changed by a command, never looked at: Stale
        not saved: UpToDate
        stale: Merged("ONE\ntwo\n")
        changed by others, stale: Merged("ONE\n")
        both: Merged("A\nb\nc\nmine\n")
        both, at one place: Stale
        saved and typed on: UpToDate
        taken in, not saved: UpToDate
        other endings: UpToDate
        stale, other endings: Merged("ONE\ntwo\n")
        another encoding: UpToDate
    "#]]
    .assert_eq(&out);
}

#[test]
fn text_that_a_client_could_not_read_is_known() {
    let rows: &[(&str, &str, DiskContent)] = &[
        ("replaced", "caf\u{fffd} one\n", disk_file(b"caf\xe9 one\n", 5)),
        ("replaced, not here", "caf\u{fffd} one\n", DiskContent::Unknown),
        ("replaced, no file here", "caf\u{fffd} one\n", DiskContent::Missing),
        ("dropped", "caf one\n", disk_file(b"caf\xe9 one\n", 5)),
        ("not dropped, but not saved", "café one\n", disk_file(b"caf\xe9 two\n", 5)),
        ("binary", "a\0b", DiskContent::Unknown),
        ("really so", "caf\u{fffd} one\n", disk_file("caf\u{fffd} one\n".as_bytes(), 5)),
        ("really so, with other endings", "\u{fffd}\n", disk_file("\u{fffd}\r\n".as_bytes(), 5)),
        ("another file here", "\u{fffd}\n", disk_file(b"one\n", 5)),
    ];
    let mut out = String::new();
    for (name, client, disk) in rows {
        writeln!(out, "{name}: {:?}", compare_with_disk(client, disk, None, CommandTimes::default()))
            .unwrap();
    }
    expect![[r#"
        replaced: Lossy
        replaced, not here: Lossy
        replaced, no file here: Lossy
        dropped: Lossy
        not dropped, but not saved: UpToDate
        binary: Lossy
        really so: UpToDate
        really so, with other endings: UpToDate
        another file here: Lossy
    "#]]
    .assert_eq(&out);
}

/// Later changes have earlier times then, and a command's change must not pass for the user's.
#[test]
fn after_the_clock_was_put_back_times_acquit_no_command() {
    let day = 24 * 60 * 60;
    let mut out = String::new();
    for (name, clock) in [("goes on", day + 10), ("put back", 10)] {
        let mut command_times = CommandTimes::default();
        command_times.record_run(time_at(day));
        command_times.record_clock(time_at(day + 5));
        command_times.record_clock(time_at(clock));
        let base = ComparisonBase { text: Arc::new("one\n".to_owned()), checked_at: time_at(day + 5) };
        let untouched = compare_with_disk("mine\n", &disk_file(b"theirs\n", 20), None, command_times);
        let both = compare_with_disk("mine\n", &disk_file(b"theirs\n", 20), Some(&base), command_times);
        writeln!(out, "{name}: {untouched:?}, {both:?}").unwrap();
    }
    expect![[r#"
        goes on: UpToDate, UpToDate
        put back: Stale, Stale
    "#]]
    .assert_eq(&out);
}
