//! What servers that share a store know of each other: leases, messages, and sessions without a living server.

use std::collections::BTreeMap;

use super::*;
use crate::event::ConnectionId;
use crate::token::Principal;

/// The id of a server, new at each start and after each lost lease.
pub type ServerId = Arc<str>;

/// The most messages that wait for one server.
const MAX_INBOX_MESSAGES: i64 = 10_000;
/// The most messages that are read at a time, and about how many bytes.
const INBOX_PAGE: i64 = 256;
const INBOX_PAGE_BYTES: i64 = 16 << 20;
/// The most sessions that are taken over at a time.
const TAKEOVER_PAGE: i64 = 100;

/// A message from one server to another.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerMessage {
    /// The other server: the receiver of a message that is sent, the sender of one that was received.
    pub server: ServerId,
    /// What it says.
    pub content: ServerMessageContent,
}

/// What one server tells another.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerMessageContent {
    /// A client's message about a session of the receiver.
    FromClient {
        /// The session.
        session: SessionId,
        /// The client's connection, and those it took over.
        connections: Vec<ConnectionId>,
        /// Who the client is.
        principal: Principal,
        /// The message.
        message: Bytes,
    },
    /// A message for a client that is connected to the receiver.
    ToClient {
        /// The client's connection.
        connection: ConnectionId,
        /// The message.
        message: Bytes,
    },
}

/// What became of a message to the server that has a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardOutcome {
    /// It is stored for that server.
    Sent,
    /// No other living server has the session.
    NotOwned,
    /// Too many messages wait for that server.
    Full,
}

/// A session without a living server that waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingSession {
    /// Its id.
    pub id: SessionId,
    /// Its directory.
    pub cwd: PathBuf,
    /// Whether messages to its last server wait, too.
    pub has_messages: bool,
}

/// What a database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresStatus {
    /// The version of the schema; 0 if there is none.
    pub schema: i32,
    /// The servers, in the order they started.
    pub servers: Vec<ServerStatus>,
    /// The number of sessions.
    pub sessions: u64,
    /// The number of stored events.
    pub events: u64,
    /// The number of messages between servers that wait.
    pub messages: u64,
}

/// A server that uses a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// When it registered.
    pub started_at: Timestamp,
    /// How long its lease is still valid; negative if it has ended.
    pub lease_ms: i64,
    /// Whether it accepts no new work.
    pub is_draining: bool,
    /// The number of its open sessions.
    pub sessions: u64,
}

impl PostgresServerStore {
    /// Returns how this server takes part.
    #[must_use]
    pub fn options(&self) -> &PostgresOptions {
        &self.options
    }

