//! Stored sessions as the agent uses them: kept, taken, listed, forked, removed; by several processes; after damage.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "store/damage.rs"]
mod damage;
#[path = "store/fixture.rs"]
mod fixture;
#[path = "store/listing.rs"]
mod listing;
#[path = "store/processes.rs"]
mod processes;

use bowline_agent::store::{
    Durability, MAX_TITLE_BYTES, Record, SessionStore as _, SqliteSessionStore, StoreError,
};
use bowline_state::conversation::{Message, Part, Role, Thinking, ToolUse, Usage};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{SessionId, SessionUpdate};
use bowline_state::transcript;
use expect_test::expect;
use serde_json::json;

use fixture::{at, directory, files, meta, said, shown, store};

#[tokio::test]
async fn what_was_appended_is_there_for_the_next_one() {
    let directory = directory();
    let held = store(&directory).create(meta("one", "/work")).await.unwrap();
    held.append(vec![said("hi"), asked("hi")], Durability::Now).await.unwrap();
    held.append(vec![said(" there"), replied("hello")], Durability::Soon).await.unwrap();
    held.close().await.unwrap();

    let (_held, stored) = store(&directory).claim(&at("one")).await.unwrap();
    expect![[r#"
        "hi"
        " there"
        User hi
        Assistant hello
    "#]]
    .assert_eq(&shown(&stored));
}

#[tokio::test]
async fn what_is_known_of_a_session_can_be_changed() {
    let directory = directory();
    let held = store(&directory).create(meta("one", "/work")).await.unwrap();
    let usage = Usage { input: 7, output: 3, ..Usage::default() };
    let changed = held
        .set_meta(Box::new(move |meta| {
            meta.id = at("another");
            meta.title = Some("é".repeat(MAX_TITLE_BYTES));
            meta.additional = vec!["/more".into()];
            meta.mode = Mode::Full;
            meta.model = Some("offline".to_owned());
            meta.thinking = Thinking::High;
            meta.turns = 4;
            meta.usage = usage;
            meta.cost = Some(0.25);
        }))
        .await
        .unwrap();
    let stored = store(&directory).read(&at("one")).await.unwrap().meta;
    assert_eq!(stored.title.as_deref(), Some(&*"é".repeat(MAX_TITLE_BYTES / 2)));
    assert_eq!((stored.additional.len(), stored.mode, stored.thinking), (1, Mode::Full, Thinking::High));
    assert_eq!((stored.turns, stored.usage, stored.cost), (4, usage, Some(0.25)));
    assert_eq!((&stored.id, stored.model.as_deref()), (&at("one"), Some("offline")));
    assert_eq!(changed.id, at("one"));
}

#[tokio::test]
async fn a_compacted_conversation_begins_anew_and_the_history_stays() {
    let directory = directory();
    let held = store(&directory).create(meta("one", "/work")).await.unwrap();
    held.append(vec![said("a"), asked("a"), replied("b")], Durability::Soon).await.unwrap();
    let summary = Record::Compacted(vec![Message::text(Role::User, "so far")]);
    held.append(vec![summary, replied("c"), said("d")], Durability::Soon).await.unwrap();
    let stored = store(&directory).read(&at("one")).await.unwrap();
    expect![[r#"
        "a"
        "d"
        User so far
        Assistant c
    "#]]
    .assert_eq(&shown(&stored));
}

#[tokio::test]
async fn a_fork_has_what_was_there_and_goes_its_own_way() {
    let directory = directory();
    let store = store(&directory);
    let one = store.create(meta("one", "/work")).await.unwrap();
    one.append(vec![said("a"), asked("a")], Durability::Soon).await.unwrap();
    let (two, stored) = store.fork(&at("one"), meta("two", "/else")).await.unwrap();
    assert_eq!(stored.meta.cwd.to_str(), Some("/else"));
    one.append(vec![said("of one")], Durability::Soon).await.unwrap();
    two.append(vec![said("of two")], Durability::Soon).await.unwrap();
    let both = [store.read(&at("one")).await.unwrap(), store.read(&at("two")).await.unwrap()];
    expect![[r#"
        "a"
        "of one"
        User a
        ---
        "a"
        "of two"
        User a
    "#]]
    .assert_eq(&both.each_ref().map(shown).join("---\n"));
    let refused = store.fork(&at("none"), meta("three", "/")).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no session none");
    let refused = store.fork(&at("one"), meta("two", "/")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    drop(two);
    let refused = store.fork(&at("one"), meta("two", "/")).await.unwrap_err();
    assert_eq!(refused.to_string(), "there is a session two already");
}

#[tokio::test]
async fn a_session_that_is_removed_is_gone() {
    let directory = directory();
    let store = store(&directory);
    let held = store.create(meta("one", "/work")).await.unwrap();
    held.append(vec![said("a")], Durability::Now).await.unwrap();
    let refused = store.delete(&at("one")).await.unwrap_err();
    let process = std::process::id().to_string();
    expect!["session one is in use by process $PID: close it there first"]
        .assert_eq(&refused.to_string().replace(&process, "$PID"));
    drop(held);
    store.delete(&at("one")).await.unwrap();
    store.delete(&at("one")).await.unwrap();
    assert!(matches!(store.claim(&at("one")).await, Err(StoreError::NotFound(_))));
    drop(store.create(meta("one", "/work")).await.unwrap());
    store.delete(&at("one")).await.unwrap();
    assert!(matches!(store.read(&at("one")).await, Err(StoreError::NotFound(_))));
    drop(store);
    // No lock is left behind.
    assert_eq!(directory.path().join("sessions.locks").read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn an_unused_store_touches_nothing_and_a_used_one_is_private() {
    let directory = directory();
    let inside = directory.path().join("state");
    let store = SqliteSessionStore::new(&inside, Default::default());
    assert_eq!(store.take_notices(), []);
    assert!(!inside.exists());
    let held = store.create(meta("../../../etc/passwd", "/work")).await.unwrap();
    expect![[r#"
        0600 sessions.db
        0600 sessions.db-shm
        0600 sessions.db-wal
        0600 sessions.lock
        0700 sessions.locks
        0600 sessions.locks/56bfa7338a2dfd1d7159f20c38946070
    "#]]
    .assert_eq(&files(&inside));
    held.close().await.unwrap();
}

/// Whatever the client was told, it is told the same when it loads the session.
#[tokio::test]
async fn a_loaded_session_replays_what_the_client_was_told() {
    let directory = directory();
    let wire = r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}
{"sessionUpdate":"agent_thought_chunk","messageId":"m","content":{"type":"text","text":"hm"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","rawInput":{"a":[1,null,"x"]}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"diff","path":"/a","oldText":null,"newText":"y"}]}
{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"image","data":"eA==","mimeType":"image/png"}}
{"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}
"#;
    let told: Vec<SessionUpdate> =
        wire.trim().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let held = store(&directory).create(meta("one", "/work")).await.unwrap();
    for update in &told {
        held.append(vec![Record::Update(update.clone())], Durability::Soon).await.unwrap();
    }
    drop(held);
    let (_held, stored) = store(&directory).claim(&at("one")).await.unwrap();
    let replayed = transcript::replay(stored.updates);
    let lines: Vec<String> = replayed.iter().map(|update| serde_json::to_string(update).unwrap()).collect();
    expect![[r#"
        {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}
        {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"messageId":"m"}
        {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","status":"completed","content":[{"type":"diff","path":"/a","newText":"y"}],"rawInput":{"a":[1,null,"x"]}}
        {"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"eA==","mimeType":"image/png"},"messageId":"m"}
        {"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}"#]].assert_eq(&lines.join("\n"));
}

/// A model may send what is nested so deeply that it could not be read back.
#[tokio::test]
async fn deeply_nested_input_can_be_kept_and_read() {
    let directory = directory();
    let held = store(&directory).create(meta("one", "/work")).await.unwrap();
    let deep = serde_json::from_str(&("[".repeat(126) + "\"]\"" + &"]".repeat(126))).unwrap();
    let call =
        ToolUse { id: "a".into(), name: "t".into(), input: bowline_state::conversation::Input::Value(deep) };
    let message = Message { role: Role::Assistant, parts: vec![Part::Call(call)] };
    let mut update: SessionUpdate =
        serde_json::from_value(json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x"}))
            .unwrap();
    if let SessionUpdate::ToolCall(call) = &mut update {
        call.raw_input =
            Some(serde_json::from_str(&("{\"a\":".repeat(127) + "1" + &"}".repeat(127))).unwrap());
    }
    held.append(vec![Record::Message(message), Record::Update(update)], Durability::Soon).await.unwrap();
    let stored = store(&directory).read(&at("one")).await.unwrap();
    assert_eq!((stored.messages.len(), stored.updates.len(), stored.dropped), (1, 1, 0));
}

fn asked(text: &str) -> Record {
    Record::Message(Message::text(Role::User, text))
}

fn replied(text: &str) -> Record {
    Record::Message(Message::text(Role::Assistant, text))
}

/// What cannot be kept is refused before anything is.
#[tokio::test]
async fn a_session_that_does_not_exist_is_told_from_one_that_does() {
    let directory = directory();
    let store = store(&directory);
    let held = store.create(meta("one", "/work")).await.unwrap();
    let again = store.create(meta("one", "/work")).await.unwrap_err();
    assert!(matches!(again, StoreError::Busy { .. }), "{again}");
    drop(held);
    let again = store.create(meta("one", "/work")).await.unwrap_err();
    assert!(matches!(again, StoreError::Exists(_)), "{again}");
    for id in ["", "One", "one ", "\u{0}"] {
        let none = store.claim(&SessionId::from(id)).await.unwrap_err();
        assert!(matches!(none, StoreError::NotFound(_)), "{none}");
    }
}
