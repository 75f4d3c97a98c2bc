//! Accepting connections: TLS, HTTP/1.1 and HTTP/2, limits and the graceful end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::requests_in_progress::{CountedBody, RequestsInProgress};
use super::stalled_stream::StallGuard;

/// How long a client may take for the TLS handshake, and for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be open without a request. Event streams are requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed accept, as when the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long open responses may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The place of a connection among those at once, which is free when every copy is dropped.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlot {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// How connections are accepted.
#[derive(Clone, Default)]
pub struct ListenerOptions {
    /// The certificate and key, if clients reach the server with TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The most connections at once; more wait in the system's queue.
    pub max_connections: usize,
}

impl std::fmt::Debug for ListenerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerOptions")
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("cannot read {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// They do not fit together.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Loads a certificate chain and its key from PEM files.
///
/// # Errors
/// Fails if a file cannot be read, or if they do not fit together.
pub fn load_tls(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let error = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| TlsError::File { path, why: error.to_string() }
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(error(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(error(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves connections until `stop` completes, then lets open responses finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ListenerOptions,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let slots = Arc::new(Semaphore::new(options.max_connections.max(1)));
    let tls = options.tls.map(TlsAcceptor::from);
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let permit = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
            let slot = ConnectionSlot { _permit: Arc::new(permit) };
            let (stream, address) = listener.accept().await?;
            io::Result::Ok((slot, stream, address))
        };
        let (slot, stream, address) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Messages are small and must not wait for each other.
        stream.set_nodelay(true).ok();
        let router = router.clone();
        let stopped = stopped.clone();
        match tls.clone() {
            None => {
                bowline_task::spawn(serve_stream(stream, router, stopped, slot));
            }
            Some(tls) => {
                bowline_task::spawn(async move {
                    match tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
                        Ok(Ok(stream)) => serve_stream(stream, router, stopped, slot).await,
                        Ok(Err(error)) => tracing::debug!(%error, %address, "a TLS handshake failed"),
                        Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
                    }
                });
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    drop(stopped);
    tokio::time::timeout(CLOSE_TIMEOUT, stopping.closed()).await.ok();
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    slot: ConnectionSlot,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(4096)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    let requests = RequestsInProgress::default();
    let service = {
        let (service, requests) = (TowerToHyperService::new(router), requests.clone());
        service_fn(move |mut request: http::Request<Incoming>| {
            let counted = requests.begin();
            request.extensions_mut().insert(slot.clone());
            let response = service.call(request);
            async move { response.await.map(|response| response.map(|body| CountedBody::new(body, counted))) }
        })
    };
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(StallGuard::new(stream)), service);
    tokio::pin!(serving);
    // A client that sends nothing, or only a part of HTTP/2's preface, must not keep its place.
    let is_silent = requests.wait_for_silence(HEADER_TIMEOUT, IDLE_TIMEOUT);
    let stop = async { stopped.wait_for(|stopped| *stopped).await.map_or_else(drop, drop) };
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        had_requests = is_silent => {
            if !had_requests {
                return;
            }
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(HEADER_TIMEOUT, serving).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
        () = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended");
    }
}
