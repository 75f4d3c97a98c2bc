//! Rust source with comments and literals blanked out, so that a rule sees only code.
//!
//! This is a scanner, not a parser: it recognises comments, all kinds of strings, character literals and lifetimes, and
//! keeps every character in its column.

/// A source text in three views, with the lines and columns of the original.
#[derive(Debug, Default)]
pub(super) struct MaskedSource {
    /// The text without comments and without the contents of strings and character literals.
    pub(super) code: String,
    /// The text without comments.
    pub(super) plain: String,
    /// The contents of each string, as written, with its position in `code`.
    pub(super) strings: Vec<(usize, String)>,
}

/// Blanks out the comments and literals of a Rust text.
pub(super) fn mask(text: &str) -> MaskedSource {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = MaskedSource::default();
    let mut at = 0;
    while at < chars.len() {
        let piece = token_at(&chars, at);
        let (open, close) = piece.quotes;
        if matches!(piece.kind, MaskTokenKind::Text) {
            let inner = chars[at + open..piece.end - close].iter().collect();
            masked.strings.push((masked.code.len(), inner));
        }
        for (offset, &char) in chars[at..piece.end].iter().enumerate() {
            let inside = offset >= open && at + offset < piece.end - close;
            let blank = if char == '\n' { '\n' } else { ' ' };
            masked.code.push(if piece.kind == MaskTokenKind::Code || !inside { char } else { blank });
            masked.plain.push(if piece.kind == MaskTokenKind::Comment { blank } else { char });
        }
        at = piece.end;
    }
    masked
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MaskTokenKind {
    Code,
    Comment,
    Text,
    Char,
}

/// A token: where it ends, and how many of its characters are opening and closing quotes.
struct MaskToken {
    kind: MaskTokenKind,
    end: usize,
    quotes: (usize, usize),
}

fn token_at(chars: &[char], at: usize) -> MaskToken {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    let piece = |kind, end: usize, quotes| MaskToken { kind, end: end.min(chars.len()), quotes };
    match chars[at] {
        '/' if next(1) == '/' => piece(MaskTokenKind::Comment, line_end(chars, at), (0, 0)),
        '/' if next(1) == '*' => piece(MaskTokenKind::Comment, block_end(chars, at), (0, 0)),
        '"' => string_token(chars, at),
        '\'' if next(1) == '\\' => {
            let close = chars.iter().skip(at + 3).position(|&c| c == '\'').unwrap_or(0);
            piece(MaskTokenKind::Char, at + 4 + close, (1, 1))
        }
        '\'' if next(2) == '\'' => piece(MaskTokenKind::Char, at + 3, (1, 1)),
        'r' if starts_word(chars, at) => {
            raw_string_token(chars, at).unwrap_or(piece(MaskTokenKind::Code, at + 1, (0, 0)))
        }
        _ => piece(MaskTokenKind::Code, at + 1, (0, 0)),
    }
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| at + length)
}

fn block_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut here = at;
    while here < chars.len() {
        match (chars[here], chars.get(here + 1)) {
            ('/', Some('*')) => (depth, here) = (depth + 1, here + 2),
            ('*', Some('/')) => (depth, here) = (depth - 1, here + 2),
            _ => here += 1,
        }
        if depth == 0 {
            return here;
        }
    }
    here
}

fn string_token(chars: &[char], at: usize) -> MaskToken {
    let mut here = at + 1;
    while here < chars.len() && chars[here] != '"' {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    let closed = here < chars.len();
    MaskToken {
        kind: MaskTokenKind::Text,
        end: (here + 1).min(chars.len()),
        quotes: (1, usize::from(closed)),
    }
}

/// Returns the raw string that starts at this `r`, if any.
fn raw_string_token(chars: &[char], at: usize) -> Option<MaskToken> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = hashes + 2;
    if chars.get(at + open - 1) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &chars[at + open..];
    let length = body.windows(closing.len()).position(|window| window == closing)?;
    let end = at + open + length + closing.len();
    Some(MaskToken { kind: MaskTokenKind::Text, end, quotes: (open, closing.len()) })
}

/// Returns whether the `r` here starts a word; the `b` or `c` of `br""` and `cr""` may precede it.
fn starts_word(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|i| chars.get(i)).copied();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match before(1) {
        Some('b' | 'c') => !is_word(before(2)),
        other => !is_word(other),
    }
}

#[cfg(test)]
mod tests {
    use super::mask;
    use expect_test::{Expect, expect};

    fn check(text: &str, code: Expect) {
        let masked = mask(text);
        assert_eq!(masked.code.chars().count(), text.chars().count(), "columns moved");
        assert_eq!(masked.plain.chars().count(), text.chars().count(), "columns moved");
        code.assert_eq(&masked.code.replace(' ', "·"));
    }

    #[test]
    fn comments_are_blank() {
        check(
            "a // b\nc /* d /* e */ f\ng */ h",
            expect![[r#"
            a·····
            c···············
            ·····h"#]],
        );
    }

    #[test]
    fn strings_are_empty_but_keep_their_quotes() {
        check(
            r##"f("a\"b", r#"c"d"#, b"e", br"f", "// g") + 1"##,
            expect![[r##"
            f("····",·r#"···"#,·b"·",·br"·",·"····")·+·1"##]],
        );
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        check(
            r#"fn f<'a>(x: &'a str) { '"'; '\''; 'b' } // '"#,
            expect![[r#"
            fn·f<'a>(x:·&'a·str)·{·'·';·'··';·'·'·}·····"#]],
        );
    }

    #[test]
    fn a_name_that_ends_in_r_does_not_start_a_raw_string() {
        check(r#"for"x" r#type "y""#, expect![[r#"for"·"·r#type·"·""#]]);
    }

    #[test]
    fn text_that_never_closes_ends_with_the_file() {
        check(
            "a \"b\nc",
            expect![[r#"
            a·"·
            ·"#]],
        );
        check("a /* b", expect!["a·····"]);
    }

    #[test]
    fn strings_are_kept_as_written() {
        let strings: Vec<_> = mask(r##"["a\"b", r#"c"d"#]"##).strings.into_iter().map(|s| s.1).collect();
        assert_eq!(strings, [r#"a\"b"#, r#"c"d"#]);
    }
}
