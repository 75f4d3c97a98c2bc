//! Which requests are looked at.

use http::HeaderMap;

use super::{Refusal, allowed_hosts, is_same, refusal};

fn check(headers: &[(&'static str, &str)], path: &str) -> Option<Refusal> {
    let hosts = allowed_hosts("127.0.0.1:7000".parse().unwrap(), &["box.local".to_owned()]);
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    refusal(&map, path, &hosts, "secret")
}

#[test]
fn a_request_needs_our_name_the_secret_and_no_page() {
    let (host, bearer) = (("host", "127.0.0.1:7000"), ("authorization", "Bearer secret"));
    assert_eq!(check(&[host, bearer], "/mcp"), None);
    assert_eq!(check(&[("host", "LOCALHOST:7000"), ("authorization", "bearer  secret")], "/mcp"), None);
    assert_eq!(check(&[("host", "box.local:7000"), bearer], "/mcp"), None);
    assert_eq!(check(&[host, bearer], "/"), Some(Refusal::Path));
    assert_eq!(check(&[host], "/mcp"), Some(Refusal::Token));
    assert_eq!(check(&[host, ("authorization", "Bearer secre")], "/mcp"), Some(Refusal::Token));
    assert_eq!(check(&[host, ("authorization", "Basic secret")], "/mcp"), Some(Refusal::Token));
    assert_eq!(check(&[host, bearer, ("origin", "http://localhost:7000")], "/mcp"), None);
    for page in ["http://localhost:7001", "https://localhost:7000", "http://evil.example", "null", ""] {
        assert_eq!(check(&[host, bearer, ("origin", page)], "/mcp"), Some(Refusal::Page), "{page}");
    }
    assert_eq!(check(&[("host", "evil.example:7000"), bearer], "/mcp"), Some(Refusal::Host));
    assert_eq!(check(&[("host", "127.0.0.1:7001"), bearer], "/mcp"), Some(Refusal::Host));
    assert_eq!(check(&[bearer], "/mcp"), Some(Refusal::Host));
}

#[test]
fn secrets_are_compared_whole() {
    assert!(is_same(b"abc", b"abc"));
    assert!(!is_same(b"abc", b"abd"));
    assert!(!is_same(b"abc", b"ab"));
}
