//! The overview.

use bowline_protocol::sse::SseDecoder;
use bowline_serve::token::Role;
use expect_test::expect;
use serde_json::{Value, json};

use crate::support::{Answer, Server};

/// Formats the sessions of an overview, one for each line.
fn list(answer: &Answer) -> String {
    let body = answer.json();
    let sessions = body["sessions"].as_array().unwrap();
    let line = |session: &Value| {
        let text = |name: &str| session[name].as_str().unwrap_or("-").to_owned();
        format!(
            "{} {} {} {} files {}\n",
            text("id"),
            text("principal"),
            text("state"),
            text("title"),
            session["changedFiles"]
        )
    };
    sessions.iter().map(line).collect::<String>() + &format!("next {}\n", body["next"])
}

#[tokio::test]
async fn an_overview_has_the_sessions_one_may_see() {
    let server = Server::start().await;
    let (me, admin) = (server.token("me", Role::User).await, server.token("boss", Role::Admin).await);
    server.session("s1", "me", "Fix the parser", 1).await;
    server.session("s2", "other", "Write tests", 2).await;
    server.session("s3", "me", "Old work", 3).await;
    server.write_as_agent("s1", 1, "a.txt", "a\n");
    server.write_as_agent("s1", 2, "a.txt", "b\n");
    server.write_as_agent("s2", 1, "b.txt", "b\n");
    server.post(&me, "/api/sessions/s3/archive", &json!({ "archived": true })).await;
    let mut shown = String::new();
    for (token, path) in [
        (&me, "/api/overview"),
        (&me, "/api/overview?archived=true"),
        (&me, "/api/overview?session=s3"),
        (&admin, "/api/overview"),
        (&admin, "/api/overview?query=TESTS"),
        (&admin, "/api/overview?query=nothing"),
    ] {
        shown += &format!("{path}\n{}", list(&server.get(token, path).await));
    }
    expect![[r#"
        /api/overview
        s1 me idle Fix the parser files 1
        next null
        /api/overview?archived=true
        s3 me idle Old work files 0
        next null
        /api/overview?session=s3
        s3 me idle Old work files 0
        next null
        /api/overview
        s2 other idle Write tests files 1
        s1 me idle Fix the parser files 1
        next null
        /api/overview?query=TESTS
        s2 other idle Write tests files 1
        next null
        /api/overview?query=nothing
        next null
    "#]]
    .assert_eq(&shown);
    // Undone changes do not count.
    server.post(&me, "/api/sessions/s1/undo", &json!({})).await;
    let after = server.get(&me, "/api/overview?session=s1").await.json();
    assert_eq!(after["sessions"][0]["changedFiles"], 0);
    server.post(&me, "/api/sessions/s3/archive", &json!({ "archived": false })).await;
    assert_eq!(server.get(&me, "/api/overview").await.json()["sessions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_overview_has_pages() {
    let server = Server::start().await;
    let me = server.token("me", Role::User).await;
    for number in 0..130 {
        server.session(&format!("s{number}"), "me", &format!("work {}", number % 2), number).await;
    }
    let mut path = "/api/overview?query=work".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = server.get(&me, &path).await.json();
        let sessions = page["sessions"].as_array().unwrap();
        ids.extend(sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/overview?query=work&cursor={next}");
    }
    let expected: Vec<String> = (0..130).rev().map(|number| format!("s{number}")).collect();
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn changes_of_sessions_are_streamed_to_those_who_may_see_them() {
    let server = Server::start().await;
    let (me, other) = (server.token("me", Role::User).await, server.token("other", Role::User).await);
    server.session("s1", "me", "mine", 1).await;
    server.session("s2", "other", "theirs", 2).await;
    let request = server.http.get(format!("{}/api/overview/events", server.url)).bearer_auth(&me);
    let mut stream = request.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    server.post(&other, "/api/sessions/s2/archive", &json!({ "archived": true })).await;
    server.post(&me, "/api/sessions/s1/archive", &json!({ "archived": true })).await;
    let mut decoder = SseDecoder::new(1 << 16);
    let event = loop {
        let chunk = stream.chunk().await.unwrap().expect("the stream ended");
        if let Some(event) = decoder.push(&chunk).unwrap().pop_front() {
            break event;
        }
    };
    // The first is that of one's own session.
    assert_eq!(serde_json::from_slice::<Value>(&event.data.unwrap()).unwrap(), json!({ "id": "s1" }));
    // The stream ends with the server.
    server.hub.drain(std::time::Duration::from_secs(1)).await;
    while stream.chunk().await.unwrap().is_some() {}
}
