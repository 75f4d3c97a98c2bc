//! What the tests start: an MCP server whose tools misbehave, an agent that uses it, and the supervisor of both.

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

use bowline_mcp::client::{Reach, ServerSpec, Servers, Settings};
use bowline_workspace::terminals::{Supervisor, supervisor};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("supervise") => supervisor::main(std::env::args_os()),
        Some("serve") => serve(rest),
        Some("agent") => agent(&rest[0]),
        Some("daemon") => daemon(&rest[0]),
        _ => ExitCode::FAILURE,
    }
}

/// Lives until it is killed. Whoever listens at `beacon` sees the connection close then.
fn daemon(beacon: &str) -> ExitCode {
    let mut beacon = UnixStream::connect(beacon).expect("a listener");
    beacon.write_all(b"daemon\n").expect("a listener");
    forever(beacon)
}

fn forever(mut beacon: UnixStream) -> ExitCode {
    // Nobody ever writes anything there.
    beacon.read_exact(&mut [0]).map_or_else(drop, drop);
    loop {
        std::thread::park();
    }
}

/// Connects to a server with a daemon, and lives until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn agent(beacon: &str) -> ExitCode {
    let program = std::env::current_exe().expect("a path");
    let supervisor = Supervisor::new(&program, ["supervise"]);
    let args = ["serve", "--beacon", beacon].map(str::to_owned).to_vec();
    let reach = Reach::Stdio { command: program.display().to_string(), args, env: Vec::new(), cwd: None };
    let servers =
        Servers::connect(vec![ServerSpec { name: "peer".to_owned(), reach }], Settings::new(supervisor, "/"));
    servers.ready(Duration::from_secs(20)).await;
    let arguments = json!({ "beacon": beacon }).as_object().cloned().unwrap_or_default();
    servers.call("mcp__peer__daemon", arguments, drop).await.expect("an answer");
    std::future::pending().await
}

