//! What can go wrong between the two ends, and its one mapping to JSON-RPC errors and back.
//!
//! Code and `data` tell a peer which failure it is; the message is for people. [`Failure::from_error`] reads code and
//! `data` and takes the message only where a failure is nothing but its text, so rewording a message breaks nobody.

use agent_client_protocol_schema::v1::{Error, ErrorCode, SessionId};
use serde_json::{Value, json};

use crate::capabilities::NotAdvertised;
use crate::display::{ELLIPSIS, clean};
use crate::lines::PastEnd;
use crate::merge::{ConflictHunk, MAX_HUNKS};
use crate::paths::{PathFault, Refusal};

pub mod missing_file;

/// The longest text, in bytes, that a message quotes from a peer.
pub const MAX_QUOTED: usize = 200;

/// The longest message, in bytes, that an error carries.
pub const MAX_MESSAGE: usize = 1000;

/// The longest text, in bytes, that one entry of an error's `data` carries: as long as a path can be on Linux.
pub const MAX_DATA_TEXT: usize = 4096;

/// The code of [`Failure::Busy`], which the protocol has no code for; it is from JSON-RPC's range for servers.
pub const BUSY_CODE: i32 = -32029;

/// The code of [`Failure::Denied`], likewise.
pub const DENIED_CODE: i32 = -32030;

/// Why a request was not done.
///
/// `Failure -> Error -> Failure` is the identity as long as texts are within [`MAX_MESSAGE`] and [`MAX_DATA_TEXT`],
/// reasons hold no control characters, and [`Failure::Other`] has a code that no other variant has. Else the texts are
/// cut, marked by an ellipsis, and control characters are escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A file or another resource does not exist.
    #[error("resource not found{}", suffix(.uri))]
    ResourceNotFound {
        /// What was looked for; a peer may not say.
        uri: Option<String>,
    },
    /// The session does not exist or is not active.
    #[error("session not found: {}", quote(&.session_id.0))]
    SessionNotFound {
        /// The session that was named.
        session_id: SessionId,
    },
    /// The parameters do not fit the method.
    #[error("{}", concise(.reason))]
    InvalidParams {
        /// What is wrong with them.
        reason: String,
    },
    /// The path lies in no directory of the session.
    #[error("{} is outside the session's directories", quote(.path))]
    OutsideRoots {
        /// The path as it was asked for.
        path: String,
    },
    /// A path that has to be absolute is relative.
    #[error("{} is a relative path, send an absolute path", quote(.path))]
    RelativePath {
        /// The path as it was asked for.
        path: String,
    },
    /// A read starts behind the last line.
    #[error("the read starts past the end, there are this many lines: {lines}")]
    PastEnd {
        /// How many lines there are.
        lines: u64,
    },
    /// The text is too large to be given at once.
    #[error("{} has {bytes} bytes, a read gives at most {limit}: read a window with line and limit", quote(.path))]
    TooLarge {
        /// The file as it was asked for.
        path: String,
        /// Its size.
        bytes: u64,
        /// How much a read gives.
        limit: u64,
    },
    /// The file cannot be read and written as text.
    #[error("{} cannot be read as text: {}", quote(.path), quote(.why))]
    NotText {
        /// The file as it was asked for.
        path: String,
        /// Why not.
        why: String,
    },
    /// Somebody else changed what is to be written. Nothing was written.
    #[error("{}: {}", quote(.path), quote(.why))]
    Conflict {
        /// The file as it was asked for.
        path: String,
        /// What happened, and what to do.
        why: String,
        /// The places that both changed, if they are known.
        hunks: Vec<ConflictHunk>,
    },
    /// Nobody serves the method.
    #[error("method not found{}", suffix(.method))]
    UnknownMethod {
        /// The method that was called; a peer may not say.
        method: Option<String>,
    },
    /// The method exists, but the side that serves it did not advertise it.
    #[error("{} needs {}, which was not advertised", quote(.method), quote(.capability))]
    NotAdvertised {
        /// The method that was called.
        method: String,
        /// The capability that is missing.
        capability: String,
    },
    /// Something failed that the caller has no part in.
    #[error("{}", concise(.reason))]
    Internal {
        /// What failed.
        reason: String,
    },
    /// The request was cancelled before it was done.
    #[error("request cancelled")]
    Cancelled,
    /// The user has to log in first.
    #[error("authentication required{}", suffix(.why))]
    AuthRequired {
        /// What to do; a peer may not say.
        why: Option<String>,
    },
    /// The message is not JSON.
    #[error("{}", concise(.reason))]
    Parse {
        /// Where it stops being JSON.
        reason: String,
    },
    /// The message is JSON but no request, or one that may not be sent now.
    #[error("{}", concise(.reason))]
    InvalidRequest {
        /// What is wrong with it.
        reason: String,
    },
    /// As many requests as are allowed at once are being answered already.
    #[error("too many requests at once, the limit is {limit}")]
    Busy {
        /// How many are allowed at once.
        limit: u64,
    },
    /// The user, or a rule of the user's, does not allow it.
    #[error("{}", concise(&format!("permission denied: {why}")))]
    Denied {
        /// Who said so, and why.
        why: String,
    },
    /// A failure that only a newer peer knows.
    #[error("{}", concise(.message))]
    Other {
        /// The JSON-RPC code.
        code: i32,
        /// The peer's message.
        message: String,
        /// The peer's data, untouched.
        data: Option<Value>,
    },
}

