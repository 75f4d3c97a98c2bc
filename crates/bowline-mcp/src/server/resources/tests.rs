//! Tests of file URIs.

use proptest::prelude::*;

use super::{file_uri, parse_file_uri};

#[test]
fn what_has_a_meaning_in_a_uri_is_escaped() {
    assert_eq!(file_uri("/a b/ü?#%.rs"), "file:///a%20b/%C3%BC%3F%23%25.rs");
}

#[test]
fn only_uris_of_files_on_this_machine_have_a_path() {
    for uri in
        ["/a", "file://host/a", "file:///a%2", "file:///a%zz", "file:///%ff", "bowline://changes", "file://"]
    {
        assert_eq!(parse_file_uri(uri), None, "{uri}");
    }
}

proptest! {
    #[test]
    fn a_path_is_found_again_in_its_uri(path in "/.{0,60}") {
        prop_assert_eq!(parse_file_uri(&file_uri(&path)), Some(path));
    }
}
