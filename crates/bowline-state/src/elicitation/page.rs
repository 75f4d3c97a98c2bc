//! A page that an agent wants a person to visit: where its address leads, and what is odd about it.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;

use crate::display::{self, foreign_letters};

/// The longest address, in bytes, that is shown. It has to be shown whole.
pub const MAX_URL: usize = 4096;

/// An escaped character takes at most so many bytes.
const MAX_ESCAPED: usize = 10;

/// A page to visit. Nothing here opens it, and nobody should before a person who has seen its address agrees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    url: String,
    // Invariant: on boundaries of characters in `url`.
    host: Range<usize>,
    suspicions: Vec<Suspicion>,
}

/// Why nobody is sent to an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// It is too long to be shown whole.
    #[error("the address has {0} bytes, at most {MAX_URL} are shown")]
    TooLong(usize),
    /// It would start a program, or show a file.
    #[error("the address is not one of http:// or https://")]
    NotWeb,
    /// It names no host, or readers of addresses differ on which.
    #[error("it is not clear to which host the address leads")]
    Unclear,
}

/// What is odd about an address. Its text is for the person who is asked to go there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspicion {
    /// What is sent there can be read on the way.
    NotEncrypted,
    /// There is something before the host that may look like one.
    Credentials,
    /// The host is a number.
    Number,
    /// The host is this computer.
    ThisComputer,
    /// The host's name is spelt in punycode.
    Punycode,
    /// The host's name has letters that may look like others.
    Foreign {
        /// The host, with those letters named.
        host: display::Warning,
    },
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEncrypted => {
                f.write_str("the connection is not encrypted: others can read what you send")
            }
            Self::Credentials => f.write_str("what stands before the @ is not where the address leads"),
            Self::Number => f.write_str("the host is a number, not a name"),
            Self::ThisComputer => f.write_str("the address leads to this computer"),
            Self::Punycode => f.write_str("the host's name has letters of other scripts, written as xn--"),
            Self::Foreign { host } => host.fmt(f),
        }
    }
}

impl Page {
    /// Looks at an address.
    ///
    /// # Errors
    /// Returns why nobody is sent there.
    pub fn read(url: &str) -> Result<Self, PageFault> {
        if url.len() > MAX_URL {
            return Err(PageFault::TooLong(url.len()));
        }
        let (scheme, rest) = url.split_once("://").ok_or(PageFault::NotWeb)?;
        let is_encrypted = scheme.eq_ignore_ascii_case("https");
        if !is_encrypted && !scheme.eq_ignore_ascii_case("http") {
            return Err(PageFault::NotWeb);
        }
        // Browsers drop some of these, and take a backslash for a slash.
        if url
            .chars()
            .any(|character| character.is_control() || character.is_whitespace() || character == '\\')
        {
            return Err(PageFault::Unclear);
        }
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let host = host(&authority[at..]).ok_or(PageFault::Unclear)?;
        let start = scheme.len() + "://".len() + at;
        let mut suspicions = Vec::new();
        suspicions.extend((!is_encrypted).then_some(Suspicion::NotEncrypted));
        suspicions.extend((at > 0).then_some(Suspicion::Credentials));
        suspicions.extend(of_host(host));
        Ok(Self { url: url.to_owned(), host: start..start + host.len(), suspicions })
    }

    /// Returns the whole address, as the agent sent it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the host that the address leads to, as it is written there.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.url[self.host.clone()]
    }

    /// Returns what is odd about the address.
    #[must_use]
    pub fn suspicions(&self) -> &[Suspicion] {
        &self.suspicions
    }

    /// Returns what stands before the host, the host, and what follows: whole, and safe to show, so that the host can be
    /// made to stand out.
    #[must_use]
    pub fn parts(&self) -> [String; 3] {
        let Range { start, end } = self.host.clone();
        [&self.url[..start], &self.url[start..end], &self.url[end..]]
            .map(|part| display::line(part, MAX_URL * MAX_ESCAPED))
    }

    /// Returns all that a person should see before agreeing, line by line, safe on any terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let parts = self.parts();
        let mut lines = vec![format!("opens {}", parts[1]), format!("  {}", parts.concat())];
        lines.extend(self.suspicions.iter().map(|suspicion| format!("! {suspicion}")));
        lines
    }
}

/// Returns the host in what follows the credentials.
fn host(authority: &str) -> Option<&str> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (inner, port) = bracketed.split_once(']')?;
        inner.parse::<Ipv6Addr>().ok()?;
        return is_port(port).then(|| &authority[..inner.len() + 2]);
    }
    let host = &authority[..authority.find(':').unwrap_or(authority.len())];
    let is_in_host = |character: char| {
        !character.is_ascii() || character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_')
    };
    let is_host = host.chars().all(is_in_host) && !host.trim_matches('.').is_empty();
    (is_host && is_port(&authority[host.len()..])).then_some(host)
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => text.is_empty(),
    }
}

fn of_host(host: &str) -> Vec<Suspicion> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let mut labels = name.split('.');
    let is_punycode = labels.clone().any(|label| label.starts_with("xn--"));
    // Browsers take a name for a number if its last part is one, also an octal or a hexadecimal one.
    let last = labels.next_back().unwrap_or_default();
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = name.starts_with('[')
        || last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(is_hexadecimal);
    let is_here = last == "localhost" || name == "[::1]" || (is_number && name.starts_with("127."));
    let mut suspicions = Vec::new();
    suspicions.extend(is_number.then_some(Suspicion::Number));
    suspicions.extend(is_here.then_some(Suspicion::ThisComputer));
    suspicions.extend(is_punycode.then_some(Suspicion::Punycode));
    suspicions.extend(foreign_letters(host).map(|host| Suspicion::Foreign { host }));
    suspicions
}
