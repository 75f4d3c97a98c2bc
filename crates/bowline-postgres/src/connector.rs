//! Connections to PostgreSQL: the address, TLS, and a pool.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_rustls::{TlsConnector, client};

use crate::migrations::{self, Migration, SCHEMA_VERSION};

/// How long a connection may take to be made, or to become free.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the network may leave sent data unconfirmed before a connection counts as broken.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a database: `postgres://…`. It is never shown, because it may hold a password.
#[derive(Clone)]
pub struct PostgresUrl {
    config: Config,
}

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresUrl({})", self.describe())
    }
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostgresUrlError {
    /// It is malformed.
    #[error(
        "this is not a PostgreSQL address: {0}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require"
    )]
    Malformed(String),
    /// It names no host.
    #[error(
        "the PostgreSQL address names no host; for a local socket, write postgres:///DATABASE?host=/run/postgresql"
    )]
    NoHost,
}

impl PostgresUrl {
    /// Returns whether a text is meant as such an address.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Names the host and the database, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        format!("{host}/{}", self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres"))
    }

    /// Returns whether it holds a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }
}

impl FromStr for PostgresUrl {
    type Err = PostgresUrlError;

    fn from_str(url: &str) -> Result<Self, PostgresUrlError> {
        // As libpq names them. Certificates are always verified here.
        let verified = url.replace("sslmode=verify-full", "sslmode=require");
        let mut config = verified.parse::<Config>().map_err(|error| {
            // The reason names the parameter, not its value.
            PostgresUrlError::Malformed(describe_error(&error))
        })?;
        if config.get_hosts().is_empty() {
            return Err(PostgresUrlError::NoHost);
        }
        if !url.contains("sslmode=") {
            let is_local = config.get_hosts().iter().all(|host| match host {
                Host::Unix(_) => true,
                Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
            });
            config.ssl_mode(if is_local { SslMode::Disable } else { SslMode::Require });
        }
        config.application_name("bowline serve");
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(NETWORK_TIMEOUT);
        config.keepalives_idle(NETWORK_TIMEOUT).keepalives_interval(NETWORK_TIMEOUT).keepalives_retries(2);
        Ok(Self { config })
    }
}

/// Why the database cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PostgresError(pub String);

/// Makes connections to one database.
#[derive(Debug, Clone)]
pub struct Connector {
    url: PostgresUrl,
    tls: PostgresTls,
}

impl Connector {
    /// Returns the connector of a database, without connecting.
    ///
    /// # Errors
    /// Fails if the system's certificates cannot be read.
    pub fn new(url: &PostgresUrl) -> Result<Self, PostgresError> {
        let config = tls_config()
            .map_err(|error| PostgresError(format!("the system's certificates cannot be read: {error}")))?;
        Ok(Self { url: url.clone(), tls: PostgresTls { config: Arc::new(config) } })
    }

    /// Makes a pool. Statements have no names and leave no state behind, so that a pooler in transaction mode can be
    /// between this program and the database.
    ///
    /// # Errors
    /// Fails if the pool cannot be made.
    pub fn pool(&self, size: usize) -> Result<Pool, PostgresError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.url.config.clone(), self.tls.clone(), recycling);
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map_err(|error| PostgresError(error.to_string()))
    }

    /// Makes a connection of its own.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn connect(&self) -> Result<(Client, Connection<Socket, RustlsStream>), PostgresError> {
        self.url.config.connect(self.tls.clone()).await.map_err(|error| self.unavailable(&error))
    }

    /// Brings the schema to this program's version.
    ///
    /// # Errors
    /// Fails if the database cannot be used, or if its schema is of a later version.
    pub async fn migrate(&self, pool: &Pool) -> Result<Migration, PostgresError> {
        let mut client = pool.get().await.map_err(|error| self.no_connection(&error))?;
        let migration = migrations::migrate(&mut client).await.map_err(|error| self.unavailable(&error))?;
        if migration.to > SCHEMA_VERSION {
            return Err(PostgresError(format!(
                "the database has version {} of the schema, and this program knows versions up to {SCHEMA_VERSION}: update bowline on this machine",
                migration.to
            )));
        }
        Ok(migration)
    }

    /// Describes an error, with what is unavailable.
    #[must_use]
    pub fn unavailable(&self, error: &tokio_postgres::Error) -> PostgresError {
        PostgresError(format!("PostgreSQL ({}): {}", self.url.describe(), describe_error(error)))
    }

    /// Describes why no connection could be had.
    #[must_use]
    pub fn no_connection(&self, error: &deadpool_postgres::PoolError) -> PostgresError {
        match error {
            deadpool_postgres::PoolError::Backend(error) => self.unavailable(error),
            other => PostgresError(format!("PostgreSQL ({}): {other}", self.url.describe())),
        }
    }
}

/// Describes an error with its causes: the outermost alone says only of which kind it is.
fn describe_error(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    if text.contains("certificate") {
        text += "; if the database is yours, add its certificate authority to this system or name the file in SSL_CERT_FILE";
    }
    text
}

fn tls_config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_platform_verifier()?.with_no_client_auth())
}

/// TLS with certificates that the platform verifies.
#[derive(Debug, Clone)]
struct PostgresTls {
    config: Arc<ClientConfig>,
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = RustlsStream;
    type TlsConnect = HostTls;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<HostTls> {
        // A socket has no host, and is used without TLS.
        let host = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(HostTls { connector: TlsConnector::from(Arc::clone(&self.config)), name })
    }
}

/// TLS to one host.
struct HostTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for HostTls {
    type Stream = RustlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<RustlsStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(RustlsStream(Box::new(self.connector.connect(self.name, socket).await?))) })
    }
}

/// An encrypted connection.
pub struct RustlsStream(Box<client::TlsStream<Socket>>);

impl TlsStream for RustlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for RustlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for RustlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn tls_is_the_default_beyond_this_machine_and_passwords_are_not_shown() {
        let mut shown = String::new();
        for url in [
            "postgres://me:secret@db.example/bowline",
            "postgres://me:secret@localhost:5432/bowline",
            "postgresql://me:secret@db.example/bowline?sslmode=disable",
            "postgres://me:secret@db.example/bowline?sslmode=verify-full",
            "postgres:///bowline?host=/run/postgresql&user=me",
            "postgres://me:secret@db.example/bowline?sslmode=secret",
            "postgres:///bowline",
            "postgres://me:secret@db.example:port/bowline",
        ] {
            let parsed = url.parse::<PostgresUrl>();
            shown += &match parsed {
                Ok(url) => format!("{url:?} {:?}\n", url.config.get_ssl_mode()),
                Err(error) => format!("! {error}\n"),
            };
        }
        assert!(!shown.contains("secret"));
        expect![[r#"
            PostgresUrl(db.example/bowline) Require
            PostgresUrl(localhost/bowline) Disable
            PostgresUrl(db.example/bowline) Disable
            PostgresUrl(db.example/bowline) Require
            PostgresUrl(/run/postgresql/bowline) Disable
            ! this is not a PostgreSQL address: invalid connection string: invalid value for option `sslmode`; write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require
            ! the PostgreSQL address names no host; for a local socket, write postgres:///DATABASE?host=/run/postgresql
            ! this is not a PostgreSQL address: invalid connection string: invalid value for option `port`; write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require
        "#]].assert_eq(&shown);
    }
}
