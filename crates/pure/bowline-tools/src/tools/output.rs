//! A command's output as shown to a model: its start and end, and the part since the last read.

/// The maximum amount of output shown to a model, in bytes; longer output keeps its start and end.
pub const MAX_OUTPUT_BYTES: usize = 32 << 10;

/// The size of the start.
const HEAD_BYTES: usize = 8 << 10;

/// The minimum length of an overlap that counts as the end of the earlier output.
const MIN_OVERLAP: usize = 4;

/// Truncates an output for a model.
pub fn clip_output(text: &str) -> String {
    if text.len() <= MAX_OUTPUT_BYTES {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(HEAD_BYTES)];
    let head = head.rfind('\n').map_or(head, |end| &head[..=end]);
    let tail = &text[text.ceil_char_boundary(text.len() - (MAX_OUTPUT_BYTES - HEAD_BYTES))..];
    let tail = tail.find('\n').map_or(tail, |end| &tail[end + 1..]);
    let omitted = text.len() - head.len() - tail.len();
    format!("{head}[{omitted} bytes left out]\n{tail}")
}

/// The output since the last read.
#[derive(Debug, PartialEq, Eq)]
pub struct NewOutput<'t> {
    /// The text.
    pub text: &'t str,
    /// Whether some output may be missing between the earlier output and this.
    pub has_gap: bool,
}

/// Returns the part of an output that is new since the last read. The terminal may have dropped its start.
pub fn output_since<'t>(seen: &str, now: &'t str) -> NewOutput<'t> {
    if let Some(text) = now.strip_prefix(seen) {
        return NewOutput { text, has_gap: false };
    }
    match overlap(seen.as_bytes(), now.as_bytes()) {
        common if common >= MIN_OVERLAP => {
            NewOutput { text: now.get(common..).unwrap_or(now), has_gap: false }
        }
        _ => NewOutput { text: now, has_gap: true },
    }
}

/// Returns the length of the longest suffix of one text that is a prefix of another, in linear time (Knuth, Morris,
/// Pratt).
fn overlap(end_of: &[u8], start_of: &[u8]) -> usize {
    let mut borders = vec![0; start_of.len()];
    let extend = |borders: &[usize], mut common: usize, byte: u8| {
        while common > 0 && (common == start_of.len() || start_of[common] != byte) {
            common = borders[common - 1];
        }
        if start_of.get(common) == Some(&byte) { common + 1 } else { common }
    };
    for at in 1..start_of.len() {
        borders[at] = extend(&borders, borders[at - 1], start_of[at]);
    }
    end_of.iter().fold(0, |common, byte| extend(&borders, common, *byte))
}

#[cfg(test)]
mod tests;
