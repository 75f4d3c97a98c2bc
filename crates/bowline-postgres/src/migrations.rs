//! The versions of the database's schema, and the way from one to the next.

use deadpool_postgres::Client;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

/// Each migration leads from the version of its index to the next.
const MIGRATIONS: &[&str] =
    &[include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// The key of the lock that servers hold while they migrate: "Bowline" in ASCII.
const MIGRATION_LOCK: i64 = 0x42_6f77_6c69_6e65;

/// The version of the schema that this program uses.
pub const SCHEMA_VERSION: i32 = 3;

/// What migrating did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The version before; 0 for an empty database.
    pub from: i32,
    /// The version now. Higher than [`SCHEMA_VERSION`] if a later program was there before; then nothing was changed.
    pub to: i32,
}

/// Brings the schema to this program's version, in one transaction. Programs that start at the same time wait for the
/// first, which does it.
pub(crate) async fn migrate(client: &mut Client) -> Result<Migration, Error> {
    let transaction = client.transaction().await?;
    transaction.execute_typed("SELECT pg_advisory_xact_lock($1)", &[(&MIGRATION_LOCK, Type::INT8)]).await?;
    let from = read_version(&transaction).await?;
    if from == 0 {
        transaction.batch_execute("CREATE TABLE bowline_schema(version integer NOT NULL)").await?;
        transaction.batch_execute("INSERT INTO bowline_schema VALUES(0)").await?;
    }
    let mut to = from;
    while let Some(step) = usize::try_from(to).ok().and_then(|version| MIGRATIONS.get(version)) {
        transaction.batch_execute(step).await?;
        to += 1;
    }
    if to > from {
        let sql = "UPDATE bowline_schema SET version = $1";
        transaction.execute_typed(sql, &[(&to, Type::INT4)]).await?;
    }
    transaction.commit().await?;
    Ok(Migration { from, to })
}

/// Returns the version of the schema; 0 if there is none.
///
/// # Errors
/// Fails if the database cannot be read.
pub async fn read_version(client: &tokio_postgres::Transaction<'_>) -> Result<i32, Error> {
    let exists = client.query_typed_one("SELECT to_regclass('bowline_schema') IS NOT NULL", &[]).await?;
    if !exists.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    client.query_typed_one("SELECT version FROM bowline_schema", &[]).await?.try_get(0)
}