/// Serves MCP over stdin and stdout.
fn serve(options: &[String]) -> ExitCode {
    let has = |option: &str| options.iter().any(|given| given == option);
    let value = |option: &str| options.iter().skip_while(|given| *given != option).nth(1).cloned();
    if let Some(beacon) = value("--beacon") {
        let mut beacon = UnixStream::connect(beacon).expect("a listener");
        beacon.write_all(b"server\n").expect("a listener");
        std::thread::spawn(move || forever(beacon));
    }
    if has("--exit-early") {
        eprint("cannot find my configuration\n");
        return ExitCode::from(7);
    }
    if has("--garbage") {
        say_text("Welcome to the server!\n{\"level\":\"info\",\"msg\":\"ready\"}\n\u{1b}[31m42\n[1,2\n\n");
    }
    if let Some(kind) = value("--flood") {
        std::thread::spawn(move || flood(&kind, &Value::Null));
    }
    let mut server = Server { seen: Vec::new(), extra: false, many: has("--many"), deep: has("--deep") };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).expect("JSON");
        if has("--hang") {
            continue;
        }
        server.take(&message);
    }
    if has("--stay") {
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

struct Server {
    seen: Vec<String>,
    extra: bool,
    many: bool,
    deep: bool,
}

impl Server {
    fn take(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        self.seen.push(method.to_owned());
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
            _ => say(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no such method" } }),
            ),
        }
    }

    fn list(&self, id: &Value, cursor: Option<&str>) {
        if self.many {
            // Pages without end.
            let page: usize = cursor.map_or(0, |cursor| cursor.parse().expect("our cursor"));
            let tools: Vec<Value> =
                (0..50).map(|at| json!({ "name": format!("t{page}-{at}"), "inputSchema": {} })).collect();
            return answer(id, json!({ "tools": tools, "nextCursor": (page + 1).to_string() }));
        }
        if self.deep {
            let schema = format!("{}{{}}{}", r#"{"properties":{"a":"#.repeat(5000), "}}".repeat(5000));
            return say_text(&format!(
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
        if self.extra {
            tools.push(json!({ "name": "extra", "inputSchema": { "type": "object" } }));
        }
        answer(id, json!({ "tools": tools }));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" | "no.schema" => text(id, &arguments.to_string()),
            "crash" => std::process::exit(3),
            "hang" => {}
            "progress" => {
                let total = arguments["total"].as_u64().unwrap_or_default();
                for at in 1..=total {
                    say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                        "progressToken": params["_meta"]["progressToken"],
                        "progress": at, "total": total, "message": "step \u{202e}by step",
                    } }));
                    std::thread::park_timeout(Duration::from_millis(
                        arguments["pause"].as_u64().unwrap_or_default(),
                    ));
                }
                text(id, "all done");
            }
            "stderr" => {
                let line = vec![b'e'; 99];
                let mut stderr = io::stderr().lock();
                for _ in 0..arguments["megabytes"].as_u64().unwrap_or_default() * 10_000 {
                    stderr.write_all(&line).and_then(|()| stderr.write_all(b"\n")).expect("stderr is read");
                }
                stderr.write_all(b"last words\n").expect("stderr is read");
                text(id, "said");
            }
            "long" => {
                say_text(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
                ));
                for _ in 0..17 {
                    say_text(&"x".repeat(1 << 20));
                }
                say_text("\"}]}}\n");
            }
            "noise" => {
                say_text(
                    "debug: calling the tool\n{\"not\":\"a message\"}\n\"just a string\"\nnull\n\u{0}\u{1}\n",
                );
                text(id, "heard");
            }
            "broken" => say(json!({ "jsonrpc": "2.0", "id": id, "error": "not an object" })),
            "daemon" => {
                let mut command = Command::new(std::env::current_exe().expect("a path"));
                command
                    .args(["daemon", arguments["beacon"].as_str().expect("a beacon")])
                    .stdin(Stdio::null());
                // It holds the server's output open, and is in a group of its own.
                command.process_group(0).spawn().expect("a daemon");
                text(id, "started");
            }
            "change" => {
                self.extra = !self.extra;
                for _ in 0..100 {
                    say(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
                }
                text(id, "changed");
            }
            "pings" => {
                // Asks without end, and never reads.
                let mut number = 0_u64;
                let padding = "p".repeat(1000);
                loop {
                    number += 1;
                    let id = format!("{number}{padding}");
                    say(json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
                }
            }
            "flood" => {
                let (kind, token) = (
                    arguments["kind"].as_str().unwrap_or_default().to_owned(),
                    params["_meta"]["progressToken"].clone(),
                );
                std::thread::spawn(move || flood(&kind, &token));
            }
            "nested" => say_text(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{}}}}}\n",
                "[".repeat(5000) + &"]".repeat(5000)
            )),
            "where" => {
                let cwd = std::env::current_dir().expect("a directory");
                let mut names: Vec<String> =
                    std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                names.sort();
                let args: Vec<String> = std::env::args().skip(1).collect();
                text(id, &format!("{}\n{}\n{}", cwd.display(), args.join(" "), names.join("\n")));
            }
            "seen" => text(id, &self.seen.join(" ")),
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
            "refuse" => say(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": "no \u{1b}[2Jsuch thing" } }),
            ),
            other => text(id, &format!("there is no {other}")),
        }
    }
}

/// Sends without end, and as fast as it is read.
fn flood(kind: &str, token: &Value) {
    let told = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let line = match kind {
        "logs" => told("notifications/message", json!({ "level": "info", "data": "x".repeat(1000) })),
        "list_changed" => told("notifications/tools/list_changed", json!({})),
        "progress" => told("notifications/progress", json!({ "progressToken": token, "progress": 1 })),
        "large" => told("notifications/other", json!({ "data": "x".repeat(4 << 20) })),
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
            "stderr" => eprint(&line),
            _ => say_text(&line),
        }
    }
}

fn text(id: &Value, text: &str) {
    answer(id, json!({ "content": [{ "type": "text", "text": text }] }));
}

fn answer(id: &Value, result: Value) {
    say(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn say(message: Value) {
    say_text(&format!("{message}\n"));
}

fn say_text(text: &str) {
    let mut stdout = io::stdout().lock();
    // Whoever does not read any more has ended the test.
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

fn eprint(text: &str) {
    io::stderr().write_all(text.as_bytes()).expect("stderr is read");
}
