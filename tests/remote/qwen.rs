//! `qwen serve`, another server of the protocol's transport, which numbers the events of its sessions.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use test_support::agent_homes::prepare_qwen;
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::{PublishedAgent, is_available};

use crate::caller::Caller;
use crate::programs::build_program;
use crate::servers::{allow, connect, initialize, is_answer, is_method, request, until};

const TOKEN: &str = "qwen-token";

/// The server with its workspace and its model. It is killed when this is dropped.
struct QwenServer {
    address: String,
    place: tempfile::TempDir,
    model: ModelServer,
    process: Child,
}

impl QwenServer {
    /// Starts the server, if it is installed.
    async fn start(script: Vec<ModelReply>) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let command = PublishedAgent::qwen_server_command(root, "0");
        if !is_available(PublishedAgent::Qwen.name(), &command) {
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        for directory in ["home", "project"] {
            std::fs::create_dir(place.path().join(directory)).unwrap();
        }
        let model = ModelServer::start(script).await.unwrap();
        let (process, address) = Self::launch(place.path(), &model, "0");
        Some(Self { address, place, model, process })
    }

    /// Kills the server, and starts it again on the same port.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let port = self.address.rsplit(':').next().unwrap().to_owned();
        (self.process, self.address) = Self::launch(self.place.path(), &self.model, &port);
    }

    fn launch(place: &Path, model: &ModelServer, port: &str) -> (Child, String) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let words = PublishedAgent::qwen_server_command(root, port);
        let home = place.join("home");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(place.join("project"));
        command.env("HOME", &home).env("QWEN_SERVER_TOKEN", TOKEN);
        command.envs(prepare_qwen(&home, model.url()).unwrap());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        // It may print more.
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
        // It listens before it accepts WebSockets.
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let is_ready = |line: String| line.contains("WebSocket transport enabled");
        assert!(log.by_ref().map_while(Result::ok).any(is_ready), "the server ended");
        std::thread::spawn(move || log.map_while(Result::ok).for_each(drop));
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        (process, url.unwrap_or_else(|| panic!("{line}")).to_owned())
    }

    /// Opens a session in which edits are asked about, and returns its id.
    async fn open_session(&self, caller: &mut Caller) -> Value {
        let new = json!({ "cwd": self.place.path().join("project"), "mcpServers": [] });
        caller.send(request(1, "session/new", new)).await;
        let opened = until(caller, is_answer(1)).await;
        let session = opened["result"]["sessionId"].clone();
        assert!(session.is_string(), "{opened}");
        let mode = json!({ "sessionId": session, "configId": "mode", "value": "default" });
        caller.send(request(2, "session/set_config_option", mode)).await;
        let answer = until(caller, is_answer(2)).await;
        assert!(answer["error"].is_null(), "{answer}");
        session
    }
}

impl Drop for QwenServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn prompt(id: u64, session: &Value, text: &str) -> Value {
    let prompt = json!([{ "type": "text", "text": text }]);
    request(id, "session/prompt", json!({ "sessionId": session, "prompt": prompt }))
}

fn is_chunk(text: &str) -> impl Fn(&Value) -> bool {
    move |message| message["params"]["update"]["content"]["text"] == text
}

/// A turn with a question.
async fn check_turn(connect: impl AsyncFnOnce(&str) -> Caller) {
    let Some(server) = QwenServer::start(Vec::new()).await else { return };
    let file = server.place.path().join("project/a.txt");
    let write = ModelReply::call("write_file", json!({ "file_path": file, "content": "hello\n" }));
    server.model.set_script(vec![write, ModelReply::text("It is written.")]);
    let mut caller = connect(&server.address).await;
    let session = server.open_session(&mut caller).await;
    caller.send(prompt(3, &session, "write the file")).await;
    let question = until(&mut caller, is_method("session/request_permission")).await;
    assert_eq!(question["params"]["sessionId"], session);
    allow(&mut caller, &question).await;
    until(&mut caller, is_chunk("It is written.")).await;
    let answer = until(&mut caller, is_answer(3)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "hello\n");
}

#[tokio::test]
async fn a_turn_with_a_question_over_http_through_the_program() {
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    check_turn(async |address| {
        initialize(Caller::start_program(&bowline, &format!("http://{address}"), TOKEN)).await
    })
    .await;
}

#[tokio::test]
async fn a_turn_with_a_question_over_a_websocket() {
    check_turn(async |address| connect(&format!("ws://{address}"), TOKEN).await).await;
}

/// A session that goes on after the server was killed and started again.
async fn check_restart(scheme: &str) {
    let Some(mut server) = QwenServer::start(Vec::new()).await else { return };
    let script = ["before", "after"].map(ModelReply::text);
    server.model.set_script(script.into());
    let mut caller = connect(&format!("{scheme}://{}", server.address), TOKEN).await;
    let session = server.open_session(&mut caller).await;
    caller.send(prompt(3, &session, "first")).await;
    until(&mut caller, is_answer(3)).await;
    server.restart();
    caller.send(prompt(4, &session, "second")).await;
    let is_chunk = is_chunk("after");
    let first = until(&mut caller, |message| is_chunk(message) || is_answer(4)(message)).await;
    // A prompt that meets the end of the old connection may have been lost with it.
    let id = match first["error"]["message"].as_str() {
        None => 4,
        Some(error) => {
            assert!(error.contains("check"), "it says that the request may have been done: {error}");
            caller.send(prompt(5, &session, "second")).await;
            until(&mut caller, is_chunk).await;
            5
        }
    };
    let answer = until(&mut caller, is_answer(id)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_over_http() {
    check_restart("http").await;
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart_over_a_websocket() {
    check_restart("ws").await;
}

#[tokio::test]
async fn a_wrong_token_is_named() {
    let Some(server) = QwenServer::start(Vec::new()).await else { return };
    for scheme in ["http", "ws"] {
        let mut caller = Caller::start_with_token(&format!("{scheme}://{}", server.address), "wrong");
        caller.send(request(0, "initialize", json!({ "protocolVersion": 1 }))).await;
        let error = caller.next_error().await;
        assert!(error.contains("denies access (401)"), "{error}");
    }
}
