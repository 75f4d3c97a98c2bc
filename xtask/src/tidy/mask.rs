//! Rust text with its comments and literals blanked out, so that a rule sees only what is code.
//!
//! This is a scanner, not a parser: it knows comments, strings of every kind, character literals and lifetimes, and
//! keeps every character in its column.

/// One text in three views. Lines and columns are those of the original.
#[derive(Debug, Default)]
pub(super) struct Masked {
    /// Without comments and without what is inside strings and character literals.
    pub(super) code: String,
    /// Without comments.
    pub(super) plain: String,
    /// What stands between the quotes of each string, as written, with its position in `code`.
    pub(super) strings: Vec<(usize, String)>,
}

/// Blanks out the comments and literals of a Rust text.
pub(super) fn mask(text: &str) -> Masked {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = Masked::default();
    let mut at = 0;
    while at < chars.len() {
        let piece = piece_at(&chars, at);
        let (open, close) = piece.quotes;
        if matches!(piece.kind, Kind::Text) {
            let inner = chars[at + open..piece.end - close].iter().collect();
            masked.strings.push((masked.code.len(), inner));
        }
        for (offset, &char) in chars[at..piece.end].iter().enumerate() {
            let inside = offset >= open && at + offset < piece.end - close;
            let blank = if char == '\n' { '\n' } else { ' ' };
            masked.code.push(if piece.kind == Kind::Code || !inside { char } else { blank });
            masked.plain.push(if piece.kind == Kind::Comment { blank } else { char });
        }
        at = piece.end;
    }
    masked
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Text,
    Char,
}

/// A stretch of one kind: where it ends, and how many characters of it are opening and closing quotes.
struct Piece {
    kind: Kind,
    end: usize,
    quotes: (usize, usize),
}

fn piece_at(chars: &[char], at: usize) -> Piece {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    let piece = |kind, end: usize, quotes| Piece { kind, end: end.min(chars.len()), quotes };
    match chars[at] {
        '/' if next(1) == '/' => piece(Kind::Comment, line_end(chars, at), (0, 0)),
        '/' if next(1) == '*' => piece(Kind::Comment, block_end(chars, at), (0, 0)),
        '"' => quoted(chars, at),
        '\'' if next(1) == '\\' => {
            let close = chars.iter().skip(at + 3).position(|&c| c == '\'').unwrap_or(0);
            piece(Kind::Char, at + 4 + close, (1, 1))
        }
        '\'' if next(2) == '\'' => piece(Kind::Char, at + 3, (1, 1)),
        'r' if starts_word(chars, at) => raw(chars, at).unwrap_or(piece(Kind::Code, at + 1, (0, 0))),
        _ => piece(Kind::Code, at + 1, (0, 0)),
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

fn quoted(chars: &[char], at: usize) -> Piece {
    let mut here = at + 1;
    while here < chars.len() && chars[here] != '"' {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    let closed = here < chars.len();
    Piece { kind: Kind::Text, end: (here + 1).min(chars.len()), quotes: (1, usize::from(closed)) }
}

/// A raw string, if one starts at this `r`.
fn raw(chars: &[char], at: usize) -> Option<Piece> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = hashes + 2;
    if chars.get(at + open - 1) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &chars[at + open..];
    let length = body.windows(closing.len()).position(|window| window == closing)?;
    let end = at + open + length + closing.len();
    Some(Piece { kind: Kind::Text, end, quotes: (open, closing.len()) })
}

/// Whether the `r` here begins a word; the `b` or `c` of `br""` and `cr""` may come before it.
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
