//! A command's output as a model reads it: its start and its end, and what is new since the last look.

/// So many bytes of output a model is shown: of longer output the start and the end.
pub const MAX_SHOWN: usize = 32 << 10;

/// So many of them are of the start.
const HEAD: usize = 8 << 10;

/// So many bytes at least have to be the same to be taken for the end of what was seen.
const MIN_OVERLAP: usize = 4;

/// Returns as much of an output as a model is shown.
pub fn clip(text: &str) -> String {
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(HEAD)];
    let head = head.rfind('\n').map_or(head, |end| &head[..=end]);
    let tail = &text[text.ceil_char_boundary(text.len() - (MAX_SHOWN - HEAD))..];
    let tail = tail.find('\n').map_or(tail, |end| &tail[end + 1..]);
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}[{left_out} bytes left out]\n{tail}")
}

/// What came since the last look.
#[derive(Debug, PartialEq, Eq)]
pub struct News<'t> {
    /// The text.
    pub text: &'t str,
    /// Whether some of it may be missing, between what was seen and this.
    pub gap: bool,
}

/// Returns what is in an output that was not in it at the last look. Whoever keeps it may have dropped its start.
pub fn since<'t>(seen: &str, now: &'t str) -> News<'t> {
    if let Some(text) = now.strip_prefix(seen) {
        return News { text, gap: false };
    }
    match overlap(seen.as_bytes(), now.as_bytes()) {
        common if common >= MIN_OVERLAP => News { text: now.get(common..).unwrap_or(now), gap: false },
        _ => News { text: now, gap: true },
    }
}

/// Returns how many bytes at the end of one text are the start of another, at most: in linear time (Knuth, Morris, Pratt).
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
