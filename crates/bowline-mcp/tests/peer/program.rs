//! The test program: an MCP server whose tools misbehave, an agent that uses it, and the supervisor of both.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::zombie_processes,
    reason = "a program of the tests that ends when something is wrong, and when it is to crash"
)]

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use bowline_mcp::client::{McpClientOptions, McpServers, ServerSpec, TransportSpec};
use bowline_workspace::terminals::{SupervisorProgram, TerminalOptions, supervisor};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("supervise") => supervisor::main(std::env::args_os()),
        Some("serve") => serve(rest),
        Some("agent") => run_agent(&rest[0]),
        Some("daemon") => run_daemon(&rest[0]),
        _ => ExitCode::FAILURE,
    }
}

/// Runs until it is killed. The listener at `beacon` then sees the connection close.
fn run_daemon(beacon: &str) -> ExitCode {
    let mut beacon = UnixStream::connect(beacon).expect("a listener");
    beacon.write_all(b"daemon\n").expect("a listener");
    wait_forever(beacon)
}

fn wait_forever(mut beacon: UnixStream) -> ExitCode {
    // The listener never writes.
    beacon.read_exact(&mut [0]).map_or_else(drop, drop);
    loop {
        std::thread::park();
    }
}

/// Connects to a server with a daemon, and runs until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn run_agent(beacon: &str) -> ExitCode {
    let program = std::env::current_exe().expect("a path");
    let supervisor = SupervisorProgram::new(&program, ["supervise"]);
    let args = ["serve", "--beacon", beacon].map(str::to_owned).to_vec();
    let transport =
        TransportSpec::Stdio { command: program.display().to_string(), args, env: Vec::new(), cwd: None };
    let servers = McpServers::connect(
        vec![ServerSpec { name: "peer".to_owned(), transport }],
        McpClientOptions::from_terminal_options(&TerminalOptions::new(supervisor), "/"),
    );
    servers.wait_until_ready(Duration::from_secs(20)).await;
    let arguments = json!({ "beacon": beacon }).as_object().cloned().unwrap_or_default();
    servers.call("mcp__peer__daemon", arguments, drop).await.expect("an answer");
    std::future::pending().await
}

