//! TLS, with certificates verified by the platform.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;

/// Returns the configuration for a connection that offers these protocols.
///
/// # Errors
/// Fails if the system's certificates cannot be read.
pub(crate) fn client_config(protocols: &[&str]) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_platform_verifier()?.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// Describes a certificate that is not accepted, if that is the reason of an error.
pub(crate) fn describe_certificate_error(url: &str, error: &str) -> Option<String> {
    error.contains("certificate").then(|| {
        format!(
            "the certificate of {url} is not accepted ({error}); if the server is yours, add its certificate authority \
             to this system or name the file in SSL_CERT_FILE"
        )
    })
}

/// Returns a configuration for a client that does not use TLS. It trusts no certificate.
///
/// # Errors
/// Fails if the provider supports no protocol version.
pub(crate) fn unused_config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}
