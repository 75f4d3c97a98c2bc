//! Adding to and removing from JSON with comments, as people write it by hand: the rest stays as it is, to the byte.
//!
//! Comments, trailing commas, odd spacing and a byte order mark are understood. What was read is never written anew:
//! an addition is text put between what is there, a removal cuts one member out. What cannot be understood is refused.

use std::ops::Range;

use serde_json::Value;

/// A longer text is no configuration that a person wrote, in bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// Nothing lies deeper.
const MAX_DEPTH: usize = 100;

/// What adding or removing a value came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Edited {
    /// The text is as it should be already.
    Same,
    /// The new text.
    Text(String),
}

/// Why the text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// It is too long.
    #[error("it has more than {} MiB", MAX_BYTES >> 20)]
    TooLong,
    /// It is not JSON, even with comments.
    #[error("line {line}, column {column}: {why}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// What should hold the value is something else than an object.
    #[error("{0} is no JSON object")]
    NoObject(String),
    /// A name on the way is there more than once.
    #[error("\"{0}\" is there more than once")]
    Twice(String),
    /// Something else is there under that name.
    #[error("\"{0}\" is there already, and says something else: remove it, or choose another --agent-name")]
    Differs(String),
}

/// Adds `value` under `name` to the object that the text has under `group`, making that too if there is none.
pub(super) fn add(text: &str, group: &str, name: &str, value: &Value) -> Result<Edited, Refused> {
    let root = match Parser::new(text)?.document()? {
        Some(Node::Object(root)) => root,
        Some(_) => return Err(Refused::NoObject("it".to_owned())),
        None => return Ok(Edited::Text(begun(text, group, name, value))),
    };
    let style = Style::of(text, &root);
    let pieces = match root.get(group)? {
        None => {
            let mut inner = serde_json::Map::new();
            inner.insert(name.to_owned(), value.clone());
            style.member(text, &root, group, &Value::Object(inner))
        }
        Some(Node::Object(servers)) => match servers.get(name)? {
            Some(found) if found.value() == *value => return Ok(Edited::Same),
            Some(_) => return Err(Refused::Differs(name.to_owned())),
            None => style.member(text, servers, name, value),
        },
        Some(_) => return Err(Refused::NoObject(format!("\"{group}\""))),
    };
    Ok(Edited::Text(with(text, &pieces)))
}

