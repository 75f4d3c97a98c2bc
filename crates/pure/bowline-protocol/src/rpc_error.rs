//! The failures of a connection, and their single mapping to JSON-RPC errors and back.
//!
//! Code and `data` identify a failure to a peer; the message is for people. [`RpcError::from_error`] reads code and
//! `data`, and reads the message only where a failure is just a text, so rewording a message breaks no peer.

use agent_client_protocol_schema::v1::{Error, ErrorCode, SessionId};
use serde_json::{Value, json};

use crate::capabilities::CapabilityError;
use bowline_text::display::{ELLIPSIS, escape_truncated, quote};
use bowline_text::lines::PastEndError;
use bowline_text::merge::{ConflictHunk, MAX_CONFLICT_HUNKS};

pub mod missing_file;

/// The longest message, in bytes, that an error carries.
pub const MAX_MESSAGE_BYTES: usize = 1000;

/// The longest text, in bytes, that one entry of an error's `data` carries: as long as a path can be on Linux.
pub const MAX_DATA_TEXT_BYTES: usize = 4096;

/// The code of [`RpcError::Busy`], for which the protocol has none; it is in JSON-RPC's range for servers.
pub const BUSY_CODE: i32 = -32029;

/// The code of [`RpcError::Denied`], likewise.
pub const DENIED_CODE: i32 = -32030;

/// Why a request failed.
///
/// `RpcError -> Error -> RpcError` is the identity as long as texts are within [`MAX_MESSAGE_BYTES`] and
/// [`MAX_DATA_TEXT_BYTES`], reasons hold no control characters, and [`RpcError::Other`] has a code of no other
/// variant. Otherwise texts are truncated, marked by an ellipsis, and control characters are escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// A file or another resource does not exist.
    #[error("resource not found{}", format_suffix(.uri))]
    ResourceNotFound {
        /// The resource; a peer may omit it.
        uri: Option<String>,
    },
    /// The session does not exist or is not active.
    #[error("session not found: {}", quote(&.session_id.0))]
    SessionNotFound {
        /// The requested session.
        session_id: SessionId,
    },
    /// The parameters do not match the method.
    #[error("{}", escape_message(.reason))]
    InvalidParams {
        /// What is wrong with them.
        reason: String,
    },
    /// The path lies outside the session's directories.
    #[error("{} is outside the session's directories", quote(.path))]
    OutsideRoots {
        /// The requested path.
        path: String,
    },
    /// A path that has to be absolute is relative.
    #[error("{} is a relative path, send an absolute path", quote(.path))]
    RelativePath {
        /// The requested path.
        path: String,
    },
    /// A read starts after the last line.
    #[error("the read starts past the end: the file has {lines} lines")]
    PastEnd {
        /// The number of lines.
        lines: u64,
    },
    /// The text is too large for a single read.
    #[error("{} has {bytes} bytes, a read gives at most {limit}: read a window with line and limit", quote(.path))]
    TooLarge {
        /// The requested file.
        path: String,
        /// Its size.
        bytes: u64,
        /// The maximum size of a read.
        limit: u64,
    },
    /// The file cannot be read and written as text.
    #[error("{} cannot be read as text: {}", quote(.path), quote(.reason))]
    NotText {
        /// The requested file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// Someone else changed the file to be written. Nothing was written.
    #[error("{}: {}", quote(.path), quote(.reason))]
    Conflict {
        /// The requested file.
        path: String,
        /// The cause, and the remedy.
        reason: String,
        /// The hunks that both sides changed, if known.
        hunks: Vec<ConflictHunk>,
    },
    /// The method is not served.
    #[error("method not found{}", format_suffix(.method))]
    UnknownMethod {
        /// The method; a peer may omit it.
        method: Option<String>,
    },
    /// The method exists, but the side that serves it did not advertise it.
    #[error("{} needs {}, which was not advertised", quote(.method), quote(.capability))]
    NotAdvertised {
        /// The method.
        method: String,
        /// The missing capability.
        capability: String,
    },
    /// An internal failure, not caused by the caller.
    #[error("{}", escape_message(.reason))]
    Internal {
        /// What failed.
        reason: String,
    },
    /// The request was cancelled before it completed.
    #[error("request cancelled")]
    Cancelled,
    /// The user has to log in first.
    #[error("authentication required{}", format_suffix(.reason))]
    AuthRequired {
        /// The remedy; a peer may omit it.
        reason: Option<String>,
    },
    /// The message is not JSON.
    #[error("{}", escape_message(.reason))]
    Parse {
        /// Where it stops being valid JSON.
        reason: String,
    },
    /// The message is JSON but not a valid request, or the request is not allowed now.
    #[error("{}", escape_message(.reason))]
    InvalidRequest {
        /// What is wrong with it.
        reason: String,
    },
    /// The maximum number of concurrent requests is reached.
    #[error("too many requests at once, the limit is {limit}")]
    Busy {
        /// The maximum number.
        limit: u64,
    },
    /// The user or one of the user's rules does not allow it.
    #[error("{}", escape_message(&format!("permission denied: {reason}")))]
    Denied {
        /// Who denied it, and why.
        reason: String,
    },
    /// A failure that only a newer peer knows.
    #[error("{}", escape_message(.message))]
    Other {
        /// The JSON-RPC code.
        code: i32,
        /// The peer's message.
        message: String,
        /// The peer's data, unchanged.
        data: Option<Value>,
    },
}

