//! Redaction of secrets in text that goes into logs.
//!
//! A secret is recognised by its own shape or by the name before it. A name hides only the one value assigned to it,
//! so that an agent cannot hide a command behind a word. A secret with neither shape nor name is not found, so a log
//! of foreign text stays private, redacted or not.

mod token_patterns;

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

/// The replacement for a secret.
pub const REDACTED: &str = "[redacted]";

/// The maximum number of passes over a text.
const MAX_PASSES: usize = 8;

/// Returns `text` with its secrets replaced by [`REDACTED`].
///
/// It is idempotent: where one secret obscured another, the text is scanned again. Only text with secrets nested in
/// names nested in secrets needs more than eight passes, and gets no more.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for _ in 0..MAX_PASSES {
        match redact_once(&clean) {
            Some(cleaner) => clean = cleaner.into(),
            None => break,
        }
    }
    clean
}

/// Performs one pass; returns `None` if there is nothing to replace.
fn redact_once(text: &str) -> Option<String> {
    let spans = SecretScanner { text, bytes: text.as_bytes(), spans: Vec::new() }.find_secrets();
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

/// Returns whether the name of a variable, a field or an option indicates a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    if name.len() > MAX_NAME_BYTES {
        return false;
    }
    let mut secret = false;
    let mut public = false;
    for part in name_parts(name) {
        let part = part.to_ascii_lowercase();
        public |= part == "public" || part == "pub";
        secret |= SECRET_PARTS.contains(&part.as_str())
            || SECRET_SUFFIXES.iter().any(|end| part.ends_with(end) && !part.ends_with("monkey"));
    }
    secret && !public
}

/// The maximum length of a name that is checked, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Parts of names that indicate a secret. `PWD` does not: every shell has it, and it is a directory.
const SECRET_PARTS: &[&str] = &[
    "auth", "authorization", "bearer", "cookie", "cookies", "cred", "credential", "credentials", "creds",
    "dsn", "jwt", "key", "keys", "pass", "passphrase", "passwd", "password", "passwords", "pw", "secret",
    "secrets", "token", "tokens",
];
/// Suffixes of such parts, for names written as one word.
const SECRET_SUFFIXES: &[&str] = &[
    "apikey", "accesskey", "authtoken", "accesstoken", "privatekey", "secretkey", "passwd", "password",
    "secret",
];
/// Words before a credential in a header.
const AUTH_SCHEMES: &[&str] = &["bearer", "basic", "digest", "token", "negotiate", "apikey"];
/// The maximum number of blanks between a name, the assignment and a value.
const MAX_BLANKS: usize = 8;

/// Returns the words of a name: `apiKey`, `API_KEY` and `api-key` have the same two.
fn name_parts(name: &str) -> impl Iterator<Item = &str> {
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
struct SecretScanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    // Invariant: in order, disjoint, at character boundaries.
    spans: Vec<Range<usize>>,
}

