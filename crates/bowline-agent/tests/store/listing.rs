//! Lists of sessions: pages, filters, order, and what is kept.

use std::path::PathBuf;

use bowline_agent::store::{
    Durability, ListQuery, Page, Record, Retention, SessionStore as _, SqliteSessionStore, StoreError,
};
use bowline_state::changes::Moment;
use bowline_state::conversation::{Message, Role};

use super::fixture::{at, directory, meta, said, store, texts};

fn ids(page: &Page) -> Vec<&str> {
    page.sessions.iter().map(|meta| &*meta.id.0).collect()
}

async fn list(store: &SqliteSessionStore, cwd: Option<&str>, cursor: Option<String>, page: usize) -> Page {
    store.list(ListQuery { cwd: cwd.map(PathBuf::from), cursor, page }).await.unwrap()
}

#[tokio::test]
async fn the_last_used_comes_first() {
    let directory = directory();
    let store = store(&directory);
    let one = store.create(meta("one", "/a")).await.unwrap();
    store.create(meta("two", "/a/b")).await.unwrap();
    store.create(meta("three", "/a")).await.unwrap();
    assert_eq!(ids(&list(&store, None, None, 9).await), ["three", "two", "one"]);
    one.append(vec![said("x")], Durability::Soon).await.unwrap();
    assert_eq!(ids(&list(&store, None, None, 9).await), ["one", "three", "two"]);
    // The directory itself, and not what is below it or what it is below.
    assert_eq!(ids(&list(&store, Some("/a"), None, 9).await), ["one", "three"]);
    assert_eq!(ids(&list(&store, Some("/a/"), None, 9).await), [""; 0]);
}

#[tokio::test]
async fn a_thousand_sessions_are_listed_once_each_while_more_are_added() {
    const COUNT: usize = 1000;
    let directory = directory();
    let store = store(&directory);
    for number in 0..COUNT {
        let cwd = if number % 2 == 0 { "/even" } else { "/odd" };
        store.create(meta(format!("s{number}"), cwd)).await.unwrap();
    }
    for (cwd, count) in [(None, COUNT), (Some("/even"), COUNT / 2)] {
        let mut seen: Vec<String> = Vec::new();
        let mut cursor = None;
        loop {
            let page = list(&store, cwd, cursor, 70).await;
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            // These are newer than what is listed: they are on no later page.
            let added = format!("added{}-{}", seen.len(), cwd.is_some());
            store.create(meta(added, "/even")).await.unwrap();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let expected = (0..COUNT).rev().filter(|number| cwd.is_none() || number % 2 == 0);
        let expected: Vec<_> = expected.map(|number| format!("s{number}")).collect();
        seen.retain(|id| !id.starts_with("added"));
        assert_eq!((&seen, seen.len()), (&expected, count));
    }
}

#[tokio::test]
async fn a_cursor_of_somebody_elses_making_is_refused() {
    let directory = directory();
    let store = store(&directory);
    for id in ["one", "two", "three"] {
        store.create(meta(id, "/a")).await.unwrap();
    }
    let cursor = list(&store, None, None, 0).await.next.unwrap();
    assert_eq!(ids(&list(&store, None, Some(cursor.clone()), 1).await), ["two"]);
    let mut forged: Vec<String> =
        ["", ".", "3", "-1.00000000", "9999999999999999999.0"].map(str::to_owned).into();
    forged.extend([
        format!("{cursor}0"),
        format!("+{cursor}"),
        format!("0{cursor}"),
        cursor.replace('.', ":"),
    ]);
    for cursor in forged {
        let query = ListQuery { cursor: Some(cursor.clone()), ..ListQuery::default() };
        let refused = store.list(query).await.unwrap_err();
        assert!(matches!(refused, StoreError::BadCursor), "{cursor}: {refused}");
    }
}

#[tokio::test]
async fn what_is_beyond_is_removed_by_the_next_process_unless_somebody_has_it() {
    let directory = directory();
    let first = store(&directory);
    let mut held = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        let session = first.create(meta(id, "/a")).await.unwrap();
        session.append(vec![said("x")], Durability::Soon).await.unwrap();
        if id == "a" {
            held.push(session);
        }
    }
    let mut old = meta("old", "/a");
    (old.created, old.updated) = (Moment(0), Moment(0));
    first.create(old).await.unwrap();
    let keep = Retention { sessions: 3, ..Retention::default() };
    let second = SqliteSessionStore::new(directory.path(), keep);
    // In the last one nothing was ever said.
    assert_eq!(ids(&list(&second, None, None, 9).await), ["e", "d", "a"]);
    assert_eq!(second.take_notices(), []);
    let least = SqliteSessionStore::new(directory.path(), Retention { bytes: 0, ..keep });
    assert_eq!(ids(&list(&least, None, None, 9).await), ["a"]);
    held.pop().unwrap().append(vec![said("y")], Durability::Soon).await.unwrap();
    assert_eq!(least.read(&at("a")).await.unwrap().updates.len(), 2);
}

#[tokio::test]
async fn of_a_session_that_is_too_large_the_oldest_updates_go() {
    let directory = directory();
    let store = SqliteSessionStore::new(
        directory.path(),
        Retention { session_bytes: 10_000, ..Retention::default() },
    );
    let held = store.create(meta("one", "/a")).await.unwrap();
    let asked = |text: String| Record::Message(Message::text(Role::User, text));
    held.append(vec![asked("first".to_owned())], Durability::Soon).await.unwrap();
    for number in 0..100 {
        held.append(vec![said(format!("{number} {}", "x".repeat(500)))], Durability::Soon).await.unwrap();
    }
    let stored = store.read(&at("one")).await.unwrap();
    let numbers: Vec<usize> =
        texts(&stored).iter().map(|text| text.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert_eq!(numbers, (numbers[0]..100).collect::<Vec<_>>());
    assert!((10..20).contains(&numbers.len()), "{numbers:?}");
    assert_eq!((stored.dropped, stored.messages.len()), (numbers[0] as u64, 1));
    // Messages do not go: what is one too many is refused, and nothing of it is kept.
    held.append(vec![asked("y".repeat(9000))], Durability::Soon).await.unwrap();
    let refused = held.append(vec![asked("z".repeat(2000))], Durability::Soon).await.unwrap_err();
    assert!(matches!(refused, StoreError::SessionFull { .. }), "{refused}");
    let summary = Record::Compacted(vec![Message::text(Role::User, "short")]);
    held.append(vec![summary], Durability::Now).await.unwrap();
    held.append(vec![asked("z".repeat(2000))], Durability::Soon).await.unwrap();
    assert_eq!(store.read(&at("one")).await.unwrap().messages.len(), 2);
}