impl Failure {
    /// Reads the failure out of a peer's error.
    ///
    /// A peer that says less in `data` is taken at its code. Where the text is all there is to a failure, whatever is
    /// in `data` becomes part of it.
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
                (Some(OUTSIDE), Some(path), _) => Self::OutsideRoots { path },
                (Some(RELATIVE), Some(path), _) => Self::RelativePath { path },
                (Some(PAST_END), _, Some(lines)) => Self::PastEnd { lines },
                (Some(TOO_LARGE), Some(path), _) => Self::TooLarge {
                    path,
                    bytes: number("bytes").unwrap_or_default(),
                    limit: number("limit").unwrap_or_default(),
                },
                (Some(NOT_TEXT), Some(path), _) => {
                    Self::NotText { path, why: text("why").unwrap_or_default() }
                }
                (Some(CONFLICT), Some(path), _) => {
                    let hunks = error.data.as_ref().and_then(|data| data.get("hunks")?.as_array());
                    let hunks = hunks.into_iter().flatten().take(MAX_HUNKS).map(read_hunk).collect();
                    Self::Conflict { path, why: text("why").unwrap_or_default(), hunks }
                }
                _ => Self::InvalidParams { reason: reason(error) },
            },
            ErrorCode::MethodNotFound => match (text("method"), text("capability")) {
                (Some(method), Some(capability)) => Self::NotAdvertised { method, capability },
                (method, _) => Self::UnknownMethod { method },
            },
            ErrorCode::InternalError => Self::Internal { reason: reason(error) },
            ErrorCode::RequestCancelled => Self::Cancelled,
            ErrorCode::AuthRequired => Self::AuthRequired { why: text("why") },
            ErrorCode::ParseError => Self::Parse { reason: reason(error) },
            ErrorCode::InvalidRequest => Self::InvalidRequest { reason: reason(error) },
            // Whatever code a newer schema names is one that this build has no variant for.
            code => match (i32::from(code), number("limit")) {
                (BUSY_CODE, Some(limit)) => Self::Busy { limit },
                (DENIED_CODE, _) if text("why").is_some() => {
                    Self::Denied { why: text("why").unwrap_or_default() }
                }
                (code, _) => Self::Other { code, message: concise(&error.message), data: error.data.clone() },
            },
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        let error = |code: ErrorCode, text: String| Self::new(code.into(), text);
        // Other implementations look for the standard text of a code, as it is spelled in the schema.
        let standard = |code: ErrorCode, rest: String| Self::new(code.into(), format!("{code}{rest}"));
        match failure {
            Failure::ResourceNotFound { uri } => standard(ErrorCode::ResourceNotFound, suffix(&uri))
                .data(uri.map(|uri| json!({ "uri": clip(uri) }))),
            Failure::SessionNotFound { session_id } => {
                standard(ErrorCode::ResourceNotFound, format!(": session {}", quote(&session_id.0)))
                    .data(json!({ "sessionId": clip(session_id.0.to_string()) }))
            }
            Failure::InvalidParams { .. } => error(ErrorCode::InvalidParams, text),
            Failure::OutsideRoots { path } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": OUTSIDE, "path": clip(path) }))
            }
            Failure::RelativePath { path } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": RELATIVE, "path": clip(path) }))
            }
            Failure::PastEnd { lines } => {
                error(ErrorCode::InvalidParams, text).data(json!({ "reason": PAST_END, "lines": lines }))
            }
            Failure::TooLarge { path, bytes, limit } => error(ErrorCode::InvalidParams, text)
                .data(json!({ "reason": TOO_LARGE, "path": clip(path), "bytes": bytes, "limit": limit })),
            Failure::NotText { path, why } => error(ErrorCode::InvalidParams, text)
                .data(json!({ "reason": NOT_TEXT, "path": clip(path), "why": clip(why) })),
            Failure::Conflict { path, why, hunks } => {
                let hunks: Vec<Value> = hunks.into_iter().take(MAX_HUNKS).map(write_hunk).collect();
                error(ErrorCode::InvalidParams, text)
                    .data(json!({ "reason": CONFLICT, "path": clip(path), "why": clip(why), "hunks": hunks }))
            }
            Failure::UnknownMethod { method } => standard(ErrorCode::MethodNotFound, suffix(&method))
                .data(method.map(|method| json!({ "method": clip(method) }))),
            Failure::NotAdvertised { method, capability } => error(ErrorCode::MethodNotFound, text)
                .data(json!({ "method": clip(method), "capability": clip(capability) })),
            Failure::Internal { .. } => error(ErrorCode::InternalError, text),
            Failure::Cancelled => ErrorCode::RequestCancelled.into(),
            Failure::AuthRequired { why } => standard(ErrorCode::AuthRequired, suffix(&why))
                .data(why.map(|why| json!({ "why": clip(why) }))),
            Failure::Parse { .. } => error(ErrorCode::ParseError, text),
            Failure::InvalidRequest { .. } => error(ErrorCode::InvalidRequest, text),
            Failure::Denied { why } => Self::new(DENIED_CODE, text).data(json!({ "why": clip(why) })),
            Failure::Busy { limit } => Self::new(BUSY_CODE, text).data(json!({ "limit": limit })),
            Failure::Other { code, data, .. } => Self::new(code, text).data(data),
        }
    }
}

