//! Secrets in text that goes into logs.
//!
//! What looks like a secret is replaced, by its own shape or by the name before it. A name takes only the one value that
//! goes with it, so that an agent cannot hide a command behind a word. What has neither shape nor name is not found: a
//! log of text that others wrote stays private, redacted or not.

mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// So often a text is looked at again after something in it was replaced.
const MAX_PASSES: usize = 8;

/// Returns `text` with its secrets replaced by [`REDACTED`].
///
/// Doing so again changes nothing: where a secret stood in the way of another, the text is looked at once more. Only
/// text that is made of secrets within names within secrets needs more than eight looks, and gets no more.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for _ in 0..MAX_PASSES {
        match pass(&clean) {
            Some(cleaner) => clean = cleaner.into(),
            None => break,
        }
    }
    clean
}

/// Replaces what is seen at one look; none if there is nothing to replace.
fn pass(text: &str) -> Option<String> {
    let spans = Scan { text, bytes: text.as_bytes(), spans: Vec::new() }.run();
    if spans.iter().all(|span| &text[span.clone()] == REDACTED) {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut at = 0;
    for span in spans {
        clean.push_str(&text[at..span.start]);
        clean.push_str(REDACTED);
        at = span.end;
    }
    clean.push_str(&text[at..]);
    Some(clean)
}

/// Says whether a variable, a field or an option of this name holds a secret, as far as names tell.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    if name.len() > MAX_NAME {
        return false;
    }
    let mut secret = false;
    let mut public = false;
    for part in parts(name) {
        let part = part.to_ascii_lowercase();
        public |= part == "public" || part == "pub";
        secret |= SECRET_PARTS.contains(&part.as_str())
            || SECRET_ENDS.iter().any(|end| part.ends_with(end) && !part.ends_with("monkey"));
    }
    secret && !public
}

/// Longer names are not looked at.
const MAX_NAME: usize = 128;
/// Parts of names that tell of a secret. `PWD` is none: every shell has one, and it is a directory.
const SECRET_PARTS: &[&str] = &[
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "cred",
    "credential",
    "credentials",
    "creds",
    "dsn",
    "jwt",
    "key",
    "keys",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pw",
    "secret",
    "secrets",
    "token",
    "tokens",
];
/// Ends of such parts, for names that are written in one.
const SECRET_ENDS: &[&str] = &[
    "apikey",
    "accesskey",
    "authtoken",
    "accesstoken",
    "privatekey",
    "secretkey",
    "passwd",
    "password",
    "secret",
];
/// Words before a credential in a header.
const SCHEMES: &[&str] = &["bearer", "basic", "digest", "token", "negotiate", "apikey"];
/// Blanks that may stand between a name, what assigns, and a value.
const MAX_BLANKS: usize = 8;

/// Returns the words that a name is made of: `apiKey`, `API_KEY` and `api-key` have the same two.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', '-', '.', ' ']).flat_map(|piece| {
        let bytes = piece.as_bytes();
        let mut starts: Vec<usize> = (1..bytes.len())
            .filter(|&at| bytes[at - 1].is_ascii_lowercase() && bytes[at].is_ascii_uppercase())
            .collect();
        starts.insert(0, 0);
        let ends: Vec<usize> = starts.iter().skip(1).copied().chain([piece.len()]).collect();
        starts.into_iter().zip(ends).map(move |(start, end)| &piece[start..end])
    })
}

/// One pass over a text from left to right.
struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    // Invariant: in order, apart, at boundaries of characters.
    spans: Vec<Range<usize>>,
}