impl SecretScanner<'_> {
    fn find_secrets(mut self) -> Vec<Range<usize>> {
        let mut at = 0;
        let mut program = PasswordProgram::Other;
        while at < self.bytes.len() {
            let byte = self.bytes[at];
            if byte == b'-' && self.text[at..].starts_with(token_patterns::PEM_BEGIN) {
                at = self.redact_private_key(at);
            } else if byte == b':' && self.text[at..].starts_with("://") {
                at = self.redact_authority(at + 3);
            } else if is_name_byte(byte) {
                let end = self.end_of(at, is_name_byte);
                let word = &self.text[at..end];
                if let Some(found) = PasswordProgram::from_word(word) {
                    program = found;
                }
                at = self.scan_word(at, end, program);
            } else {
                if matches!(byte, b'\n' | b';' | b'|' | b'&') {
                    program = PasswordProgram::Other;
                }
                at += 1;
            }
        }
        self.spans
    }

    /// Scans a run of letters, digits, `_`, `-` and `.`, and returns where to continue.
    fn scan_word(&mut self, start: usize, end: usize, program: PasswordProgram) -> usize {
        let word = &self.text[start..end];
        if let Some(length) = token_patterns::token_length(word) {
            return self.push_span(start, start + length);
        }
        if let Some(value) = program.password_location(word, self.bytes.get(end).copied()) {
            return match value {
                PasswordLocation::Attached(from) => {
                    self.push_span(start + from, self.end_of(start + from, is_value_byte))
                }
                PasswordLocation::Next => self.redact_value(self.skip_blanks(end)),
                PasswordLocation::AfterColon => self.redact_after_colon(self.skip_blanks(end)),
            };
        }
        if AUTH_SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
            let from = self.skip_blanks(end);
            let to = self.end_of(from, is_value_byte);
            if from > end && token_patterns::is_credential(&self.text[from..to]) {
                return self.push_span(from, to);
            }
        }
        let name = word.trim_start_matches('-');
        if !is_secret_name(name) {
            return end;
        }
        if let Some(from) = self.assigned_value_start(end) {
            return self.redact_assigned_value(name, from);
        }
        let from = self.skip_blanks(end);
        let is_option = word.len() > name.len() && from > end && self.bytes.get(from) != Some(&b'-');
        if is_option { self.redact_value(from) } else { end }
    }

    /// Returns the start of the value, if one is assigned to the name that ends here.
    fn assigned_value_start(&self, name_end: usize) -> Option<usize> {
        // The name may be quoted, and the quotes escaped.
        let quoted = self.end_of(name_end, |byte| matches!(byte, b'\\' | b'"' | b'\'')).min(name_end + 4);
        let sign = self.skip_blanks(quoted);
        match self.bytes.get(sign)? {
            b'=' => {
                let at = if self.bytes.get(sign + 1) == Some(&b'>') { sign + 2 } else { sign + 1 };
                let from = self.skip_blanks(at);
                // In a shell, `NAME= command` assigns an empty value and runs the command, which must stay visible.
                (from == at || sign > quoted).then_some(from)
            }
            b':' if !self.text[sign..].starts_with("://") => Some(self.skip_blanks(sign + 1)),
            _ => None,
        }
    }

    /// Redacts the value assigned to a name, and the further parts of headers that have several.
    fn redact_assigned_value(&mut self, name: &str, from: usize) -> usize {
        let name = name.to_ascii_lowercase();
        if name.ends_with("cookie") || name.ends_with("cookies") {
            let mut at = self.redact_value(from);
            // Only `name=value` pairs continue a cookie: a command after a `;` does not.
            while self.bytes.get(at) == Some(&b';') {
                let next = self.skip_blanks(at + 1);
                let sign = self.end_of(next, is_name_byte);
                if sign == next || self.bytes.get(sign) != Some(&b'=') {
                    break;
                }
                at = self.redact_value(sign + 1).max(sign + 1);
            }
            return at;
        }
        let (open, inner) = self.opening_quote(from);
        let word_end = self.end_of(inner, |byte| byte.is_ascii_alphabetic());
        let word = &self.text[inner..word_end];
        let after = self.skip_blanks(word_end);
        if after > word_end && AUTH_SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
            return match open {
                Some(quote) => self.redact_until_quote(after, quote),
                None => self.redact_value(after),
            };
        }
        self.redact_value(from)
    }

    /// Redacts the value that begins here: quoted text, or a word.
    fn redact_value(&mut self, from: usize) -> usize {
        match self.opening_quote(from) {
            (Some(quote), inner) => self.redact_until_quote(inner, quote),
            (None, _) => self.push_span(from, self.end_of(from, is_value_byte)),
        }
    }

    /// Returns the opening quote here, and the start of the quoted text.
    fn opening_quote(&self, from: usize) -> (Option<u8>, usize) {
        let at = self.end_of(from, |byte| byte == b'\\').min(from + 3);
        match self.bytes.get(at) {
            Some(&quote @ (b'"' | b'\'')) => (Some(quote), at + 1),
            _ => (None, from),
        }
    }

    /// Redacts up to the closing quote, or to the end of the line.
    fn redact_until_quote(&mut self, from: usize, quote: u8) -> usize {
        let mut at = from;
        while let Some(&byte) = self.bytes.get(at) {
            if byte == quote || byte == b'\n' {
                break;
            }
            // From here on the value is a command's output. The command itself is not secret, and must stay visible.
            if quote == b'"' && (byte == b'`' || self.bytes[at..].starts_with(b"$(")) {
                break;
            }
            // An escaped quote does not close the value, unless the opening quote was escaped too.
            let escapes = byte == b'\\' && quote == b'"' && self.bytes.get(at + 1) == Some(&b'"');
            if escapes && self.bytes.get(from.wrapping_sub(2)) == Some(&b'\\') {
                break;
            }
            at += if escapes { 2 } else { 1 };
        }
        self.push_span(from, at)
    }

    /// Redacts the text after the first colon of a word, as in `user:password`.
    fn redact_after_colon(&mut self, from: usize) -> usize {
        let (open, inner) = self.opening_quote(from);
        let name = self.end_of(inner, |byte| is_value_byte(byte) && byte != b':');
        match (self.bytes.get(name), open) {
            (Some(b':'), Some(quote)) => self.redact_until_quote(name + 1, quote),
            (Some(b':'), None) => self.push_span(name + 1, self.end_of(name + 1, is_value_byte)),
            _ => from,
        }
    }

    /// Redacts the password, or a long user name alone, before the host of a URL.
    fn redact_authority(&mut self, from: usize) -> usize {
        let end = self.end_of(from, |byte| is_value_byte(byte) && !matches!(byte, b'/' | b'?' | b'#'));
        let Some(at) = self.text[from..end].rfind('@').map(|at| from + at) else { return from };
        match self.text[from..at].find(':') {
            Some(colon) => self.push_span(from + colon + 1, at),
            None if at - from >= token_patterns::MIN_TOKEN_USER => self.push_span(from, at),
            None => at,
        }
    }

    /// Redacts a whole private key; one without an end, as far as it looks like a key.
    fn redact_private_key(&mut self, start: usize) -> usize {
        let label = self.end_of(start + token_patterns::PEM_BEGIN.len(), |byte| {
            byte.is_ascii_uppercase() || byte == b' '
        });
        if !self.text[start..label].ends_with("PRIVATE KEY") {
            return label.max(start + 1);
        }
        let mut end = label;
        for line in self.text[label..].split_inclusive('\n') {
            if let Some(at) = memmem::find(line.as_bytes(), b"PRIVATE KEY-----") {
                end += at + 16;
                break;
            }
            // A line with anything but a key or its headers may be a command, which must stay visible.
            let is_command = |byte| matches!(byte, b';' | b'|' | b'&' | b'$' | b'`' | b'(' | b'<' | b'>');
            if line.bytes().any(is_command) || (line.trim().contains(' ') && !line.contains(": ")) {
                break;
            }
            end += line.len();
        }
        self.push_span(start, end)
    }

    fn push_span(&mut self, from: usize, to: usize) -> usize {
        // Text after a redaction mark was not part of the secret in an earlier pass.
        let to = if self.text[from..to].starts_with(REDACTED) { from + REDACTED.len() } else { to };
        if from < to {
            self.spans.push(from..to);
        }
        to
    }

    fn end_of(&self, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
        self.bytes[from..].iter().position(|&byte| !belongs(byte)).map_or(self.bytes.len(), |at| from + at)
    }

    fn skip_blanks(&self, from: usize) -> usize {
        self.end_of(from, |byte| byte == b' ' || byte == b'\t').min(from + MAX_BLANKS)
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns whether an unquoted value continues with this byte.
fn is_value_byte(byte: u8) -> bool {
    !byte.is_ascii_whitespace()
        && !matches!(
            byte,
            b'"' | b'\'' | b'`' | b'\\' | b',' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' | b'{' | b'}'
        )
}

/// Programs whose short options take a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PasswordProgram {
    Curl,
    Mysql,
    Sshpass,
    Other,
}

enum PasswordLocation {
    Attached(usize),
    Next,
    AfterColon,
}

impl PasswordProgram {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "curl" | "wget" | "http" | "https" => Some(Self::Curl),
            "mysql" | "mysqldump" | "mysqladmin" | "mariadb" => Some(Self::Mysql),
            "sshpass" => Some(Self::Sshpass),
            _ => None,
        }
    }

    fn password_location(self, word: &str, next: Option<u8>) -> Option<PasswordLocation> {
        let alone = next.is_some_and(|byte| byte == b' ' || byte == b'\t');
        match self {
            Self::Mysql if word.len() > 2 && word.starts_with("-p") => Some(PasswordLocation::Attached(2)),
            Self::Sshpass if word == "-p" && alone => Some(PasswordLocation::Next),
            Self::Sshpass if word.len() > 2 && word.starts_with("-p") => Some(PasswordLocation::Attached(2)),
            Self::Curl if matches!(word, "-u" | "--user" | "--proxy-user") && alone => {
                Some(PasswordLocation::AfterColon)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
