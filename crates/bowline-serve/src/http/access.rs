//! Who may use the endpoint: tokens, cookies of browsers, and where requests may come from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_storage::clock::now;
use bowline_text::time::Timestamp;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use super::cookie::CookieKey;
use super::{Refusal, text_of};
use crate::store::ServerStore;
use crate::token::{Principal, StoredToken, TokenError, hash, parse_token, random_hex};

/// How long a verified token is believed without asking the store: a removed token ends after this time.
const TOKEN_CACHE_TIME: Duration = Duration::from_secs(5);
/// How long a ticket can be exchanged.
const TICKET_TIME: Duration = Duration::from_secs(60);
/// How long a cookie lasts.
const COOKIE_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The most tickets, verified tokens and cookies that are remembered.
const MAX_REMEMBERED: usize = 1024;
const COOKIE_NAME: &str = "bowline";

/// Where requests may come from.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// Other origins whose pages may use the server, such as `https://example.com`.
    pub origins: Vec<String>,
    /// Whether the server listens on loopback only. Then the header `Host` must name this machine: a page of another
    /// site can point its own name at a loopback address.
    pub is_loopback: bool,
    /// Whether clients reach it with TLS, by itself or through a proxy.
    pub is_secure: bool,
    /// The key of the cookies; without one, cookies end with the process.
    pub cookie_key: Option<CookieKey>,
}

/// The access to a server.
#[derive(Debug)]
pub struct Access {
    options: AccessOptions,
    cookie_key: CookieKey,
    state: Mutex<AccessState>,
}

#[derive(Debug, Default)]
struct AccessState {
    // Tokens and cookies. By hash, so that no secret stays in memory.
    verified: Remembered,
    // By the token's id, for cookies.
    checked: Remembered,
    tickets: Remembered,
}

/// Principals by the hash of a secret, each until a moment.
#[derive(Debug, Default)]
struct Remembered(HashMap<[u8; 32], (Principal, Instant)>);

impl Remembered {
    fn get(&self, secret: &str, now: Instant) -> Option<Principal> {
        let (principal, until) = self.0.get(&hash(secret))?;
        (now < *until).then(|| principal.clone())
    }

    fn take(&mut self, secret: &str, now: Instant) -> Option<Principal> {
        let (principal, until) = self.0.remove(&hash(secret))?;
        (now < until).then_some(principal)
    }

    fn insert(&mut self, secret: &str, principal: Principal, now: Instant, time: Duration) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MAX_REMEMBERED {
            let first = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            self.0.retain(|key, _| Some(*key) != first);
        }
        self.0.insert(hash(secret), (principal, now + time));
    }
}

/// Checks that a URL contains no token, whatever its path.
///
/// # Errors
/// Fails if it does.
pub fn check_url(url: &Uri) -> Result<(), Refusal> {
    let has_secret = url.query().unwrap_or_default().split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let names = ["token", "access_token", "ticket", "secret", "key", "api_key"];
        names.contains(&&*name.to_ascii_lowercase()) || parse_token(value).is_some()
    });
    if has_secret {
        let why =
            "never put a token into a URL: it ends up in logs. Send the header Authorization: Bearer TOKEN";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    }
    Ok(())
}

