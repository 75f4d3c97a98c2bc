//! The cookies of one server. Load balancers use them to route every request of a connection to the same process.
//!
//! All requests go to one URL, so domains and paths do not matter.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use reqwest::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};

/// The most cookies that are kept.
const MAX_COOKIES: usize = 50;
/// The longest cookie that is kept, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;

/// The server's cookies, kept for all requests of a client.
#[derive(Debug, Default)]
pub(crate) struct SharedCookies(Mutex<CookieStore>);

impl SharedCookies {
    /// Takes the cookies of a response.
    pub(crate) fn store(&self, response: &HeaderMap) {
        let mut cookies = self.lock();
        let values = response.get_all(SET_COOKIE).iter();
        values.filter_map(|value| value.to_str().ok()).for_each(|value| cookies.store(value));
    }

    /// Adds the cookies to a request.
    pub(crate) fn add_to(&self, request: &mut HeaderMap) {
        let header = self.lock().header();
        if let Some(header) = header.and_then(|header| HeaderValue::from_str(&header).ok()) {
            request.insert(COOKIE, header);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CookieStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cookies by name.
#[derive(Debug, Default)]
struct CookieStore {
    // Invariant: at most `MAX_COOKIES`, each at most `MAX_COOKIE_BYTES` long.
    cookies: BTreeMap<String, String>,
}

impl CookieStore {
    /// Takes the value of a `Set-Cookie` header. What cannot be kept is left out.
    fn store(&mut self, header: &str) {
        let mut parts = header.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let is_expired = parts.filter_map(|part| part.split_once('=')).any(|(attribute, value)| {
            attribute.trim().eq_ignore_ascii_case("max-age")
                && value.trim().parse::<i64>().is_ok_and(|seconds| seconds <= 0)
        });
        let (name, value) = (name.trim(), value.trim());
        if is_expired {
            self.cookies.remove(name);
        } else if !name.is_empty()
            && name.len() + value.len() <= MAX_COOKIE_BYTES
            && (self.cookies.contains_key(name) || self.cookies.len() < MAX_COOKIES)
        {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Returns the value of the `Cookie` header, if there are cookies.
    fn header(&self) -> Option<String> {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[&str], expected: Option<&str>) {
        let mut store = CookieStore::default();
        headers.iter().for_each(|header| store.store(header));
        assert_eq!(store.header().as_deref(), expected);
    }

    #[test]
    fn cookies_are_kept_replaced_and_removed() {
        check(&[], None);
        check(&["route=a; Path=/; HttpOnly", "other = b=c "], Some("other=b=c; route=a"));
        check(&["route=a", "route=b; Max-Age=60"], Some("route=b"));
        check(&["route=a", "route=; max-age=0"], None);
        check(&["novalue", "=x", ""], None);
    }

    #[test]
    fn a_server_cannot_fill_the_memory() {
        let mut store = CookieStore::default();
        store.store(&format!("long={}", "x".repeat(MAX_COOKIE_BYTES)));
        assert_eq!(store.header(), None);
        (0..1000).for_each(|number| store.store(&format!("name{number}=x")));
        assert_eq!(store.cookies.len(), MAX_COOKIES);
        store.store("name1=replaced");
        assert_eq!(store.cookies["name1"], "replaced");
    }
}
