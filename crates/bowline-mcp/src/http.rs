//! The one way to make a client for HTTP.
//!
//! Its cryptography is its own: nothing is installed for the whole process, so a program that embeds this crate keeps
//! its choice.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::redirect::{Attempt, Policy};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// So many redirects are followed.
const MAX_REDIRECTS: usize = 5;

/// How a client works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What it says it is.
    pub user_agent: String,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// How long nothing may come while a response is read; none where streams may be silent for as long as they like.
    pub read_timeout: Option<Duration>,
    /// Whether the proxies of the system are used, which are read from the environment.
    pub system_proxy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_agent: concat!("bowline/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: None,
            system_proxy: true,
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Certificates cannot be checked.
    #[error(
        "the certificates of this system cannot be used: {0}; install ca-certificates or set SSL_CERT_FILE"
    )]
    Certificates(#[from] rustls::Error),
    /// The settings do not work.
    #[error("cannot make an HTTP client: {0}")]
    Settings(#[from] reqwest::Error),
}

/// Whether a client has to check certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaches {
    /// It talks to servers by `https`.
    Secure,
    /// It talks to servers by `http`: a machine that has no certificates will do.
    Plain,
}

/// Returns a client. Certificates are checked as the system does it.
///
/// Redirects are followed to the same host, port and scheme only, and only those that keep method and body: whatever is
/// in the headers belongs to the host that the user named.
///
/// # Errors
/// Returns why it cannot be made.
pub fn client(settings: &Settings, reaches: Reaches) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = || {
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
    };
    // Where nothing speaks TLS, not even a proxy, reading certificates would only take time.
    let verified = match reaches {
        Reaches::Plain if !settings.system_proxy => None,
        Reaches::Plain => tls()?.with_platform_verifier().ok(),
        Reaches::Secure => Some(tls()?.with_platform_verifier()?),
    };
    let verified = match verified {
        Some(verified) => verified,
        // Should it be sent on to a secure server after all, it trusts nobody.
        None => tls()?.with_root_certificates(rustls::RootCertStore::empty()),
    };
    let mut tls = verified.with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(&settings.user_agent)
        .connect_timeout(settings.connect_timeout)
        .redirect(Policy::custom(redirect));
    if let Some(timeout) = settings.read_timeout {
        builder = builder.read_timeout(timeout);
    }
    if !settings.system_proxy {
        builder = builder.no_proxy();
    }
    Ok(builder.build()?)
}

/// Follows a redirect that changes nothing but the path. Others are given to the caller as they are.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_body =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let here = attempt.previous().first().map(|url| url.origin());
    if !keeps_body || here != Some(attempt.url().origin()) {
        attempt.stop()
    } else if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("too many redirects")
    } else {
        attempt.follow()
    }
}
