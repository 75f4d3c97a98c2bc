//! The PostgreSQL database that servers share: its address, connections with TLS, and the versions of its schema.
//!
//! `bowline-serve` keeps the server's sessions and events in it, `bowline-agent` the conversations of Bowline's own agent.
//! Both use one schema, so that one migration concerns all.

mod connector;
mod migrations;

pub use connector::{Connector, PostgresError, PostgresUrl, PostgresUrlError, RustlsStream};
pub use migrations::{Migration, SCHEMA_VERSION, read_version};

use std::time::Duration;

use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

/// A parameter of a statement with its type. Statements that name all types need no round trip to prepare them.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Lets the database end a transaction whose program is silent for this long, because it is suspended or cut off: other
/// programs wait for the rows that the transaction has locked. Zero is no limit.
///
/// # Errors
/// Fails if the database cannot be reached.
pub async fn limit_silence(
    transaction: &Transaction<'_>,
    limit: Duration,
) -> Result<(), tokio_postgres::Error> {
    let sql = format!("SET LOCAL idle_in_transaction_session_timeout = {}", limit.as_millis());
    transaction.batch_execute(&sql).await
}

/// Returns a text that PostgreSQL can store: it has no NUL.
#[must_use]
pub fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Returns a number as PostgreSQL stores it.
#[must_use]
pub fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a stored number.
#[must_use]
pub fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
