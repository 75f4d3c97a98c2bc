//! Stored sessions as the agent uses them: created, claimed, listed, forked, removed; by several processes; after
//! damage.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

#[path = "store/damage.rs"]
mod damage;
#[path = "store/fixture.rs"]
mod fixture;
#[path = "store/list.rs"]
mod list;
#[path = "store/postgres.rs"]
mod postgres;
#[path = "store/processes.rs"]
mod processes;

use bowline_agent::store::{
    Durability, MAX_TITLE_BYTES, SessionRecord, SessionStore as _, SqliteSessionStore, StoreError,
};
use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ThinkingLevel, TokenUsage, ToolUse,
};
use bowline_conversation::transcript;
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::{SessionId, SessionUpdate};
use expect_test::expect;
use serde_json::json;

use fixture::{
    TestStores, agent_text, format_session, list_files, new_directory, session_id, session_meta,
    with_each_store,
};

#[tokio::test]
async fn what_was_appended_is_there_for_the_next_one() {
    with_each_store(async |stores| {
        let lease = stores.open().create(session_meta("one", "/work")).await.unwrap();
        lease.append(vec![agent_text("hi"), user_message("hi")], Durability::Synced).await.unwrap();
        lease
            .append(vec![agent_text(" there"), assistant_message("hello")], Durability::Deferred)
            .await
            .unwrap();
        lease.close().await.unwrap();

        let (_lease, stored) = stores.open().claim(&session_id("one")).await.unwrap();
        expect![[r#"
            "hi"
            " there"
            User hi
            Assistant hello
        "#]]
        .assert_eq(&format_session(&stored));
    })
    .await;
}

#[tokio::test]
async fn what_is_known_of_a_session_can_be_changed() {
    with_each_store(async |stores| {
        let lease = stores.open().create(session_meta("one", "/work")).await.unwrap();
        let usage = TokenUsage { input: 7, output: 3, ..TokenUsage::default() };
        let changed = lease
            .update_meta(Box::new(move |meta| {
                meta.id = session_id("another");
                meta.title = Some("é".repeat(MAX_TITLE_BYTES));
                meta.additional_directories = vec!["/more".into()];
                meta.mode = AgentMode::Full;
                meta.model = Some("offline".to_owned());
                meta.thinking = ThinkingLevel::High;
                meta.turns = 4;
                meta.usage = usage;
                meta.cost = Some(0.25);
            }))
            .await
            .unwrap();
        let stored = stores.open().read(&session_id("one")).await.unwrap().meta;
        assert_eq!(stored.title.as_deref(), Some(&*"é".repeat(MAX_TITLE_BYTES / 2)));
        assert_eq!(
            (stored.additional_directories.len(), stored.mode, stored.thinking),
            (1, AgentMode::Full, ThinkingLevel::High)
        );
        assert_eq!((stored.turns, stored.usage, stored.cost), (4, usage, Some(0.25)));
        assert_eq!((&stored.id, stored.model.as_deref()), (&session_id("one"), Some("offline")));
        assert_eq!(changed.id, session_id("one"));
    })
    .await;
}

#[tokio::test]
async fn a_compacted_conversation_begins_anew_and_the_history_stays() {
    with_each_store(async |stores| {
        let lease = stores.open().create(session_meta("one", "/work")).await.unwrap();
        lease
            .append(vec![agent_text("a"), user_message("a"), assistant_message("b")], Durability::Deferred)
            .await
            .unwrap();
        let summary =
            SessionRecord::Compacted(vec![ConversationMessage::from_text(MessageRole::User, "so far")]);
        lease
            .append(vec![summary, assistant_message("c"), agent_text("d")], Durability::Deferred)
            .await
            .unwrap();
        let stored = stores.open().read(&session_id("one")).await.unwrap();
        expect![[r#"
            "a"
            "d"
            User so far
            Assistant c
        "#]]
        .assert_eq(&format_session(&stored));
    })
    .await;
}

#[tokio::test]
async fn a_fork_has_what_was_there_and_goes_its_own_way() {
    with_each_store(async |stores| {
        let store = stores.open();
        let first = store.create(session_meta("one", "/work")).await.unwrap();
        first.append(vec![agent_text("a"), user_message("a")], Durability::Deferred).await.unwrap();
        let (second, stored) = store.fork(&session_id("one"), session_meta("two", "/else")).await.unwrap();
        assert_eq!(stored.meta.cwd.to_str(), Some("/else"));
        first.append(vec![agent_text("of one")], Durability::Deferred).await.unwrap();
        second.append(vec![agent_text("of two")], Durability::Deferred).await.unwrap();
        let sessions =
            [store.read(&session_id("one")).await.unwrap(), store.read(&session_id("two")).await.unwrap()];
        expect![[r#"
            "a"
            "of one"
            User a
            ---
            "a"
            "of two"
            User a
        "#]]
        .assert_eq(&sessions.each_ref().map(format_session).join("---\n"));
        let error = store.fork(&session_id("none"), session_meta("three", "/")).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no session none");
        let error = store.fork(&session_id("one"), session_meta("two", "/")).await.unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        drop(second);
        let error = store.fork(&session_id("one"), session_meta("two", "/")).await.unwrap_err();
        assert_eq!(error.to_string(), "there is a session two already");
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_removed_is_gone() {
    with_each_store(async |stores| {
        let store = stores.open();
        let lease = store.create(session_meta("one", "/work")).await.unwrap();
        lease.append(vec![agent_text("a")], Durability::Synced).await.unwrap();
        let error = store.delete(&session_id("one")).await.unwrap_err();
        let process = std::process::id().to_string();
        expect!["session one is in use by process $PID: close it there first"]
            .assert_eq(&error.to_string().replace(&process, "$PID"));
        drop(lease);
        store.delete(&session_id("one")).await.unwrap();
        store.delete(&session_id("one")).await.unwrap();
        assert!(matches!(store.claim(&session_id("one")).await, Err(StoreError::NotFound(_))));
        drop(store.create(session_meta("one", "/work")).await.unwrap());
        store.delete(&session_id("one")).await.unwrap();
        assert!(matches!(store.read(&session_id("one")).await, Err(StoreError::NotFound(_))));
        drop(store);
        if let TestStores::Sqlite(directory) = &stores {
            // No lock is left behind.
            assert_eq!(directory.path().join("sessions.locks").read_dir().unwrap().count(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn an_unused_store_touches_nothing_and_a_used_one_is_private() {
    let directory = new_directory();
    let state_dir = directory.path().join("state");
    let store = SqliteSessionStore::new(&state_dir, Default::default());
    assert_eq!(store.take_notices(), []);
    assert!(!state_dir.exists());
    let lease = store.create(session_meta("../../../etc/passwd", "/work")).await.unwrap();
    expect![[r#"
        0600 sessions.db
        0600 sessions.db-shm
        0600 sessions.db-wal
        0600 sessions.lock
        0700 sessions.locks
        0600 sessions.locks/56bfa7338a2dfd1d7159f20c38946070
    "#]]
    .assert_eq(&list_files(&state_dir));
    lease.close().await.unwrap();
}

/// Loading a session replays exactly the updates that the client received.
#[tokio::test]
async fn a_loaded_session_replays_what_the_client_was_told() {
    with_each_store(async |stores| {
        let wire = r#"
{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}
{"sessionUpdate":"agent_thought_chunk","messageId":"m","content":{"type":"text","text":"hm"}}
{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","rawInput":{"a":[1,null,"x"]}}
{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"diff","path":"/a","oldText":null,"newText":"y"}]}
{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"image","data":"eA==","mimeType":"image/png"}}
{"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}
    "#;
        let updates: Vec<SessionUpdate> =
            wire.trim().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let lease = stores.open().create(session_meta("one", "/work")).await.unwrap();
        for update in &updates {
            lease.append(vec![SessionRecord::Update(update.clone())], Durability::Deferred).await.unwrap();
        }
        drop(lease);
        let (_lease, stored) = stores.open().claim(&session_id("one")).await.unwrap();
        let replayed = transcript::replay(stored.updates);
        let lines: Vec<String> = replayed.iter().map(|update| serde_json::to_string(update).unwrap()).collect();
        expect![[r#"
            {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"go"}}
            {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"messageId":"m"}
            {"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","status":"completed","content":[{"type":"diff","path":"/a","newText":"y"}],"rawInput":{"a":[1,null,"x"]}}
            {"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"eA==","mimeType":"image/png"},"messageId":"m"}
            {"sessionUpdate":"plan","entries":[{"content":"x","priority":"high","status":"completed"}]}"#]].assert_eq(&lines.join("\n"));
    })
    .await;
}

/// A model may send values nested too deeply to be parsed again.
#[tokio::test]
async fn deeply_nested_input_can_be_kept_and_read() {
    with_each_store(async |stores| {
        let lease = stores.open().create(session_meta("one", "/work")).await.unwrap();
        let input = serde_json::from_str(&("[".repeat(126) + "\"]\"" + &"]".repeat(126))).unwrap();
        let call = ToolUse {
            id: "a".into(),
            name: "t".into(),
            input: bowline_conversation::conversation::ToolUseInput::Value(input),
        };
        let message =
            ConversationMessage { role: MessageRole::Assistant, parts: vec![MessagePart::Call(call)] };
        let mut update: SessionUpdate =
            serde_json::from_value(json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x"}))
                .unwrap();
        if let SessionUpdate::ToolCall(call) = &mut update {
            call.raw_input =
                Some(serde_json::from_str(&("{\"a\":".repeat(127) + "1" + &"}".repeat(127))).unwrap());
        }
        lease
            .append(
                vec![SessionRecord::Message(message), SessionRecord::Update(update)],
                Durability::Deferred,
            )
            .await
            .unwrap();
        let stored = stores.open().read(&session_id("one")).await.unwrap();
        assert_eq!((stored.messages.len(), stored.updates.len(), stored.dropped_updates), (1, 1, 0));
    })
    .await;
}

fn user_message(text: &str) -> SessionRecord {
    SessionRecord::Message(ConversationMessage::from_text(MessageRole::User, text))
}

fn assistant_message(text: &str) -> SessionRecord {
    SessionRecord::Message(ConversationMessage::from_text(MessageRole::Assistant, text))
}

/// Ids that are in use, taken or unknown give different errors.
#[tokio::test]
async fn a_session_that_does_not_exist_is_told_from_one_that_does() {
    with_each_store(async |stores| {
        let store = stores.open();
        let lease = store.create(session_meta("one", "/work")).await.unwrap();
        let error = store.create(session_meta("one", "/work")).await.unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        drop(lease);
        let error = store.create(session_meta("one", "/work")).await.unwrap_err();
        assert!(matches!(error, StoreError::Exists(_)), "{error}");
        for id in ["", "One", "one ", "\u{0}"] {
            let error = store.claim(&SessionId::from(id)).await.unwrap_err();
            assert!(matches!(error, StoreError::NotFound(_)), "{error}");
        }
    })
    .await;
}
