//! Tests that no processes are left when servers end.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use super::support::{Beacon, call, client_options, connect, peer_spec, program_spec};

#[tokio::test]
async fn shutting_down_ends_servers_that_ignore_it_and_what_they_started() {
    let beacon = Beacon::new();
    let script = format!(
        "trap '' TERM; exec {} serve --stay --beacon {}",
        env!("CARGO_BIN_EXE_mcp-peer"),
        beacon.path
    );
    let stubborn = program_spec("a", "/bin/sh", vec!["-c".to_owned(), script]);
    let servers = connect(vec![stubborn], client_options()).await;
    call(&servers, "mcp__a__daemon", json!({ "beacon": beacon.path })).await.unwrap();
    let ((first, server), (second, daemon)) = (beacon.accept().await, beacon.accept().await);
    assert_eq!([first, second], ["server", "daemon"]);
    let start = Instant::now();
    servers.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    server.wait_until_ended().await;
    daemon.wait_until_ended().await;
}

#[tokio::test]
async fn dropping_the_servers_ends_them() {
    let beacon = Beacon::new();
    let servers = connect(vec![peer_spec("a", &["--beacon", &beacon.path])], client_options()).await;
    call(&servers, "mcp__a__daemon", json!({ "beacon": beacon.path })).await.unwrap();
    let ((_, server), (_, daemon)) = (beacon.accept().await, beacon.accept().await);
    drop(servers);
    server.wait_until_ended().await;
    daemon.wait_until_ended().await;
}

#[tokio::test]
async fn a_daemon_does_not_outlive_the_crash_of_its_server() {
    let beacon = Beacon::new();
    let servers = connect(vec![peer_spec("a", &["--beacon", &beacon.path])], client_options()).await;
    call(&servers, "mcp__a__daemon", json!({ "beacon": beacon.path })).await.unwrap();
    let ((_, server), (_, daemon)) = (beacon.accept().await, beacon.accept().await);
    call(&servers, "mcp__a__crash", json!({})).await.unwrap_err();
    server.wait_until_ended().await;
    daemon.wait_until_ended().await;
    servers.shutdown().await;
}

#[tokio::test]
async fn killing_the_agent_ends_its_servers() {
    let beacon = Beacon::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-peer"));
    command.args(["agent", &beacon.path]).stdin(Stdio::null()).kill_on_drop(true);
    let mut agent = command.spawn().unwrap();
    let ((_, server), (_, daemon)) = (beacon.accept().await, beacon.accept().await);
    agent.kill().await.unwrap();
    server.wait_until_ended().await;
    daemon.wait_until_ended().await;
}
