//! The ACP agent: it reads and writes through its client, or writes to the disk directly.

use super::agent::{AgentFiles, ReadOutcome, TortureAgent, TortureAgentOptions, WriteOutcome, describe_text};
use super::wire::{JsonRpcConnection, error_text};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Stdin, Stdout, Write as _};
use std::path::Path;

/// Serves the client on stdin and stdout until the client disconnects.
///
/// # Errors
/// Fails when the client disconnects during a turn, or on a disk error.
pub(super) fn run(plan: &TortureAgentOptions) -> io::Result<()> {
    let wire = JsonRpcConnection::new(BufReader::new(io::stdin()), io::stdout());
    let mut client = AcpClient { wire, session: String::new() };
    let mut agent = TortureAgent::new(plan)?;
    while let Some(request) = client.wire.receive()? {
        match request["method"].as_str() {
            Some("initialize") => {
                let greeting = json!({ "protocolVersion": 1, "agentCapabilities": {} });
                client.wire.answer(&request, &greeting)?;
            }
            Some("session/new") => {
                client.session = format!("torture-{}", std::process::id());
                let session = json!({ "sessionId": client.session });
                client.wire.answer(&request, &session)?;
            }
            Some("session/prompt") => {
                match &plan.direct {
                    Some(lock) => client.work_directly(&mut agent, lock)?,
                    None => agent.work(&mut client)?,
                }
                client.wire.answer(&request, &json!({ "stopReason": "end_turn" }))?;
            }
            _ if request.get("id").is_some() => client.wire.refuse(&request, -32601, "no such method")?,
            _ => {}
        }
    }
    Ok(())
}

struct AcpClient {
    wire: JsonRpcConnection<BufReader<Stdin>, Stdout>,
    session: String,
}

impl AgentFiles for AcpClient {
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome> {
        let params = json!({ "sessionId": self.session, "path": path });
        let answer = self.wire.call("fs/read_text_file", &params)?;
        Ok(match (answer["result"]["content"].as_str(), &answer["error"]) {
            (Some(text), _) => ReadOutcome::Text(text.to_owned()),
            (None, error) if error["code"] == -32002 => ReadOutcome::Missing,
            (None, error) => ReadOutcome::Refused(error_text(error)),
        })
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome> {
        let params = json!({ "sessionId": self.session, "path": path, "content": text });
        let answer = self.wire.call("fs/write_text_file", &params)?;
        Ok(match answer.get("error") {
            None => WriteOutcome::Written,
            Some(error) => WriteOutcome::Refused(error_text(error)),
        })
    }
}

impl AcpClient {
    /// Writes to the disk directly, each write within a tool call. A lock excludes the saving programs meanwhile,
    /// because Bowline is not responsible for lines that an agent overwrites by itself.
    fn work_directly(&mut self, agent: &mut TortureAgent, lock: &Path) -> io::Result<()> {
        for number in 0..agent.options().operations {
            if agent.is_stopped() {
                return Ok(());
            }
            let style = agent.choose_style();
            let path = agent.options().project.join(style.file_name());
            let call = format!("direct{number}");
            let begins = json!({
                "sessionUpdate": "tool_call", "toolCallId": call, "title": "Edit", "kind": "edit",
                "status": "in_progress", "locations": [{ "path": path }],
            });
            self.update(&begins)?;
            let locked = File::create(lock)?;
            locked.lock()?;
            let text = fs::read_to_string(&path).unwrap_or_default();
            let new = agent.rewrite(&text);
            overwrite(&path, &new)?;
            drop(locked);
            agent.record_event(style, &format!("wrote {} on disk", describe_text(&new)))?;
            let ends =
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed" });
            self.update(&ends)?;
        }
        Ok(())
    }

    fn update(&mut self, update: &Value) -> io::Result<()> {
        self.wire.notify("session/update", &json!({ "sessionId": self.session, "update": update }))
    }
}

/// Writes a file without truncating it first: the agent is killed together with Bowline, and must not lose the user's
/// lines.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}
