//! The targets of a prompt's links: files, lines of files, directories, or other resources.

use bowline_text::lines::LineWindow;

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkTarget {
    /// A file: the first of these that exists. Clients write names in different ways.
    Files(Vec<FileLink>),
    /// A directory.
    Directory(String),
    /// Another resource, which is not read.
    Other(String),
}

/// A file, or some lines of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileLink {
    pub(super) path: String,
    pub(super) lines: Option<LineRange>,
}

/// Lines from the first to the last, both inclusive and numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineRange {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl LineRange {
    pub(super) fn to_window(self) -> LineWindow {
        let limit = self.last.saturating_sub(self.first).saturating_add(1);
        LineWindow { line: Some(self.first), limit: Some(limit) }
    }
}

impl FileLink {
    /// Returns the path, with the lines as editors write them.
    pub(super) fn label(&self) -> String {
        match self.lines {
            None => self.path.clone(),
            Some(LineRange { first, last }) if first == last => format!("{}:{first}", self.path),
            Some(LineRange { first, last }) => format!("{}:{first}-{last}", self.path),
        }
    }
}

/// Parses a link, for a session in `cwd`.
pub(super) fn parse_link(uri: &str, cwd: &str) -> LinkTarget {
    let other = || LinkTarget::Other(uri.to_owned());
    let Some(rest) = strip_scheme(uri) else {
        if has_scheme(uri) || uri.is_empty() || uri.starts_with('~') {
            return other();
        }
        return file_candidates(&to_absolute(uri, cwd), None);
    };
    let Some(path) = local_path(rest) else { return other() };
    let (before, fragment) = match path.split_once('#') {
        Some((before, fragment)) => (before, Some(fragment)),
        None => (path, None),
    };
    let encoded = before.split_once('?').map_or(before, |(path, _)| path);
    match percent_decode(encoded) {
        Some(decoded) => file_candidates(&decoded, Some(UriSuffix { fragment, literal: path })),
        None => other(),
    }
}

/// The parts of a URI after the path.
struct UriSuffix<'a> {
    fragment: Option<&'a str>,
    // The whole suffix, for names in which `#`, `?` or `%` are literal.
    literal: &'a str,
}

fn file_candidates(path: &str, suffix: Option<UriSuffix<'_>>) -> LinkTarget {
    if path.contains('\0') {
        return LinkTarget::Other(path.to_owned());
    }
    let lines = suffix.as_ref().and_then(|suffix| parse_line_range(suffix.fragment?));
    if path.ends_with('/') && lines.is_none() {
        return LinkTarget::Directory(path.to_owned());
    }
    let mut links = vec![FileLink { path: path.to_owned(), lines }];
    let mut add = |path: &str, lines| {
        let link = FileLink { path: path.to_owned(), lines };
        if !links.contains(&link) {
            links.push(link);
        }
    };
    match suffix {
        Some(UriSuffix { literal, .. }) if lines.is_none() => add(literal, None),
        Some(_) => {}
        None => {
            if let Some((path, lines)) =
                path.rsplit_once('#').and_then(|(path, fragment)| Some((path, parse_line_range(fragment)?)))
            {
                add(path, Some(lines));
            }
        }
    }
    if let Some((path, lines)) = parse_colon_range(path).filter(|_| lines.is_none()) {
        add(path, Some(lines));
    }
    LinkTarget::Files(links)
}

fn strip_scheme(uri: &str) -> Option<&str> {
    let scheme = uri.get(..5)?;
    scheme.eq_ignore_ascii_case("file:").then(|| &uri[5..])
}

fn has_scheme(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-'));
    // `Makefile:10` is a file with a line, not a scheme.
    is_scheme && parse_line_range(rest).is_none()
}

/// Returns the path after `file:`, if it is on this machine.
fn local_path(rest: &str) -> Option<&str> {
    let Some(after) = rest.strip_prefix("//") else {
        return rest.starts_with('/').then_some(rest);
    };
    let path = after.find('/')?;
    let host = &after[..path];
    (host.is_empty() || host.eq_ignore_ascii_case("localhost")).then(|| &after[path..])
}

/// Returns an absolute path, resolved against `cwd`.
pub(super) fn to_absolute(path: &str, cwd: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    format!("{}/{path}", cwd.trim_end_matches('/'))
}

/// Decodes `%20` and the like. Invalid escapes stay; `None` if the result is not text.
fn percent_decode(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let digit = |index: usize| bytes.get(index).and_then(|byte| (*byte as char).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        match (bytes[index], digit(index + 1), digit(index + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two hexadecimal digits are at most 255.
                out.push((high * 16 + low) as u8);
                index += 3;
            }
            (byte, ..) => {
                out.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// Parses `L10`, `L10-20`, `L10-L20`, `L10:20`, `10,20`, `L3C1-L5C9`.
fn parse_line_range(text: &str) -> Option<LineRange> {
    let (first, rest) = parse_line_number(text)?;
    let last = match rest.strip_prefix(['-', ':', ',']) {
        Some(rest) => match parse_line_number(rest)? {
            (last, "") => last,
            _ => return None,
        },
        None if rest.is_empty() => first,
        None => return None,
    };
    Some(LineRange { first, last: last.max(first) })
}

fn parse_line_number(text: &str) -> Option<(u32, &str)> {
    let text = text.strip_prefix(['L', 'l']).unwrap_or(text);
    let (line, rest) = parse_number(text)?;
    // The column is ignored.
    let rest = rest.strip_prefix(['C', 'c']).and_then(parse_number).map_or(rest, |(_, rest)| rest);
    Some((line.max(1), rest))
}

fn parse_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// Parses `a.rs:10`, `a.rs:10-20` and `a.rs:10:4`, where 4 is a column.
fn parse_colon_range(path: &str) -> Option<(&str, LineRange)> {
    let (before, last) = path.rsplit_once(':')?;
    if let Some((file, line)) = before.rsplit_once(':')
        && let (Ok(line), Ok(_)) = (line.parse::<u32>(), last.parse::<u32>())
    {
        return Some((file, LineRange { first: line.max(1), last: line.max(1) }));
    }
    let numbers = last.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    Some((before, parse_line_range(last).filter(|_| numbers)?))
}

#[cfg(test)]
mod tests;
