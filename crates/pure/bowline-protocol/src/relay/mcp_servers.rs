//! The extra MCP server of a session: the tools it offers, its transport, and the request that names it.

use agent_client_protocol_schema::v1::{ClientCapabilities, McpCapabilities};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The transport between an agent and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum McpTransport {
    /// Over the agent's own connection (`mcp/message`).
    Acp,
    /// Over HTTP on this machine.
    Http,
    /// Through a program that the agent starts.
    Stdio,
}

impl McpTransport {
    /// Returns the best transport for an agent with these capabilities; every agent can start a program.
    #[must_use]
    pub fn best(agent: &McpCapabilities, over_acp: bool) -> Self {
        match (over_acp, agent.http) {
            (true, _) => Self::Acp,
            (false, true) => Self::Http,
            (false, false) => Self::Stdio,
        }
    }
}

/// The tools that an editor can serve, by its advertised capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EditorTools {
    /// Reading, listing and searching.
    pub can_read: bool,
    /// Changing files, which requires reading as well.
    pub can_write: bool,
    /// Running commands.
    pub can_run: bool,
}

impl EditorTools {
    /// All tools.
    pub const ALL: Self = Self { can_read: true, can_write: true, can_run: true };

    /// Returns the tools that an editor serves.
    #[must_use]
    pub fn from_capabilities(editor: &ClientCapabilities) -> Self {
        let can_read = editor.fs.read_text_file;
        Self { can_read, can_write: can_read && editor.fs.write_text_file, can_run: editor.terminal }
    }

    /// Returns whether it serves nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow)]
    params: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpServersParams<'a> {
    #[serde(borrow, default)]
    mcp_servers: Option<&'a RawValue>,
}

/// Returns a server name that is unused in the request: `bowline`, if it is free.
#[must_use]
pub fn choose_server_name(line: &[u8]) -> String {
    let names = server_names(line).unwrap_or_default();
    let numbered = (2..).map(|number| format!("bowline-{number}"));
    let mut candidates = std::iter::once("bowline".to_owned()).chain(numbered);
    candidates.find(|name| !names.contains(name)).unwrap_or_default()
}

fn server_names(line: &[u8]) -> Option<Vec<String>> {
    let request: RawRequest<'_> = serde_json::from_slice(line).ok()?;
    let params: McpServersParams<'_> = serde_json::from_str(request.params.get()).ok()?;
    let servers: Vec<Value> = serde_json::from_str(params.mcp_servers?.get()).ok()?;
    Some(servers.iter().filter_map(|server| Some(server.get("name")?.as_str()?.to_owned())).collect())
}

/// Returns a request that opens a session with one extra server after its own. Everything else stays as it is, byte
/// for byte. Returns `None` if the request cannot be parsed.
#[must_use]
pub fn insert_server(line: &[u8], server: &Value) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?;
    let request: RawRequest<'_> = serde_json::from_str(text).ok()?;
    let params_text = request.params.get();
    let params: McpServersParams<'_> = serde_json::from_str(params_text).ok()?;
    let server = server.to_string();
    let (at, cut, added) = match params.mcp_servers.map(RawValue::get) {
        Some(list) if list.starts_with('[') => {
            let inner = list.strip_prefix('[')?.strip_suffix(']')?;
            let comma = if inner.trim().is_empty() { "" } else { "," };
            (substring_offset(text, list)? + list.len() - 1, 0, format!("{comma}{server}"))
        }
        Some(_) => return None,
        None => {
            let inner = params_text.strip_prefix('{')?.strip_suffix('}')?;
            let comma = if inner.trim().is_empty() { "" } else { "," };
            match find_null_servers(params_text) {
                Some(within) => (substring_offset(text, params_text)? + within, 4, format!("[{server}]")),
                None => {
                    (substring_offset(text, params_text)? + 1, 0, format!("\"mcpServers\":[{server}]{comma}"))
                }
            }
        }
    };
    Some([&text[..at], &added, &text[at + cut..]].concat().into_bytes())
}

/// Returns the offset of a `null` in place of the servers, which serde reads as none.
fn find_null_servers(params: &str) -> Option<usize> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct NullServersMember<'a> {
        #[serde(borrow)]
        mcp_servers: &'a RawValue,
    }
    let member: NullServersMember<'_> = serde_json::from_str(params).ok()?;
    (member.mcp_servers.get() == "null").then(|| substring_offset(params, member.mcp_servers.get())).flatten()
}

/// Returns the offset of a substring in its text.
pub fn substring_offset(text: &str, part: &str) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    (at + part.len() <= text.len()).then_some(at)
}

#[cfg(test)]
mod tests;
