//! Tests of which requests are accepted by their head.

use http::HeaderMap;

use super::{HttpRefusal, allowed_hosts, check_head, constant_time_eq};

fn check(headers: &[(&'static str, &str)], path: &str) -> Option<HttpRefusal> {
    let hosts = allowed_hosts("127.0.0.1:7000".parse().unwrap(), &["box.local".to_owned()]);
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    check_head(&map, path, &hosts, "secret")
}

#[test]
fn a_request_needs_our_name_the_secret_and_no_page() {
    let (host, bearer) = (("host", "127.0.0.1:7000"), ("authorization", "Bearer secret"));
    assert_eq!(check(&[host, bearer], "/mcp"), None);
    assert_eq!(check(&[("host", "LOCALHOST:7000"), ("authorization", "bearer  secret")], "/mcp"), None);
    assert_eq!(check(&[("host", "box.local:7000"), bearer], "/mcp"), None);
    assert_eq!(check(&[host, bearer], "/"), Some(HttpRefusal::UnknownPath));
    assert_eq!(check(&[host], "/mcp"), Some(HttpRefusal::WrongToken));
    assert_eq!(check(&[host, ("authorization", "Bearer secre")], "/mcp"), Some(HttpRefusal::WrongToken));
    assert_eq!(check(&[host, ("authorization", "Basic secret")], "/mcp"), Some(HttpRefusal::WrongToken));
    assert_eq!(check(&[host, bearer, ("origin", "http://localhost:7000")], "/mcp"), None);
    for page in ["http://localhost:7001", "https://localhost:7000", "http://evil.example", "null", ""] {
        assert_eq!(
            check(&[host, bearer, ("origin", page)], "/mcp"),
            Some(HttpRefusal::BrowserPage),
            "{page}"
        );
    }
    assert_eq!(check(&[("host", "evil.example:7000"), bearer], "/mcp"), Some(HttpRefusal::UnknownHost));
    assert_eq!(check(&[("host", "127.0.0.1:7001"), bearer], "/mcp"), Some(HttpRefusal::UnknownHost));
    assert_eq!(check(&[bearer], "/mcp"), Some(HttpRefusal::UnknownHost));
}

#[test]
fn secrets_are_compared_whole() {
    assert!(constant_time_eq(b"abc", b"abc"));
    assert!(!constant_time_eq(b"abc", b"abd"));
    assert!(!constant_time_eq(b"abc", b"ab"));
}
