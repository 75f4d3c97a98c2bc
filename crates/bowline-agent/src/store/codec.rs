//! Records as bytes: JSON, compressed where that pays, with a checksum.

use bowline_state::conversation::Message;
use bowline_state::schema::v1::SessionUpdate;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::error::{Fault, StoreError};
use super::{MAX_RECORD_BYTES, Record};

pub(super) const UPDATE: i64 = 0;
const MESSAGE: i64 = 1;
pub(super) const COMPACTED: i64 = 2;

const RAW: i64 = 0;
const LZ4: i64 = 1;
/// Up to this size a record is kept as it is: it takes a part of a page either way.
const SMALL: usize = 1024;
/// What is nested deeper is kept as text. A reader gives up at 128, and what a model sends may come close to that.
const MAX_DEPTH: usize = 100;

/// A record as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) kind: i64,
    pub(super) codec: i64,
    /// How many bytes the JSON has.
    pub(super) size: i64,
    pub(super) data: Vec<u8>,
    pub(super) sum: [u8; 8],
}

/// A record that was read, or that is of a kind that this program does not know.
#[derive(Debug)]
pub(super) enum Decoded {
    Update(Box<SessionUpdate>),
    Message(Message),
    Compacted(Vec<Message>),
    /// An update that is whole but cannot be read.
    Unknown,
}

pub(super) fn encode(record: &Record) -> Result<Encoded, StoreError> {
    let (kind, json) = match record {
        Record::Update(update) => (UPDATE, json(update)?),
        Record::Message(message) => (MESSAGE, json(message)?),
        Record::Compacted(messages) => (COMPACTED, json(messages)?),
    };
    if json.len() > MAX_RECORD_BYTES {
        return Err(StoreError::TooLarge { bytes: json.len() });
    }
    let size = i64::try_from(json.len()).unwrap_or(i64::MAX);
    let compressed = (json.len() > SMALL).then(|| lz4_flex::block::compress(&json));
    let (codec, data) = match compressed {
        Some(compressed) if compressed.len() < json.len() - json.len() / 8 => (LZ4, compressed),
        _ => (RAW, json),
    };
    let sum = checksum(kind, codec, size, &data);
    Ok(Encoded { kind, codec, size, data, sum })
}

impl Encoded {
    /// Says whether it is what was written.
    pub(super) fn is_whole(&self) -> bool {
        let known = matches!(self.kind, UPDATE | MESSAGE | COMPACTED) && matches!(self.codec, RAW | LZ4);
        known && self.sum == checksum(self.kind, self.codec, self.size, &self.data)
    }

    /// Reads it. A message that is whole but not understood is an error in words.
    pub(super) fn decode(self) -> Result<Result<Decoded, String>, Fault> {
        let damaged = || Fault::Damaged("a record is not what was written".to_owned());
        if !self.is_whole() {
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
                .map_or(Decoded::Unknown, |update| Decoded::Update(Box::new(update)))),
            MESSAGE => serde_json::from_slice(&json).map(Decoded::Message),
            _ => serde_json::from_slice(&json).map(Decoded::Compacted),
        };
        Ok(decoded.map_err(|error| error.to_string()))
    }
}

/// Returns what tells whether some bytes are what they were.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 8] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let mut sum = [0; 8];
    sum.copy_from_slice(&hash[..8]);
    sum
}

fn checksum(kind: i64, codec: i64, size: i64, data: &[u8]) -> [u8; 8] {
    digest(&[&kind.to_le_bytes(), &codec.to_le_bytes(), &size.to_le_bytes(), data])
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_vec(value).map_err(StoreError::Unwritable)?;
    if depth(&json) <= MAX_DEPTH {
        return Ok(json);
    }
    let mut value = serde_json::to_value(value).map_err(StoreError::Unwritable)?;
    flatten(&mut value, MAX_DEPTH);
    serde_json::to_vec(&value).map_err(StoreError::Unwritable)
}

/// Returns how deep some JSON is nested.
fn depth(json: &[u8]) -> usize {
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

/// Makes text of whatever is nested deeper than it may be.
fn flatten(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = Value::String(value.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten(item, levels - 1)),
        Value::Object(fields) => fields.values_mut().for_each(|field| flatten(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
