//! Which server to connect to, and how: as a client gives it.

use std::path::PathBuf;

use bowline_state::schema::v1::{HttpHeader, McpServer, McpServerAcpId};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to the protocol or to HTTP itself.
const RESERVED: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-session-id",
    "transfer-encoding",
];

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// What the user calls it.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// A program that is talked to over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables to set.
        env: Vec<(String, String)>,
        /// Where it runs, if not where all do.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Where.
        url: Url,
        /// What to send with every request.
        headers: HeaderMap,
    },
    /// The older HTTP with server-sent events.
    Sse {
        /// Where.
        url: Url,
        /// What to send with every request.
        headers: HeaderMap,
    },
    /// The connection of the client that has the server itself.
    Acp {
        /// What the client knows it by.
        server: McpServerAcpId,
    },
}

/// Why a server cannot be connected to as it is given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no program.
    #[error("the MCP server {0:?} has no command: name a program")]
    NoCommand(String),
    /// The program's name is not text.
    #[error("the command of the MCP server {0:?} is not UTF-8: rename it")]
    NotText(String),
    /// The address is none.
    #[error("the MCP server {name:?} has no usable address: {why}")]
    Address {
        /// The server.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A header is none.
    #[error("the MCP server {name:?} has a header that cannot be sent, {header:?}: change or remove it")]
    Header {
        /// The server.
        name: String,
        /// The header's name.
        header: String,
    },
    /// It is reached in a way that is not known here.
    #[error("an MCP server is reached in a way that is not supported: use stdio, HTTP, SSE or ACP")]
    Unsupported,
}

impl TryFrom<&McpServer> for ServerSpec {
    type Error = SpecError;

    fn try_from(server: &McpServer) -> Result<Self, SpecError> {
        let (name, reach) = match server {
            McpServer::Stdio(stdio) => {
                let name = stdio.name.clone();
                let command = stdio.command.to_str().ok_or_else(|| SpecError::NotText(name.clone()))?;
                if command.is_empty() {
                    return Err(SpecError::NoCommand(name));
                }
                let env = stdio.env.iter().map(|variable| (variable.name.clone(), variable.value.clone()));
                let (command, args) = (command.to_owned(), stdio.args.clone());
                (name, Reach::Stdio { command, args, env: env.collect(), cwd: None })
            }
            McpServer::Http(http) => {
                let url = address(&http.name, &http.url)?;
                (http.name.clone(), Reach::Http { url, headers: headers(&http.name, &http.headers)? })
            }
            McpServer::Sse(sse) => {
                let url = address(&sse.name, &sse.url)?;
                (sse.name.clone(), Reach::Sse { url, headers: headers(&sse.name, &sse.headers)? })
            }
            McpServer::Acp(acp) => (acp.name.clone(), Reach::Acp { server: acp.server_id.clone() }),
            // A later protocol may know more ways.
            _ => return Err(SpecError::Unsupported),
        };
        Ok(Self { name, reach })
    }
}

fn address(name: &str, url: &str) -> Result<Url, SpecError> {
    let wrong = |why: String| SpecError::Address { name: name.to_owned(), why };
    let url = Url::parse(url).map_err(|why| wrong(why.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("{} is not HTTP", url.scheme())));
    }
    Ok(url)
}

fn headers(name: &str, given: &[HttpHeader]) -> Result<HeaderMap, SpecError> {
    let mut headers = HeaderMap::new();
    for header in given {
        let wrong = || SpecError::Header { name: name.to_owned(), header: header.name.clone() };
        let key: HeaderName = header.name.parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = header.value.parse().map_err(|_| wrong())?;
        // They are sent anyway, as they have to be; many a vendor's snippet has them.
        if RESERVED.contains(&key.as_str()) {
            continue;
        }
        // Most of them are secrets, and none needs to be seen.
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
