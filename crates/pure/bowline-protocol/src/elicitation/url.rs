//! A URL that an agent asks the user to visit: where it leads, and what is suspicious about it.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;

use bowline_text::display::{self, check_non_ascii};

/// The maximum length of a URL, in bytes. It has to be displayed whole.
pub const MAX_URL_BYTES: usize = 4096;

/// The maximum length of an escaped character, in bytes.
const MAX_ESCAPED_CHAR_BYTES: usize = 10;

/// A URL to visit. This type does not open it; callers must not either, until the user has seen it and agreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElicitationUrl {
    url: String,
    // Invariant: on character boundaries in `url`.
    host: Range<usize>,
    suspicions: Vec<UrlSuspicion>,
}

/// Why a URL is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElicitationUrlError {
    /// It is too long to be displayed whole.
    #[error("the address has {0} bytes, at most {MAX_URL_BYTES} are shown")]
    TooLong(usize),
    /// It could start a program or open a file.
    #[error("the address is not one of http:// or https://")]
    UnsupportedScheme,
    /// It has no host, or URL parsers disagree on the host.
    #[error("it is not clear to which host the address leads")]
    AmbiguousHost,
}

/// A suspicious property of a URL. Its `Display` text addresses the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlSuspicion {
    /// The connection can be read on the way.
    NotEncrypted,
    /// The text before the host may look like a host.
    Credentials,
    /// The host is a numeric address.
    NumericHost,
    /// The host is this computer.
    Localhost,
    /// The host name is encoded in punycode.
    PunycodeHost,
    /// The host name has confusable letters.
    NonAsciiHost {
        /// The host, with those letters annotated.
        warning: display::ConfusableWarning,
    },
}

impl fmt::Display for UrlSuspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEncrypted => {
                f.write_str("the connection is not encrypted: others can read what you send")
            }
            Self::Credentials => f.write_str("what stands before the @ is not where the address leads"),
            Self::NumericHost => f.write_str("the host is a number, not a name"),
            Self::Localhost => f.write_str("the address leads to this computer"),
            Self::PunycodeHost => {
                f.write_str("the host's name has letters of other scripts, written as xn--")
            }
            Self::NonAsciiHost { warning } => warning.fmt(f),
        }
    }
}

impl ElicitationUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Returns why it is rejected.
    pub fn parse(url: &str) -> Result<Self, ElicitationUrlError> {
        if url.len() > MAX_URL_BYTES {
            return Err(ElicitationUrlError::TooLong(url.len()));
        }
        let (scheme, rest) = url.split_once("://").ok_or(ElicitationUrlError::UnsupportedScheme)?;
        let is_encrypted = scheme.eq_ignore_ascii_case("https");
        if !is_encrypted && !scheme.eq_ignore_ascii_case("http") {
            return Err(ElicitationUrlError::UnsupportedScheme);
        }
        // Browsers drop some of these characters, and treat a backslash as a slash.
        if url
            .chars()
            .any(|character| character.is_control() || character.is_whitespace() || character == '\\')
        {
            return Err(ElicitationUrlError::AmbiguousHost);
        }
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let host = parse_host(&authority[at..]).ok_or(ElicitationUrlError::AmbiguousHost)?;
        let start = scheme.len() + "://".len() + at;
        let mut suspicions = Vec::new();
        suspicions.extend((!is_encrypted).then_some(UrlSuspicion::NotEncrypted));
        suspicions.extend((at > 0).then_some(UrlSuspicion::Credentials));
        suspicions.extend(check_host(host));
        Ok(Self { url: url.to_owned(), host: start..start + host.len(), suspicions })
    }

    /// Returns the whole URL, as the agent sent it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the host as written in the URL.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.url[self.host.clone()]
    }

    /// Returns the suspicious properties of the URL.
    #[must_use]
    pub fn suspicions(&self) -> &[UrlSuspicion] {
        &self.suspicions
    }

    /// Returns the URL before, in and after the host: complete and safe to display, so that the host can be
    /// highlighted.
    #[must_use]
    pub fn display_parts(&self) -> [String; 3] {
        let Range { start, end } = self.host.clone();
        [&self.url[..start], &self.url[start..end], &self.url[end..]]
            .map(|part| display::escape_line(part, MAX_URL_BYTES * MAX_ESCAPED_CHAR_BYTES))
    }

    /// Returns everything the user should see before agreeing, line by line, safe on any terminal.
    #[must_use]
    pub fn display_lines(&self) -> Vec<String> {
        let parts = self.display_parts();
        let mut lines = vec![format!("opens {}", parts[1]), format!("  {}", parts.concat())];
        lines.extend(self.suspicions.iter().map(|suspicion| format!("! {suspicion}")));
        lines
    }
}

/// Returns the host in the authority after the credentials.
fn parse_host(authority: &str) -> Option<&str> {
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

fn check_host(host: &str) -> Vec<UrlSuspicion> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let mut labels = name.split('.');
    let is_punycode = labels.clone().any(|label| label.starts_with("xn--"));
    // Browsers parse a host as a number if its last label is one, including octal and hexadecimal.
    let last = labels.next_back().unwrap_or_default();
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = name.starts_with('[')
        || last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(is_hexadecimal);
    let is_here = last == "localhost" || name == "[::1]" || (is_number && name.starts_with("127."));
    let mut suspicions = Vec::new();
    suspicions.extend(is_number.then_some(UrlSuspicion::NumericHost));
    suspicions.extend(is_here.then_some(UrlSuspicion::Localhost));
    suspicions.extend(is_punycode.then_some(UrlSuspicion::PunycodeHost));
    suspicions.extend(check_non_ascii(host).map(|warning| UrlSuspicion::NonAsciiHost { warning }));
    suspicions
}