impl Access {
    /// Returns the access with some options.
    ///
    /// # Errors
    /// Fails if it needs a new key and the system has no random numbers.
    pub fn new(options: AccessOptions) -> Result<Arc<Self>, TokenError> {
        let cookie_key = options.cookie_key.clone().map_or_else(CookieKey::generate, Ok)?;
        Ok(Arc::new(Self { options, cookie_key, state: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, AccessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether pages of another origin may use the server.
    pub(super) fn is_allowed_origin(&self, origin: &HeaderValue) -> bool {
        self.options.origins.iter().any(|known| known.as_bytes() == origin.as_bytes())
    }

    /// Checks where a request comes from.
    pub(super) fn check_source(&self, parts: &Parts) -> Result<(), Refusal> {
        let host = host_of(parts);
        let names_allowed_host =
            || self.options.origins.iter().any(|known| known.split("://").nth(1) == Some(host));
        if self.options.is_loopback && !is_loopback_host(host) && !names_allowed_host() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the header Host does not name this machine"));
        }
        let Some(origin) = parts.headers.get(header::ORIGIN) else { return Ok(()) };
        let is_own = origin.to_str().unwrap_or_default().split_once("://").is_some_and(|(scheme, rest)| {
            let schemes: &[&str] = if self.options.is_secure { &["https"] } else { &["http"] };
            rest == host && schemes.contains(&scheme)
        });
        if is_own || self.is_allowed_origin(origin) {
            return Ok(());
        }
        let why = "pages of this origin may not use the server: allow it with `bowline serve --origin`";
        Err(Refusal::new(StatusCode::FORBIDDEN, why))
    }

    /// Returns who sends a request.
    pub(super) async fn authenticate(
        &self,
        parts: &Parts,
        store: &Arc<dyn ServerStore>,
    ) -> Result<Principal, Refusal> {
        self.check_source(parts)?;
        let unknown = |why: &str| Refusal::new(StatusCode::UNAUTHORIZED, why);
        let Some(authorization) = text_of(&parts.headers, header::AUTHORIZATION.as_str()) else {
            let why =
                "send the header Authorization: Bearer TOKEN; `bowline serve token add NAME` makes a token";
            let cookie = cookie_of(&parts.headers, &cookie_name(parts)).ok_or_else(|| unknown(why))?;
            let token = self.cookie_key.verify(cookie, now()).ok_or_else(|| unknown(why))?;
            return self.check_token(token, store).await;
        };
        let token = authorization
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        let Some(token) = token else { return Err(unknown("only bearer tokens are accepted")) };
        self.verify_token(token, store).await
    }

    /// Returns the principal of a token.
    pub(super) async fn verify_token(
        &self,
        token: &str,
        store: &Arc<dyn ServerStore>,
    ) -> Result<Principal, Refusal> {
        if let Some(principal) = self.lock().verified.get(token, Instant::now()) {
            return Ok(principal);
        }
        let (id, secret) = parse_token(token).ok_or_else(wrong_token)?;
        let stored = find_token(id, store).await?;
        let principal = stored.verify(secret, now()).ok_or_else(wrong_token)?;
        self.lock().verified.insert(token, principal.clone(), Instant::now(), cache_time(&stored));
        Ok(principal)
    }

    /// Returns the principal of a token that was verified earlier, unless it was removed or has expired since.
    async fn check_token(&self, id: &str, store: &Arc<dyn ServerStore>) -> Result<Principal, Refusal> {
        if let Some(principal) = self.lock().checked.get(id, Instant::now()) {
            return Ok(principal);
        }
        let stored = find_token(id, store).await?;
        let principal = stored.principal(now()).ok_or_else(wrong_token)?;
        self.lock().checked.insert(id, principal.clone(), Instant::now(), cache_time(&stored));
        Ok(principal)
    }

    /// Makes a ticket that a browser can exchange once.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn issue_ticket(&self, principal: Principal) -> Result<String, Refusal> {
        let ticket = random()?;
        self.lock().tickets.insert(&ticket, principal, Instant::now(), TICKET_TIME);
        Ok(ticket)
    }

    /// Exchanges a ticket, once.
    pub(super) async fn exchange_ticket(
        &self,
        ticket: &str,
        store: &Arc<dyn ServerStore>,
    ) -> Result<Principal, Refusal> {
        let why = "the ticket is wrong, was used or has expired: get a new one";
        let principal = self.lock().tickets.take(ticket, Instant::now());
        let principal = principal.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, why))?;
        let stored = find_token(&principal.token, store).await?;
        stored.principal(now()).ok_or_else(wrong_token)
    }

    /// Makes a cookie for a browser, and returns the value of the header `Set-Cookie`.
    pub(super) fn issue_cookie(&self, principal: &Principal, parts: &Parts) -> String {
        let age = COOKIE_TIME.as_secs();
        let expires_at = Timestamp(now().0 + i64::try_from(COOKIE_TIME.as_millis()).unwrap_or(i64::MAX));
        let cookie = self.cookie_key.sign(&principal.token, expires_at);
        let secure = if self.options.is_secure { "; Secure" } else { "" };
        let name = cookie_name(parts);
        format!("{name}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}")
    }
}

async fn find_token(id: &str, store: &Arc<dyn ServerStore>) -> Result<StoredToken, Refusal> {
    let stored = store.token(id).await;
    let stored = stored.map_err(|error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    stored.ok_or_else(wrong_token)
}

/// Returns how long a token is believed without asking the store.
fn cache_time(token: &StoredToken) -> Duration {
    token.expires_at.map_or(TOKEN_CACHE_TIME, |end| {
        Duration::from_millis(u64::try_from(end.0 - now().0).unwrap_or(0)).min(TOKEN_CACHE_TIME)
    })
}

fn wrong_token() -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "the token is wrong, was removed or has expired")
}

fn random() -> Result<String, Refusal> {
    random_hex::<32>().map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|text| text.split(';')).find_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    })
}

/// Returns the name of the cookie for the address that a request uses. Browsers have the same cookies for every port of
/// a host, and two servers must not replace each other's.
fn cookie_name(parts: &Parts) -> String {
    let port = host_of(parts).rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("{COOKIE_NAME}-{port}"),
        None => COOKIE_NAME.to_owned(),
    }
}

/// Returns the host that a request names, with its port.
fn host_of(parts: &Parts) -> &str {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    authority.or_else(|| text_of(&parts.headers, header::HOST.as_str())).unwrap_or_default()
}

/// Returns whether a `Host` names this machine.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Role;

    #[test]
    fn a_ticket_is_valid_once_and_for_a_minute() {
        let principal = Principal { name: "me".to_owned(), role: Role::User, token: "t".to_owned() };
        let start = Instant::now();
        let mut tickets = Remembered::default();
        let mut take = |ticket: &str, seconds| {
            tickets.insert("late", principal.clone(), start, TICKET_TIME);
            tickets.take(ticket, start + Duration::from_secs(seconds)).is_some()
        };
        assert!(take("late", 59));
        assert!(!take("late", 60));
        assert!(!take("another", 0));
        tickets.take("late", start).unwrap();
        assert_eq!(tickets.take("late", start), None, "a second time");
    }
}
