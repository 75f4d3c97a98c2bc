//! What can be read beside files: unsaved texts, changes, whatever else a place shares, and that it has changed.

use bowline_workspace::approvals::BoxFuture;
use rmcp::model::{Resource, ResourceContents};
use tokio::sync::broadcast;

/// A list has at most so many resources.
pub(crate) const MAX_LISTED: usize = 1000;

/// A resource is given up to so many bytes.
pub(crate) const MAX_BYTES: usize = 10 << 20;

/// A session is told of changes of so many resources.
pub(crate) const MAX_SUBSCRIBED: usize = 256;

/// What a resource is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// By which it is read.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// What kind of text.
    pub mime_type: String,
}

/// What happened to resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// One has another text now.
    Updated(String),
    /// There are others now.
    Listed,
    /// Some news was lost: anything may be another now.
    Missed,
}

/// Whoever has something to be read beside files.
pub trait Resources: Send + Sync {
    /// Returns what there is.
    fn list(&self) -> BoxFuture<'_, Vec<Described>>;

    /// Returns a text; nothing if there is none of that name.
    ///
    /// # Errors
    /// Says why it cannot be read.
    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>>;

    /// Returns what happens from now on.
    fn news(&self) -> broadcast::Receiver<News>;
}

impl From<Described> for Resource {
    fn from(described: Described) -> Self {
        let mut resource = Self::new(described.uri, described.name);
        resource.description = Some(described.description);
        resource.mime_type = Some(described.mime_type);
        resource
    }
}

/// Returns a text as the protocol has it, within bounds.
pub(crate) fn contents(described: Described, mut text: String) -> ResourceContents {
    if text.len() > MAX_BYTES {
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text.push_str("\n[the rest is left out]\n");
    }
    ResourceContents::TextResourceContents {
        uri: described.uri,
        mime_type: Some(described.mime_type),
        text,
        meta: None,
    }
}

/// Returns the URI of a file, with every byte escaped that has a meaning in one.
#[must_use]
pub fn file_uri(path: &str) -> String {
    let mut uri = String::from("file://");
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(byte.into())
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests;
