//! Which of the client's and the disk's text is the file's, in every case.

use std::fmt::Write as _;

use expect_test::expect;

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + seconds)
}

/// The disk was looked at in second 10; commands ran then or not; it was changed last in some second.
fn file(bytes: &[u8], changed: u64) -> Disk {
    Disk::File(bytes.to_vec(), at(changed))
}

fn ran(first: u64, last: u64) -> Commanded {
    Commanded { first: Some(at(first)), last: Some(at(last)), ..Commanded::default() }
}

#[test]
fn what_tells_unsaved_text_from_a_stale_buffer() {
    let quiet = Commanded::default();
    let rows: &[(&str, &str, Disk, Option<&str>, Commanded)] = &[
        ("the same", "one\ntwo\n", file(b"one\ntwo\n", 5), Some("one\n"), ran(1, 20)),
        ("not here", "one\n", Disk::Unknown, None, ran(1, 20)),
        ("new and not saved", "one\n", Disk::Missing, None, ran(1, 20)),
        ("deleted", "one\n", Disk::Missing, Some("one\n"), quiet),
        ("not saved, never looked at", "one\nmine\n", file(b"one\n", 5), None, quiet),
        ("not saved, no command touched it", "one\nmine\n", file(b"one\n", 5), None, ran(7, 7)),
        ("changed by a command, never looked at", "one\n", file(b"ONE\n", 8), None, ran(7, 7)),
        ("not saved", "one\nmine\n", file(b"one\n", 5), Some("one\n"), ran(7, 20)),
        ("stale", "one\ntwo\n", file(b"ONE\ntwo\n", 15), Some("one\ntwo\n"), ran(15, 15)),
        ("changed by others, stale", "one\n", file(b"ONE\n", 15), Some("one\n"), quiet),
        ("both", "a\nb\nc\nmine\n", file(b"A\nb\nc\n", 15), Some("a\nb\nc\n"), ran(15, 15)),
        ("both, at one place", "mine\n", file(b"ONE\n", 15), Some("one\n"), ran(15, 15)),
        ("saved and typed on", "one two three\n", file(b"one two\n", 15), Some("one\n"), ran(1, 2)),
        (
            "taken in, not saved",
            "ONE\n2\n3\nmine\n",
            file(b"ONE\n2\n3\n", 15),
            Some("one\n2\n3\n"),
            ran(15, 15),
        ),
        ("other endings", "one\ntwo\n", file(b"\xef\xbb\xbfone\r\ntwo", 15), Some("old\n"), ran(15, 15)),
        (
            "stale, other endings",
            "one\ntwo\n",
            file(b"ONE\r\ntwo\r\n", 15),
            Some("one\r\ntwo\r\n"),
            ran(15, 15),
        ),
        ("another encoding", "café\n", file(b"caf\xe9\n", 5), None, ran(1, 20)),
    ];
    let mut told = String::new();
    for (name, client, disk, base, commanded) in rows {
        let base = base.map(|text| Base { text: Arc::new(text.to_owned()), at: at(10) });
        writeln!(told, "{name}: {:?}", truth(client, disk, base.as_ref(), *commanded)).unwrap();
    }
    expect![[r#"
        the same: Served
        not here: Served
        new and not saved: Served
        deleted: Deleted
        not saved, never looked at: Served
        not saved, no command touched it: Served
        changed by a command, never looked at: Stale
        not saved: Served
        stale: Merged("ONE\ntwo\n")
        changed by others, stale: Merged("ONE\n")
        both: Merged("A\nb\nc\nmine\n")
        both, at one place: Stale
        saved and typed on: Served
        taken in, not saved: Served
        other endings: Served
        stale, other endings: Merged("ONE\ntwo\n")
        another encoding: Served
    "#]]
    .assert_eq(&told);
}

#[test]
fn text_that_a_client_could_not_read_is_known() {
    let rows: &[(&str, &str, Disk)] = &[
        ("replaced", "caf\u{fffd} one\n", file(b"caf\xe9 one\n", 5)),
        ("replaced, not here", "caf\u{fffd} one\n", Disk::Unknown),
        ("replaced, no file here", "caf\u{fffd} one\n", Disk::Missing),
        ("dropped", "caf one\n", file(b"caf\xe9 one\n", 5)),
        ("not dropped, but not saved", "café one\n", file(b"caf\xe9 two\n", 5)),
        ("binary", "a\0b", Disk::Unknown),
        ("really so", "caf\u{fffd} one\n", file("caf\u{fffd} one\n".as_bytes(), 5)),
        ("really so, with other endings", "\u{fffd}\n", file("\u{fffd}\r\n".as_bytes(), 5)),
        ("another file here", "\u{fffd}\n", file(b"one\n", 5)),
    ];
    let mut told = String::new();
    for (name, client, disk) in rows {
        writeln!(told, "{name}: {:?}", truth(client, disk, None, Commanded::default())).unwrap();
    }
    expect![[r#"
        replaced: Lossy
        replaced, not here: Lossy
        replaced, no file here: Lossy
        dropped: Lossy
        not dropped, but not saved: Served
        binary: Lossy
        really so: Served
        really so, with other endings: Served
        another file here: Lossy
    "#]]
    .assert_eq(&told);
}

/// F25: what was later has the smaller time then, and no change of a command may pass for one of the user's.
#[test]
fn after_the_clock_was_put_back_times_acquit_no_command() {
    let day = 24 * 60 * 60;
    let mut told = String::new();
    for (name, then) in [("goes on", day + 10), ("put back", 10)] {
        let mut commanded = Commanded::default();
        commanded.runs(at(day));
        commanded.sees(at(day + 5));
        commanded.sees(at(then));
        let base = Base { text: Arc::new("one\n".to_owned()), at: at(day + 5) };
        let untouched = truth("mine\n", &file(b"theirs\n", 20), None, commanded);
        let both = truth("mine\n", &file(b"theirs\n", 20), Some(&base), commanded);
        writeln!(told, "{name}: {untouched:?}, {both:?}").unwrap();
    }
    expect![[r#"
        goes on: Served, Served
        put back: Stale, Stale
    "#]]
    .assert_eq(&told);
}
