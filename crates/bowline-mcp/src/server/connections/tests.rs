//! Tests of which connection is closed in favour of another.

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::{ConnectionPermit, Connections};

fn is_closed(admission: &ConnectionPermit) -> bool {
    admission.wait_until_closed().now_or_never().is_some()
}

#[test]
fn the_oldest_that_never_showed_the_secret_is_closed_first() {
    let connections = Connections::new(3);
    let admit = || Arc::new(connections.admit().unwrap());
    let (silent, idle) = (admit(), admit());
    drop(idle.begin_request());
    let later_silent = admit();
    let _fourth = admit();
    assert_eq!([&silent, &idle, &later_silent].map(|connection| is_closed(connection)), [true, false, false]);
    let _fifth = admit();
    assert_eq!([&idle, &later_silent].map(|connection| is_closed(connection)), [false, true]);
}

#[test]
fn of_those_that_showed_it_the_longest_idle_is_closed() {
    let connections = Connections::new(2);
    let admit = || Arc::new(connections.admit().unwrap());
    let (first, second) = (admit(), admit());
    let request = first.begin_request();
    drop(second.begin_request());
    drop(request);
    let third = admit();
    assert_eq!([&first, &second].map(|connection| is_closed(connection)), [false, true]);
    drop(third.begin_request());
}

#[test]
fn a_request_under_way_is_never_cut_for_another() {
    let connections = Connections::new(1);
    let only = Arc::new(connections.admit().unwrap());
    let request = only.begin_request();
    assert!(connections.admit().is_none() && connections.close_idle_connection().is_none());
    let mut room = Box::pin(connections.wait_for_room());
    assert!((&mut room).now_or_never().is_none());
    drop(request);
    assert!((&mut room).now_or_never().is_some());
    assert!(connections.admit().is_some() && is_closed(&only));
}
