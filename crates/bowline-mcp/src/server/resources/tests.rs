//! Tests of file URIs.

use proptest::prelude::*;

use super::file_uri;

#[test]
fn what_has_a_meaning_in_a_uri_is_escaped() {
    assert_eq!(file_uri("/a b/ü?#%.rs"), "file:///a%20b/%C3%BC%3F%23%25.rs");
}

proptest! {
    #[test]
    fn no_two_paths_have_one_uri(path in ".{0,60}") {
        let uri = file_uri(&path);
        let escaped = uri.strip_prefix("file://").unwrap();
        let (mut bytes, mut rest) = (Vec::new(), escaped.as_bytes());
        while let [first, tail @ ..] = rest {
            rest = tail;
            if *first == b'%' {
                let digits = std::str::from_utf8(&tail[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &tail[2..];
            } else {
                bytes.push(*first);
            }
        }
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), path);
    }
}
