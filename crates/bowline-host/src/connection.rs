//! A connection to an agent: opening sessions on it, and its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_protocol::capabilities::AgentMethod;
use bowline_protocol::schema::v1::{
    AuthMethod, AuthMethodId, AuthenticateRequest, CloseSessionRequest, ForkSessionRequest,
    InitializeResponse, LoadSessionRequest, McpServer, Meta, NewSessionRequest, ResumeSessionRequest,
    SessionId,
};
use bowline_wire::{AgentExit, AgentHandle, CallError, ShutdownGrace};
use bowline_workspace::roots::{RootSpec, Roots};
use tokio::task::JoinHandle;

use crate::client_service::ClientService;
use crate::error::HostError;
use crate::host::Host;
use crate::operations::run_blocking;
use crate::process::SpawnedAgent;
use crate::session::{HostSession, SessionInner};

/// A connection to an agent. Dropping it ends its sessions, their commands, and the agent if the host started it.
#[derive(Debug)]
pub struct Connection {
    host: Host,
    service: Arc<ClientService>,
    agent: AgentHandle,
    initialize_response: InitializeResponse,
    process: Option<SpawnedAgent>,
    serve_task: Option<JoinHandle<io::Result<()>>>,
}

/// The options of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The working directory; by default the project.
    pub cwd: Option<String>,
    /// Additional directories for this session alone. The agent must support them.
    pub additional_directories: Vec<RootSpec>,
    /// MCP servers that the agent should use.
    pub mcp_servers: Vec<McpServer>,
}

impl Connection {
    pub(crate) async fn open(
        host: Host,
        service: Arc<ClientService>,
        agent: AgentHandle,
        process: Option<SpawnedAgent>,
        serve_task: Option<JoinHandle<io::Result<()>>>,
    ) -> Result<Self, HostError> {
        let initialized = match initialize_agent(&host, &agent).await {
            Ok(initialized) => initialized,
            Err(error) => {
                agent.caller().close();
                serve_task.inspect(JoinHandle::abort);
                // The agent's last output may explain the failure.
                let exit = match process {
                    Some(process) => Some(Box::new(process.shutdown(ShutdownGrace::default()).await)),
                    None => None,
                };
                return Err(match (error, exit) {
                    (HandshakeError::Failed(why), Some(exit)) => HostError::HandshakeFailed { why, exit },
                    (HandshakeError::Failed(why), None) => why.into(),
                    (HandshakeError::TimedOut(seconds), exit) => {
                        HostError::InitializeTimeout { seconds, exit }
                    }
                });
            }
        };
        service.set_agent_info(&initialized);
        // When the agent is gone, its sessions end, even if the connection is still held.
        let (closing, weak) = (agent.clone(), Arc::downgrade(&service));
        bowline_task::spawn(async move {
            closing.caller().closed().await;
            if let Some(service) = weak.upgrade() {
                service.end_sessions().await;
            }
        });
        Ok(Self { host, service, agent, initialize_response: initialized, process, serve_task })
    }

    /// Returns the agent, for methods that sessions do not cover.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// Returns the agent's answer to `initialize`.
    #[must_use]
    pub fn initialize_response(&self) -> &InitializeResponse {
        &self.initialize_response
    }

