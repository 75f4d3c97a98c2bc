//! Where a list goes on: opaque to clients, and none of their making.

use super::codec::digest;
use super::error::StoreError;

/// Returns the cursor behind the session that was used at a place in the order.
pub(super) fn text(touched: i64) -> String {
    let [a, b, c, d, ..] = digest(&[b"cursor", &touched.to_le_bytes()]);
    format!("{touched:x}.{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// Returns the place that a cursor stands for.
pub(super) fn parse(cursor: &str) -> Result<i64, StoreError> {
    let digits = cursor.split_once('.').map(|(digits, _)| digits).unwrap_or_default();
    match i64::from_str_radix(digits, 16) {
        Ok(touched) if text(touched) == cursor => Ok(touched),
        _ => Err(StoreError::BadCursor),
    }
}
