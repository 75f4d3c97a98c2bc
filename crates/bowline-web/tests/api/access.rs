//! The page's files and headers, and who may send which requests.

use bowline_serve::token::Role;
use expect_test::expect;
use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn the_page_runs_only_its_own_files() {
    let server = Server::start().await;
    let page = server.send("GET", "/", &[], "").await;
    let header = |name: &str| page.headers[name].to_str().unwrap().to_owned();
    let names = [
        "content-type", "cache-control", "content-security-policy", "x-content-type-options",
        "x-frame-options", "referrer-policy", "permissions-policy", "cross-origin-opener-policy",
    ];
    let headers: String = names.iter().map(|name| format!("{name}: {}\n", header(name))).collect();
    expect![[r#"
        content-type: text/html; charset=utf-8
        cache-control: no-cache
        content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'
        x-content-type-options: nosniff
        x-frame-options: DENY
        referrer-policy: no-referrer
        permissions-policy: camera=(), geolocation=(), microphone=(), payment=(), usb=()
        cross-origin-opener-policy: same-origin
    "#]].assert_eq(&headers);
    // Whatever it loads has the version in its name, and nothing in it is code.
    let page = page.text();
    let scripts: Vec<&str> = page.split("<script").skip(1).collect();
    assert!(!scripts.is_empty());
    for script in scripts {
        let (attributes, rest) = script.split_once('>').unwrap();
        assert!(attributes.contains("src=\"/assets/") && rest.starts_with("</script>"), "{script}");
    }
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" on"), "{page}");
    // The API has the same headers, and is not kept.
    let refused = server.send("GET", "/api/me", &[], "").await;
    assert_eq!(refused.headers["content-security-policy"], header("content-security-policy"));
    assert_eq!(refused.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn files_are_compressed_and_kept() {
    let server = Server::start().await;
    let page = server.send("GET", "/", &[], "").await.text();
    let (_, rest) = page.split_once("src=\"").unwrap();
    let script = rest.split_once('"').unwrap().0;
    let plain = server.send("GET", script, &[], "").await;
    let packed = server.send("GET", script, &["accept-encoding: br, gzip"], "").await;
    assert_eq!(plain.headers["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(plain.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < plain.body.len());
    let deflated = &packed.body[10..packed.body.len() - 8];
    assert_eq!(miniz_oxide::inflate::decompress_to_vec(deflated).unwrap(), plain.body);
    let tag = format!("if-none-match: {}", plain.headers["etag"].to_str().unwrap());
    let known = server.send("GET", "/", &[&tag], "").await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    let version = script.split('/').nth(2).unwrap();
    let missing = [
        "/nothing".to_owned(),
        "/index.html".to_owned(),
        "/assets/app.js".to_owned(),
        script.replace(version, "0000000000000000"),
        format!("/assets/{version}/index.html"),
        format!("/assets/{version}/../Cargo.toml"),
        format!("/assets/{version}/%2e%2e/Cargo.toml"),
        format!("/assets/{version}/"),
    ];
    for path in missing {
        assert_eq!(server.send("GET", &path, &[], "").await.status, 404, "{path}");
    }
    assert_eq!(server.send("POST", "/", &[], "").await.status, 405);
}

#[tokio::test]
async fn requests_that_are_refused() {
    let server = Server::start().await;
    let (me, other) = (server.token("me", Role::User).await, server.token("other", Role::User).await);
    let observer = server.token("observer", Role::Observer).await;
    server.session("s1", "me", "mine", 1).await;
    let host = server.url.strip_prefix("http://").unwrap().to_owned();
    let login = json!({ "token": me }).to_string();
    let login = server.send("POST", "/login", &[], &login).await;
    let cookie = login.headers["set-cookie"].to_str().unwrap().split_once(';').unwrap().0.to_owned();
    let cookie = format!("cookie: {cookie}");
    let bearer = |token: &str| format!("authorization: Bearer {token}");
    let (me, other, observer) = (bearer(&me), bearer(&other), bearer(&observer));
    let json = "content-type: application/json";
    let origin = format!("origin: http://{host}");
    let archive = "/api/sessions/s1/archive";
    let body = r#"{"archived":true}"#;
    let large = format!(r#"{{"texts":["{}"]}}"#, "a".repeat((4 << 20) + 1));
    let long = format!(r#"{{"texts":["{}"]}}"#, "a".repeat((1 << 20) + 1));
    let many = json!({ "texts": vec![""; 501] }).to_string();
    let cases: &[(&str, &str, &str, &[&str], &str)] = &[
        ("no cookie", "GET", "/api/me", &[], ""),
        ("a cookie", "GET", "/api/me", &[&cookie], ""),
        ("a foreign page reads", "GET", "/api/me", &[&cookie, "origin: https://evil.example"], ""),
        ("another host name", "GET", "/api/me", &[&cookie, "host: evil.example"], ""),
        ("a form of a foreign page", "POST", archive, &[&cookie, "origin: https://evil.example"], body),
        ("a page without origin", "POST", archive, &[&cookie, json], body),
        ("an opaque origin", "POST", archive, &[&cookie, json, "origin: null"], body),
        ("another port", "POST", archive, &[&cookie, json, "origin: http://127.0.0.1:1"], body),
        ("a form", "POST", archive, &[&cookie, &origin, "content-type: text/plain"], body),
        ("no type", "POST", archive, &[&cookie, &origin], body),
        ("not JSON", "POST", archive, &[&cookie, &origin, json], "{"),
        ("an unknown member", "POST", archive, &[&cookie, &origin, json], r#"{"archived":true,"x":1}"#),
        ("the page", "POST", archive, &[&cookie, &origin, json], body),
        ("a token", "POST", archive, &[&me, json], body),
        ("a token in the address", "GET", "/api/me?token=bow_1_2", &[&me], ""),
        ("another method", "GET", archive, &[&me], ""),
        ("an unknown request", "GET", "/api/nothing", &[&me], ""),
        ("an unknown session", "GET", "/api/sessions/s2/changes", &[&me], ""),
        ("another's changes", "GET", "/api/sessions/s1/changes", &[&other], ""),
        ("another's patch", "GET", "/api/sessions/s1/patch", &[&other], ""),
        ("another's files", "GET", "/api/sessions/s1/files", &[&other], ""),
        ("another's events", "GET", "/api/sessions/s1/events", &[&other], ""),
        ("another's audit log", "GET", "/api/audit?session=s1", &[&other], ""),
        ("another's directory", "GET", "/api/audit", &[&other], ""),
        ("another's verification", "POST", "/api/audit/verify", &[&other, json], r#"{"session":"s1"}"#),
        ("another's overview", "GET", "/api/overview?session=s1", &[&other], ""),
        ("another archives", "POST", archive, &[&other, json], body),
        ("another undoes", "POST", "/api/sessions/s1/undo", &[&other, json], "{}"),
        ("an observer looks", "GET", "/api/sessions/s1/changes", &[&observer], ""),
        ("an observer archives", "POST", archive, &[&observer, json], body),
        ("an observer undoes", "POST", "/api/sessions/s1/undo", &[&observer, json], "{}"),
        ("an observer redoes", "POST", "/api/sessions/s1/redo", &[&observer, json], "{}"),
        ("a user's status", "GET", "/api/status", &[&me], ""),
        ("a wrong cursor", "GET", "/api/overview?cursor=x", &[&me], ""),
        ("a wrong list", "GET", "/api/overview?archived=maybe", &[&me], ""),
        ("a wrong number", "GET", "/api/sessions/s1/events?after=-1", &[&me], ""),
        ("a wrong entry", "GET", "/api/audit?session=s1&before=x", &[&me], ""),
        ("no command", "GET", "/api/command", &[&me], ""),
        ("too large a body", "POST", "/api/markdown", &[&me, json], &large),
        ("too long a text", "POST", "/api/markdown", &[&me, json], &long),
        ("too many texts", "POST", "/api/markdown", &[&me, json], &many),
        ("a path above", "POST", "/api/sessions/s1/undo", &[&me, json], r#"{"path":"../x"}"#),
    ];
    let mut shown = String::new();
    for (name, method, path, headers, body) in cases {
        let answer = server.send(method, path, headers, body).await;
        shown += &format!("{name}: {}\n", answer.refusal());
    }
    expect![[r#"
        no cookie: 401 send the header Authorization: Bearer TOKEN; `bowline serve token add NAME` makes a token
        a cookie: 200 -
        a foreign page reads: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        another host name: 403 the header Host does not name this machine
        a form of a foreign page: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        a page without origin: 403 the header Origin is missing
        an opaque origin: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        another port: 403 pages of this origin may not use the server: allow it with `bowline serve --origin`
        a form: 415 send JSON: Content-Type: application/json
        no type: 415 send JSON: Content-Type: application/json
        not JSON: 400 EOF while parsing an object at line 1 column 1
        an unknown member: 400 unknown field `x`, expected `archived` at line 1 column 20
        the page: 204 -
        a token: 204 -
        a token in the address: 400 never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN
        another method: 405 this request needs another method
        an unknown request: 404 there is no such request
        an unknown session: 404 there is no such session
        another's changes: 404 there is no such session
        another's patch: 404 there is no such session
        another's files: 404 there is no such session
        another's events: 404 there is no such session
        another's audit log: 404 there is no such session
        another's directory: 404 there is no such session
        another's verification: 404 there is no such session
        another's overview: 404 there is no such session
        another archives: 404 there is no such session
        another undoes: 404 there is no such session
        an observer looks: 200 -
        an observer archives: 403 an observer may not change anything
        an observer undoes: 403 an observer may not change anything
        an observer redoes: 403 an observer may not change anything
        a user's status: 403 only admins see the state of the server
        a wrong cursor: 400 the cursor is unknown
        a wrong list: 400 archived is true or false
        a wrong number: 400 after is not a number
        a wrong entry: 400 before is not a number
        no command: 400 text is missing
        too large a body: 413 a body has at most 4194304 bytes
        too long a text: 400 a request has at most 500 texts with 1048576 bytes
        too many texts: 400 a request has at most 500 texts with 1048576 bytes
        a path above: 409 there is nothing to undo
    "#]].assert_eq(&shown);
}
