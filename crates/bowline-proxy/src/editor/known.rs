//! The session that a server was added to, as soon as it is known, and the engine beside it.

use std::sync::Arc;
use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::schema::v1::SessionId;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::beside::{Options, Sessions, Shared, unjudged, unserved};
use crate::engine::{Act, EngineSession};

/// How long the agent may take to say which session it is: it may connect to its servers before it answers.
const OPENING: Duration = Duration::from_secs(60);

/// A session that may not be known yet.
#[derive(Clone)]
pub(crate) struct Known {
    session: watch::Receiver<Option<SessionId>>,
    sessions: Sessions,
}

impl Known {
    pub(crate) fn new(session: watch::Receiver<Option<SessionId>>, sessions: Sessions) -> Self {
        Self { session, sessions }
    }

    /// Returns what is done beside the session.
    pub(crate) fn options(&self) -> Options {
        self.sessions.options
    }

    /// Says whether the session is known.
    pub(crate) fn is_known(&self) -> bool {
        self.session.borrow().is_some()
    }

    /// Waits for the session, however long that takes; none if it will not be opened.
    pub(crate) async fn opened(&self) -> Option<SessionId> {
        let mut session = self.session.clone();
        let opened = session.wait_for(Option::is_some).await.ok()?;
        opened.clone()
    }

    /// Returns the session.
    pub(crate) async fn session(&self) -> Result<SessionId, Failure> {
        let opened = timeout(OPENING, self.opened()).await.ok().flatten();
        opened.ok_or_else(|| Failure::Internal { reason: "the session is not open".to_owned() })
    }

    /// Returns what is beside the session, if anything is.
    pub(crate) async fn beside(&self) -> Result<Option<Arc<Shared>>, Failure> {
        Ok(self.sessions.of(&self.session().await?))
    }

    /// Returns the engine that serves in the editor's place.
    pub(crate) async fn engine(&self) -> Result<Arc<dyn EngineSession>, Failure> {
        let beside = self.beside().await?.ok_or_else(unserved)?;
        beside.engine().await.ok_or_else(unserved)
    }

    /// Asks rules, where there are any, whether something may be done that the editor would do.
    pub(crate) async fn lets(&self, act: Act, call: Option<String>) -> Result<(), Failure> {
        if !self.options().rules {
            return Ok(());
        }
        let beside = self.beside().await?.ok_or_else(unjudged)?;
        let engine = beside.engine().await.ok_or_else(unjudged)?;
        engine.lets(act, call).await
    }
}
