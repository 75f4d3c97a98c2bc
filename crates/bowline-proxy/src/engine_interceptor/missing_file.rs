//! Reads by an agent that cannot handle the error for a missing file: it gets empty text, and its write must not
//! replace a file that has appeared since.

use std::collections::HashSet;

use bowline_protocol::quirks::Quirk;
use bowline_protocol::relay::FileRead;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::rpc_error::missing_file;
use bowline_protocol::schema::v1::{CLIENT_METHOD_NAMES, Error, ReadTextFileResponse, SessionId};
use bowline_wire::CallError;
use bowline_wire::body::JsonBody;
use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};

use super::{EngineInterceptor, MAX_READ_PATHS, parse_params, policy_unavailable};
use crate::engine::RelayedOperation;
use crate::interceptor::{Disposition, InterceptDecision, MessageOrder};

/// The files that the agent takes for empty because they were missing when it last read them.
#[derive(Debug, Default)]
pub(super) struct MissingFiles {
    // Invariant: at most `MAX_READ_PATHS`. Writes to further files are not checked.
    paths: HashSet<String>,
}

impl MissingFiles {
    fn record_read(&mut self, path: &str, is_missing: bool) {
        if !is_missing {
            self.paths.remove(path);
        } else if self.paths.len() < MAX_READ_PATHS {
            self.paths.insert(path.to_owned());
        }
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns a conflict if the agent took a file for missing and the editor now has text for it.
    pub(super) fn check_conflict(&self, path: &str, had: Option<&str>) -> Option<RpcError> {
        let has_appeared = self.contains(path) && had.is_some_and(|text| !text.is_empty());
        has_appeared.then(|| RpcError::Conflict {
            path: path.to_owned(),
            reason: "the file was missing when it was read, and has appeared since: nothing was written, read it again"
                .to_owned(),
            hunks: Vec::new(),
        })
    }
}

impl EngineInterceptor {
    /// Reads a file through the editor, and answers with empty text if it does not exist.
    pub(super) fn read_with_quirk(
        &self,
        quirk: &'static Quirk,
        id: &SessionId,
        read: &FileRead,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let (caller, sent) = (self.caller.caller().cloned()?, parse_params::<Box<RawValue>>(line)?);
        let session = self.sessions.get(id)?;
        let call = session.context.attribution().call_for(Some(&read.path));
        let (its, engine, rules) =
            (session.context.clone(), self.engine.clone(), self.options.enforce_policy);
        let path = read.path.clone();
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                if rules {
                    let Some(engine) = its.engine().await else {
                        return Disposition::Answer(Err(policy_unavailable().into()));
                    };
                    if let Err(failure) =
                        engine.authorize(RelayedOperation::Read { path: path.clone() }, call).await
                    {
                        return Disposition::Answer(Err(failure.into()));
                    }
                }
                let answer =
                    caller.call_raw(CLIENT_METHOD_NAMES.fs_read_text_file, JsonBody::from_raw(&sent)).await;
                let answer = match answer {
                    Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
                    Err(CallError::ErrorResponse(error)) => Err(error),
                    Err(other) => {
                        let reason = format!("the editor did not read: {other}");
                        Err(RpcError::Internal { reason }.into())
                    }
                };
                let is_missing = answer.as_ref().is_err_and(is_missing_file_error);
                its.missing_files().record_read(&path, is_missing);
                if is_missing {
                    engine.log(&quirk.log_line(&path));
                }
                Disposition::Answer(if is_missing { empty_read_response() } else { answer })
            }),
        ))
    }
}

/// Returns whether an error means that the file is missing. Not every editor uses the error code for it.
pub(super) fn is_missing_file_error(error: &Error) -> bool {
    match RpcError::from_error(error) {
        RpcError::ResourceNotFound { .. } => true,
        RpcError::SessionNotFound { .. } => false,
        _ => {
            let data = error.data.as_ref().map(ToString::to_string).unwrap_or_default();
            [&error.message, &data]
                .into_iter()
                .any(|text| missing_file::system_phrase_position(text).is_some())
        }
    }
}

/// Returns the response to a read of an empty file.
pub(super) fn empty_read_response() -> Result<Box<RawValue>, Error> {
    to_raw_value(&ReadTextFileResponse::new("")).map_err(|_| Error::internal_error())
}