/// Removes what is under `name` in the object that the text has under `group`.
pub(super) fn remove(text: &str, group: &str, name: &str) -> Result<Edited, Refused> {
    let root = match Parser::new(text)?.document()? {
        Some(Node::Object(root)) => root,
        Some(_) => return Err(Refused::NoObject("it".to_owned())),
        None => return Ok(Edited::Same),
    };
    let servers = match root.get(group)? {
        None => return Ok(Edited::Same),
        Some(Node::Object(servers)) => servers,
        Some(_) => return Err(Refused::NoObject(format!("\"{group}\""))),
    };
    if servers.get(name)?.is_none() {
        return Ok(Edited::Same);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for cut in servers.cuts(text, name) {
        out.push_str(&text[done..cut.start]);
        done = cut.end;
    }
    out.push_str(&text[done..]);
    Ok(Edited::Text(out))
}

/// Returns what a text says, if it can be understood.
pub(super) fn read(text: &str) -> Option<Value> {
    Parser::new(text).ok()?.document().ok()?.map(|node| node.value())
}

/// Returns a value as people write it: members on lines of their own, lists on one.
pub(super) fn pretty(value: &Value) -> String {
    Style { unit: "  ".to_owned(), newline: "\n" }.pretty(value, "")
}

/// A piece of text, and before which byte it belongs.
type Piece = (usize, String);

/// Returns the text with the pieces in it, which are in order.
fn with(text: &str, pieces: &[Piece]) -> String {
    let mut out =
        String::with_capacity(text.len() + pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>());
    let mut done = 0;
    for (at, piece) in pieces {
        out.push_str(&text[done..*at]);
        out.push_str(piece);
        done = *at;
    }
    out.push_str(&text[done..]);
    out
}

/// Returns a text that had nothing but blanks and comments, with a value after them.
fn begun(text: &str, group: &str, name: &str, value: &Value) -> String {
    let style = Style { unit: "  ".to_owned(), newline: newline(text) };
    let whole = serde_json::json!({ group: { name: value } });
    let bare = text.is_empty() || text == BOM || text.ends_with('\n');
    let between = if bare { "" } else { style.newline };
    format!("{text}{between}{}{}", style.pretty(&whole, ""), style.newline)
}

const BOM: &str = "\u{feff}";

fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// How a text is laid out.
struct Style {
    // What one level is indented by.
    unit: String,
    newline: &'static str,
}

impl Style {
    fn of(text: &str, root: &Object) -> Self {
        let first = root.members.first().and_then(|member| indent_at(text, member.start));
        let unit = first.filter(|indent| !indent.is_empty()).unwrap_or("  ").to_owned();
        Self { unit, newline: newline(text) }
    }

    /// Returns what has to be put where, so that an object has one more member, at its end.
    fn member(&self, text: &str, object: &Object, name: &str, value: &Value) -> Vec<Piece> {
        let outer = line_indent(text, object.open);
        let own = object.members.iter().rev().find_map(|member| indent_at(text, member.start));
        let indent = own.map_or_else(|| format!("{outer}{}", self.unit), str::to_owned);
        let key = Value::from(name);
        let mut member = format!("{}{indent}{key}: {}", self.newline, self.pretty(value, &indent));
        if !text[object.last..object.close].contains('\n') {
            member += &format!("{}{outer}", self.newline);
        }
        let mut pieces = Vec::new();
        if let Some(last) = object.members.last()
            && !object.trailing_comma
        {
            pieces.push((last.end, ",".to_owned()));
        }
        pieces.push((object.last, member));
        pieces
    }

    fn pretty(&self, value: &Value, indent: &str) -> String {
        match value {
            Value::Object(members) if !members.is_empty() => {
                let inner = format!("{indent}{}", self.unit);
                let lines: Vec<String> = members
                    .iter()
                    .map(|(name, value)| {
                        format!("{inner}{}: {}", Value::from(name.as_str()), self.pretty(value, &inner))
                    })
                    .collect();
                let newline = self.newline;
                format!("{{{newline}{}{newline}{indent}}}", lines.join(&format!(",{newline}")))
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.pretty(item, indent)).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_string(),
        }
    }
}

/// Returns the blanks before a place, if there is nothing else before it on its line.
fn indent_at(text: &str, at: usize) -> Option<&str> {
    let line = &text[text[..at].rfind('\n')? + 1..at];
    line.chars().all(|c| c == ' ' || c == '\t').then_some(line)
}

/// Returns the blanks that the line of a place begins with.
fn line_indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// A value, and where the objects on the way to it are.
enum Node {
    Scalar(Value),
    Array(Vec<Node>),
    Object(Object),
}

struct Object {
    // Where its braces are.
    open: usize,
    close: usize,
    // The end of the last comment, comma or value in it; of the opening brace if there is none.
    last: usize,
    trailing_comma: bool,
    members: Vec<Member>,
}

struct Member {
    name: String,
    // From the start of its name to the end of its value.
    start: usize,
    end: usize,
    // Where the comma after it is, if there is one.
    comma: Option<usize>,
    value: Node,
}

impl Object {
    /// Returns the member of a name. Which one counts if there are two is for every reader to say, so none is taken.
    fn get(&self, name: &str) -> Result<Option<&Node>, Refused> {
        let mut found = self.members.iter().filter(|member| member.name == name);
        match (found.next(), found.next()) {
            (one, None) => Ok(one.map(|member| &member.value)),
            (_, Some(_)) => Err(Refused::Twice(name.to_owned())),
        }
    }
}

impl Object {
    /// Returns what to cut out of the text so that a member is gone: all of its lines if nothing else is on them, and the
    /// comma that would be one too many.
    fn cuts(&self, text: &str, name: &str) -> Vec<Range<usize>> {
        let Some(at) = self.members.iter().position(|member| member.name == name) else {
            return Vec::new();
        };
        let member = &self.members[at];
        // A comment between the two stays.
        let (end, comma) = match member.comma {
            Some(comma) if text[member.end..comma].trim().is_empty() => (comma + 1, None),
            other => (member.end, other),
        };
        let rest = &text[end..];
        let line = rest.find('\n').map_or(rest, |newline| &rest[..=newline]);
        let own = match indent_at(text, member.start) {
            Some(indent) if line.ends_with('\n') && line.trim().is_empty() => {
                member.start - indent.len()..end + line.len()
            }
            // Something else is on its lines.
            _ => member.start..end,
        };
        let previous = at.checked_sub(1).and_then(|before| self.members[before].comma);
        let previous = previous.filter(|_| member.comma.is_none());
        let one = |comma: usize| comma..comma + 1;
        previous.map(one).into_iter().chain([own]).chain(comma.map(one)).collect()
    }
}

impl Node {
    fn value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Array(items) => items.iter().map(Node::value).collect(),
            Self::Object(object) => {
                let member = |member: &Member| (member.name.clone(), member.value.value());
                Value::Object(object.members.iter().map(member).collect())
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    // The end of the last comment that was skipped, if any was since it was asked for.
    comment: Option<usize>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, Refused> {
        if text.len() > MAX_BYTES {
            return Err(Refused::TooLong);
        }
        Ok(Self { text, at: if text.starts_with(BOM) { BOM.len() } else { 0 }, comment: None })
    }

    /// Reads all of the text; there may be no value in it.
    fn document(mut self) -> Result<Option<Node>, Refused> {
        self.blanks()?;
        if self.rest().is_empty() {
            return Ok(None);
        }
        let value = self.value(0)?;
        self.blanks()?;
        if self.rest().is_empty() {
            Ok(Some(value))
        } else {
            Err(self.wrong("something follows the end of it"))
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, why: &'static str) -> Refused {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before[before.rfind('\n').map_or(0, |end| end + 1)..].chars().count() + 1;
        Refused::NotJson { line, column, why }
    }

    /// Goes past blanks and comments.
    fn blanks(&mut self) -> Result<(), Refused> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = self.rest();
            if rest.starts_with("//") {
                let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
                let line = line.strip_suffix('\r').unwrap_or(line);
                // Some end a comment there, others do not.
                if line.contains('\r') {
                    return Err(self.wrong("a comment holds a carriage return"));
                }
                self.at += line.len();
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or_else(|| self.wrong("a comment has no end"))?;
                self.at += "/*".len() + end + "*/".len();
            } else {
                return Ok(());
            }
            self.comment = Some(self.at);
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest().as_bytes().first() == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node, Refused> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("it lies too deep"));
        }
        match self.rest().as_bytes().first() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Node::Scalar(Value::String(self.string()?))),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, Refused> {
        let open = self.at;
        self.at += 1;
        let mut object =
            Object { open, close: self.at, last: self.at, trailing_comma: false, members: Vec::new() };
        loop {
            self.comment = None;
            self.blanks()?;
            object.last = self.comment.unwrap_or(object.last);
            if self.take(b'}') {
                object.close = self.at - 1;
                return Ok(Node::Object(object));
            }
            if !object.members.is_empty() && !object.trailing_comma {
                return Err(self.wrong("a comma or the end of an object is missing"));
            }
            let start = self.at;
            if !self.rest().starts_with('"') {
                return Err(self.wrong("a name in double quotes is missing"));
            }
            let name = self.string()?;
            self.blanks()?;
            if !self.take(b':') {
                return Err(self.wrong("a colon is missing"));
            }
            self.blanks()?;
            let value = self.value(depth + 1)?;
            let end = self.at;
            self.comment = None;
            self.blanks()?;
            object.trailing_comma = self.take(b',');
            let comma = object.trailing_comma.then(|| self.at - 1);
            object.members.push(Member { name, start, end, comma, value });
            object.last = if object.trailing_comma { self.at } else { self.comment.unwrap_or(end) };
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node, Refused> {
        self.at += 1;
        let mut items = Vec::new();
        let mut comma = true;
        loop {
            self.blanks()?;
            if self.take(b']') {
                return Ok(Node::Array(items));
            }
            if !comma {
                return Err(self.wrong("a comma or the end of a list is missing"));
            }
            items.push(self.value(depth + 1)?);
            self.blanks()?;
            comma = self.take(b',');
        }
    }

    fn string(&mut self) -> Result<String, Refused> {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(self.wrong("a text has no end")),
            }
        }
        let quoted = self.rest().get(..=end).ok_or_else(|| self.wrong("a text is broken"))?;
        let string =
            serde_json::from_str(quoted).map_err(|_| self.wrong("a text is not one that JSON allows"))?;
        self.at += end + 1;
        Ok(string)
    }

    fn word(&mut self) -> Result<Node, Refused> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
        let value = serde_json::from_str(&rest[..end]).map_err(|_| self.wrong("a value is missing"))?;
        self.at += end;
        Ok(Node::Scalar(value))
    }
}

#[cfg(test)]
mod tests;
