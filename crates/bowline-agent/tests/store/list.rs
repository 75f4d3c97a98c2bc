//! Lists of sessions: pages, filters, order, and retention.

use std::path::PathBuf;

use bowline_agent::store::{
    Durability, SessionPage, SessionQuery, SessionRecord, SessionRetention, SessionStore, SqliteSessionStore,
    StoreError,
};
use bowline_conversation::conversation::{ConversationMessage, MessageRole};
use bowline_text::time::Timestamp;

use super::fixture::{
    agent_text, agent_texts, new_directory, open_store, session_id, session_meta, with_each_store,
};

fn session_ids(page: &SessionPage) -> Vec<&str> {
    page.sessions.iter().map(|meta| &*meta.id.0).collect()
}

async fn list_page(
    store: &dyn SessionStore,
    cwd: Option<&str>,
    cursor: Option<String>,
    page: usize,
) -> SessionPage {
    store.list(SessionQuery { cwd: cwd.map(PathBuf::from), cursor, page_size: page }).await.unwrap()
}

#[tokio::test]
async fn the_last_used_comes_first() {
    with_each_store(async |stores| {
        let store = stores.open();
        let one = store.create(session_meta("one", "/a")).await.unwrap();
        store.create(session_meta("two", "/a/b")).await.unwrap();
        store.create(session_meta("three", "/a")).await.unwrap();
        assert_eq!(session_ids(&list_page(&*store, None, None, 9).await), ["three", "two", "one"]);
        one.append(vec![agent_text("x")], Durability::Deferred).await.unwrap();
        assert_eq!(session_ids(&list_page(&*store, None, None, 9).await), ["one", "three", "two"]);
        // The directory itself, without those below or above it.
        assert_eq!(session_ids(&list_page(&*store, Some("/a"), None, 9).await), ["one", "three"]);
        assert_eq!(session_ids(&list_page(&*store, Some("/a/"), None, 9).await), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_sessions_are_listed_once_each_while_more_are_added() {
    with_each_store(async |stores| {
        const COUNT: usize = 1000;
        let store = stores.open();
        for number in 0..COUNT {
            let cwd = if number % 2 == 0 { "/even" } else { "/odd" };
            store.create(session_meta(format!("s{number}"), cwd)).await.unwrap();
        }
        for (cwd, count) in [(None, COUNT), (Some("/even"), COUNT / 2)] {
            let mut seen: Vec<String> = Vec::new();
            let mut cursor = None;
            loop {
                let page = list_page(&*store, cwd, cursor, 70).await;
                seen.extend(session_ids(&page).into_iter().map(str::to_owned));
                // Sessions newer than the page are on no later page.
                let added = format!("added{}-{}", seen.len(), cwd.is_some());
                store.create(session_meta(added, "/even")).await.unwrap();
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let expected = (0..COUNT).rev().filter(|number| cwd.is_none() || number % 2 == 0);
            let expected: Vec<_> = expected.map(|number| format!("s{number}")).collect();
            seen.retain(|id| !id.starts_with("added"));
            assert_eq!((&seen, seen.len()), (&expected, count));
        }
    })
    .await;
}

#[tokio::test]
async fn a_forged_cursor_is_refused() {
    with_each_store(async |stores| {
        let store = stores.open();
        for id in ["one", "two", "three"] {
            store.create(session_meta(id, "/a")).await.unwrap();
        }
        let cursor = list_page(&*store, None, None, 0).await.next_cursor.unwrap();
        assert_eq!(session_ids(&list_page(&*store, None, Some(cursor.clone()), 1).await), ["two"]);
        let mut forged: Vec<String> =
            ["", ".", "3", "-1.00000000", "9999999999999999999.0"].map(str::to_owned).into();
        forged.extend([
            format!("{cursor}0"),
            format!("+{cursor}"),
            format!("0{cursor}"),
            cursor.replace('.', ":"),
        ]);
        for cursor in forged {
            let query = SessionQuery { cursor: Some(cursor.clone()), ..SessionQuery::default() };
            let error = store.list(query).await.unwrap_err();
            assert!(matches!(error, StoreError::BadCursor), "{cursor}: {error}");
        }
    })
    .await;
}

#[tokio::test]
async fn sessions_over_the_limit_are_removed_unless_in_use() {
    let directory = new_directory();
    let first = open_store(&directory);
    let mut leases = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        let session = first.create(session_meta(id, "/a")).await.unwrap();
        session.append(vec![agent_text("x")], Durability::Deferred).await.unwrap();
        if id == "a" {
            leases.push(session);
        }
    }
    let mut old = session_meta("old", "/a");
    (old.created_at, old.updated_at) = (Timestamp(0), Timestamp(0));
    first.create(old).await.unwrap();
    let retention = SessionRetention { max_sessions: 3, ..SessionRetention::default() };
    let second = SqliteSessionStore::new(directory.path(), retention);
    // `old` is missing: it is empty and older than a day.
    assert_eq!(session_ids(&list_page(&second, None, None, 9).await), ["e", "d", "a"]);
    assert_eq!(second.take_notices(), []);
    let smallest = SqliteSessionStore::new(directory.path(), SessionRetention { max_bytes: 0, ..retention });
    assert_eq!(session_ids(&list_page(&smallest, None, None, 9).await), ["a"]);
    leases.pop().unwrap().append(vec![agent_text("y")], Durability::Deferred).await.unwrap();
    assert_eq!(smallest.read(&session_id("a")).await.unwrap().updates.len(), 2);
}

#[tokio::test]
async fn an_oversized_session_drops_its_oldest_updates() {
    with_each_store(async |stores| {
        let store =
            stores.open_with(SessionRetention { max_session_bytes: 10_000, ..SessionRetention::default() });
        let lease = store.create(session_meta("one", "/a")).await.unwrap();
        let message_record =
            |text: String| SessionRecord::Message(ConversationMessage::from_text(MessageRole::User, text));
        lease.append(vec![message_record("first".to_owned())], Durability::Deferred).await.unwrap();
        for number in 0..100 {
            lease
                .append(vec![agent_text(format!("{number} {}", "x".repeat(500)))], Durability::Deferred)
                .await
                .unwrap();
        }
        let stored = store.read(&session_id("one")).await.unwrap();
        let numbers: Vec<usize> = agent_texts(&stored)
            .iter()
            .map(|text| text.split_once(' ').unwrap().0.parse().unwrap())
            .collect();
        assert_eq!(numbers, (numbers[0]..100).collect::<Vec<_>>());
        assert!((10..20).contains(&numbers.len()), "{numbers:?}");
        assert_eq!((stored.dropped_updates, stored.messages.len()), (numbers[0] as u64, 1));
        // Messages are never dropped: an append beyond the limit is refused as a whole.
        lease.append(vec![message_record("y".repeat(9000))], Durability::Deferred).await.unwrap();
        let error =
            lease.append(vec![message_record("z".repeat(2000))], Durability::Deferred).await.unwrap_err();
        assert!(matches!(error, StoreError::SessionFull { .. }), "{error}");
        let summary =
            SessionRecord::Compacted(vec![ConversationMessage::from_text(MessageRole::User, "short")]);
        lease.append(vec![summary], Durability::Synced).await.unwrap();
        lease.append(vec![message_record("z".repeat(2000))], Durability::Deferred).await.unwrap();
        assert_eq!(store.read(&session_id("one")).await.unwrap().messages.len(), 2);
    })
    .await;
}