    /// Registers this server under a new id, with a new lease.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn register(&self) -> Result<(), StoreError> {
        let id = random_hex::<16>().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let sql = "INSERT INTO servers(id, name, lease_until) VALUES($1, $2, now() + $3 * interval '1 millisecond')";
        let parameters: &[Parameter<'_>] =
            &[(&id, Type::TEXT), (&clean(&self.options.name), Type::TEXT), (&self.lease_ms(), Type::FLOAT8)];
        self.execute(sql, parameters).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.into());
        Ok(())
    }

    /// Renews the lease, and returns whether that was possible: one that has ended is never renewed.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn renew_lease(&self) -> Result<bool, StoreError> {
        let sql = "UPDATE servers SET lease_until = now() + $2 * interval '1 millisecond'
                   WHERE id = $1 AND lease_until > now()";
        let server = self.server_id();
        let parameters: &[Parameter<'_>] = &[(&&*server, Type::TEXT), (&self.lease_ms(), Type::FLOAT8)];
        Ok(self.execute(sql, parameters).await? > 0)
    }

    fn lease_ms(&self) -> f64 {
        self.options.lease.as_secs_f64() * 1000.0
    }

    /// Notes that this server accepts no new work.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn mark_draining(&self) -> Result<(), StoreError> {
        let server = self.server_id();
        let sql = "UPDATE servers SET is_draining = true WHERE id = $1";
        self.execute(sql, &[(&&*server, Type::TEXT)]).await.map(|_| ())
    }

    /// Ends the lease, because this server stops: others need not wait for its end.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn deregister(&self) -> Result<(), StoreError> {
        let server = self.server_id();
        self.execute("DELETE FROM servers WHERE id = $1", &[(&&*server, Type::TEXT)]).await.map(|_| ())
    }

    /// Removes servers whose lease ended long ago, and messages for clients of servers that are gone.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn remove_stale(&self) -> Result<(), StoreError> {
        self.execute("DELETE FROM servers WHERE lease_until < now() - interval '1 day'", &[]).await?;
        let sql = "DELETE FROM inbox WHERE (session IS NULL OR NOT EXISTS(SELECT 1 FROM sessions WHERE id = session))
                   AND NOT EXISTS(SELECT 1 FROM servers WHERE id = server AND lease_until > now())";
        self.execute(sql, &[]).await.map(|_| ())
    }

    /// Returns the number of the last event of each of these sessions.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn last_seqs(&self, sessions: &[SessionId]) -> Result<BTreeMap<SessionId, u64>, StoreError> {
        let ids: Vec<String> = sessions.iter().map(|id| clean(id)).collect();
        let sql = "SELECT id, last_seq FROM sessions WHERE id = ANY($1)";
        let rows = self.query(sql, &[(&ids, Type::TEXT_ARRAY)]).await?;
        let pairs =
            self.read_rows(rows, |row| Ok((row.try_get::<_, String>(0)?.into(), from_sql(row.try_get(1)?))))?;
        Ok(pairs.into_iter().collect())
    }

    /// Sends a client's message to the other server that has the session.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn forward(
        &self,
        session: &SessionId,
        connections: &[ConnectionId],
        principal: &Principal,
        message: &[u8],
    ) -> Result<ForwardOutcome, StoreError> {
        let sql = "WITH target AS (
                     SELECT owner FROM sessions JOIN servers ON servers.id = owner AND lease_until > now()
                     WHERE sessions.id = $1 AND owner <> $2
                   ), sent AS (
                     INSERT INTO inbox(server, sender, session, connections, principal, role, message)
                     SELECT owner, $2, $1, $3, $4, $5, $6 FROM target
                     WHERE (SELECT count(*) FROM inbox WHERE server = owner) < $7 RETURNING server
                   )
                   SELECT (SELECT count(*) FROM target), (SELECT count(pg_notify($8, server)) FROM sent)";
        let server = self.server_id();
        let parameters: &[Parameter<'_>] = &[
            (&clean(session), Type::TEXT),
            (&&*server, Type::TEXT),
            (&to_json(&connections), Type::TEXT),
            (&principal.name, Type::TEXT),
            (&principal.role.name(), Type::TEXT),
            (&message, Type::BYTEA),
            (&MAX_INBOX_MESSAGES, Type::INT8),
            (&INBOX_CHANNEL, Type::TEXT),
        ];
        let row = self.query_opt(sql, parameters).await?;
        let count = |column| row.as_ref().map_or(0, |row| row.try_get::<_, i64>(column).unwrap_or(0));
        Ok(match (count(0), count(1)) {
            (_, 1..) => ForwardOutcome::Sent,
            (0, _) => ForwardOutcome::NotOwned,
            _ => ForwardOutcome::Full,
        })
    }

    /// Returns messages for this server with their ids, oldest first, except those with these ids.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn inbox(&self, except: &[i64]) -> Result<Vec<(i64, ServerMessage)>, StoreError> {
        let sql = "SELECT id, sender, session, connections, principal, role, message FROM (
                     SELECT *, sum(length(message)) OVER (ORDER BY id) - length(message) AS earlier FROM (
                       SELECT * FROM inbox WHERE server = $1 AND id <> ALL($2) ORDER BY id LIMIT $3
                     ) AS page
                   ) AS sized WHERE earlier < $4 ORDER BY id";
        let server = self.server_id();
        let parameters: &[Parameter<'_>] = &[
            (&&*server, Type::TEXT),
            (&except, Type::INT8_ARRAY),
            (&INBOX_PAGE, Type::INT8),
            (&INBOX_PAGE_BYTES, Type::INT8),
        ];
        let rows = self.query(sql, parameters).await?;
        self.read_rows(rows, message_row)
    }

    /// Returns sessions whose server has no valid lease and that wait for one: with open requests, or with messages.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn waiting_sessions(&self) -> Result<Vec<WaitingSession>, StoreError> {
        let sql = format!(
            "SELECT id, cwd, has_messages FROM (
               SELECT id, cwd, owner, is_waiting AND owner IS NOT NULL AND NOT {OWNER_IS_ALIVE} AS is_left,
                 EXISTS(SELECT 1 FROM inbox WHERE session = sessions.id AND NOT {RECEIVER_IS_ALIVE})
                   AND (owner IS NULL OR owner = $1 OR NOT {OWNER_IS_ALIVE}) AS has_messages
               FROM sessions WHERE id IN (SELECT id FROM sessions WHERE is_waiting UNION SELECT session FROM inbox)
             ) AS candidates WHERE is_left OR has_messages LIMIT $2"
        );
        let server = self.server_id();
        let rows = self.query(&sql, &[(&&*server, Type::TEXT), (&TAKEOVER_PAGE, Type::INT8)]).await?;
        self.read_rows(rows, |row| {
            Ok(WaitingSession {
                id: row.try_get::<_, String>(0)?.into(),
                cwd: PathBuf::from(row.try_get::<_, String>(1)?),
                has_messages: row.try_get(2)?,
            })
        })
    }

    /// Returns the sessions that wait for something with this text in its id, among those that a principal may use.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn sessions_waiting_for(
        &self,
        text: &str,
        principal: &Principal,
    ) -> Result<Vec<SessionId>, StoreError> {
        let sql = "SELECT id FROM sessions WHERE is_waiting AND strpos(pending, $1) > 0
                   AND ($2 OR principal = $3) LIMIT 10";
        let uses_all = principal.role == Role::Admin;
        let parameters: &[Parameter<'_>] =
            &[(&to_json(&clean(text)), Type::TEXT), (&uses_all, Type::BOOL), (&principal.name, Type::TEXT)];
        let rows = self.query(sql, parameters).await?;
        self.read_rows(rows, |row| Ok(row.try_get::<_, String>(0)?.into()))
    }

    /// Takes over messages about a session whose receiver is gone.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn adopt_messages(&self, session: &SessionId) -> Result<(), StoreError> {
        let sql = format!("UPDATE inbox SET server = $1 WHERE session = $2 AND NOT {RECEIVER_IS_ALIVE}");
        let server = self.server_id();
        let parameters: &[Parameter<'_>] = &[(&&*server, Type::TEXT), (&clean(session), Type::TEXT)];
        self.execute(&sql, parameters).await.map(|_| ())
    }

    /// Returns what the database has.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn status(&self) -> Result<PostgresStatus, StoreError> {
        let mut client = self.client().await?;
        let status = async {
            let transaction = client.transaction().await?;
            let schema = bowline_postgres::read_version(&transaction).await?;
            if schema != SCHEMA_VERSION {
                return Ok(PostgresStatus {
                    schema,
                    servers: Vec::new(),
                    sessions: 0,
                    events: 0,
                    messages: 0,
                });
            }
            let sql = "SELECT id, name, (extract(epoch FROM started_at) * 1000)::bigint,
                         (extract(epoch FROM lease_until - now()) * 1000)::bigint, is_draining,
                         (SELECT count(*) FROM sessions WHERE owner = servers.id)
                       FROM servers ORDER BY started_at, id";
            let rows = transaction.query_typed(sql, &[]).await?;
            let servers = rows.iter().map(server_row).collect::<Result<_, _>>()?;
            let sql = "SELECT (SELECT count(*) FROM sessions),
                         (SELECT coalesce(sum(last_seq - first_seq + 1), 0)::bigint FROM events),
                         (SELECT count(*) FROM inbox)";
            let row = transaction.query_typed_one(sql, &[]).await?;
            let count = |column| row.try_get(column).map(from_sql);
            Ok(PostgresStatus {
                schema,
                servers,
                sessions: count(0)?,
                events: count(1)?,
                messages: count(2)?,
            })
        };
        status.await.map_err(|error: tokio_postgres::Error| self.unavailable(&error))
    }

    /// Begins to listen for what other servers do.
    #[must_use]
    pub fn listen(&self) -> PostgresListener {
        PostgresListener::new(self.connector.clone(), self.pool.clone())
    }
}