    /// Returns the id of the agent's process, if the host started it without a supervisor and it is running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.pid()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn new_session(&self, options: SessionOptions) -> Result<HostSession, HostError> {
        let (roots, cwd, additional) = self.session_roots(&options).await?;
        let opening = self.service.begin_opening();
        let request =
            NewSessionRequest::new(cwd).additional_directories(additional).mcp_servers(options.mcp_servers);
        let response = self.agent.new_session(request).await?;
        let (shared, id) = (self.host.inner.clone(), response.session_id.clone());
        let name = run_blocking(move || shared.reserve_new_name(&id)).await??;
        let session = self.create_session(response.session_id, name, roots);
        self.service.add_session(session.inner.clone()).await?.commit();
        session.inner.apply_open_response(response.modes.as_ref(), response.config_options.as_deref());
        drop(opening);
        Ok(session)
    }

    /// Loads an existing session, replaying its conversation.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn load_session(
        &self,
        id: SessionId,
        options: SessionOptions,
    ) -> Result<HostSession, HostError> {
        self.agent.check(AgentMethod::LoadSession).map_err(CallError::from)?;
        let (roots, cwd, additional) = self.session_roots(&options).await?;
        let session = self.create_existing_session(&id, roots).await?;
        // The replay arrives before the response.
        let registration = self.service.add_session(session.inner.clone()).await?;
        let request = LoadSessionRequest::new(id.clone(), cwd)
            .additional_directories(additional)
            .mcp_servers(options.mcp_servers);
        let response = self.agent.load_session(request).await?;
        registration.commit();
        session.inner.continue_turns_from(turn_count_from_meta(response.meta.as_ref()));
        session.inner.apply_open_response(response.modes.as_ref(), response.config_options.as_deref());
        Ok(session)
    }

    /// Resumes an existing session without replaying its conversation.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn resume_session(
        &self,
        id: SessionId,
        options: SessionOptions,
    ) -> Result<HostSession, HostError> {
        self.agent.check(AgentMethod::ResumeSession).map_err(CallError::from)?;
        let (roots, cwd, additional) = self.session_roots(&options).await?;
        let session = self.create_existing_session(&id, roots).await?;
        let registration = self.service.add_session(session.inner.clone()).await?;
        let request = ResumeSessionRequest::new(id.clone(), cwd)
            .additional_directories(additional)
            .mcp_servers(options.mcp_servers);
        let response = self.agent.resume_session(request).await?;
        registration.commit();
        session.inner.continue_turns_from(turn_count_from_meta(response.meta.as_ref()));
        session.inner.apply_open_response(response.modes.as_ref(), response.config_options.as_deref());
        Ok(session)
    }

    /// Forks a session: the copy has its conversation, but none of its grants.
    ///
    /// # Errors
    /// Fails if the agent does not support it, or refuses.
    pub async fn fork_session(&self, session: &HostSession) -> Result<HostSession, HostError> {
        self.agent.check(AgentMethod::ForkSession).map_err(CallError::from)?;
        let opening = self.service.begin_opening();
        let cwd = PathBuf::from(session.files().roots().cwd());
        let response = self.agent.fork_session(ForkSessionRequest::new(session.id().clone(), cwd)).await?;
        let (shared, id) = (self.host.inner.clone(), response.session_id.clone());
        let name = run_blocking(move || shared.reserve_new_name(&id)).await??;
        let forked = self.create_session(response.session_id, name, Some(session.files().roots().clone()));
        self.service.add_session(forked.inner.clone()).await?.commit();
        forked.inner.apply_open_response(response.modes.as_ref(), response.config_options.as_deref());
        drop(opening);
        Ok(forked)
    }

    /// Logs in by a method that the agent offers. A method that needs a terminal is left to the user.
    ///
    /// # Errors
    /// Fails if the agent does not offer the method, or the login fails.
    pub async fn authenticate(&self, method: &AuthMethodId) -> Result<(), HostError> {
        let advertised =
            self.initialize_response.auth_methods.iter().find(|advertised| advertised.id() == method);
        match advertised {
            None => return Err(HostError::AuthMethodNotOffered(method.0.to_string())),
            Some(AuthMethod::Terminal(_)) => {
                return Err(HostError::TerminalLoginRequired(method.0.to_string()));
            }
            Some(_) => {}
        }
        self.agent.authenticate(AuthenticateRequest::new(method.clone())).await?;
        Ok(())
    }

    /// Ends a session: its commands are killed, and the agent is notified if it supports that.
    ///
    /// # Errors
    /// Fails if the agent reports an error. The session has ended here nevertheless.
    pub async fn close_session(&self, session: &HostSession) -> Result<(), HostError> {
        session.cancel();
        self.service.remove_session(session.id()).await;
        if self.agent.check(AgentMethod::CloseSession).is_ok() {
            self.agent.close_session(CloseSessionRequest::new(session.id().clone())).await?;
        }
        Ok(())
    }

    /// Ends the connection and all sessions on it, and the agent if the host started it.
    pub async fn shutdown(mut self, grace: ShutdownGrace) -> Option<AgentExit> {
        self.service.end_sessions().await;
        match self.process.take() {
            Some(process) => Some(process.shutdown(grace).await),
            None => {
                self.agent.caller().close();
                None
            }
        }
    }

    async fn create_existing_session(
        &self,
        id: &SessionId,
        roots: Option<Roots>,
    ) -> Result<HostSession, HostError> {
        let (shared, owned_id) = (self.host.inner.clone(), id.clone());
        let reserved = run_blocking(move || {
            let name = shared.reserve_existing_name(&owned_id)?;
            let turn = shared.workspace.last_turn(&name)?;
            Ok::<_, HostError>((name, turn))
        });
        let (name, turn) = reserved.await??;
        let session = self.create_session(id.clone(), name, roots);
        session.inner.continue_turns_from(turn.unwrap_or(0));
        Ok(session)
    }

    fn create_session(&self, id: SessionId, name: String, roots: Option<Roots>) -> HostSession {
        let shared = self.host.inner.clone();
        let workspace = &shared.workspace;
        let files = match roots {
            Some(roots) => workspace.session_with_roots(&name, roots),
            None => workspace.session(&name),
        };
        let session = Arc::new(SessionInner::new(id, shared, files));
        HostSession { inner: session, agent: self.agent.clone() }
    }

    /// Returns the roots of a session, if they differ from the workspace's, and the directories announced to the agent.
    async fn session_roots(
        &self,
        options: &SessionOptions,
    ) -> Result<(Option<Roots>, PathBuf, Vec<PathBuf>), HostError> {
        let workspace_roots = self.host.workspace().roots();
        let additional: Vec<RootSpec> = options.additional_directories.clone();
        let mut announced: Vec<PathBuf> = additional.iter().map(|root| PathBuf::from(&root.path)).collect();
        let gate = self.agent.gate();
        gate.check_additional_directories(&announced).map_err(CallError::from)?;
        // The host's additional roots are announced to agents that support additional directories.
        let permanent = self.host.inner.options.additional_roots.iter().map(|root| PathBuf::from(&root.path));
        let permanent: Vec<PathBuf> = permanent.collect();
        if gate.check_additional_directories(&permanent).is_ok() {
            announced.extend(permanent);
        }
        let cwd = options.cwd.clone().unwrap_or_else(|| workspace_roots.cwd().to_owned());
        if additional.is_empty() && options.cwd.is_none() {
            return Ok((None, PathBuf::from(cwd), announced));
        }
        // The host's additional roots belong to every session.
        let all = additional.into_iter().chain(self.host.inner.options.additional_roots.clone());
        let (all, spec) = (all.collect::<Vec<_>>(), RootSpec::writable(cwd.clone()));
        let roots = run_blocking(move || Roots::open(&spec, &all)).await??;
        let names = roots.iter().map(|(name, _)| name.to_owned());
        self.host.approvals().add_roots(names);
        Ok((Some(roots), PathBuf::from(cwd), announced))
    }
}

