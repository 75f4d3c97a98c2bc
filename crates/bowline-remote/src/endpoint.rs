//! The URL of a server: checked, completed, and safe to show.

use std::net::IpAddr;

use bowline_protocol::remote::ENDPOINT_PATH;
use bowline_text::display::escape_line;
use reqwest::Url;

/// The longest part of a URL that an error shows, in bytes.
const MAX_SHOWN_BYTES: usize = 300;

/// Names of query parameters that carry a credential.
const CREDENTIAL_NAMES: [&str; 9] =
    ["token", "access_token", "auth", "key", "api_key", "apikey", "secret", "password", "ticket"];

/// How messages are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// HTTP requests and event streams.
    Http,
    /// A WebSocket.
    WebSocket,
}

/// A server's endpoint. It contains no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
}

/// Why a URL is not usable as an endpoint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no URL.
    #[error("{0} is not a URL: write one such as https://host:8040 or ws://127.0.0.1:8040")]
    Malformed(String),
    /// Its scheme is none of the four.
    #[error("{0}:// is not supported: write http://, https://, ws:// or wss://")]
    Scheme(String),
    /// It has a user name or a password.
    #[error(
        "the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the \
         token with --token-file or BOWLINE_TOKEN"
    )]
    UserInfo,
    /// Its query has a credential.
    #[error(
        "the URL contains a credential ({0}), which other programs and logs can see: leave it out, and give the token \
         with --token-file or BOWLINE_TOKEN"
    )]
    Credential(String),
    /// A token would be sent in plain text over a network.
    #[error(
        "{0} is not encrypted, and the network could read the token: use https:// or wss://, or --insecure if the \
         network is trusted"
    )]
    TokenInPlainText(String),
}

impl Endpoint {
    /// Parses a URL. A missing path becomes `/acp`.
    ///
    /// # Errors
    /// Fails if the URL is malformed or contains a credential.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let mut url =
            Url::parse(text).map_err(|_| EndpointError::Malformed(escape_line(text, MAX_SHOWN_BYTES)))?;
        if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
            return Err(EndpointError::Scheme(escape_line(url.scheme(), MAX_SHOWN_BYTES)));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInfo);
        }
        let credential = url.query_pairs().map(|(name, _)| name.to_lowercase());
        if let Some(name) = credential.into_iter().find(|name| CREDENTIAL_NAMES.contains(&name.as_str())) {
            return Err(EndpointError::Credential(name));
        }
        url.set_fragment(None);
        if url.path() == "/" {
            url.set_path(ENDPOINT_PATH);
        }
        Ok(Self { url })
    }

    /// Checks that a token may be sent to it.
    ///
    /// # Errors
    /// Fails if the token would cross a network in plain text.
    pub fn check_token_privacy(&self) -> Result<(), EndpointError> {
        match self.is_encrypted() || self.is_loopback() {
            true => Ok(()),
            false => Err(EndpointError::TokenInPlainText(self.to_string())),
        }
    }

    /// Returns how messages are carried.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        match self.url.scheme() {
            "ws" | "wss" => Carrier::WebSocket,
            _ => Carrier::Http,
        }
    }

    /// Returns whether it uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self.url.scheme(), "https" | "wss")
    }

    /// Returns whether it is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// Returns the host's name and port.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns the URL as text, without control characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the URL.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escape_line(self.url.as_str(), MAX_SHOWN_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(urls: &[&str], expected: Expect) {
        let show = |url: &&str| match Endpoint::parse(url) {
            Ok(endpoint) => {
                let privacy = match endpoint.check_token_privacy() {
                    Ok(()) => "token may be sent".to_owned(),
                    Err(error) => error.to_string(),
                };
                format!("{endpoint} {:?}: {privacy}\n", endpoint.carrier())
            }
            Err(error) => format!("! {error}\n"),
        };
        expected.assert_eq(&urls.iter().map(show).collect::<String>());
    }

    #[test]
    fn a_missing_path_is_completed() {
        check(
            &["http://127.0.0.1:8040", "https://host/", "wss://host/proxy/acp?tenant=1#top", "ws://[::1]:1"],
            expect![[r#"
                http://127.0.0.1:8040/acp Http: token may be sent
                https://host/acp Http: token may be sent
                wss://host/proxy/acp?tenant=1 WebSocket: token may be sent
                ws://[::1]:1/acp WebSocket: token may be sent
            "#]],
        );
    }

    #[test]
    fn a_url_with_a_credential_is_refused() {
        check(
            &["https://user@host", "https://u:p@host", "https://:p@host", "https://host/acp?Token=1"],
            expect![[r#"
                ! the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
                ! the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
                ! the URL contains a user name or a password, which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
                ! the URL contains a credential (token), which other programs and logs can see: leave it out, and give the token with --token-file or BOWLINE_TOKEN
            "#]],
        );
    }

    #[test]
    fn a_token_is_private_beyond_this_machine_only_if_encrypted() {
        check(
            &["http://localhost:1", "http://192.168.1.2", "ws://localhost.example", "http://127.8.9.1"],
            expect![[r#"
                http://localhost:1/acp Http: token may be sent
                http://192.168.1.2/acp Http: http://192.168.1.2/acp is not encrypted, and the network could read the token: use https:// or wss://, or --insecure if the network is trusted
                ws://localhost.example/acp WebSocket: ws://localhost.example/acp is not encrypted, and the network could read the token: use https:// or wss://, or --insecure if the network is trusted
                http://127.8.9.1/acp Http: token may be sent
            "#]],
        );
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        check(
            &["host:8040", "127.0.0.1:8040", "", "file:///etc/passwd", "http://"],
            expect![[r#"
                ! host:// is not supported: write http://, https://, ws:// or wss://
                ! 127.0.0.1:8040 is not a URL: write one such as https://host:8040 or ws://127.0.0.1:8040
                !  is not a URL: write one such as https://host:8040 or ws://127.0.0.1:8040
                ! file:// is not supported: write http://, https://, ws:// or wss://
                ! http:// is not a URL: write one such as https://host:8040 or ws://127.0.0.1:8040
            "#]],
        );
    }
}
