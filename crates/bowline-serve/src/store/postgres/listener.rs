//! Wake-ups from the database, over one connection of its own.
//!
//! A wake-up only says where to look. Where notifications do not arrive, as behind a pooler in transaction mode, or
//! while the connection is down, the listener says at short intervals to look at everything.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::Instant;

use bowline_postgres::RustlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Socket};

use super::*;

/// The channel of the probe that shows whether notifications arrive.
const PROBE_CHANNEL: &str = "bowline_probe";
/// How long the probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to look at everything while notifications do not arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait before the next attempt to listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait before the next attempt after a probe that nothing came back from.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// At these sessions' events.
    Sessions(Vec<SessionId>),
    /// At the messages for this server.
    Inbox,
    /// At everything.
    Everything,
}

/// Waits for wake-ups.
pub struct PostgresListener {
    connector: Connector,
    pool: Pool,
    connection: Option<(Client, Connection<Socket, RustlsStream>)>,
    waiting: VecDeque<Wake>,
    next_attempt: Instant,
}

impl std::fmt::Debug for PostgresListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresListener").finish_non_exhaustive()
    }
}

impl PostgresListener {
    pub(super) fn new(connector: Connector, pool: Pool) -> Self {
        let next_attempt = Instant::now();
        Self { connector, pool, connection: None, waiting: VecDeque::new(), next_attempt }
    }

    /// Returns whether notifications arrive; otherwise everything is looked at again and again.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.connection.is_some()
    }

    /// Waits for the next wake-up.
    pub async fn next(&mut self) -> Wake {
        loop {
            if let Some(wake) = self.waiting.pop_front() {
                return wake;
            }
            if let Some((_, connection)) = &mut self.connection {
                match next_notification(connection).await {
                    Some(notification) => self.waiting.extend(to_wake(&notification)),
                    None => {
                        tracing::warn!(
                            "the connection that listens to the database has ended; looking at intervals"
                        );
                        self.connection = None;
                        self.next_attempt = Instant::now();
                    }
                }
                continue;
            }
            if Instant::now() < self.next_attempt {
                tokio::time::sleep(POLL_INTERVAL).await;
                return Wake::Everything;
            }
            match self.connect().await {
                Ok(Some(connection)) => {
                    tracing::info!("listening to the database");
                    self.connection = Some(connection);
                }
                Ok(None) => {
                    tracing::warn!(
                        "notifications of the database do not arrive, as behind a pooler in transaction mode; looking at intervals"
                    );
                    self.next_attempt = Instant::now() + PROBE_INTERVAL;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot listen to the database; looking at intervals");
                    self.next_attempt = Instant::now() + RETRY_INTERVAL;
                }
            }
            // What happened before it listened.
            return Wake::Everything;
        }
    }

    /// Connects and listens; `None` if notifications do not arrive.
    async fn connect(&mut self) -> Result<Option<(Client, Connection<Socket, RustlsStream>)>, StoreError> {
        let (client, mut connection) = self.connector.connect().await?;
        let nonce = random_hex::<8>().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let probe = async {
            let listen = format!("LISTEN {EVENTS_CHANNEL}; LISTEN {INBOX_CHANNEL}; LISTEN {PROBE_CHANNEL}");
            client.batch_execute(&listen).await.map_err(|error| self.connector.unavailable(&error))?;
            let other = self.pool.get().await.map_err(|error| self.connector.no_connection(&error))?;
            let parameters: &[Parameter<'_>] = &[(&PROBE_CHANNEL, Type::TEXT), (&nonce, Type::TEXT)];
            let sent = other.execute_typed("SELECT pg_notify($1, $2)", parameters).await;
            sent.map_err(|error| self.connector.unavailable(&error))?;
            // The notification ends the wait.
            std::future::pending::<Result<(), StoreError>>().await
        };
        let waiting = &mut self.waiting;
        let receive = async {
            while let Some(notification) = next_notification(&mut connection).await {
                if notification.channel() == PROBE_CHANNEL && notification.payload() == nonce {
                    return true;
                }
                waiting.extend(to_wake(&notification));
            }
            false
        };
        let probed = tokio::time::timeout(PROBE_TIMEOUT, async {
            tokio::select! {
                received = receive => Ok(received),
                failed = probe => failed.map(|()| false),
            }
        });
        match probed.await {
            Ok(Ok(true)) => Ok(Some((client, connection))),
            Ok(Ok(false)) => Err(StoreError::Unavailable("the connection ended".to_owned())),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Waits for a notification; `None` if the connection has ended.
async fn next_notification(connection: &mut Connection<Socket, RustlsStream>) -> Option<Notification> {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await? {
            Ok(AsyncMessage::Notification(notification)) => return Some(notification),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

fn to_wake(notification: &Notification) -> Option<Wake> {
    match notification.channel() {
        // A payload that was too long is empty.
        EVENTS_CHANNEL => Some(
            serde_json::from_str::<Vec<SessionId>>(notification.payload())
                .map_or(Wake::Everything, Wake::Sessions),
        ),
        INBOX_CHANNEL => Some(Wake::Inbox),
        _ => None,
    }
}
