//! JSON that is nested deeper than it is read.
//!
//! Whoever reads JSON by recursion has to stop at some depth, and then the whole message is lost. One tool whose schema is
//! nested without end would so cost all tools of its server.

use std::borrow::Cow;

/// Values may be nested so deep; serde_json reads 127.
pub(super) const MAX_DEPTH: usize = 120;

/// Returns JSON with `null` in place of every array and object that is nested deeper than [`MAX_DEPTH`], or as it is if there
/// is none. What is no JSON stays none.
pub(super) fn cut(json: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    // How far the text is kept, and whether anything was left out.
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
                    kept.extend_from_slice(&json[copied..at]);
                    kept.extend_from_slice(b"null");
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
        kept.extend_from_slice(&json[copied..]);
        Cow::Owned(kept)
    } else {
        Cow::Borrowed(json)
    }
}

#[cfg(test)]
mod tests;
