//! Tests of server specifications from clients.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn check(server: Value, expected: Expect) {
    let server: McpServer = serde_json::from_value(server).unwrap();
    expected.assert_eq(&match ServerSpec::try_from(&server) {
        Ok(ServerSpec { name, transport: TransportSpec::Http { url, headers } }) => {
            format!("{name}: HTTP {url} {headers:?}")
        }
        Ok(ServerSpec { name, transport: TransportSpec::Sse { url, headers } }) => {
            format!("{name}: SSE {url} {headers:?}")
        }
        Ok(spec) => format!("{spec:?}"),
        Err(error) => format!("! {error}"),
    });
}

#[test]
fn programs_and_addresses_are_taken_as_given() {
    let env = json!([{ "name": "A", "value": "1" }]);
    check(
        json!({ "name": "a b", "command": "npx", "args": ["-y", "x"], "env": env }),
        expect![[
            r#"ServerSpec { name: "a b", transport: Stdio { command: "npx", args: ["-y", "x"], env: [("A", "1")], cwd: None } }"#
        ]],
    );
    let headers = json!([{ "name": "Authorization", "value": "Bearer x" }]);
    check(
        json!({ "type": "http", "name": "w", "url": "https://a.example/mcp", "headers": headers }),
        expect![[r#"w: HTTP https://a.example/mcp {"authorization": Sensitive}"#]],
    );
    check(
        json!({ "type": "sse", "name": "w", "url": "http://a.example:1/sse?k=v", "headers": [] }),
        expect!["w: SSE http://a.example:1/sse?k=v {}"],
    );
    check(
        json!({ "type": "acp", "name": "own", "serverId": "m" }),
        expect![[r#"ServerSpec { name: "own", transport: Acp { server: McpServerAcpId("m") } }"#]],
    );
}

#[test]
fn what_cannot_be_used_is_said() {
    check(
        json!({ "name": "a", "command": "", "args": [], "env": [] }),
        expect![[r#"! the MCP server "a" has no command: name a program"#]],
    );
    let http = |url: &str, header: &str| json!({ "type": "http", "name": "w", "url": url, "headers": [{ "name": header, "value": "x" }] });
    check(
        http("nowhere", "x"),
        expect![[r#"! the MCP server "w" has no usable address: relative URL without a base"#]],
    );
    check(
        http("file:///etc/passwd", "x"),
        expect![[r#"! the MCP server "w" has no usable address: file is not HTTP"#]],
    );
    check(http("https://a.example", "Mcp-Session-Id"), expect!["w: HTTP https://a.example/ {}"]);
    check(
        http("https://a.example", "bad name"),
        expect![[
            r#"! the MCP server "w" has a header that cannot be sent, "bad name": change or remove it"#
        ]],
    );
}