impl RpcError {
    /// Returns the failure of a request whose params are wrong, without quoting them.
    #[must_use]
    pub fn invalid_params(method: &str, error: &serde_json::Error) -> Self {
        let reason = format!("the params of {method} are wrong: {}", describe_json_error(error));
        Self::InvalidParams { reason }
    }

    /// Reads the failure from a peer's error.
    ///
    /// If `data` lacks details, the code decides. Where a failure is just a text, all of `data` becomes part of it.
    #[must_use]
    pub fn from_error(error: &Error) -> Self {
        let text = |key: &str| error.data.as_ref()?.get(key)?.as_str().map(str::to_owned);
        let number = |key: &str| error.data.as_ref()?.get(key)?.as_u64();
        match error.code {
            ErrorCode::ResourceNotFound => match (text("uri"), text("sessionId")) {
                (None, Some(id)) => Self::SessionNotFound { session_id: SessionId::new(id) },
                (uri, _) => Self::ResourceNotFound { uri },
            },
            ErrorCode::InvalidParams => match (text("reason").as_deref(), text("path"), number("lines")) {
                (Some(REASON_OUTSIDE), Some(path), _) => Self::OutsideRoots { path },
                (Some(REASON_RELATIVE), Some(path), _) => Self::RelativePath { path },
                (Some(REASON_PAST_END), _, Some(lines)) => Self::PastEnd { lines },
                (Some(REASON_TOO_LARGE), Some(path), _) => Self::TooLarge {
                    path,
                    bytes: number("bytes").unwrap_or_default(),
                    limit: number("limit").unwrap_or_default(),
                },
                (Some(REASON_NOT_TEXT), Some(path), _) => {
                    Self::NotText { path, reason: text("why").unwrap_or_default() }
                }
                (Some(REASON_CONFLICT), Some(path), _) => {
                    let hunks = error.data.as_ref().and_then(|data| data.get("hunks")?.as_array());
                    let hunks =
                        hunks.into_iter().flatten().take(MAX_CONFLICT_HUNKS).map(decode_hunk).collect();
                    Self::Conflict { path, reason: text("why").unwrap_or_default(), hunks }
                }
                _ => Self::InvalidParams { reason: reason_text(error) },
            },
            ErrorCode::MethodNotFound => match (text("method"), text("capability")) {
                (Some(method), Some(capability)) => Self::NotAdvertised { method, capability },
                (method, _) => Self::UnknownMethod { method },
            },
            ErrorCode::InternalError => Self::Internal { reason: reason_text(error) },
            ErrorCode::RequestCancelled => Self::Cancelled,
            ErrorCode::AuthRequired => Self::AuthRequired { reason: text("why") },
            ErrorCode::ParseError => Self::Parse { reason: reason_text(error) },
            ErrorCode::InvalidRequest => Self::InvalidRequest { reason: reason_text(error) },
            // This build has no variant for a code that a newer schema names.
            code => match (i32::from(code), number("limit")) {
                (BUSY_CODE, Some(limit)) => Self::Busy { limit },
                (DENIED_CODE, _) if text("why").is_some() => {
                    Self::Denied { reason: text("why").unwrap_or_default() }
                }
                (code, _) => {
                    Self::Other { code, message: escape_message(&error.message), data: error.data.clone() }
                }
            },
        }
    }
}

