//! Tests of requests with an extra server.

use expect_test::expect;
use serde_json::json;

use super::*;

#[test]
fn a_server_is_added_and_nothing_else_changes() {
    let lines = [
        "nonsense",
        r#"{"id":1,"params":[]}"#,
        r#"{"id":1,"params":{"mcpServers":"x"}}"#,
        r#"{ "id":1, "params": { "mcpServers" : [ ] , "cwd":"/w", "_meta":{"f":1.50} } }"#,
        r#"{"params":{"cwd":"/w","mcpServers":[{"name":"bowline","x":"]"}]},"id":1}"#,
        r#"{"id":1,"params":{"sessionId":"s","cwd":"\u00e9"}}"#,
        r#"{"id":1,"params":{"mcpServers":null,"cwd":"/w"}}"#,
        r#"{"id":1,"params":{}}"#,
    ];
    let out: String = lines
        .iter()
        .map(|line| {
            let name = choose_server_name(line.as_bytes());
            match insert_server(line.as_bytes(), &json!({ "name": name })) {
                Some(line) => format!("{}\n", String::from_utf8(line).unwrap()),
                None => "none\n".to_owned(),
            }
        })
        .collect();
    expect![[r#"
        none
        none
        none
        { "id":1, "params": { "mcpServers" : [ {"name":"bowline"}] , "cwd":"/w", "_meta":{"f":1.50} } }
        {"params":{"cwd":"/w","mcpServers":[{"name":"bowline","x":"]"},{"name":"bowline-2"}]},"id":1}
        {"id":1,"params":{"mcpServers":[{"name":"bowline"}],"sessionId":"s","cwd":"\u00e9"}}
        {"id":1,"params":{"mcpServers":[{"name":"bowline"}],"cwd":"/w"}}
        {"id":1,"params":{"mcpServers":[{"name":"bowline"}]}}
    "#]]
    .assert_eq(&out);
}

#[test]
fn an_agent_gets_the_best_way_that_it_can_take() {
    let (plain, http) = (McpCapabilities::new(), McpCapabilities::new().http(true));
    let ways = [(&plain, false), (&http, false), (&plain, true), (&http, true)];
    assert_eq!(
        ways.map(|(agent, over_acp)| McpTransport::best(agent, over_acp)),
        [McpTransport::Stdio, McpTransport::Http, McpTransport::Acp, McpTransport::Acp]
    );
}
