//! The cursor of a session list: opaque to clients, which cannot make one themselves.

use super::codec::digest;
use super::error::StoreError;

/// Returns the cursor after the session with this `touched` value.
pub(super) fn format_cursor(touched: i64) -> String {
    let [a, b, c, d, ..] = digest(&[b"cursor", &touched.to_le_bytes()]);
    format!("{touched:x}.{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// Returns the `touched` value of a cursor.
pub(super) fn parse_cursor(cursor: &str) -> Result<i64, StoreError> {
    let digits = cursor.split_once('.').map(|(digits, _)| digits).unwrap_or_default();
    match i64::from_str_radix(digits, 16) {
        Ok(touched) if format_cursor(touched) == cursor => Ok(touched),
        _ => Err(StoreError::BadCursor),
    }
}
