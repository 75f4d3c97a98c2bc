//! The specification of a server, converted from what a client sends.

use std::path::PathBuf;

use bowline_protocol::schema::v1::{HttpHeader, McpServer, McpServerAcpId};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to the protocol or to HTTP itself.
const RESERVED_HEADERS: [&str; 8] = [
    "accept", "connection", "content-length", "content-type", "host", "last-event-id", "mcp-session-id",
    "transfer-encoding",
];

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its name, as the user gave it.
    pub name: String,
    /// How it is reached.
    pub transport: TransportSpec,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportSpec {
    /// A program that speaks over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables to set.
        env: Vec<(String, String)>,
        /// Its working directory, if not the common one.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The address.
        url: Url,
        /// The headers to send with every request.
        headers: HeaderMap,
    },
    /// The older HTTP with server-sent events.
    Sse {
        /// The address.
        url: Url,
        /// The headers to send with every request.
        headers: HeaderMap,
    },
    /// The ACP connection of the client that serves it.
    Acp {
        /// The client's id for it.
        server: McpServerAcpId,
    },
}

/// Why a server's specification was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerSpecError {
    /// No program is named.
    #[error("the MCP server {0:?} has no command: name a program")]
    NoCommand(String),
    /// The program's name is not UTF-8.
    #[error("the command of the MCP server {0:?} is not UTF-8: rename it")]
    NotText(String),
    /// The address is invalid.
    #[error("the MCP server {name:?} has no usable address: {why}")]
    BadAddress {
        /// The server.
        name: String,
        /// The fault.
        why: String,
    },
    /// A header is invalid.
    #[error("the MCP server {name:?} has a header that cannot be sent, {header:?}: change or remove it")]
    BadHeader {
        /// The server.
        name: String,
        /// The header's name.
        header: String,
    },
    /// The transport is unknown.
    #[error("an MCP server is reached in a way that is not supported: use stdio, HTTP, SSE or ACP")]
    Unsupported,
}

impl TryFrom<&McpServer> for ServerSpec {
    type Error = ServerSpecError;

    fn try_from(server: &McpServer) -> Result<Self, ServerSpecError> {
        let (name, transport) = match server {
            McpServer::Stdio(stdio) => {
                let name = stdio.name.clone();
                let command = stdio.command.to_str().ok_or_else(|| ServerSpecError::NotText(name.clone()))?;
                if command.is_empty() {
                    return Err(ServerSpecError::NoCommand(name));
                }
                let env = stdio.env.iter().map(|variable| (variable.name.clone(), variable.value.clone()));
                let (command, args) = (command.to_owned(), stdio.args.clone());
                (name, TransportSpec::Stdio { command, args, env: env.collect(), cwd: None })
            }
            McpServer::Http(http) => {
                let url = parse_url(&http.name, &http.url)?;
                (
                    http.name.clone(),
                    TransportSpec::Http { url, headers: parse_headers(&http.name, &http.headers)? },
                )
            }
            McpServer::Sse(sse) => {
                let url = parse_url(&sse.name, &sse.url)?;
                (
                    sse.name.clone(),
                    TransportSpec::Sse { url, headers: parse_headers(&sse.name, &sse.headers)? },
                )
            }
            McpServer::Acp(acp) => (acp.name.clone(), TransportSpec::Acp { server: acp.server_id.clone() }),
            // A later protocol version may have other transports.
            _ => return Err(ServerSpecError::Unsupported),
        };
        Ok(Self { name, transport })
    }
}

fn parse_url(name: &str, url: &str) -> Result<Url, ServerSpecError> {
    let bad_address = |why: String| ServerSpecError::BadAddress { name: name.to_owned(), why };
    let url = Url::parse(url).map_err(|error| bad_address(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad_address(format!("{} is not HTTP", url.scheme())));
    }
    Ok(url)
}

fn parse_headers(name: &str, configured: &[HttpHeader]) -> Result<HeaderMap, ServerSpecError> {
    let mut headers = HeaderMap::new();
    for header in configured {
        let bad_header = || ServerSpecError::BadHeader { name: name.to_owned(), header: header.name.clone() };
        let key: HeaderName = header.name.parse().map_err(|_| bad_header())?;
        let mut value: HeaderValue = header.value.parse().map_err(|_| bad_header())?;
        // The transport sets these itself. Many vendors' snippets include them, so they are skipped instead of refused.
        if RESERVED_HEADERS.contains(&key.as_str()) {
            continue;
        }
        // Most headers are secrets, and none needs to be displayed.
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
