//! Which clients get which events.

use hyper::body::Bytes;

use super::{WithoutData, without_empty_data};

#[test]
fn only_clients_of_later_revisions_get_events_without_data() {
    for (wanted, goes) in [
        ("", WithoutData::Never),
        ("2024-11-05", WithoutData::Never),
        ("2025-06-18", WithoutData::Never),
        ("2025-11-25", WithoutData::Allowed),
        ("2026-03-01", WithoutData::Allowed),
    ] {
        assert_eq!(WithoutData::of(wanted), goes, "{wanted}");
    }
}

#[test]
fn only_empty_data_is_left_out() {
    let long = format!("data: {}\n\n", "x".repeat(300));
    for (event, left) in [
        ("data: \nid: 0\nretry: 3000\n\n", "id: 0\nretry: 3000\n\n"),
        ("id: 0\ndata:\n\n", "id: 0\n\n"),
        ("data: {\"a\":1}\nid: 1\n\n", "data: {\"a\":1}\nid: 1\n\n"),
        (":\n\n", ":\n\n"),
        ("", ""),
        (&long, &long),
    ] {
        assert_eq!(without_empty_data(Bytes::from(event.to_owned())), left.as_bytes(), "{event:?}");
    }
}