impl From<PastEnd> for Failure {
    fn from(past: PastEnd) -> Self {
        Self::PastEnd { lines: past.lines }
    }
}

impl From<PathFault> for Failure {
    fn from(fault: PathFault) -> Self {
        match fault {
            PathFault::Relative(path) | PathFault::Home(path) | PathFault::FileUrl(path) => {
                Self::RelativePath { path }
            }
            PathFault::AboveRoot(path) => Self::OutsideRoots { path },
            fault @ (PathFault::Empty
            | PathFault::TooLong { .. }
            | PathFault::TooDeep { .. }
            | PathFault::NotUtf8
            | PathFault::Nul(_)) => Self::InvalidParams { reason: fault.to_string() },
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fault(fault) => fault.into(),
            Refusal::Outside(path) => Self::OutsideRoots { path },
            refusal @ Refusal::ReadOnly(_) => Self::InvalidParams { reason: refusal.to_string() },
        }
    }
}

impl From<NotAdvertised> for Failure {
    fn from(refused: NotAdvertised) -> Self {
        match refused {
            NotAdvertised::Method { method, capability } => {
                Self::NotAdvertised { method: method.to_owned(), capability: capability.to_owned() }
            }
            NotAdvertised::Part { .. } | NotAdvertised::Unknown { .. } => {
                Self::InvalidParams { reason: refused.to_string() }
            }
            NotAdvertised::BeforeInitialize { .. } => Self::InvalidRequest { reason: refused.to_string() },
        }
    }
}

