//! An MCP server more for a session: what is offered, how the agent reaches it, and the request that names it.

use agent_client_protocol_schema::v1::{ClientCapabilities, McpCapabilities};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// How an agent reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Over the agent's own connection (`mcp/message`).
    Acp,
    /// Over HTTP on this machine.
    Http,
    /// By a program that it starts.
    Stdio,
}

impl Transport {
    /// Returns the best way for an agent that can do this; every agent can start a program.
    #[must_use]
    pub fn best(agent: &McpCapabilities, over_acp: bool) -> Self {
        match (over_acp, agent.http) {
            (true, _) => Self::Acp,
            (false, true) => Self::Http,
            (false, false) => Self::Stdio,
        }
    }
}

/// Which tools an editor can serve, by what it advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Serves {
    /// Reading, listing and searching.
    pub reading: bool,
    /// Changing files, which takes reading as well.
    pub writing: bool,
    /// Running commands.
    pub running: bool,
}

impl Serves {
    /// Everything.
    pub const ALL: Self = Self { reading: true, writing: true, running: true };

    /// Returns what an editor serves.
    #[must_use]
    pub fn of(editor: &ClientCapabilities) -> Self {
        let reading = editor.fs.read_text_file;
        Self { reading, writing: reading && editor.fs.write_text_file, running: editor.terminal }
    }

    /// Says whether it serves nothing.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    params: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow, default)]
    mcp_servers: Option<&'a RawValue>,
}

/// Returns a name for a server that none of the request's has: `bowline`, if it is free.
#[must_use]
pub fn free_name(line: &[u8]) -> String {
    let names = names(line).unwrap_or_default();
    let numbered = (2..).map(|number| format!("bowline-{number}"));
    let mut candidates = std::iter::once("bowline".to_owned()).chain(numbered);
    candidates.find(|name| !names.contains(name)).unwrap_or_default()
}

fn names(line: &[u8]) -> Option<Vec<String>> {
    let request: Request<'_> = serde_json::from_slice(line).ok()?;
    let params: Params<'_> = serde_json::from_str(request.params.get()).ok()?;
    let servers: Vec<Value> = serde_json::from_str(params.mcp_servers?.get()).ok()?;
    Some(servers.iter().filter_map(|server| Some(server.get("name")?.as_str()?.to_owned())).collect())
}

/// Returns a request that opens a session with one server more, behind those that it has. Everything else stays as it is,
/// byte for byte. Nothing if it cannot be read.
#[must_use]
pub fn with_server(line: &[u8], server: &Value) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?;
    let request: Request<'_> = serde_json::from_str(text).ok()?;
    let whole = request.params.get();
    let params: Params<'_> = serde_json::from_str(whole).ok()?;
    let server = server.to_string();
    let (at, cut, added) = match params.mcp_servers.map(RawValue::get) {
        Some(list) if list.starts_with('[') => {
            let inner = list.strip_prefix('[')?.strip_suffix(']')?;
            let comma = if inner.trim().is_empty() { "" } else { "," };
            (offset(text, list)? + list.len() - 1, 0, format!("{comma}{server}"))
        }
        Some(_) => return None,
        None => {
            let inner = whole.strip_prefix('{')?.strip_suffix('}')?;
            let comma = if inner.trim().is_empty() { "" } else { "," };
            match null_member(whole) {
                Some(within) => (offset(text, whole)? + within, 4, format!("[{server}]")),
                None => (offset(text, whole)? + 1, 0, format!("\"mcpServers\":[{server}]{comma}")),
            }
        }
    };
    Some([&text[..at], &added, &text[at + cut..]].concat().into_bytes())
}

/// Returns where the `null` stands that is there in place of servers: serde counts it as none.
fn null_member(params: &str) -> Option<usize> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Member<'a> {
        #[serde(borrow)]
        mcp_servers: &'a RawValue,
    }
    let member: Member<'_> = serde_json::from_str(params).ok()?;
    (member.mcp_servers.get() == "null").then(|| offset(params, member.mcp_servers.get())).flatten()
}

/// Returns where a part of a text begins in it.
pub(crate) fn offset(text: &str, part: &str) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    (at + part.len() <= text.len()).then_some(at)
}

#[cfg(test)]
mod tests;
