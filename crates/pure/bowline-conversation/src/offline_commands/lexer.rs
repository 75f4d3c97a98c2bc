//! Lexer for the plain commands: quotes, paths, numbers and fences.

use crate::text_tool_calls::CodeFence;

/// The text, or `None` if it could not be parsed.
pub(super) type ParsedText = Option<String>;

/// Splits a line into its first word and the rest.
pub(super) fn split_first_word(line: &str) -> (&str, &str) {
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

/// Returns a line without a list marker and without a "please".
pub(super) fn strip_list_marker(line: &str) -> &str {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let numbered = line.get(digits..).and_then(|rest| rest.strip_prefix(['.', ')'])).filter(|_| digits > 0);
    let bulleted = line.strip_prefix(['-', '*', '•', '>']);
    let line = match numbered.or(bulleted) {
        Some(rest) if rest.starts_with(char::is_whitespace) => rest.trim_start(),
        _ => line,
    };
    strip_word(line, "please").filter(|rest| !rest.is_empty()).unwrap_or(line)
}

/// Returns the text after a word, if it begins with that word.
pub(super) fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let text = text.trim_start();
    let (head, rest) = text.split_at_checked(word.len())?;
    let ends = rest.is_empty() || rest.starts_with([' ', '\t', '"', '\'', '`', ':', ',']);
    (head.eq_ignore_ascii_case(word) && ends).then(|| rest.trim_start_matches([':', ',']).trim_start())
}

/// Splits text at the last occurrence of any of these words.
pub(super) fn split_last_word<'a>(text: &'a str, words: &[&str]) -> Option<(&'a str, &'a str)> {
    let starts = text.char_indices().rev().filter(|(_, c)| c.is_whitespace());
    for (at, space) in starts {
        let rest = &text[at + space.len_utf8()..];
        if let Some(found) = words.iter().find_map(|word| strip_word(rest, word)) {
            return Some((&text[..at], found));
        }
        // A line range is shorter than this; searching a long line at every blank would be quadratic.
        if rest.len() > 64 {
            return None;
        }
    }
    None
}

/// Parses `10-20`, `10 to 20`, `10..20` or `10`.
pub(super) fn parse_line_range(text: &str) -> Option<(u32, u32)> {
    let text = text.trim().trim_end_matches('.').trim_end();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (first, rest) = text.split_at(digits);
    let first = parse_line_number(first)?.max(1);
    let rest = rest.trim();
    if rest.is_empty() {
        return Some((first, first));
    }
    let last = ["-", "–", "..", "to "].iter().find_map(|between| rest.strip_prefix(between))?;
    Some((first, parse_line_number(last.trim_start_matches(['=', ' ']))?))
}

/// Parses a line number, saturating: no file has that many lines.
fn parse_line_number(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u32::MAX))
}

/// Parses a number and returns it with the remaining text.
pub(super) fn parse_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((number.trim_end_matches('.').parse().ok()?, rest))
}

/// Parses a path: verbatim in quotes or backticks, otherwise without surrounding blanks and full stops. `@PATH`
/// mentions it.
pub(super) fn parse_path(text: &str) -> ParsedText {
    let text = text.trim();
    let text = text.strip_prefix('@').filter(|path| !path.is_empty()).unwrap_or(text);
    if let Some((inside, rest)) = parse_quoted(text)
        && rest.trim().trim_end_matches('.').is_empty()
    {
        return Some(inside).filter(|path| !path.is_empty());
    }
    let stop = text.strip_suffix('.').filter(|path| !path.is_empty() && !path.ends_with(['.', '/', '\\']));
    let path = stop.unwrap_or(text);
    (!path.is_empty()).then(|| path.to_owned())
}

/// Returns whether a line is only a file mention, optionally with a line range.
pub(super) fn is_mention(line: &str) -> bool {
    let line = split_last_word(line, &["lines", "line"]).map_or(line, |(before, _)| before).trim();
    let Some(path) = line.strip_prefix('@') else { return false };
    match parse_quoted(path) {
        Some((_, rest)) => rest.trim().is_empty(),
        None => !path.is_empty() && !path.contains(char::is_whitespace),
    }
}

/// Splits `PATH: TEXT` at its colon.
pub(super) fn split_path(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if let Some((_, rest)) = parse_quoted(text) {
        let name = &text[..text.len() - rest.len()];
        return Some((name, strip_blank(rest.trim_start().strip_prefix(':')?)));
    }
    let colons = text.match_indices(':').map(|(at, _)| at);
    let followed_by_blank = |at: &usize| text[at + 1..].is_empty() || text[at + 1..].starts_with([' ', '\t']);
    // In `C:\a: text` the colon of the drive does not count. Only the first few colons are examined.
    let at = colons.clone().take(64).find(followed_by_blank).or_else(|| colons.clone().find(|at| *at > 1))?;
    Some((&text[..at], strip_blank(&text[at + 1..])))
}

fn strip_blank(text: &str) -> &str {
    text.strip_prefix(' ').unwrap_or(text)
}

/// Parses quoted text and returns it with the remaining text. Backticks and typographic quotes count; `\` escapes
/// everywhere except in backticks.
pub(super) fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let open = text.chars().next()?;
    let close = match open {
        '"' | '\'' | '`' => open,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    let body = &text[open.len_utf8()..];
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' && close != '`' {
            escaped = true;
        } else if c == close {
            let inside = &body[..at];
            let inside = if close == '`' { inside.to_owned() } else { unescape(inside) };
            return Some((inside, &body[at + c.len_utf8()..]));
        }
    }
    None
}

/// Returns the text between single backticks, if they enclose the whole input.
pub(super) fn strip_backticks(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('`')?.strip_suffix('`')?;
    (!inside.contains('`')).then_some(inside)
}

/// Resolves `\n`, `\t`, `\r`, `\\` and escaped quotes; any other `\` stays.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('\\' | '"' | '\'')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

/// Parses the opening line of a fenced block.
pub(super) fn parse_fence(line: &str) -> Option<CodeFence> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    // The language follows; another backtick would make it inline code.
    (length >= 3 && !line[length..].contains(mark)).then_some(CodeFence { mark, length })
}
