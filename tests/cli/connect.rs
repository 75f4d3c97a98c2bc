//! Tests of `bowline connect`, and of `run`, `chat` and `setup` with `--connect`.

use std::os::unix::fs::PermissionsExt as _;

use expect_test::expect;
use test_support::peer_server::PeerServer;
use test_support::scripted_http::ScriptedHttpServer;
use xtask::peers::{SdkPeer, is_available};

use crate::fixture::CliFixture;
use crate::programs::workspace_root;

const INITIALIZE: &str =
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n";

/// Writes a file with a token, and returns its path.
fn token_file(scene: &CliFixture, name: &str, text: &str, mode: u32) -> String {
    let file = scene.home().join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    file.display().to_string()
}

#[test]
fn what_would_give_a_token_away_is_refused() {
    let scene = CliFixture::new();
    let token = token_file(&scene, "token", "secret", 0o600);
    let open = token_file(&scene, "open", "secret", 0o644);
    let empty = token_file(&scene, "empty", "\n", 0o600);
    let url = "http://192.0.2.1:8040";
    let output = scene.run_all(&[
        &["connect", "https://user:secret@host"],
        &["connect", "https://host/acp?token=secret"],
        &["connect", url, "--token-file", &token],
        &["connect", url, "--token-file", &open],
        &["connect", url, "--token-file", &empty],
        &["connect", url, "--token-file", "no-such-file"],
        &["connect", "host"],
        &["run", "--connect", "https://host?key=1", "hello"],
        &["run", "--connect", "https://host", "--agent", "x", "hello"],
        &["chat", "--connect", "https://host", "--base-url", "http://h", "--model", "m"],
        &["run", "--token-file", &token, "hello"],
        &["setup", "zed", "--connect", "https://user@host"],
        &["setup", "cursor", "--connect", "https://host"],
    ]);
    expect![[r#"
        $ bowline connect https://user:secret@host
        --- stderr
        bowline: the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
        --- 2
        $ bowline connect https://host/acp?token=secret
        --- stderr
        bowline: the URL contains a credential (token), which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
        --- 2
        $ bowline connect http://192.0.2.1:8040 --token-file $HOME/token
        --- stderr
        bowline: http://192.0.2.1:8040/acp is not encrypted, and the network could read the token: use https:// or wss://, or --insecure if the network is trusted
        --- 2
        $ bowline connect http://192.0.2.1:8040 --token-file $HOME/open
        --- stderr
        bowline: --token-file $HOME/open: others can read it: make it yours alone with `chmod 600`
        --- 2
        $ bowline connect http://192.0.2.1:8040 --token-file $HOME/empty
        --- stderr
        bowline: --token-file $HOME/empty: it is missing or empty
        --- 2
        $ bowline connect http://192.0.2.1:8040 --token-file no-such-file
        --- stderr
        bowline: --token-file no-such-file: it is missing or empty
        --- 2
        $ bowline connect host
        --- stderr
        bowline: host is not a URL: write one such as https://host:8040 or ws://127.0.0.1:8040
        --- 2
        $ bowline run --connect https://host?key=1 hello
        --- stderr
        bowline: --connect: the URL contains a credential (key), which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
        --- 2
        $ bowline run --connect https://host --agent x hello
        --- stderr
        bowline: the argument '--connect <URL>' cannot be used with '--agent <COMMAND>' (see --help)
        --- 2
        $ bowline chat --connect https://host --base-url http://h --model m
        --- stderr
        bowline: the argument '--connect <URL>' cannot be used with '--base-url <URL>' (see --help)
        --- 2
        $ bowline run --token-file $HOME/token hello
        --- stderr
        bowline: the following required arguments were not provided: --connect <URL> (see --help)
        --- 2
        $ bowline setup zed --connect https://user@host
        --- stderr
        bowline: --connect: the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
        --- 2
        $ bowline setup cursor --connect https://host
        --- stderr
        bowline: --connect is for editors that start agents; Cursor is an MCP client
        --- 2
    "#]].assert_eq(&output);
}

#[test]
fn an_editor_learns_how_to_start_the_connection() {
    let scene = CliFixture::new();
    expect![[r#"
        Zed: add this to $HOME/.config/zed/settings.json

        {
          "agent_servers": {
            "Bowline at host:8040": {
              "type": "custom",
              "command": "$BOWLINE",
              "args": ["connect", "https://host:8040/acp", "--token-file", "$PROJECT/token"],
              "env": {}
            }
          }
        }

        To have it added: bowline setup zed --write --connect https://host:8040 --token-file token
        Then open Zed's agent panel and begin a thread with Bowline at host:8040. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&scene.run(&[
        "setup",
        "zed",
        "--connect",
        "https://host:8040",
        "--token-file",
        "token",
    ]));
}

/// Runs `bowline connect` with an `initialize`, and returns the token that the server receives and the output.
async fn connect_with_token(
    scene: CliFixture,
    arguments: &[&str],
    variable: Option<&str>,
) -> (String, String) {
    let mut server = ScriptedHttpServer::start().await.unwrap();
    let address = server.address().to_string();
    let mut command = scene.command(&["connect", &format!("http://{address}")]);
    command.args(arguments);
    if let Some(token) = variable {
        command.env("BOWLINE_TOKEN", token);
    }
    let running =
        tokio::task::spawn_blocking(move || scene.describe_output(&scene.run_command(command, INITIALIZE)));
    let request = server.next_post().await.unwrap();
    let token = request.header("authorization").to_owned();
    request.respond(401, &[], "").await.unwrap();
    (token, running.await.unwrap().replace(&address, "HOST"))
}

#[tokio::test]
async fn the_token_comes_from_the_file_or_else_from_the_environment() {
    let scene = CliFixture::new();
    let file = token_file(&scene, "token", "from-the-file\n", 0o600);
    let (token, output) =
        connect_with_token(scene, &["--token-file", &file], Some("from-the-variable")).await;
    assert_eq!(token, "Bearer from-the-file");
    expect![[r#"
        {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"http://HOST/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN"}}
        --- 0
    "#]].assert_eq(&output);
    let (token, _) = connect_with_token(CliFixture::new(), &[], Some("from-the-variable")).await;
    assert_eq!(token, "Bearer from-the-variable");
    let (token, _) = connect_with_token(CliFixture::new(), &[], None).await;
    assert_eq!(token, "");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let address = ScriptedHttpServer::start().await.unwrap().stop().await.to_string();
    let scene = CliFixture::new();
    let run = move || {
        let mut output = String::new();
        for scheme in ["http", "ws"] {
            let url = format!("{scheme}://{address}");
            let connect = scene.run_command(scene.command(&["connect", &url]), INITIALIZE);
            output += &scene.describe_output(&connect);
            output += &scene.run(&["run", "--connect", &url, "hello"]);
        }
        output.replace(&address, "HOST")
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    expect![[r#"
        {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"cannot reach http://HOST/acp: Connection refused (os error 111)"}}
        --- 0
        --- stderr
        bowline: the agent did not start: cannot reach http://HOST/acp: Connection refused (os error 111)
        --- 1
        {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"cannot reach ws://HOST/acp: Connection refused (os error 111)"}}
        --- 0
        --- stderr
        bowline: the agent did not start: cannot reach ws://HOST/acp: Connection refused (os error 111)
        --- 1
    "#]].assert_eq(&output);
}

#[test]
fn a_prompt_runs_on_a_server_with_the_files_of_this_machine() {
    let agent = SdkPeer::TypeScript.agent_command(&workspace_root());
    if !is_available(SdkPeer::TypeScript.name(), &agent) {
        return;
    }
    let server = PeerServer::start(&agent).unwrap();
    for scheme in ["http", "ws"] {
        let scene = CliFixture::new();
        scene.write_file("a.txt", "one\n");
        let path = scene.file_path("a.txt");
        let prompt = format!(r#"{{"do":"edit","path":"{path}","old":"one","new":"two","command":"true"}}"#);
        let url = format!("{scheme}://{}", server.address());
        let output = scene.run(&["run", "--connect", &url, "--approve", "all", &prompt]);
        assert!(output.ends_with("--- 0\n"), "{output}");
        assert_eq!(scene.read_file("a.txt"), "two\n");
    }
}
