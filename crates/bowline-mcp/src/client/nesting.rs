//! Truncation of JSON that is nested too deeply to be parsed.
//!
//! A recursive JSON parser stops at some depth and then loses the whole message. Without truncation, one tool with an
//! endlessly nested schema would cost all tools of its server.

use std::borrow::Cow;

/// The deepest nesting that is kept; serde_json reads 127 levels.
pub(super) const MAX_DEPTH: usize = 120;

/// Returns JSON with `null` in place of every array and object nested deeper than [`MAX_DEPTH`], or unchanged if there
/// is no such value. Invalid JSON stays invalid.
pub(super) fn cut_deep_values(json: &[u8]) -> Cow<'_, [u8]> {
    let mut output = Vec::new();
    // The offset up to which the text is copied, and whether anything was cut.
    let (mut copied, mut depth, mut is_cut) = (0, 0_usize, false);
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, byte) in json.iter().enumerate() {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth == MAX_DEPTH + 1 {
                    is_cut = true;
                    output.extend_from_slice(&json[copied..at]);
                    output.extend_from_slice(b"null");
                    copied = json.len();
                }
            }
            b']' | b'}' => {
                if depth == MAX_DEPTH + 1 {
                    copied = at + 1;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    if is_cut {
        output.extend_from_slice(&json[copied..]);
        Cow::Owned(output)
    } else {
        Cow::Borrowed(json)
    }
}

#[cfg(test)]
mod tests;
