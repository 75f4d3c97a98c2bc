//! The encoding of records: JSON, compressed where that pays, with a checksum.

use bowline_conversation::conversation::ConversationMessage;
use bowline_conversation::transcript;
use bowline_protocol::schema::v1::SessionUpdate;
use bowline_text::hash::ContentHasher;
use serde::Serialize;
use serde_json::Value;

use super::error::{StoreError, StoreTransactionError};
use super::{MAX_RECORD_BYTES, SessionRecord};

pub(super) const UPDATE: i64 = 0;
const MESSAGE: i64 = 1;
pub(super) const COMPACTED: i64 = 2;

const RAW: i64 = 0;
const LZ4: i64 = 1;
/// Records up to this size are stored uncompressed: they occupy part of a page either way.
const MAX_UNCOMPRESSED: usize = 1024;
/// Values nested deeper are stored as text. The JSON parser's limit is 128, and model output may come close to it.
const MAX_DEPTH: usize = 100;

/// A record as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedRecord {
    pub(super) kind: i64,
    pub(super) codec: i64,
    /// The size of the JSON in bytes.
    pub(super) size: i64,
    pub(super) data: Vec<u8>,
    pub(super) checksum: [u8; 8],
}

/// A decoded record, or one of an unknown kind.
#[derive(Debug)]
pub(super) enum DecodedRecord {
    Update(Box<SessionUpdate>),
    Message(ConversationMessage),
    Compacted(Vec<ConversationMessage>),
    /// An intact update that this version cannot parse.
    Unknown,
}

/// Encodes records, with updates merged.
pub(super) fn encode_all(records: Vec<SessionRecord>) -> Result<Vec<EncodedRecord>, StoreError> {
    condense(records).iter().map(encode).collect()
}

/// Merges updates among some records. Updates and messages are separate lists: their relative order means nothing.
fn condense(records: Vec<SessionRecord>) -> Vec<SessionRecord> {
    let mut updates = Vec::new();
    let mut condensed = Vec::new();
    for record in records {
        match record {
            SessionRecord::Update(update) => updates.push(update),
            other => condensed.push(other),
        }
    }
    condensed.extend(transcript::condense(updates).into_iter().map(SessionRecord::Update));
    condensed
}

pub(super) fn encode(record: &SessionRecord) -> Result<EncodedRecord, StoreError> {
    let (kind, json) = match record {
        SessionRecord::Update(update) => (UPDATE, to_json(update)?),
        SessionRecord::Message(message) => (MESSAGE, to_json(message)?),
        SessionRecord::Compacted(messages) => (COMPACTED, to_json(messages)?),
    };
    if json.len() > MAX_RECORD_BYTES {
        return Err(StoreError::TooLarge { bytes: json.len() });
    }
    let size = i64::try_from(json.len()).unwrap_or(i64::MAX);
    let compressed = (json.len() > MAX_UNCOMPRESSED).then(|| lz4_flex::block::compress(&json));
    let (codec, data) = match compressed {
        Some(compressed) if compressed.len() < json.len() - json.len() / 8 => (LZ4, compressed),
        _ => (RAW, json),
    };
    let checksum = checksum(kind, codec, size, &data);
    Ok(EncodedRecord { kind, codec, size, data, checksum })
}

impl EncodedRecord {
    /// Returns whether the record matches its checksum.
    pub(super) fn is_intact(&self) -> bool {
        let is_known_format =
            matches!(self.kind, UPDATE | MESSAGE | COMPACTED) && matches!(self.codec, RAW | LZ4);
        is_known_format && self.checksum == checksum(self.kind, self.codec, self.size, &self.data)
    }

    /// Decodes the record. For an intact message that this version cannot parse, the inner error is the reason.
    pub(super) fn decode(self) -> Result<Result<DecodedRecord, String>, StoreTransactionError> {
        let damaged = || StoreTransactionError::Damaged("a record is not what was written".to_owned());
        if !self.is_intact() {
            return Err(damaged());
        }
        let size = usize::try_from(self.size).ok().filter(|size| *size <= MAX_RECORD_BYTES);
        let json = match (self.codec, size) {
            (RAW, _) => self.data,
            (_, Some(size)) => lz4_flex::block::decompress(&self.data, size).map_err(|_| damaged())?,
            (_, None) => return Err(damaged()),
        };
        let decoded = match self.kind {
            UPDATE => Ok(serde_json::from_slice(&json)
                .map_or(DecodedRecord::Unknown, |update| DecodedRecord::Update(Box::new(update)))),
            MESSAGE => serde_json::from_slice(&json).map(DecodedRecord::Message),
            _ => serde_json::from_slice(&json).map(DecodedRecord::Compacted),
        };
        Ok(decoded.map_err(|error| error.to_string()))
    }
}

/// Returns a short checksum.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 8] {
    let mut hasher = ContentHasher::default();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut sum = [0; 8];
    sum.copy_from_slice(&hasher.finish().as_bytes()[..8]);
    sum
}

fn checksum(kind: i64, codec: i64, size: i64, data: &[u8]) -> [u8; 8] {
    digest(&[&kind.to_le_bytes(), &codec.to_le_bytes(), &size.to_le_bytes(), data])
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_vec(value).map_err(StoreError::Unwritable)?;
    if json_depth(&json) <= MAX_DEPTH {
        return Ok(json);
    }
    let mut value = serde_json::to_value(value).map_err(StoreError::Unwritable)?;
    flatten_below(&mut value, MAX_DEPTH);
    serde_json::to_vec(&value).map_err(StoreError::Unwritable)
}

/// Returns the nesting depth of JSON text.
fn json_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Turns values nested deeper than `levels` into text.
fn flatten_below(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = Value::String(value.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten_below(item, levels - 1)),
        Value::Object(fields) => fields.values_mut().for_each(|field| flatten_below(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
