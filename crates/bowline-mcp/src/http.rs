//! The HTTP client builder that all HTTP connections use.
//!
//! The cryptography provider is set per client. Nothing is installed process-wide, so a program that embeds this crate
//! keeps its own choice.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::redirect::{Attempt, Policy};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// The options of an HTTP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpClientOptions {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The deadline for connecting.
    pub connect_timeout: Duration,
    /// How long a response may stay silent; `None` for streams, which may stay silent indefinitely.
    pub read_timeout: Option<Duration>,
    /// Whether to use the system's proxies, which are read from the environment.
    pub system_proxy: bool,
}

impl Default for HttpClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("bowline/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: None,
            system_proxy: true,
        }
    }
}

/// Why an HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// Certificates cannot be checked.
    #[error(
        "the certificates of this system cannot be used: {0}; install ca-certificates or set SSL_CERT_FILE"
    )]
    Certificates(#[from] rustls::Error),
    /// The options are unusable.
    #[error("cannot make an HTTP client: {0}")]
    Build(#[from] reqwest::Error),
}

/// The scheme a client uses, which decides whether it needs certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpScheme {
    /// `https`.
    Https,
    /// `http`: works on a machine without certificates.
    Http,
}

/// Builds a client. Certificates are verified by the platform.
///
/// Redirects are followed only within the same host, port and scheme, and only if they keep the method and the body:
/// the headers belong to the host that the user named.
///
/// # Errors
/// Returns why the client cannot be built.
pub fn build_client(
    settings: &HttpClientOptions,
    scheme: HttpScheme,
) -> Result<reqwest::Client, HttpClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = || {
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
    };
    // If neither the servers nor a proxy use TLS, reading certificates would only take time.
    let verified = match scheme {
        HttpScheme::Http if !settings.system_proxy => None,
        HttpScheme::Http => tls()?.with_platform_verifier().ok(),
        HttpScheme::Https => Some(tls()?.with_platform_verifier()?),
    };
    let verified = match verified {
        Some(verified) => verified,
        // If it is redirected to a secure server after all, it trusts no certificate.
        None => tls()?.with_root_certificates(rustls::RootCertStore::empty()),
    };
    let mut tls = verified.with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(&settings.user_agent)
        .connect_timeout(settings.connect_timeout)
        .redirect(Policy::custom(follow_redirect));
    if let Some(timeout) = settings.read_timeout {
        builder = builder.read_timeout(timeout);
    }
    if !settings.system_proxy {
        builder = builder.no_proxy();
    }
    Ok(builder.build()?)
}

/// Follows a redirect that changes nothing but the path. The caller gets all other redirect responses unchanged.
fn follow_redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_body =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let origin = attempt.previous().first().map(|url| url.origin());
    if !keeps_body || origin != Some(attempt.url().origin()) {
        attempt.stop()
    } else if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("too many redirects")
    } else {
        attempt.follow()
    }
}