impl From<RpcError> for Error {
    fn from(failure: RpcError) -> Self {
        let text = failure.to_string();
        let error = |code: ErrorCode, text: String| Self::new(code.into(), text);
        // Other implementations look for the standard text of a code, as spelled in the schema.
        let standard = |code: ErrorCode, rest: String| Self::new(code.into(), format!("{code}{rest}"));
        match failure {
            RpcError::ResourceNotFound { uri } => standard(ErrorCode::ResourceNotFound, format_suffix(&uri))
                .data(uri.map(|uri| json!({ "uri": truncate_data_text(uri) }))),
            RpcError::SessionNotFound { session_id } => {
                standard(ErrorCode::ResourceNotFound, format!(": session {}", quote(&session_id.0)))
                    .data(json!({ "sessionId": truncate_data_text(session_id.0.to_string()) }))
            }
            RpcError::InvalidParams { .. } => error(ErrorCode::InvalidParams, text),
            RpcError::OutsideRoots { path } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": REASON_OUTSIDE, "path": truncate_data_text(path) }))
            }
            RpcError::RelativePath { path } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": REASON_RELATIVE, "path": truncate_data_text(path) }))
            }
            RpcError::PastEnd { lines } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": REASON_PAST_END, "lines": lines }))
            }
            RpcError::TooLarge { path, bytes, limit } => error(ErrorCode::InvalidParams, text)
                .data(json!({ "reason": REASON_TOO_LARGE, "path": truncate_data_text(path), "bytes": bytes, "limit": limit })),
            RpcError::NotText { path, reason } => error(ErrorCode::InvalidParams, text)
                .data(json!({ "reason": REASON_NOT_TEXT, "path": truncate_data_text(path), "why": truncate_data_text(reason) })),
            RpcError::Conflict { path, reason, hunks } => {
                let hunks: Vec<Value> = hunks.into_iter().take(MAX_CONFLICT_HUNKS).map(encode_hunk).collect();
                error(ErrorCode::InvalidParams, text)
                    .data(json!({ "reason": REASON_CONFLICT, "path": truncate_data_text(path), "why": truncate_data_text(reason), "hunks": hunks }))
            }
            RpcError::UnknownMethod { method } => standard(ErrorCode::MethodNotFound, format_suffix(&method))
                .data(method.map(|method| json!({ "method": truncate_data_text(method) }))),
            RpcError::NotAdvertised { method, capability } => error(ErrorCode::MethodNotFound, text)
                .data(json!({ "method": truncate_data_text(method), "capability": truncate_data_text(capability) })),
            RpcError::Internal { .. } => error(ErrorCode::InternalError, text),
            RpcError::Cancelled => ErrorCode::RequestCancelled.into(),
            RpcError::AuthRequired { reason } => standard(ErrorCode::AuthRequired, format_suffix(&reason))
                .data(reason.map(|reason| json!({ "why": truncate_data_text(reason) }))),
            RpcError::Parse { .. } => error(ErrorCode::ParseError, text),
            RpcError::InvalidRequest { .. } => error(ErrorCode::InvalidRequest, text),
            RpcError::Denied { reason } => Self::new(DENIED_CODE, text).data(json!({ "why": truncate_data_text(reason) })),
            RpcError::Busy { limit } => Self::new(BUSY_CODE, text).data(json!({ "limit": limit })),
            RpcError::Other { code, data, .. } => Self::new(code, text).data(data),
        }
    }
}

impl From<PastEndError> for RpcError {
    fn from(past: PastEndError) -> Self {
        Self::PastEnd { lines: past.lines }
    }
}

