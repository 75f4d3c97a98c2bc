//! The official TypeScript SDK's server, killed and started again. Its agent's turns are in the tests of the peers.

use serde_json::{Value, json};
use test_support::peer_server::PeerServer;
use xtask::peers::{SdkPeer, is_available};

use crate::caller::Caller;
use crate::servers::Balancer;

async fn request(caller: &mut Caller, id: u64, method: &str, params: Value) -> Value {
    caller.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    caller.next().await
}

async fn prompt(caller: &mut Caller, id: u64, session: &Value, text: &str) -> Value {
    let text = json!([{"type": "text", "text": text}]);
    request(caller, id, "session/prompt", json!({"sessionId": session, "prompt": text})).await
}

async fn check_restart(scheme: &str) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let agent = SdkPeer::TypeScript.agent_command(root);
    if !is_available(SdkPeer::TypeScript.name(), &agent) {
        return;
    }
    let server = PeerServer::start(&agent).unwrap();
    let network = Balancer::start(server.address()).await;
    let mut caller = Caller::start(&format!("{scheme}://{}", network.address()));
    let initialized = request(&mut caller, 0, "initialize", json!({"protocolVersion": 1})).await;
    assert_eq!(initialized["result"]["agentInfo"]["name"], "peer-typescript");
    let new_session = json!({"cwd": "/", "mcpServers": []});
    let opened = request(&mut caller, 1, "session/new", new_session.clone()).await;
    let session = &opened["result"]["sessionId"];
    let waiting = prompt(&mut caller, 2, session, r#"{"do":"wait"}"#).await;
    assert_eq!(waiting["params"]["update"]["content"]["text"], "waiting");
    drop(server);
    let server = PeerServer::start(&agent).unwrap();
    network.switch_to(server.address());
    let error = caller.next_error().await;
    assert!(error.starts_with("2 ") && error.ends_with("check, and try again"), "{error}");
    let opened = request(&mut caller, 3, "session/new", new_session).await;
    let session = &opened["result"]["sessionId"];
    let echo = prompt(&mut caller, 4, session, "hello").await;
    assert_eq!(echo["params"]["update"]["content"]["text"], "hello");
    assert_eq!(caller.next().await, json!({"jsonrpc": "2.0", "id": 4, "result": {"stopReason": "end_turn"}}));
    let reports = caller.reports().concat();
    assert!(reports.contains("the agent can neither resume nor load sessions"), "{reports}");
    caller.finish().await.unwrap();
}

#[tokio::test]
async fn a_server_over_http_may_be_killed_and_started_again() {
    check_restart("http").await;
}

#[tokio::test]
async fn a_server_over_a_websocket_may_be_killed_and_started_again() {
    check_restart("ws").await;
}