/// Why the handshake failed.
enum HandshakeError {
    Failed(CallError),
    /// The agent did not answer within this many seconds.
    TimedOut(u64),
}

async fn initialize_agent(host: &Host, agent: &AgentHandle) -> Result<InitializeResponse, HandshakeError> {
    let response = agent.initialize(host.initialize_request());
    let response = match host.inner.options.initialize_timeout {
        None => Ok(response.await),
        Some(limit) => {
            tokio::time::timeout(limit, response).await.map_err(|_| HandshakeError::TimedOut(limit.as_secs()))
        }
    };
    response?.map_err(HandshakeError::Failed)
}

/// Returns the number of turns that a session has had, if its agent reports it. Bowline's own agent does: both write to
/// the same journal, where a turn must have one number.
fn turn_count_from_meta(meta: Option<&Meta>) -> u64 {
    meta.and_then(|meta| meta.get("bowline")?.get("turns")?.as_u64()).unwrap_or(0)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.service.abandon_sessions();
        self.agent.caller().close();
        if let Some(serve_task) = self.serve_task.take() {
            serve_task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_say_how_many_turns_there_were() {
        let turns =
            |text: &str| turn_count_from_meta(serde_json::from_str::<Option<Meta>>(text).unwrap().as_ref());
        let responses =
            [r#"{"bowline":{"turns":3}}"#, r#"{"bowline":{"turns":-1}}"#, r#"{"bowline":7}"#, "{}", "null"];
        assert_eq!(responses.map(turns), [3, 0, 0, 0, 0]);
    }
}
