//! What the status of an HTTP response means, as text that says what to do.

use bowline_text::display::escape_line;
use serde_json::Value;

/// The longest text of a server that is shown, in bytes.
const MAX_DETAIL_BYTES: usize = 400;

/// A response that refuses a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status.
    pub(crate) status: u16,
    /// The seconds to wait, if the server says so.
    pub(crate) retry_after: Option<u64>,
    /// Where it redirects to.
    pub(crate) location: Option<String>,
    /// The beginning of the body, if it is text or JSON.
    pub(crate) detail: String,
}

impl Refusal {
    /// Returns whether the same request may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self.status, 408 | 409 | 425 | 429 | 500 | 502..=504)
    }

    /// Returns whether the server does not accept the token.
    pub(crate) fn denies_access(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Returns whether a gateway answers for a server that it cannot reach.
    pub(crate) fn is_from_gateway(&self) -> bool {
        matches!(self.status, 502..=504)
    }

    /// Describes the refusal by the server at `url`.
    pub(crate) fn describe(&self, url: &str) -> String {
        let Self { status, retry_after, location, detail } = self;
        let detail = match describe_body(detail) {
            detail if detail.is_empty() => String::new(),
            detail => format!(": {detail}"),
        };
        match status {
            401 | 403 => format!(
                "{url} denies access ({status}){detail}; give its token with --token-file FILE or the environment \
                 variable BOWLINE_TOKEN"
            ),
            404 => format!("{url} was not found (404){detail}; check the URL, whose path is usually /acp"),
            413 => format!("the message is larger than {url} accepts (413){detail}"),
            429 => {
                let time =
                    retry_after.map_or_else(|| "later".to_owned(), |seconds| format!("after {seconds} s"));
                format!("{url} has too many requests (429){detail}; try again {time}")
            }
            300..=399 => {
                let target = location.as_deref().map(|target| escape_line(target, MAX_DETAIL_BYTES));
                let target = target.unwrap_or_else(|| "another URL".to_owned());
                format!(
                    "{url} redirects to {target} ({status}), where the token is not sent; if that is right, use it as the URL"
                )
            }
            500..=599 => format!("{url} failed ({status}){detail}"),
            _ => format!("{url} refused the message ({status}){detail}"),
        }
    }
}

/// Returns the message of an error's body: of JSON its `message`, of a web page nothing.
fn describe_body(body: &str) -> String {
    let text = match serde_json::from_str::<Value>(body) {
        Ok(json) => {
            let message = [&json["error"]["message"], &json["message"], &json["error"]];
            message.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
        }
        Err(_) if body.trim_start().starts_with('<') => String::new(),
        Err(_) => body.trim().to_owned(),
    };
    escape_line(&text, MAX_DETAIL_BYTES)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(refusals: &[(u16, &str)], expected: Expect) {
        let show = |(status, detail): &(u16, &str)| {
            let refusal = Refusal { status: *status, detail: (*detail).to_owned(), ..Refusal::default() };
            let retried = if refusal.is_temporary() { " (may succeed later)" } else { "" };
            format!("{}{retried}\n", refusal.describe("http://h/acp"))
        };
        expected.assert_eq(&refusals.iter().map(show).collect::<String>());
    }

    #[test]
    fn each_status_says_what_to_do() {
        check(
            &[
                (400, "Missing Acp-Session-Id"),
                (401, ""),
                (403, r#"{"error":{"message":"Origin"}}"#),
                (404, "<!doctype html>"),
                (413, ""),
                (429, ""),
                (500, r#"{"message":"it broke"}"#),
                (501, ""),
                (503, "\u{1b}[2J"),
                (302, ""),
            ],
            expect![[r#"
                http://h/acp refused the message (400): Missing Acp-Session-Id
                http://h/acp denies access (401); give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
                http://h/acp denies access (403): Origin; give its token with --token-file FILE or the environment variable BOWLINE_TOKEN
                http://h/acp was not found (404); check the URL, whose path is usually /acp
                the message is larger than http://h/acp accepts (413)
                http://h/acp has too many requests (429); try again later (may succeed later)
                http://h/acp failed (500): it broke (may succeed later)
                http://h/acp failed (501)
                http://h/acp failed (503): \u{1b}[2J (may succeed later)
                http://h/acp redirects to another URL (302), where the token is not sent; if that is right, use it as the URL
            "#]],
        );
    }

    #[test]
    fn delays_and_targets_are_named() {
        let busy = Refusal { status: 429, retry_after: Some(7), ..Refusal::default() };
        assert!(busy.describe("u").ends_with("try again after 7 s"));
        let moved = Refusal { status: 308, location: Some("https://new/acp".into()), ..Refusal::default() };
        assert!(moved.describe("u").starts_with("u redirects to https://new/acp (308)"));
    }
}
