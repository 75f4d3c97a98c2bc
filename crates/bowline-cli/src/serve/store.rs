//! Where a server keeps sessions and tokens: `--store`, `bowline serve migrate` and `bowline serve status`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_client::common::console::{print, print_note};
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use bowline_serve::http::CookieKey;
use bowline_serve::store::{
    PostgresOptions, PostgresServerStore, PostgresUrl, SCHEMA_VERSION, ServerStatus, ServerStore,
    SqliteServerStore, StoreError,
};
use bowline_storage::clock::format_iso8601;
use clap::Args;
use serde_json::{Value, json};

/// The directory of the store, below the state directory.
const STORE_DIRECTORY: &str = "serve";
/// The variable that names the store, so that a password is not among a program's arguments.
pub(super) const STORE_VARIABLE: &str = "BOWLINE_STORE";

/// Where the server keeps sessions and tokens.
#[derive(Args, Debug, Clone)]
pub(super) struct StoreArguments {
    /// The directory of the server's sessions and tokens, or a PostgreSQL database that several servers share
    ///
    /// Default: BOWLINE_STORE, or a directory in your state directory. It contains an SQLite file with its log, a lock, and
    /// the key of cookies. A database is given as
    /// postgres://USER@HOST/DATABASE; put its password into BOWLINE_STORE, where other users cannot see it. Beyond this
    /// machine the connection uses TLS, unless the address has ?sslmode=disable.
    // A text, because clap shows values that it cannot parse.
    #[arg(long, value_name = "DIR|URL")]
    store: Option<OsString>,
}

/// How a server takes part in a shared store.
#[derive(Args, Debug, Clone, Copy)]
pub(super) struct LeaseArguments {
    /// How long other servers wait for this one before they take over its sessions, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 15_000, hide = true)]
    lease_ms: u64,
    /// How often the lease is renewed, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000, hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    heartbeat_ms: u64,
}

/// A place for sessions and tokens.
#[derive(Debug, Clone)]
enum StoreLocation {
    Directory(PathBuf),
    Postgres { url: Box<PostgresUrl>, text: OsString },
}

/// What `bowline serve status` shows.
#[derive(Args, Debug)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Turns an error of the store into the program's.
pub(super) fn failed(error: StoreError) -> CliError {
    match error {
        StoreError::NameTaken(_) => CliError::Usage(error.to_string()),
        StoreError::Unavailable(_) => CliError::Failed(error.into()),
    }
}

impl StoreArguments {
    fn location(&self) -> Result<StoreLocation, CliError> {
        let text = match self.store.clone().or_else(|| std::env::var_os(STORE_VARIABLE)) {
            Some(text) if !text.is_empty() => text,
            _ => {
                return Ok(StoreLocation::Directory(UserDirs::from_env()?.state.join(STORE_DIRECTORY)));
            }
        };
        match text.to_str().filter(|text| PostgresUrl::is_url(text)) {
            Some(url) => match url.parse::<PostgresUrl>() {
                Ok(url) => {
                    if self.store.is_some() && url.has_password() {
                        print_note(
                            "other users of this machine can see the password in --store; give the address in BOWLINE_STORE",
                        );
                    }
                    Ok(StoreLocation::Postgres { url: Box::new(url), text })
                }
                Err(error) => Err(CliError::Usage(format!("--store: {error}"))),
            },
            None => {
                if let Some((scheme, _)) = text.to_string_lossy().split_once("://") {
                    return Err(CliError::Usage(format!(
                        "--store: a server cannot store sessions at {scheme}://; give a directory, or a PostgreSQL database \
                         as postgres://USER@HOST/DATABASE"
                    )));
                }
                let directory = PathBuf::from(text);
                if directory.is_file() {
                    let name = directory.display();
                    let why = "is a file; --store takes a directory, because a server stores several files";
                    return Err(CliError::Usage(format!("{name} {why}")));
                }
                Ok(StoreLocation::Directory(directory))
            }
        }
    }

    /// Opens the store for a server that listens on an address.
    pub(super) async fn open_for_server(
        &self,
        lease: LeaseArguments,
        listen: &str,
    ) -> Result<OpenedStore, CliError> {
        match self.location()? {
            StoreLocation::Directory(directory) => open_directory(directory).await,
            StoreLocation::Postgres { url, text } => {
                let options = PostgresOptions {
                    name: format!("{} {listen}", host_name()),
                    lease: Duration::from_millis(lease.lease_ms),
                    heartbeat: Duration::from_millis(lease.heartbeat_ms),
                };
                let store = PostgresServerStore::open_for_server(&url, options).await.map_err(failed)?;
                // Each machine has its own key: balancers send a browser to the same server.
                let directory = UserDirs::from_env()?.state.join(STORE_DIRECTORY);
                let cookie_key = CookieKey::load(&directory).context("cannot use the key of cookies")?;
                Ok(OpenedStore { store: Arc::new(store), cookie_key, session_database: Some(text) })
            }
        }
    }