/// Returns `text` fit to be quoted in a message or a log line: at most [`MAX_QUOTED`] bytes, on one line, unable to
/// steer a terminal.
///
/// Control characters and those that reorder text are escaped. Longer text is cut between two characters and ends in
/// an ellipsis, which counts. Quoting again changes nothing.
#[must_use]
pub fn quote(text: &str) -> String {
    clean(text, MAX_QUOTED)
}

// What `data.reason` says of parameters that have more to tell than a text.
const OUTSIDE: &str = "outside";
const RELATIVE: &str = "relative";
const PAST_END: &str = "past_end";
const TOO_LARGE: &str = "too_large";
const NOT_TEXT: &str = "not_text";
const CONFLICT: &str = "conflict";

/// Returns what an error says, in one safe line. Many peers send a message that JSON-RPC has for the code and put the telling
/// part into `data`: then that is added.
#[must_use]
pub fn error_text(error: &Error) -> String {
    const BARE: [&str; 7] = [
        "parse error",
        "invalid request",
        "method not found",
        "invalid params",
        "internal error",
        "authentication required",
        "resource not found",
    ];
    let message = error.message.trim().trim_end_matches('.').to_ascii_lowercase();
    let data = error.data.as_ref().filter(|data| !data.is_null() && BARE.contains(&message.as_str()));
    let Some(data) = data else { return concise(&error.message) };
    let named = ["details", "detail", "reason", "message", "error"].map(|name| data.get(name)?.as_str());
    let text = data.as_str().or_else(|| named.into_iter().flatten().next());
    let text = text.map_or_else(|| data.to_string(), ToOwned::to_owned);
    concise(&format!("{}: {text}", error.message.trim()))
}

/// Returns the text of a failure that is nothing but its text. Other implementations put the telling part into
/// `data`, so that is added where there is any.
fn reason(error: &Error) -> String {
    match &error.data {
        None | Some(Value::Null) => concise(&error.message),
        Some(Value::String(detail)) => concise(&format!("{}: {detail}", error.message)),
        Some(data) => concise(&format!("{}: {data}", error.message)),
    }
}

fn write_hunk(hunk: ConflictHunk) -> Value {
    let ConflictHunk { line, base, ours, theirs } = hunk;
    json!({ "line": line, "base": clip(base), "ours": clip(ours), "theirs": clip(theirs) })
}

/// Reads a place of a conflict; what a peer leaves out is empty.
fn read_hunk(hunk: &Value) -> ConflictHunk {
    let text = |key: &str| hunk.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let line = hunk.get("line").and_then(Value::as_u64).unwrap_or_default();
    ConflictHunk { line, base: text("base"), ours: text("ours"), theirs: text("theirs") }
}

fn concise(text: &str) -> String {
    clean(text, MAX_MESSAGE)
}

fn suffix(text: &Option<String>) -> String {
    text.as_deref().map(|text| format!(": {}", quote(text))).unwrap_or_default()
}

/// Cuts text that goes into `data`, where JSON escapes it and peers compare it.
fn clip(mut text: String) -> String {
    if text.len() > MAX_DATA_TEXT {
        text.truncate(text.floor_char_boundary(MAX_DATA_TEXT - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests;
