//! Which session ends for another.

use super::{Stay, Visits, WithoutData};
use std::sync::Arc;

fn open(visits: &Arc<Visits>, id: &str) -> String {
    match visits.open() {
        None => "no room".to_owned(),
        Some((opening, ends)) => {
            opening.opened(id, WithoutData::Never);
            ends.map_or_else(|| "opened".to_owned(), |ends| format!("opened for {ends}"))
        }
    }
}

#[test]
fn the_session_that_nobody_used_for_longest_makes_room() {
    let visits = Visits::new(2);
    assert_eq!([open(&visits, "a"), open(&visits, "b")], ["opened", "opened"]);
    drop(visits.enter("a"));
    assert_eq!(open(&visits, "c"), "opened for b");
    assert_eq!(open(&visits, "d"), "opened for a");
}

#[test]
fn a_session_in_use_does_not_end() {
    let visits = Visits::new(2);
    open(&visits, "a");
    open(&visits, "b");
    let stays: Vec<Stay> = ["a", "a", "b"].iter().map(|id| visits.enter(id)).collect();
    assert_eq!(open(&visits, "c"), "no room");
    let mut stays = stays.into_iter();
    drop(stays.next());
    assert_eq!(open(&visits, "c"), "no room", "it is used twice");
    drop(stays.next());
    assert_eq!(open(&visits, "c"), "opened for a");
}

#[test]
fn one_that_opens_has_its_place_until_it_is_open_or_did_not_open() {
    let visits = Visits::new(1);
    let opening = visits.open();
    assert_eq!(open(&visits, "a"), "no room");
    drop(opening);
    assert_eq!(open(&visits, "a"), "opened");
    visits.ended("a");
    assert_eq!(open(&visits, "b"), "opened");
    // What is not known, or is gone, has no use.
    drop(visits.enter("a"));
    assert_eq!(open(&visits, "c"), "opened for b");
}

#[test]
fn what_a_client_can_read_is_kept_with_its_session() {
    let visits = Visits::new(2);
    open(&visits, "old");
    visits.open().unwrap().0.opened("new", WithoutData::Allowed);
    let kept = ["old", "new", "none"].map(|id| visits.events(id));
    assert_eq!(kept, [WithoutData::Never, WithoutData::Allowed, WithoutData::Never]);
}
