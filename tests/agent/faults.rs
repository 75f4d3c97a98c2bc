//! Fault tolerance of the agent: faults of clients, disks, servers and models, and sudden ends.

use std::path::Path;

use serde_json::Value;

use crate::program::{AgentFixture, AgentProgram};

mod cancel;
mod clients;
mod disks;
mod editors;
mod injection;
mod kill;
mod malformed_lines;
mod mcp_servers;
mod shutdown;

/// Returns the updates of a session among some messages.
fn session_updates<'m>(messages: &'m [Value], session: &str) -> Vec<&'m Value> {
    let of = messages.iter().filter(|message| message["params"]["sessionId"] == session);
    of.map(|message| &message["params"]["update"]).filter(|update| update.is_object()).collect()
}

/// Returns the tool calls of a session that are still open, according to some messages.
fn open_calls(messages: &[Value], session: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    for update in session_updates(messages, session) {
        let Some(id) = update["toolCallId"].as_str() else { continue };
        if update["sessionUpdate"] == "tool_call" {
            open.push(id.to_owned());
        }
        if update["status"] == "completed" || update["status"] == "failed" {
            open.retain(|known| known != id);
        }
    }
    open
}

/// Loads a session as another client would, and formats the replay: one line for every message and call.
async fn replay_session(program: &mut AgentProgram, scene: &AgentFixture, session: &str) -> String {
    let before = program.messages.len();
    let open = serde_json::json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    program.call("session/load", open).await;
    let line = |update: &Value| {
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str()? {
            "user_message_chunk" => Some(format!("> {text}\n")),
            "agent_message_chunk" => Some(format!("< {text}\n")),
            "tool_call" => Some(format!("{}: {}\n", update["title"].as_str()?, update["status"].as_str()?)),
            _ => None,
        }
    };
    session_updates(&program.messages[before..], session).into_iter().filter_map(line).collect()
}

/// Returns the processes that agents have left running in the project.
fn find_leftover_processes(scene: &AgentFixture) -> Vec<String> {
    let project = scene.project();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().map_while(Result::ok) {
        // A process that has ended by now has no directory.
        let works_there =
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&project));
        if works_there {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

/// Returns the peak memory of a process, in KiB.
fn peak_memory_kib(program: &AgentProgram) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn send_signal(program: &AgentProgram, name: &str) {
    let line = format!("kill -{name} {}", program.pid());
    assert!(std::process::Command::new("/bin/sh").args(["-c", &line]).status().unwrap().success());
}

/// A pipe that commands hold open while they live: `exec 3>NAME`.
struct LifetimePipe {
    opened: tokio::sync::oneshot::Receiver<()>,
    closed: tokio::task::JoinHandle<()>,
}

impl LifetimePipe {
    fn new(path: &Path) -> Self {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        let (tell, opened) = tokio::sync::oneshot::channel();
        let path = path.to_owned();
        let closed = tokio::task::spawn_blocking(move || {
            let mut pipe = std::fs::File::open(path).unwrap();
            tell.send(()).unwrap();
            std::io::copy(&mut pipe, &mut std::io::sink()).unwrap();
        });
        Self { opened, closed }
    }

    /// Waits until a command has started.
    async fn wait_opened(&mut self) {
        (&mut self.opened).await.unwrap();
    }

    /// Waits until the command and all its child processes have ended.
    async fn wait_closed(self) {
        tokio::time::timeout(test_support::TEST_TIMEOUT, self.closed)
            .await
            .expect("something still lives")
            .unwrap();
    }
}