impl From<CapabilityError> for RpcError {
    fn from(refused: CapabilityError) -> Self {
        match refused {
            CapabilityError::MethodNotAdvertised { method, capability } => {
                Self::NotAdvertised { method: method.to_owned(), capability: capability.to_owned() }
            }
            CapabilityError::PartNotAdvertised { .. } | CapabilityError::UnknownPart { .. } => {
                Self::InvalidParams { reason: refused.to_string() }
            }
            CapabilityError::BeforeInitialize { .. } => Self::InvalidRequest { reason: refused.to_string() },
        }
    }
}

// The values of `data.reason` for parameter errors that carry more than a text.
const REASON_OUTSIDE: &str = "outside";
const REASON_RELATIVE: &str = "relative";
const REASON_PAST_END: &str = "past_end";
const REASON_TOO_LARGE: &str = "too_large";
const REASON_NOT_TEXT: &str = "not_text";
const REASON_CONFLICT: &str = "conflict";

/// Returns the text of an error, in one safe line. Many peers send JSON-RPC's standard message for the code and put
/// the details into `data`; these are then added.
#[must_use]
pub fn describe_error(error: &Error) -> String {
    const BARE: [&str; 7] = [
        "parse error", "invalid request", "method not found", "invalid params", "internal error",
        "authentication required", "resource not found",
    ];
    let message = error.message.trim().trim_end_matches('.').to_ascii_lowercase();
    let data = error.data.as_ref().filter(|data| !data.is_null() && BARE.contains(&message.as_str()));
    let Some(data) = data else { return escape_message(&error.message) };
    let named = ["details", "detail", "reason", "message", "error"].map(|name| data.get(name)?.as_str());
    let text = data.as_str().or_else(|| named.into_iter().flatten().next());
    let text = text.map_or_else(|| data.to_string(), ToOwned::to_owned);
    escape_message(&format!("{}: {text}", error.message.trim()))
}

/// Describes what is wrong with a JSON value without quoting it: it comes from a peer, and may hold secrets.
#[must_use]
pub fn describe_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // A part that was buffered before it was parsed has no position.
    let column = |word: &str| match error.column() {
        0 => String::new(),
        column => format!("{word} column {column}"),
    };
    if let Some(field) = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return format!("missing field `{field}`{}", column(" before"));
    }
    // The quoted value stands before the last ", expected"; the rest is our own text.
    match text.rsplit_once(", expected ").map(|(_, rest)| rest.split(" at line ").next().unwrap_or(rest)) {
        Some(expected) => format!("expected {expected}{}", column(" at")),
        None if text.contains("recursion limit") => format!("nested too deeply{}", column(" at")),
        None if text.contains("surrogate") => format!("a lone surrogate is no text{}", column(", at")),
        None => format!("not as the schema has it{}", column(" at")),
    }
}

/// Returns the text of a failure that is just a text. Other implementations put the details into `data`, so these are
/// added where present.
fn reason_text(error: &Error) -> String {
    match &error.data {
        None | Some(Value::Null) => escape_message(&error.message),
        Some(Value::String(detail)) => escape_message(&format!("{}: {detail}", error.message)),
        Some(data) => escape_message(&format!("{}: {data}", error.message)),
    }
}

fn encode_hunk(hunk: ConflictHunk) -> Value {
    let ConflictHunk { line, base, ours, theirs } = hunk;
    json!({ "line": line, "base": truncate_data_text(base), "ours": truncate_data_text(ours), "theirs": truncate_data_text(theirs) })
}

/// Decodes a conflict hunk; fields that a peer leaves out are empty.
fn decode_hunk(hunk: &Value) -> ConflictHunk {
    let text = |key: &str| hunk.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let line = hunk.get("line").and_then(Value::as_u64).unwrap_or_default();
    ConflictHunk { line, base: text("base"), ours: text("ours"), theirs: text("theirs") }
}

pub(crate) fn escape_message(text: &str) -> String {
    escape_truncated(text, MAX_MESSAGE_BYTES)
}

fn format_suffix(text: &Option<String>) -> String {
    text.as_deref().map(|text| format!(": {}", quote(text))).unwrap_or_default()
}

/// Truncates text that goes into `data`, where JSON escapes it and peers compare it.
pub(crate) fn truncate_data_text(mut text: String) -> String {
    if text.len() > MAX_DATA_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_DATA_TEXT_BYTES - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests;
