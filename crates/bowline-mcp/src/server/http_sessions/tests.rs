//! Tests of which session is evicted for another.

use super::{EmptyEventSupport, HttpSessions, SessionUseGuard};
use std::sync::Arc;

fn open_session(visits: &Arc<HttpSessions>, id: &str) -> String {
    match visits.reserve() {
        None => "no room".to_owned(),
        Some((opening, ends)) => {
            opening.commit(id, EmptyEventSupport::Unsupported);
            ends.map_or_else(|| "opened".to_owned(), |ends| format!("opened for {ends}"))
        }
    }
}

#[test]
fn the_session_that_nobody_used_for_longest_makes_room() {
    let visits = HttpSessions::new(2);
    assert_eq!([open_session(&visits, "a"), open_session(&visits, "b")], ["opened", "opened"]);
    drop(visits.begin_use("a"));
    assert_eq!(open_session(&visits, "c"), "opened for b");
    assert_eq!(open_session(&visits, "d"), "opened for a");
}

#[test]
fn a_session_in_use_does_not_end() {
    let visits = HttpSessions::new(2);
    open_session(&visits, "a");
    open_session(&visits, "b");
    let stays: Vec<SessionUseGuard> = ["a", "a", "b"].iter().map(|id| visits.begin_use(id)).collect();
    assert_eq!(open_session(&visits, "c"), "no room");
    let mut stays = stays.into_iter();
    drop(stays.next());
    assert_eq!(open_session(&visits, "c"), "no room", "it is used twice");
    drop(stays.next());
    assert_eq!(open_session(&visits, "c"), "opened for a");
}

#[test]
fn one_that_opens_has_its_place_until_it_is_open_or_did_not_open() {
    let visits = HttpSessions::new(1);
    let opening = visits.reserve();
    assert_eq!(open_session(&visits, "a"), "no room");
    drop(opening);
    assert_eq!(open_session(&visits, "a"), "opened");
    visits.remove("a");
    assert_eq!(open_session(&visits, "b"), "opened");
    // Using an unknown or ended session has no effect.
    drop(visits.begin_use("a"));
    assert_eq!(open_session(&visits, "c"), "opened for b");
}

#[test]
fn what_a_client_can_read_is_kept_with_its_session() {
    let visits = HttpSessions::new(2);
    open_session(&visits, "old");
    visits.reserve().unwrap().0.commit("new", EmptyEventSupport::Supported);
    let kept = ["old", "new", "none"].map(|id| visits.empty_event_support(id));
    assert_eq!(
        kept,
        [EmptyEventSupport::Unsupported, EmptyEventSupport::Supported, EmptyEventSupport::Unsupported]
    );
}
