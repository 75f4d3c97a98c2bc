//! Tests of which session is evicted for another.

use super::{EmptyEventSupport, HttpSessions, SessionUseGuard};
use std::sync::Arc;

fn open_session(sessions: &Arc<HttpSessions>, id: &str) -> String {
    match sessions.reserve() {
        None => "no room".to_owned(),
        Some((reservation, evicted)) => {
            reservation.commit(id, EmptyEventSupport::Unsupported);
            evicted.map_or_else(|| "opened".to_owned(), |evicted| format!("opened for {evicted}"))
        }
    }
}

#[test]
fn the_least_recently_used_session_is_evicted() {
    let sessions = HttpSessions::new(2);
    assert_eq!([open_session(&sessions, "a"), open_session(&sessions, "b")], ["opened", "opened"]);
    drop(sessions.begin_use("a"));
    assert_eq!(open_session(&sessions, "c"), "opened for b");
    assert_eq!(open_session(&sessions, "d"), "opened for a");
}

#[test]
fn a_session_in_use_does_not_end() {
    let sessions = HttpSessions::new(2);
    open_session(&sessions, "a");
    open_session(&sessions, "b");
    let guards: Vec<SessionUseGuard> = ["a", "a", "b"].iter().map(|id| sessions.begin_use(id)).collect();
    assert_eq!(open_session(&sessions, "c"), "no room");
    let mut guards = guards.into_iter();
    drop(guards.next());
    assert_eq!(open_session(&sessions, "c"), "no room", "it is used twice");
    drop(guards.next());
    assert_eq!(open_session(&sessions, "c"), "opened for a");
}

#[test]
fn a_reservation_holds_its_place_until_committed_or_dropped() {
    let sessions = HttpSessions::new(1);
    let reservation = sessions.reserve();
    assert_eq!(open_session(&sessions, "a"), "no room");
    drop(reservation);
    assert_eq!(open_session(&sessions, "a"), "opened");
    sessions.remove("a");
    assert_eq!(open_session(&sessions, "b"), "opened");
    // Using an unknown or ended session has no effect.
    drop(sessions.begin_use("a"));
    assert_eq!(open_session(&sessions, "c"), "opened for b");
}

#[test]
fn empty_event_support_is_kept_per_session() {
    let sessions = HttpSessions::new(2);
    open_session(&sessions, "old");
    sessions.reserve().unwrap().0.commit("new", EmptyEventSupport::Supported);
    let support = ["old", "new", "none"].map(|id| sessions.empty_event_support(id));
    assert_eq!(
        support,
        [EmptyEventSupport::Unsupported, EmptyEventSupport::Supported, EmptyEventSupport::Unsupported]
    );
}
