//! What subscribers see, and when.

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_text::time::Timestamp;
use futures_util::FutureExt as _;
use serde_json::json;

use super::*;
use crate::store::{Acquisition, PendingWork, SessionQuery, SqliteServerStore, StoreFuture, StoredSession};
use crate::token::StoredToken;

/// A store whose commits fail until they are allowed.
#[derive(Debug)]
struct GatedStore {
    inner: SqliteServerStore,
    is_failing: AtomicBool,
    failed: Notify,
}

impl ServerStore for GatedStore {
    fn commit(&self, mutations: Vec<Mutation>) -> StoreFuture<'_, Vec<SessionId>> {
        if self.is_failing.load(Ordering::SeqCst) {
            self.failed.notify_one();
            return Box::pin(async { Err(StoreError::Unavailable("the disk is full".into())) });
        }
        self.inner.commit(mutations)
    }
    fn events_after(&self, session: &SessionId, after: u64, max_bytes: usize) -> StoreFuture<'_, Vec<Event>> {
        self.inner.events_after(session, after, max_bytes)
    }
    fn acquire(&self, session: &SessionId) -> StoreFuture<'_, Acquisition> {
        self.inner.acquire(session)
    }
    fn session(&self, id: &SessionId) -> StoreFuture<'_, Option<StoredSession>> {
        self.inner.session(id)
    }
    fn sessions(&self, query: SessionQuery) -> StoreFuture<'_, Vec<StoredSession>> {
        self.inner.sessions(query)
    }
    fn add_token(&self, token: StoredToken) -> StoreFuture<'_, ()> {
        self.inner.add_token(token)
    }
    fn token(&self, id: &str) -> StoreFuture<'_, Option<StoredToken>> {
        self.inner.token(id)
    }
    fn tokens(&self) -> StoreFuture<'_, Vec<StoredToken>> {
        self.inner.tokens()
    }
    fn remove_token(&self, name: &str) -> StoreFuture<'_, bool> {
        self.inner.remove_token(name)
    }
}

struct Setup {
    _directory: tempfile::TempDir,
    store: Arc<GatedStore>,
    log: Arc<EventLog>,
    lost: Arc<Mutex<Vec<SessionId>>>,
    session: SessionId,
}

fn setup() -> Setup {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(GatedStore {
        inner: SqliteServerStore::open_for_server(directory.path()).unwrap(),
        is_failing: AtomicBool::new(false),
        failed: Notify::new(),
    });
    let log = EventLog::new(Arc::clone(&store) as Arc<dyn ServerStore>, Arc::new(Metrics::default()));
    let lost = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&lost);
    tokio::spawn(Arc::clone(&log).run(move |session, _| noted.lock().unwrap().push(session.clone())));
    let session: SessionId = "s".into();
    log.mutate(Mutation::Create(Box::new(StoredSession {
        id: session.clone(),
        principal: "me".into(),
        cwd: "/".into(),
        title: None,
        setup: json!({}),
        pending: PendingWork::default(),
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        archived_at: None,
    })));
    log.open(&session, 1, 0);
    Setup { _directory: directory, store, log, lost, session }
}

impl Setup {
    fn append(&self, text: String) -> Option<u64> {
        self.log.append(&self.session, EventKind::Update, Recipient::All, text.into())
    }
}

async fn take(subscription: &mut Subscription, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        numbers.extend(subscription.next().await.unwrap().iter().map(|event| event.seq));
    }
    numbers
}

#[tokio::test]
async fn every_subscriber_sees_every_event_once_wherever_it_begins() {
    let setup = setup();
    let mut early = setup.log.subscribe(&setup.session, 0);
    // More than memory keeps, so that late subscribers read from the store first.
    for number in 1..=200u64 {
        assert_eq!(setup.append("x".repeat(100_000)), Some(number));
        if number % 50 == 0 {
            setup.log.flush().await;
        }
    }
    assert_eq!(take(&mut early, 200).await, (1..=200).collect::<Vec<_>>());
    for after in [0, 1, 99, 199] {
        let mut late = setup.log.subscribe(&setup.session, after);
        let expected: Vec<u64> = (after + 1..=200).collect();
        assert_eq!(take(&mut late, expected.len()).await, expected);
        assert_eq!(late.cursor(), 200);
    }
    let state = setup.log.lock();
    let kept: usize = state.sessions[&setup.session]
        .tail
        .iter()
        .flat_map(|run| run.iter())
        .map(|event| event.body.len())
        .sum();
    assert!(kept <= state.recent_bytes && state.recent_bytes <= MAX_RECENT_BYTES, "memory is bounded");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_it_is_stored() {
    let setup = setup();
    setup.log.flush().await;
    setup.store.is_failing.store(true, Ordering::SeqCst);
    let mut subscription = setup.log.subscribe(&setup.session, 0);
    setup.append("a".into());
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    setup.log.after_commit(move || done.store(true, Ordering::SeqCst));
    setup.store.failed.notified().await;
    setup.store.failed.notified().await;
    assert!(setup.log.lock().sessions[&setup.session].tail.is_empty());
    assert!(!is_done.load(Ordering::SeqCst));
    setup.store.is_failing.store(false, Ordering::SeqCst);
    assert_eq!(take(&mut subscription, 1).await, [1], "a failed commit is tried again");
    setup.log.flush().await;
    assert!(is_done.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn agents_wait_while_too_much_is_pending() {
    let setup = setup();
    setup.log.flush().await;
    setup.store.is_failing.store(true, Ordering::SeqCst);
    setup.append("x".repeat(MAX_PENDING_BYTES + 1));
    setup.store.failed.notified().await;
    let waits = setup.log.wait_for_room();
    tokio::pin!(waits);
    assert!((&mut waits).now_or_never().is_none());
    setup.store.is_failing.store(false, Ordering::SeqCst);
    waits.await;
}

#[tokio::test]
async fn a_session_of_another_server_takes_no_more_events() {
    let setup = setup();
    setup.append("a".into());
    setup.log.flush().await;
    setup.store.acquire(&setup.session).await.unwrap();
    let mut subscription = setup.log.subscribe(&setup.session, 1);
    setup.append("b".into());
    setup.log.flush().await;
    assert_eq!(*setup.lost.lock().unwrap(), std::slice::from_ref(&setup.session));
    assert_eq!(setup.append("c".into()), None);
    assert!(subscription.next().now_or_never().is_none(), "nothing was published");
}

#[tokio::test]
async fn a_session_without_subscribers_is_forgotten() {
    let setup = setup();
    setup.append("a".into());
    setup.log.flush().await;
    let subscription = setup.log.subscribe(&setup.session, 0);
    setup.log.close(&setup.session, 7);
    assert!(setup.append("b".into()).is_some(), "another generation was closed");
    setup.log.flush().await;
    setup.log.close(&setup.session, 1);
    assert_eq!(setup.log.lock().sessions.len(), 1);
    drop(subscription);
    assert_eq!(setup.log.lock().sessions.len(), 0);
}