/// Serves MCP over stdin and stdout.
fn serve(options: &[String]) -> ExitCode {
    let has = |option: &str| options.iter().any(|argument| argument == option);
    let value = |option: &str| options.iter().skip_while(|argument| *argument != option).nth(1).cloned();
    if let Some(beacon) = value("--beacon") {
        let mut beacon = UnixStream::connect(beacon).expect("a listener");
        beacon.write_all(b"server\n").expect("a listener");
        std::thread::spawn(move || wait_forever(beacon));
    }
    if has("--exit-early") {
        write_stderr("cannot find my configuration\n");
        return ExitCode::from(7);
    }
    if has("--garbage") {
        write_line("Welcome to the server!\n{\"level\":\"info\",\"msg\":\"ready\"}\n\u{1b}[31m42\n[1,2\n\n");
    }
    if let Some(kind) = value("--flood") {
        std::thread::spawn(move || flood(&kind, &Value::Null));
    }
    let mut server = MisbehavingServer {
        seen_methods: Vec::new(),
        has_extra_tool: false,
        has_many_tools: has("--many"),
        has_deep_tool: has("--deep"),
    };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).expect("JSON");
        if has("--hang") {
            continue;
        }
        server.handle_message(&message);
    }
    if has("--stay") {
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

struct MisbehavingServer {
    seen_methods: Vec<String>,
    has_extra_tool: bool,
    has_many_tools: bool,
    has_deep_tool: bool,
}

impl MisbehavingServer {
    fn handle_message(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        self.seen_methods.push(method.to_owned());
        let Some(id) = message.get("id") else { return };
        let params = &message["params"];
        match method {
            "initialize" => answer(
                id,
                json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "peer", "version": "1.2.3" },
                }),
            ),
            "tools/list" => self.list(id, params["cursor"].as_str()),
            "tools/call" => self.call(id, params),
            _ => write_message(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } }),
            ),
        }
    }

    fn list(&self, id: &Value, cursor: Option<&str>) {
        if self.has_many_tools {
            // An endless list of pages.
            let page: usize = cursor.map_or(0, |cursor| cursor.parse().expect("our cursor"));
            let tools: Vec<Value> =
                (0..50).map(|at| json!({ "name": format!("t{page}-{at}"), "inputSchema": {} })).collect();
            return answer(id, json!({ "tools": tools, "nextCursor": (page + 1).to_string() }));
        }
        if self.has_deep_tool {
            let schema = format!("{}{{}}{}", r#"{"properties":{"a":"#.repeat(5000), "}}".repeat(5000));
            return write_line(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"tools\":[{{\"name\":\"deep\",\"inputSchema\":{schema}}},\
                 {{\"name\":\"echo\",\"inputSchema\":{{\"type\":\"object\"}}}}]}}}}\n"
            ));
        }
        let names = [
            "echo", "crash", "hang", "progress", "stderr", "long", "noise", "broken", "daemon", "change",
            "pings", "where", "seen", "pictures", "refuse", "flood", "nested",
        ];
        let mut tools: Vec<Value> = names
            .iter()
            .map(|name| json!({ "name": name, "description": format!("Does {name}."), "inputSchema": { "type": "object" } }))
            .collect();
        tools.push(json!({ "name": "no.schema", "inputSchema": "broken" }));
        tools.push(json!({ "title": "has no name" }));
        if self.has_extra_tool {
            tools.push(json!({ "name": "extra", "inputSchema": { "type": "object" } }));
        }
        answer(id, json!({ "tools": tools }));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" | "no.schema" => answer_text(id, &arguments.to_string()),
            "crash" => std::process::exit(3),
            "hang" => {}
            "progress" => {
                let total = arguments["total"].as_u64().unwrap_or_default();
                for at in 1..=total {
                    write_message(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                        "progressToken": params["_meta"]["progressToken"],
                        "progress": at, "total": total, "message": "step \u{202e}by step",
                    } }));
                    std::thread::park_timeout(Duration::from_millis(
                        arguments["pause"].as_u64().unwrap_or_default(),
                    ));
                }
                answer_text(id, "all done");
            }
            "stderr" => {
                let line = vec![b'e'; 99];
                let mut stderr = io::stderr().lock();
                for _ in 0..arguments["megabytes"].as_u64().unwrap_or_default() * 10_000 {
                    stderr.write_all(&line).and_then(|()| stderr.write_all(b"\n")).expect("stderr is read");
                }
                stderr.write_all(b"last words\n").expect("stderr is read");
                answer_text(id, "said");
            }
            "long" => {
                write_line(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
                ));
                for _ in 0..17 {
                    write_line(&"x".repeat(1 << 20));
                }
                write_line("\"}]}}\n");
            }
            "noise" => {
                write_line(
                    "debug: calling the tool\n{\"not\":\"a message\"}\n\"just a string\"\nnull\n\u{0}\u{1}\n",
                );
                answer_text(id, "heard");
            }
            "broken" => write_message(json!({ "jsonrpc": "2.0", "id": id, "error": "not an object" })),
            "daemon" => {
                let mut command = Command::new(std::env::current_exe().expect("a path"));
                command
                    .args(["daemon", arguments["beacon"].as_str().expect("a beacon")])
                    .stdin(Stdio::null());
                // It holds the server's output open, and has its own process group.
                command.process_group(0).spawn().expect("a daemon");
                answer_text(id, "started");
            }
            "change" => {
                self.has_extra_tool = !self.has_extra_tool;
                for _ in 0..100 {
                    write_message(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
                }
                answer_text(id, "changed");
            }
            "pings" => {
                // Sends requests endlessly, and never reads.
                let mut number = 0_u64;
                let padding = "p".repeat(1000);
                loop {
                    number += 1;
                    let id = format!("{number}{padding}");
                    write_message(json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
                }
            }
            "flood" => {
                let (kind, token) = (
                    arguments["kind"].as_str().unwrap_or_default().to_owned(),
                    params["_meta"]["progressToken"].clone(),
                );
                std::thread::spawn(move || flood(&kind, &token));
            }
            "nested" => write_line(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{}}}}}\n",
                "[".repeat(5000) + &"]".repeat(5000)
            )),
            "where" => {
                let cwd = std::env::current_dir().expect("a directory");
                let mut names: Vec<String> =
                    std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                names.sort();
                let args: Vec<String> = std::env::args().skip(1).collect();
                answer_text(id, &format!("{}\n{}\n{}", cwd.display(), args.join(" "), names.join("\n")));
            }
            "seen" => answer_text(id, &self.seen_methods.join(" ")),
            "pictures" => answer(
                id,
                json!({
                    "content": [
                        { "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" },
                        { "type": "something new" },
                        { "type": "resource_link", "uri": "file:///a.txt", "name": "a" },
                    ],
                    "isError": true,
                }),
            ),
            "refuse" => write_message(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": "no \u{1b}[2Jsuch thing" } }),
            ),
            other => answer_text(id, &format!("there is no {other}")),
        }
    }
}

/// Sends endlessly, as fast as the reader reads.
fn flood(kind: &str, token: &Value) {
    let notification =
        |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let line = match kind {
        "logs" => notification("notifications/message", json!({ "level": "info", "data": "x".repeat(1000) })),
        "list_changed" => notification("notifications/tools/list_changed", json!({})),
        "progress" => {
            notification("notifications/progress", json!({ "progressToken": token, "progress": 1 }))
        }
        "large" => notification("notifications/other", json!({ "data": "x".repeat(4 << 20) })),
        "answers" => json!({ "jsonrpc": "2.0", "id": 4_000_000, "result": { "content": [] } }),
        "noise" | "line" | "stderr" => Value::Null,
        other => panic!("no flood of {other}"),
    };
    let line = match kind {
        "noise" => "n\n".repeat(30_000),
        "line" | "stderr" => "l".repeat(60_000),
        _ => format!("{line}\n"),
    };
    loop {
        match kind {
            "stderr" => write_stderr(&line),
            _ => write_line(&line),
        }
    }
}

fn answer_text(id: &Value, text: &str) {
    answer(id, json!({ "content": [{ "type": "text", "text": text }] }));
}

fn answer(id: &Value, result: Value) {
    write_message(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn write_message(message: Value) {
    write_line(&format!("{message}\n"));
}

fn write_line(text: &str) {
    let mut stdout = io::stdout().lock();
    // The reader closes the pipe when the test has ended.
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

fn write_stderr(text: &str) {
    io::stderr().write_all(text.as_bytes()).expect("stderr is read");
}
