//! The capability of the file extension: the methods that a client serves, and their limits.
//!
//! ```json
//! {"clientCapabilities":{"_meta":{"bowline":{"version":1,"fs":{"list":{"maxEntries":2000},"stat":{}}}}}}
//! ```

use agent_client_protocol_schema::v1::Meta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::FILE_EXTENSION_VERSION;
use crate::json_object::object_entry;

/// The key in `_meta` under which clients describe what they offer beyond the protocol.
const META_KEY: &str = "bowline";

/// The limits of a client that serves the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// The maximum number of entries on a page of a listing.
    pub list_entries: u64,
    /// The maximum number of bytes that a read returns. In base64 they take a third more.
    pub read_bytes: u64,
    /// The maximum number of bytes that a write carries, decoded.
    pub write_bytes: u64,
    /// The maximum number of operations in a batch.
    pub batch_operations: u64,
    /// The maximum number of bytes that the writes of a batch carry, decoded, and that its reads return.
    pub batch_bytes: u64,
    /// The maximum number of watches of a session.
    pub watches: u64,
    /// The maximum number of changes in a notification.
    pub changes: u64,
}

impl FileLimits {
    /// The limits of a client that states none. Messages that reach them fit into 64 MiB, also in base64.
    pub const DEFAULT: FileLimits = FileLimits {
        list_entries: 2000,
        read_bytes: 16 << 20,
        write_bytes: 32 << 20,
        batch_operations: 1000,
        batch_bytes: 32 << 20,
        watches: 64,
        changes: 256,
    };

    /// No limits, for messages that another client will check against its own.
    pub const UNLIMITED: FileLimits = FileLimits {
        list_entries: u64::MAX,
        read_bytes: u64::MAX,
        write_bytes: u64::MAX,
        batch_operations: u64::MAX,
        batch_bytes: u64::MAX,
        watches: u64::MAX,
        changes: u64::MAX,
    };
}

impl Default for FileLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The methods of the extension that a client serves. The default is a client without the extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileCapabilities {
    /// `_bowline/fs/list`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub list: Option<ListCapability>,
    /// `_bowline/fs/stat`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub stat: Option<StatCapability>,
    /// `_bowline/fs/read`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadCapability>,
    /// `_bowline/fs/write`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub write: Option<WriteCapability>,
    /// `_bowline/fs/batch`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchCapability>,
    /// `_bowline/fs/watch`, `_bowline/fs/unwatch` and `_bowline/fs/changed`.
    #[serde(default, deserialize_with = "read_lenient", skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchCapability>,
}

/// The limits of listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ListCapability {
    /// The maximum number of entries on a page.
    pub max_entries: u64,
}

/// Metadata has no limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatCapability {}

/// The limits of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReadCapability {
    /// The maximum number of bytes that a read returns.
    pub max_bytes: u64,
}

/// The limits of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WriteCapability {
    /// The maximum number of bytes that a write carries, decoded.
    pub max_bytes: u64,
}

/// The limits of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BatchCapability {
    /// The maximum number of operations.
    pub max_operations: u64,
    /// The maximum number of bytes that the writes carry, decoded, and that the reads return.
    pub max_bytes: u64,
}

/// The limits of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WatchCapability {
    /// The maximum number of watches of a session.
    pub max_watches: u64,
    /// The maximum number of changes in a notification.
    pub max_changes: u64,
}

impl FileCapabilities {
    /// Returns the capabilities of a client that serves every method, within these limits.
    #[must_use]
    pub fn with_limits(limits: &FileLimits) -> Self {
        Self {
            list: Some(ListCapability { max_entries: limits.list_entries }),
            stat: Some(StatCapability {}),
            read: Some(ReadCapability { max_bytes: limits.read_bytes }),
            write: Some(WriteCapability { max_bytes: limits.write_bytes }),
            batch: Some(BatchCapability {
                max_operations: limits.batch_operations,
                max_bytes: limits.batch_bytes,
            }),
            watch: Some(WatchCapability { max_watches: limits.watches, max_changes: limits.changes }),
        }
    }

    /// Reads the capabilities from the `_meta` of a client's capabilities. A client that does not describe the
    /// extension, or speaks another version of it, has none. Limits that are missing or zero, and all limits of a method
    /// of which one is malformed, count as the defaults, so that a mistake does not hide a method.
    #[must_use]
    pub fn from_meta(meta: &Meta) -> Self {
        let extension = meta
            .get(META_KEY)
            .filter(|entry| entry.get("version").and_then(Value::as_u64) == Some(FILE_EXTENSION_VERSION));
        let fs = extension.and_then(|entry| entry.get("fs"));
        fs.and_then(|fs| Self::deserialize(fs).ok()).unwrap_or_default()
    }

    /// Adds the capabilities to the `_meta` of a client's capabilities. Other entries stay.
    pub fn insert_into(&self, meta: &mut Meta) {
        if let Some(entry) = object_entry(meta, META_KEY) {
            entry.insert("version".to_owned(), FILE_EXTENSION_VERSION.into());
            entry.insert("fs".to_owned(), json!(self));
        }
    }

    /// Returns the limits, with the default for methods that are not served.
    #[must_use]
    pub fn limits(&self) -> FileLimits {
        let (list, read) = (self.list.unwrap_or_default(), self.read.unwrap_or_default());
        let (write, batch) = (self.write.unwrap_or_default(), self.batch.unwrap_or_default());
        let watch = self.watch.unwrap_or_default();
        let or_default = |limit: u64, default: u64| if limit == 0 { default } else { limit };
        let default = FileLimits::DEFAULT;
        FileLimits {
            list_entries: or_default(list.max_entries, default.list_entries),
            read_bytes: or_default(read.max_bytes, default.read_bytes),
            write_bytes: or_default(write.max_bytes, default.write_bytes),
            batch_operations: or_default(batch.max_operations, default.batch_operations),
            batch_bytes: or_default(batch.max_bytes, default.batch_bytes),
            watches: or_default(watch.max_watches, default.watches),
            changes: or_default(watch.max_changes, default.changes),
        }
    }
}

impl Default for ListCapability {
    fn default() -> Self {
        Self { max_entries: FileLimits::DEFAULT.list_entries }
    }
}

impl Default for ReadCapability {
    fn default() -> Self {
        Self { max_bytes: FileLimits::DEFAULT.read_bytes }
    }
}

impl Default for WriteCapability {
    fn default() -> Self {
        Self { max_bytes: FileLimits::DEFAULT.write_bytes }
    }
}

impl Default for BatchCapability {
    fn default() -> Self {
        let FileLimits { batch_operations, batch_bytes, .. } = FileLimits::DEFAULT;
        Self { max_operations: batch_operations, max_bytes: batch_bytes }
    }
}

impl Default for WatchCapability {
    fn default() -> Self {
        let FileLimits { watches, changes, .. } = FileLimits::DEFAULT;
        Self { max_watches: watches, max_changes: changes }
    }
}

/// Reads one method's capability: an object or `true` offers the method, anything else does not.
fn read_lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(match Value::deserialize(deserializer)? {
        entry @ Value::Object(_) => Some(serde_json::from_value(entry).unwrap_or_default()),
        Value::Bool(true) => Some(T::default()),
        _ => None,
    })
}