/// Whether the receiver of a message holds a valid lease.
const RECEIVER_IS_ALIVE: &str =
    "EXISTS(SELECT 1 FROM servers WHERE servers.id = inbox.server AND lease_until > now())";

/// Stores a message for another server.
pub(super) async fn insert_message(
    transaction: &Transaction<'_>,
    server: &str,
    message: &ServerMessage,
) -> Result<(), tokio_postgres::Error> {
    let none = String::new();
    let (session, connections, principal, role, body) = match &message.content {
        ServerMessageContent::FromClient { session, connections, principal, message } => {
            (Some(clean(session)), to_json(connections), &principal.name, principal.role.name(), message)
        }
        ServerMessageContent::ToClient { connection, message } => {
            (None, to_json(&[connection]), &none, "", message)
        }
    };
    let sql = "WITH sent AS (
                 INSERT INTO inbox(server, sender, session, connections, principal, role, message)
                 VALUES($1, $2, $3, $4, $5, $6, $7) RETURNING server
               )
               SELECT count(pg_notify($8, server)) FROM sent";
    let parameters: &[Parameter<'_>] = &[
        (&&*message.server, Type::TEXT),
        (&server, Type::TEXT),
        (&session, Type::TEXT),
        (&connections, Type::TEXT),
        (principal, Type::TEXT),
        (&role, Type::TEXT),
        (&&**body, Type::BYTEA),
        (&INBOX_CHANNEL, Type::TEXT),
    ];
    transaction.execute_typed(sql, parameters).await.map(|_| ())
}