impl Scan<'_> {
    fn run(mut self) -> Vec<Range<usize>> {
        let mut at = 0;
        let mut program = Program::Other;
        while at < self.bytes.len() {
            let byte = self.bytes[at];
            if byte == b'-' && self.text[at..].starts_with(shapes::PEM_BEGIN) {
                at = self.pem(at);
            } else if byte == b':' && self.text[at..].starts_with("://") {
                at = self.authority(at + 3);
            } else if is_name(byte) {
                let end = self.end_of(at, is_name);
                let word = &self.text[at..end];
                if let Some(found) = Program::of(word) {
                    program = found;
                }
                at = self.word(at, end, program);
            } else {
                if matches!(byte, b'\n' | b';' | b'|' | b'&') {
                    program = Program::Other;
                }
                at += 1;
            }
        }
        self.spans
    }

    /// Looks at a run of letters, digits, `_`, `-` and `.`, and returns where to go on.
    fn word(&mut self, start: usize, end: usize, program: Program) -> usize {
        let word = &self.text[start..end];
        if let Some(length) = shapes::token(word) {
            return self.secret(start, start + length);
        }
        if let Some(value) = program.password(word, self.bytes.get(end).copied()) {
            return match value {
                Password::Attached(from) => self.secret(start + from, self.end_of(start + from, is_value)),
                Password::Next => self.value(self.blanks(end)),
                Password::AfterColon => self.after_colon(self.blanks(end)),
            };
        }
        if SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
            let from = self.blanks(end);
            let to = self.end_of(from, is_value);
            if from > end && shapes::is_credential(&self.text[from..to]) {
                return self.secret(from, to);
            }
        }
        let name = word.trim_start_matches('-');
        if !is_secret_name(name) {
            return end;
        }
        if let Some(from) = self.assigned(end) {
            return self.assigned_value(name, from);
        }
        let from = self.blanks(end);
        let is_option = word.len() > name.len() && from > end && self.bytes.get(from) != Some(&b'-');
        if is_option { self.value(from) } else { end }
    }

    /// Returns where the value begins if a name that ends here is given one.
    fn assigned(&self, name_end: usize) -> Option<usize> {
        // The name may be quoted, and the quotes escaped.
        let quoted = self.end_of(name_end, |byte| matches!(byte, b'\\' | b'"' | b'\'')).min(name_end + 4);
        let sign = self.blanks(quoted);
        match self.bytes.get(sign)? {
            b'=' => {
                let at = if self.bytes.get(sign + 1) == Some(&b'>') { sign + 2 } else { sign + 1 };
                let from = self.blanks(at);
                // In a shell, `NAME= command` gives nothing and runs the command, which must be seen.
                (from == at || sign > quoted).then_some(from)
            }
            b':' if !self.text[sign..].starts_with("://") => Some(self.blanks(sign + 1)),
            _ => None,
        }
    }

    /// Redacts the value that is given to a name, with what goes on in the headers that have several parts.
    fn assigned_value(&mut self, name: &str, from: usize) -> usize {
        let name = name.to_ascii_lowercase();
        if name.ends_with("cookie") || name.ends_with("cookies") {
            let mut at = self.value(from);
            // Only pairs go on: a command after a `;` is no cookie.
            while self.bytes.get(at) == Some(&b';') {
                let next = self.blanks(at + 1);
                let sign = self.end_of(next, is_name);
                if sign == next || self.bytes.get(sign) != Some(&b'=') {
                    break;
                }
                at = self.value(sign + 1).max(sign + 1);
            }
            return at;
        }
        let (open, inner) = self.quotes(from);
        let word_end = self.end_of(inner, |byte| byte.is_ascii_alphabetic());
        let word = &self.text[inner..word_end];
        let after = self.blanks(word_end);
        if after > word_end && SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
            return match open {
                Some(quote) => self.until_quote(after, quote),
                None => self.value(after),
            };
        }
        self.value(from)
    }

    /// Redacts the value that begins here: what is in quotes, or a word.
    fn value(&mut self, from: usize) -> usize {
        match self.quotes(from) {
            (Some(quote), inner) => self.until_quote(inner, quote),
            (None, _) => self.secret(from, self.end_of(from, is_value)),
        }
    }

    /// Returns the quote that opens here, and where what it quotes begins.
    fn quotes(&self, from: usize) -> (Option<u8>, usize) {
        let at = self.end_of(from, |byte| byte == b'\\').min(from + 3);
        match self.bytes.get(at) {
            Some(&quote @ (b'"' | b'\'')) => (Some(quote), at + 1),
            _ => (None, from),
        }
    }

    /// Redacts up to the quote that closes, or to the end of the line.
    fn until_quote(&mut self, from: usize, quote: u8) -> usize {
        let mut at = from;
        while let Some(&byte) = self.bytes.get(at) {
            if byte == quote || byte == b'\n' {
                break;
            }
            // From here on the value is what a command puts out. The command is no secret, and must be seen.
            if quote == b'"' && (byte == b'`' || self.bytes[at..].starts_with(b"$(")) {
                break;
            }
            // An escaped quote goes on, unless what it closes was opened by one.
            let escapes = byte == b'\\' && quote == b'"' && self.bytes.get(at + 1) == Some(&b'"');
            if escapes && self.bytes.get(from.wrapping_sub(2)) == Some(&b'\\') {
                break;
            }
            at += if escapes { 2 } else { 1 };
        }
        self.secret(from, at)
    }

    /// Redacts what stands after the first colon of a word, as in `user:password`.
    fn after_colon(&mut self, from: usize) -> usize {
        let (open, inner) = self.quotes(from);
        let name = self.end_of(inner, |byte| is_value(byte) && byte != b':');
        match (self.bytes.get(name), open) {
            (Some(b':'), Some(quote)) => self.until_quote(name + 1, quote),
            (Some(b':'), None) => self.secret(name + 1, self.end_of(name + 1, is_value)),
            _ => from,
        }
    }

    /// Redacts the password, or a long name alone, before the host of an address.
    fn authority(&mut self, from: usize) -> usize {
        let end = self.end_of(from, |byte| is_value(byte) && !matches!(byte, b'/' | b'?' | b'#'));
        let Some(at) = self.text[from..end].rfind('@').map(|at| from + at) else { return from };
        match self.text[from..at].find(':') {
            Some(colon) => self.secret(from + colon + 1, at),
            None if at - from >= shapes::LONG_USER => self.secret(from, at),
            None => at,
        }
    }

    /// Redacts a private key as a whole; one with no end goes as far as it looks like one.
    fn pem(&mut self, start: usize) -> usize {
        let label =
            self.end_of(start + shapes::PEM_BEGIN.len(), |byte| byte.is_ascii_uppercase() || byte == b' ');
        if !self.text[start..label].ends_with("PRIVATE KEY") {
            return label.max(start + 1);
        }
        let mut end = label;
        for line in self.text[label..].split_inclusive('\n') {
            if let Some(at) = memmem::find(line.as_bytes(), b"PRIVATE KEY-----") {
                end += at + 16;
                break;
            }
            // A line with anything else than a key or its headers may be a command, which must be seen.
            let is_command = |byte| matches!(byte, b';' | b'|' | b'&' | b'$' | b'`' | b'(' | b'<' | b'>');
            if line.bytes().any(is_command) || (line.trim().contains(' ') && !line.contains(": ")) {
                break;
            }
            end += line.len();
        }
        self.secret(start, end)
    }

    fn secret(&mut self, from: usize, to: usize) -> usize {
        // What stands after a mark was no part of the secret when that was replaced.
        let to = if self.text[from..to].starts_with(REDACTED) { from + REDACTED.len() } else { to };
        if from < to {
            self.spans.push(from..to);
        }
        to
    }

    fn end_of(&self, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
        self.bytes[from..].iter().position(|&byte| !belongs(byte)).map_or(self.bytes.len(), |at| from + at)
    }

    fn blanks(&self, from: usize) -> usize {
        self.end_of(from, |byte| byte == b' ' || byte == b'\t').min(from + MAX_BLANKS)
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Says whether a value that is not quoted goes on with this byte.
fn is_value(byte: u8) -> bool {
    !byte.is_ascii_whitespace()
        && !matches!(
            byte,
            b'"' | b'\'' | b'`' | b'\\' | b',' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' | b'{' | b'}'
        )
}

/// Programs whose short options take a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Curl,
    Mysql,
    Sshpass,
    Other,
}

enum Password {
    Attached(usize),
    Next,
    AfterColon,
}

impl Program {
    fn of(word: &str) -> Option<Self> {
        match word {
            "curl" | "wget" | "http" | "https" => Some(Self::Curl),
            "mysql" | "mysqldump" | "mysqladmin" | "mariadb" => Some(Self::Mysql),
            "sshpass" => Some(Self::Sshpass),
            _ => None,
        }
    }

    fn password(self, word: &str, next: Option<u8>) -> Option<Password> {
        let alone = next.is_some_and(|byte| byte == b' ' || byte == b'\t');
        match self {
            Self::Mysql if word.len() > 2 && word.starts_with("-p") => Some(Password::Attached(2)),
            Self::Sshpass if word == "-p" && alone => Some(Password::Next),
            Self::Sshpass if word.len() > 2 && word.starts_with("-p") => Some(Password::Attached(2)),
            Self::Curl if matches!(word, "-u" | "--user" | "--proxy-user") && alone => {
                Some(Password::AfterColon)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
