//! Tests of which clients get which events.

use hyper::body::Bytes;

use super::{EmptyEventSupport, strip_empty_data};

#[test]
fn only_clients_of_later_revisions_get_events_without_data() {
    for (revision, expected) in [
        ("", EmptyEventSupport::Unsupported),
        ("2024-11-05", EmptyEventSupport::Unsupported),
        ("2025-06-18", EmptyEventSupport::Unsupported),
        ("2025-11-25", EmptyEventSupport::Supported),
        ("2026-03-01", EmptyEventSupport::Supported),
    ] {
        assert_eq!(EmptyEventSupport::from_revision(revision), expected, "{revision}");
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
        assert_eq!(strip_empty_data(Bytes::from(event.to_owned())), left.as_bytes(), "{event:?}");
    }
}