fn message_row(row: &Row) -> Result<(i64, ServerMessage), tokio_postgres::Error> {
    let connections: Vec<ConnectionId> =
        serde_json::from_str(&row.try_get::<_, String>(3)?).unwrap_or_default();
    let message = Bytes::from(row.try_get::<_, Vec<u8>>(6)?);
    let content = match row.try_get::<_, Option<String>>(2)? {
        Some(session) => ServerMessageContent::FromClient {
            session: session.into(),
            connections,
            principal: Principal {
                name: row.try_get(4)?,
                // An unknown role of a later version may do the least.
                role: Role::from_name(&row.try_get::<_, String>(5)?).unwrap_or(Role::Observer),
                // The sender has checked it.
                token: String::new(),
            },
            message,
        },
        None => ServerMessageContent::ToClient {
            connection: connections.into_iter().next().unwrap_or_else(|| "".into()),
            message,
        },
    };
    Ok((row.try_get(0)?, ServerMessage { server: row.try_get::<_, String>(1)?.into(), content }))
}

fn server_row(row: &Row) -> Result<ServerStatus, tokio_postgres::Error> {
    Ok(ServerStatus {
        id: row.try_get::<_, String>(0)?.into(),
        name: row.try_get(1)?,
        started_at: Timestamp(row.try_get(2)?),
        lease_ms: row.try_get(3)?,
        is_draining: row.try_get(4)?,
        sessions: from_sql(row.try_get(5)?),
    })
}
