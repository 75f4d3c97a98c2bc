//! The MCP agent: a client of `bowline mcp` that reads and writes with tools.

use super::agent::{AgentFiles, ReadOutcome, TortureAgent, TortureAgentOptions, WriteOutcome};
use super::wire::JsonRpcConnection;
use serde_json::{Value, json};
use std::io::{self, BufReader};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};

/// Works with a server for one turn, and disconnects.
pub(super) fn run(plan: &TortureAgentOptions, stdin: ChildStdin, stdout: ChildStdout) -> io::Result<()> {
    let mut tools = McpToolFiles { connection: JsonRpcConnection::new(BufReader::new(stdout), stdin) };
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "torture", "version": "1" },
    });
    tools.connection.call("initialize", &hello)?;
    tools.connection.notify("notifications/initialized", &json!({}))?;
    TortureAgent::new(plan)?.work(&mut tools)
}

struct McpToolFiles {
    connection: JsonRpcConnection<BufReader<ChildStdout>, ChildStdin>,
}

impl McpToolFiles {
    /// Calls a tool. The inner error is the tool's error message.
    fn call_tool(&mut self, name: &str, arguments: &Value) -> io::Result<Result<Value, String>> {
        let answer = self.connection.call("tools/call", &json!({ "name": name, "arguments": arguments }))?;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        if answer.get("error").is_some() || result["isError"] == true {
            let error = answer["error"]["message"].as_str().unwrap_or_default();
            return Ok(Err(format!("{text}{error}")));
        }
        Ok(Ok(result.clone()))
    }
}

impl AgentFiles for McpToolFiles {
    fn read(&mut self, path: &Path) -> io::Result<ReadOutcome> {
        Ok(match self.call_tool("read_text_file", &json!({ "path": path }))? {
            Ok(result) => match whole_text(&result) {
                Some(text) => ReadOutcome::Text(text),
                None => ReadOutcome::Refused("the answer has only a part of the file".to_owned()),
            },
            Err(why) if why.contains("there is no") || why.contains("not found") => ReadOutcome::Missing,
            Err(why) => ReadOutcome::Refused(why),
        })
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<WriteOutcome> {
        let arguments = json!({ "path": path, "content": text });
        Ok(match self.call_tool("write_text_file", &arguments)? {
            Ok(result) if result["structuredContent"]["outcome"] == "merged" => WriteOutcome::Merged,
            Ok(_) => WriteOutcome::Written,
            Err(why) => WriteOutcome::Refused(why),
        })
    }
}

/// Returns the text of a file without the tool's header line; `None` if the result holds only a part of the file.
fn whole_text(result: &Value) -> Option<String> {
    let text = result["content"][0]["text"].as_str()?;
    let (_, text) = text.split_once('\n')?;
    (!text.ends_with(']') || !text.contains("[continue with line=")).then(|| text.to_owned())
}