    /// Opens the store to manage tokens.
    pub(super) async fn open_for_tokens(&self) -> Result<Arc<dyn ServerStore>, CliError> {
        Ok(match self.location()? {
            StoreLocation::Directory(directory) => {
                Arc::new(SqliteServerStore::open_for_tokens(&directory).map_err(failed)?)
            }
            StoreLocation::Postgres { url, .. } => {
                Arc::new(PostgresServerStore::open_for_tokens(&url).await.map_err(failed)?)
            }
        })
    }
}

/// The store of a server, and what else is there.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn ServerStore>,
    /// The key of the cookies that it issues.
    pub(crate) cookie_key: CookieKey,
    /// The address of the database where Bowline's own agent keeps its sessions, too.
    pub(crate) session_database: Option<OsString>,
}

/// Opens a directory as the store of a server.
pub(crate) async fn open_directory(directory: PathBuf) -> Result<OpenedStore, CliError> {
    let opened = bowline_task::spawn_blocking(move || {
        let store = Arc::new(SqliteServerStore::open_for_server(&directory)?);
        let cookie_key = CookieKey::load(&directory)?;
        anyhow::Ok(OpenedStore { store, cookie_key, session_database: None })
    });
    opened.await.context("cannot open the store")?.map_err(CliError::Failed)
}

/// Brings the store to this program's version.
pub(super) async fn migrate(arguments: StoreArguments) -> Result<(), CliError> {
    match arguments.location()? {
        StoreLocation::Directory(directory) => {
            // Opening it does it.
            SqliteServerStore::open_for_tokens(&directory).map_err(failed)?;
            print(&format!("The store in {} is up to date.\n", directory.display()))?;
        }
        StoreLocation::Postgres { url, .. } => {
            let store = PostgresServerStore::open_without_migration(&url).map_err(failed)?;
            let migration = store.migrate().await.map_err(failed)?;
            print(&if migration.from == migration.to {
                format!("The schema of {} has version {}: nothing to do.\n", url.describe(), migration.to)
            } else {
                let (from, to) = (migration.from, migration.to);
                format!("Migrated the schema of {} from version {from} to version {to}.\n", url.describe())
            })?;
        }
    }
    Ok(())
}

/// Shows what the store has, and which servers use it.
pub(super) async fn show_status(arguments: StatusArguments) -> Result<(), CliError> {
    let status = match arguments.store.location()? {
        StoreLocation::Directory(directory) => {
            let store = SqliteServerStore::open_for_tokens(&directory).map_err(failed)?;
            let (sessions, events) = store.counts().await.map_err(failed)?;
            json!({ "store": directory, "sessions": sessions, "events": events })
        }
        StoreLocation::Postgres { url, .. } => {
            let store = PostgresServerStore::open_without_migration(&url).map_err(failed)?;
            let status = store.status().await.map_err(failed)?;
            let mut listener = store.listen();
            listener.next().await;
            json!({
                "store": url.describe(),
                "schema": status.schema,
                "schemaOfThisProgram": SCHEMA_VERSION,
                "delivery": if listener.is_listening() { "notifications" } else { "polling" },
                "sessions": status.sessions,
                "events": status.events,
                "messages": status.messages,
                "servers": status.servers.iter().map(describe_server).collect::<Vec<_>>(),
            })
        }
    };
    if arguments.json {
        return print(&format!("{status:#}\n"));
    }
    print(&render(&status))
}

fn describe_server(server: &ServerStatus) -> Value {
    json!({
        "id": server.id,
        "name": server.name,
        "startedAt": format_iso8601(server.started_at),
        "leaseMs": server.lease_ms,
        "isDraining": server.is_draining,
        "sessions": server.sessions,
    })
}

fn render(status: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        writeln!(text, "{name:<10} {value}").ok();
    };
    let number = |name: &str| status[name].as_u64().unwrap_or(0).to_string();
    line("Store", status["store"].as_str().unwrap_or_default());
    let schema = status["schema"].as_i64();
    if let Some(schema) = schema {
        line(
            "Schema",
            &match schema {
                0 => "none yet: run `bowline serve migrate`, or start a server".to_owned(),
                schema if schema == i64::from(SCHEMA_VERSION) => schema.to_string(),
                schema => format!("{schema}; this program has {SCHEMA_VERSION}"),
            },
        );
        line("Delivery", status["delivery"].as_str().unwrap_or_default());
    }
    if schema.is_none_or(|schema| schema == i64::from(SCHEMA_VERSION)) {
        line("Sessions", &number("sessions"));
        line("Events", &number("events"));
    }
    for server in status["servers"].as_array().map_or(&[][..], Vec::as_slice) {
        let lease = server["leaseMs"].as_i64().unwrap_or(0);
        let state = match (lease > 0, server["isDraining"] == true) {
            (false, _) => "its lease has ended".to_owned(),
            (true, true) => "stopping".to_owned(),
            (true, false) => format!("lease for {}.{} s", lease / 1000, lease % 1000 / 100),
        };
        let name = server["name"].as_str().unwrap_or_default();
        line("Server", &format!("{name}, {} open sessions, {state}", server["sessions"]));
    }
    text
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "server".to_owned(), |name| name.trim().to_owned())
}
