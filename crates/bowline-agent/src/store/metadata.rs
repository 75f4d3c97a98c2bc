//! A session's metadata as columns: its directory, and a JSON text with the rest.

use std::path::{Path, PathBuf};

use bowline_conversation::conversation::{ThinkingLevel, TokenUsage};
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::SessionId;
use bowline_text::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::{MAX_TITLE_BYTES, SessionMeta};

/// The largest details of a session.
const MAX_DETAILS_BYTES: usize = 1 << 20;

/// The metadata of a session that has no column of its own.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SessionDetails {
    additional: Vec<PathBuf>,
    title: Option<String>,
    mode: AgentMode,
    model: Option<String>,
    thinking: ThinkingLevel,
    turns: u64,
    usage: TokenUsage,
    cost: Option<f64>,
}

/// A session's text columns.
pub(super) struct SessionColumns {
    pub(super) cwd: String,
    pub(super) details: String,
}

impl SessionColumns {
    pub(super) fn from_meta(meta: &SessionMeta) -> Result<Self, StoreError> {
        let mut title = meta.title.clone();
        if let Some(title) = &mut title {
            title.truncate(title.floor_char_boundary(MAX_TITLE_BYTES));
        }
        let details = SessionDetails {
            additional: meta.additional_directories.clone(),
            title,
            mode: meta.mode,
            model: meta.model.clone(),
            thinking: meta.thinking,
            turns: meta.turns,
            usage: meta.usage,
            cost: meta.cost,
        };
        let details = serde_json::to_string(&details).map_err(StoreError::Unwritable)?;
        let cwd = path_to_str(&meta.cwd)?.to_owned();
        let bytes = details.len() + cwd.len() + meta.id.0.len();
        if bytes > MAX_DETAILS_BYTES {
            return Err(StoreError::TooLarge { bytes });
        }
        Ok(Self { cwd, details })
    }

    /// Returns the metadata of a session with these columns.
    pub(super) fn into_meta(
        self,
        id: SessionId,
        created_at: Timestamp,
        updated_at: Timestamp,
    ) -> SessionMeta {
        // Fields of a later version are ignored; missing fields get the defaults of a new session.
        let details: SessionDetails = serde_json::from_str(&self.details).unwrap_or_default();
        SessionMeta {
            id,
            cwd: self.cwd.into(),
            additional_directories: details.additional,
            title: details.title,
            created_at,
            updated_at,
            mode: details.mode,
            model: details.model,
            thinking: details.thinking,
            turns: details.turns,
            usage: details.usage,
            cost: details.cost,
        }
    }
}

/// Returns a path as stored in the database.
pub(super) fn path_to_str(path: &Path) -> Result<&str, StoreError> {
    use serde::ser::Error as _;
    let error =
        || StoreError::Unwritable(serde_json::Error::custom(format!("{} is no text", path.display())));
    path.to_str().ok_or_else(error)
}
