//! Reads by an agent that cannot handle the error for a missing file: it gets empty text, and its write must not
//! replace a file that has appeared since.

use std::collections::HashSet;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::rpc_error::missing_file;
use bowline_protocol::schema::v1::{Error, ReadTextFileResponse};
use serde_json::value::{RawValue, to_raw_value};

use super::MAX_READ_PATHS;

/// The files that the agent takes for empty because they were missing when it last read them.
#[derive(Debug, Default)]
pub(super) struct MissingFiles {
    // Invariant: at most `MAX_READ_PATHS`. Writes to further files are not checked.
    paths: HashSet<String>,
}

impl MissingFiles {
    pub(super) fn record_read(&mut self, path: &str, is_missing: bool) {
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
    pub(super) fn check_conflict(&self, path: &str, editor_text: Option<&str>) -> Option<RpcError> {
        let has_appeared = self.contains(path) && editor_text.is_some_and(|text| !text.is_empty());
        has_appeared.then(|| RpcError::Conflict {
            path: path.to_owned(),
            reason: "the file was missing when it was read, and has appeared since: nothing was written, read it again"
                .to_owned(),
            hunks: Vec::new(),
        })
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
