//! The session that a server was added to, once it is known, and the session's engine.

use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::SessionId;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::engine::{EngineSession, RelayedOperation};
use crate::engine_interceptor::{
    EngineInterceptorOptions, EngineSessions, SessionContext, policy_unavailable, workspace_unavailable,
};

/// How long the agent may take to name the session: it may connect to its servers before it answers.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// A session whose id may not be known yet.
#[derive(Clone)]
pub(crate) struct BackendSession {
    session: watch::Receiver<Option<SessionId>>,
    sessions: EngineSessions,
}

impl BackendSession {
    pub(crate) fn new(session: watch::Receiver<Option<SessionId>>, sessions: EngineSessions) -> Self {
        Self { session, sessions }
    }

    /// Returns the interceptor's options.
    pub(crate) fn options(&self) -> EngineInterceptorOptions {
        self.sessions.options
    }

    /// Returns whether the session is known.
    pub(crate) fn is_open(&self) -> bool {
        self.session.borrow().is_some()
    }

    /// Waits for the session without a deadline. Returns `None` if it will not be opened.
    pub(crate) async fn wait_until_open(&self) -> Option<SessionId> {
        let mut session = self.session.clone();
        let opened = session.wait_for(Option::is_some).await.ok()?;
        opened.clone()
    }

    /// Returns the session's id.
    pub(crate) async fn session_id(&self) -> Result<SessionId, RpcError> {
        let opened = timeout(OPEN_TIMEOUT, self.wait_until_open()).await.ok().flatten();
        opened.ok_or_else(|| RpcError::Internal { reason: "the session is not open".to_owned() })
    }

    /// Returns the interceptor's context of the session, if there is one.
    pub(crate) async fn context(&self) -> Result<Option<Arc<SessionContext>>, RpcError> {
        Ok(self.sessions.get(&self.session_id().await?))
    }

    /// Returns the session's engine.
    pub(crate) async fn engine(&self) -> Result<Arc<dyn EngineSession>, RpcError> {
        let context = self.context().await?.ok_or_else(workspace_unavailable)?;
        context.engine().await.ok_or_else(workspace_unavailable)
    }

    /// Authorises an operation of the editor by the rules, if rules apply.
    pub(crate) async fn authorize(
        &self,
        operation: RelayedOperation,
        call: Option<String>,
    ) -> Result<(), RpcError> {
        if !self.options().enforce_policy {
            return Ok(());
        }
        let context = self.context().await?.ok_or_else(policy_unavailable)?;
        let engine = context.engine().await.ok_or_else(policy_unavailable)?;
        engine.authorize(operation, call).await
    }
}
