//! What a link of a prompt names: a file, some of its lines, a directory, or something that is not read.

use bowline_state::lines::Window;

/// What a link names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A file: the first of these that exists. Clients do not agree on how names are written.
    Files(Vec<FileLink>),
    /// A directory.
    Directory(String),
    /// Something that is not read.
    Other(String),
}

/// A file, or some lines of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileLink {
    pub(super) path: String,
    pub(super) lines: Option<Lines>,
}

/// Lines from the first to the last, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Lines {
    pub(super) fn window(self) -> Window {
        let limit = self.last.saturating_sub(self.first).saturating_add(1);
        Window { line: Some(self.first), limit: Some(limit) }
    }
}

impl FileLink {
    /// Returns the path, and the lines as editors write them.
    pub(super) fn label(&self) -> String {
        match self.lines {
            None => self.path.clone(),
            Some(Lines { first, last }) if first == last => format!("{}:{first}", self.path),
            Some(Lines { first, last }) => format!("{}:{first}-{last}", self.path),
        }
    }
}

/// Returns what a link names, for a session in `cwd`.
pub(super) fn target(uri: &str, cwd: &str) -> Target {
    let other = || Target::Other(uri.to_owned());
    let Some(rest) = strip_scheme(uri) else {
        if has_scheme(uri) || uri.is_empty() || uri.starts_with('~') {
            return other();
        }
        return files(&absolute(uri, cwd), None);
    };
    let Some(path) = local(rest) else { return other() };
    let (before, fragment) = match path.split_once('#') {
        Some((before, fragment)) => (before, Some(fragment)),
        None => (path, None),
    };
    let named = before.split_once('?').map_or(before, |(path, _)| path);
    match decoded(named) {
        Some(named) => files(&named, Some(Rest { fragment, literal: path })),
        None => other(),
    }
}

/// What a URI has beside the path.
struct Rest<'a> {
    fragment: Option<&'a str>,
    // All of it, for names in which `#`, `?` or `%` stand for themselves.
    literal: &'a str,
}

fn files(path: &str, rest: Option<Rest<'_>>) -> Target {
    if path.contains('\0') {
        return Target::Other(path.to_owned());
    }
    let lines = rest.as_ref().and_then(|rest| range(rest.fragment?));
    if path.ends_with('/') && lines.is_none() {
        return Target::Directory(path.to_owned());
    }
    let mut found = vec![FileLink { path: path.to_owned(), lines }];
    let mut add = |path: &str, lines| {
        let link = FileLink { path: path.to_owned(), lines };
        if !found.contains(&link) {
            found.push(link);
        }
    };
    match rest {
        Some(Rest { literal, .. }) if lines.is_none() => add(literal, None),
        Some(_) => {}
        None => {
            if let Some((path, lines)) =
                path.rsplit_once('#').and_then(|(path, rest)| Some((path, range(rest)?)))
            {
                add(path, Some(lines));
            }
        }
    }
    if let Some((path, lines)) = after_colon(path).filter(|_| lines.is_none()) {
        add(path, Some(lines));
    }
    Target::Files(found)
}

fn strip_scheme(uri: &str) -> Option<&str> {
    let scheme = uri.get(..5)?;
    scheme.eq_ignore_ascii_case("file:").then(|| &uri[5..])
}

fn has_scheme(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-'));
    // `Makefile:10` is a file.
    is_scheme && range(rest).is_none()
}

/// Returns the path in what follows `file:`, if it is on this machine.
fn local(rest: &str) -> Option<&str> {
    let Some(after) = rest.strip_prefix("//") else {
        return rest.starts_with('/').then_some(rest);
    };
    let path = after.find('/')?;
    let host = &after[..path];
    (host.is_empty() || host.eq_ignore_ascii_case("localhost")).then(|| &after[path..])
}

/// Returns a path from the root on, as it is named from `cwd`.
pub(super) fn absolute(path: &str, cwd: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    format!("{}/{path}", cwd.trim_end_matches('/'))
}

/// Returns the path with `%20` and the like decoded. What only looks like it stays; what gives no text is nothing.
fn decoded(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two digits are at most 255.
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// Reads `L10`, `L10-20`, `L10-L20`, `L10:20`, `10,20`, `L3C1-L5C9`.
fn range(text: &str) -> Option<Lines> {
    let (first, rest) = line(text)?;
    let last = match rest.strip_prefix(['-', ':', ',']) {
        Some(rest) => match line(rest)? {
            (last, "") => last,
            _ => return None,
        },
        None if rest.is_empty() => first,
        None => return None,
    };
    Some(Lines { first, last: last.max(first) })
}

fn line(text: &str) -> Option<(u32, &str)> {
    let text = text.strip_prefix(['L', 'l']).unwrap_or(text);
    let (line, rest) = number(text)?;
    // The column says nothing here.
    let rest = rest.strip_prefix(['C', 'c']).and_then(number).map_or(rest, |(_, rest)| rest);
    Some((line.max(1), rest))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// Reads `a.rs:10`, `a.rs:10-20` and `a.rs:10:4`, where 4 is a column.
fn after_colon(path: &str) -> Option<(&str, Lines)> {
    let (before, last) = path.rsplit_once(':')?;
    if let Some((file, line)) = before.rsplit_once(':')
        && let (Ok(line), Ok(_)) = (line.parse::<u32>(), last.parse::<u32>())
    {
        return Some((file, Lines { first: line.max(1), last: line.max(1) }));
    }
    let numbers = last.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    Some((before, range(last).filter(|_| numbers)?))
}

#[cfg(test)]
mod tests;
