//! Reads by an agent that cannot be told that a file is missing: it gets empty text, and what it then writes must not
//! replace a file that has appeared since.

use std::collections::HashSet;

use bowline_state::failure::Failure;
use bowline_state::failure::missing_file;
use bowline_state::quirks::Quirk;
use bowline_state::relay::Read;
use bowline_state::schema::v1::{CLIENT_METHOD_NAMES, Error, ReadTextFileResponse, SessionId};
use bowline_wire::CallError;
use bowline_wire::body::Body;
use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};

use super::{Beside, MAX_READ, params, unjudged};
use crate::between::{Decision, Deed, Order};
use crate::engine::Act;

/// The files that the agent took for empty because they were missing when it read them last.
#[derive(Debug, Default)]
pub(super) struct MissingFiles {
    // Invariant: at most `MAX_READ`. Of more, what the agent writes is not checked.
    paths: HashSet<String>,
}

impl MissingFiles {
    fn note(&mut self, path: &str, is_missing: bool) {
        if !is_missing {
            self.paths.remove(path);
        } else if self.paths.len() < MAX_READ {
            self.paths.insert(path.to_owned());
        }
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns why the agent must not write a file: the editor has text of it, which the agent took for missing.
    pub(super) fn conflict(&self, path: &str, had: Option<&str>) -> Option<Failure> {
        let has_appeared = self.contains(path) && had.is_some_and(|text| !text.is_empty());
        has_appeared.then(|| Failure::Conflict {
            path: path.to_owned(),
            why: "the file was missing when it was read, and has appeared since: nothing was written, read it again"
                .to_owned(),
            hunks: Vec::new(),
        })
    }
}

impl Beside {
    /// Has the editor read a file, and answers with empty text if there is none.
    pub(super) fn read_by_quirk(
        &self,
        quirk: &'static Quirk,
        id: &SessionId,
        read: &Read,
        line: &Bytes,
    ) -> Option<Decision> {
        let (caller, sent) = (self.line.caller().cloned()?, params::<Box<RawValue>>(line)?);
        let session = self.sessions.get(id)?;
        let call = session.beside.watching().call_for(Some(&read.path));
        let (its, engine, rules) = (session.beside.clone(), self.engine.clone(), self.options.rules);
        let path = read.path.clone();
        Some(Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                if rules {
                    let Some(engine) = its.engine().await else {
                        return Deed::Answer(Err(unjudged().into()));
                    };
                    if let Err(failure) = engine.lets(Act::Read { path: path.clone() }, call).await {
                        return Deed::Answer(Err(failure.into()));
                    }
                }
                let answer = caller.call_raw(CLIENT_METHOD_NAMES.fs_read_text_file, Body::raw(&sent)).await;
                let answer = match answer {
                    Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
                    Err(CallError::Refused(error)) => Err(error),
                    Err(other) => {
                        let reason = format!("the editor did not read: {other}");
                        Err(Failure::Internal { reason }.into())
                    }
                };
                let is_missing = answer.as_ref().is_err_and(is_missing);
                its.missing().note(&path, is_missing);
                if is_missing {
                    engine.notes(&quirk.log_line(&path));
                }
                Deed::Answer(if is_missing { empty_text() } else { answer })
            }),
        ))
    }
}

/// Says whether an error means that there is no file. Not every editor has the code for it.
pub(super) fn is_missing(error: &Error) -> bool {
    match Failure::from_error(error) {
        Failure::ResourceNotFound { .. } => true,
        Failure::SessionNotFound { .. } => false,
        _ => {
            let data = error.data.as_ref().map(ToString::to_string).unwrap_or_default();
            [&error.message, &data]
                .into_iter()
                .any(|text| missing_file::system_phrase_position(text).is_some())
        }
    }
}

/// Returns the answer to a read of an empty file.
pub(super) fn empty_text() -> Result<Box<RawValue>, Error> {
    to_raw_value(&ReadTextFileResponse::new("")).map_err(|_| Error::internal_error())
}
