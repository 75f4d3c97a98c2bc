//! Resources other than files: unsaved texts, changes, anything else a backend shares, and their change events.

use bowline_access::approvals::BoxFuture;
use rmcp::model::{Resource, ResourceContents};
use tokio::sync::broadcast;

/// The most resources in a list.
pub(crate) const MAX_LISTED: usize = 1000;

/// The longest resource text, in bytes.
pub(crate) const MAX_RESOURCE_BYTES: usize = 10 << 20;

/// The most resources that a session can subscribe to.
pub(crate) const MAX_SUBSCRIBED: usize = 256;

/// The description of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The URI that it is read by.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its MIME type.
    pub mime_type: String,
}

/// A change to resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceEvent {
    /// The resource with this URI has a new text.
    Updated(String),
    /// The list of resources has changed.
    ListChanged,
    /// Some events were lost: any resource may have changed.
    Lagged,
}

/// A provider of resources other than files.
pub trait ResourceProvider: Send + Sync {
    /// Returns the available resources.
    fn list(&self) -> BoxFuture<'_, Vec<ResourceInfo>>;

    /// Returns the text of a resource, or `None` if the URI is unknown.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    fn read<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<String>, String>>;

    /// Returns a receiver of future events.
    fn subscribe(&self) -> broadcast::Receiver<ResourceEvent>;
}

impl From<ResourceInfo> for Resource {
    fn from(info: ResourceInfo) -> Self {
        let mut resource = Self::new(info.uri, info.name);
        resource.description = Some(info.description);
        resource.mime_type = Some(info.mime_type);
        resource
    }
}

/// Converts a text to the protocol's form, truncated to the limit.
pub(crate) fn to_contents(info: ResourceInfo, mut text: String) -> ResourceContents {
    if text.len() > MAX_RESOURCE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_RESOURCE_BYTES));
        text.push_str("\n[the rest is left out]\n");
    }
    ResourceContents::TextResourceContents {
        uri: info.uri,
        mime_type: Some(info.mime_type),
        text,
        meta: None,
    }
}

/// Returns the URI of a file. Bytes that have a meaning in a URI are escaped.
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

/// Returns the path of a file's URI: absolute, without a host.
pub(crate) fn parse_file_uri(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix("file://").filter(|path| path.starts_with('/'))?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
