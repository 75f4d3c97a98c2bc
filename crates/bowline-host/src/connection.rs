//! A connection to an agent: opening sessions on it, and its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_state::capabilities::AgentMethod;
use bowline_state::schema::v1::{
    AuthMethod, AuthMethodId, AuthenticateRequest, CloseSessionRequest, ForkSessionRequest,
    InitializeResponse, LoadSessionRequest, McpServer, Meta, NewSessionRequest, ResumeSessionRequest,
    SessionId,
};
use bowline_wire::{AgentExit, AgentHandle, CallError, Grace};
use bowline_workspace::roots::{RootSpec, Roots};
use tokio::task::JoinHandle;

use crate::error::HostError;
use crate::face::Face;
use crate::host::Host;
use crate::operations::blocking;
use crate::process::Process;
use crate::session::{Held, Session};

/// A connection to an agent. Dropping it ends its sessions, their commands, and the agent if the host started it.
#[derive(Debug)]
pub struct Connection {
    host: Host,
    face: Arc<Face>,
    agent: AgentHandle,
    initialized: InitializeResponse,
    process: Option<Process>,
    serving: Option<JoinHandle<io::Result<()>>>,
}

/// What a session is opened with.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Where it works; the project if nothing is said.
    pub cwd: Option<String>,
    /// More directories for this session alone. The agent must have said that it can use them.
    pub additional_directories: Vec<RootSpec>,
    /// MCP servers that the agent should use.
    pub mcp_servers: Vec<McpServer>,
}

impl Connection {
    pub(crate) async fn open(
        host: Host,
        face: Arc<Face>,
        agent: AgentHandle,
        process: Option<Process>,
        serving: Option<JoinHandle<io::Result<()>>>,
    ) -> Result<Self, HostError> {
        let initialized = match greet(&host, &agent).await {
            Ok(initialized) => initialized,
            Err(error) => {
                agent.caller().close();
                serving.inspect(JoinHandle::abort);
                // What the agent said last may tell why.
                let exit = match process {
                    Some(process) => Some(Box::new(process.shutdown(Grace::default()).await)),
                    None => None,
                };
                return Err(match (error, exit) {
                    (Unmet::Failed(why), Some(exit)) => HostError::NotMet { why, exit },
                    (Unmet::Failed(why), None) => why.into(),
                    (Unmet::Silent(seconds), exit) => HostError::Silent { seconds, exit },
                });
            }
        };
        face.met(&initialized);
        // When the agent is gone, so are its sessions, whoever still holds the connection.
        let (ended, weak) = (agent.clone(), Arc::downgrade(&face));
        tokio::spawn(async move {
            ended.caller().closed().await;
            if let Some(face) = weak.upgrade() {
                face.end().await;
            }
        });
        Ok(Self { host, face, agent, initialized, process, serving })
    }

    /// Returns the agent, for what sessions do not cover.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.agent
    }

    /// Returns what the agent said of itself.
    #[must_use]
    pub fn initialized(&self) -> &InitializeResponse {
        &self.initialized
    }

    /// Returns the id of the agent's process, if the host started it, without a supervisor, and it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref()?.pid()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn new_session(&self, options: SessionOptions) -> Result<Session, HostError> {
        let (roots, cwd, more) = self.roots(&options).await?;
        let opening = self.face.opening();
        let request =
            NewSessionRequest::new(cwd).additional_directories(more).mcp_servers(options.mcp_servers);
        let response = self.agent.new_session(request).await?;
        let (shared, id) = (self.host.shared.clone(), response.session_id.clone());
        let name = blocking(move || shared.new_name(&id)).await??;
        let session = self.hold(response.session_id, name, roots);
        self.face.add(session.held.clone()).await?.keep();
        session.held.opened(response.modes.as_ref(), response.config_options.as_deref());
        drop(opening);
        Ok(session)
    }

    /// Opens a session of before, with all that was said in it.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn load_session(&self, id: SessionId, options: SessionOptions) -> Result<Session, HostError> {
        self.agent.check(AgentMethod::LoadSession).map_err(CallError::from)?;
        let (roots, cwd, more) = self.roots(&options).await?;
        let session = self.hold_old(&id, roots).await?;
        // What was said comes before the answer.
        let added = self.face.add(session.held.clone()).await?;
        let request = LoadSessionRequest::new(id.clone(), cwd)
            .additional_directories(more)
            .mcp_servers(options.mcp_servers);
        let response = self.agent.load_session(request).await?;
        added.keep();
        session.held.count_from(turns_of(response.meta.as_ref()));
        session.held.opened(response.modes.as_ref(), response.config_options.as_deref());
        Ok(session)
    }

    /// Goes on with a session of before, without hearing again what was said in it.
    ///
    /// # Errors
    /// Fails if its directories cannot be used, or the agent does not open it.
    pub async fn resume_session(&self, id: SessionId, options: SessionOptions) -> Result<Session, HostError> {
        self.agent.check(AgentMethod::ResumeSession).map_err(CallError::from)?;
        let (roots, cwd, more) = self.roots(&options).await?;
        let session = self.hold_old(&id, roots).await?;
        let added = self.face.add(session.held.clone()).await?;
        let request = ResumeSessionRequest::new(id.clone(), cwd)
            .additional_directories(more)
            .mcp_servers(options.mcp_servers);
        let response = self.agent.resume_session(request).await?;
        added.keep();
        session.held.count_from(turns_of(response.meta.as_ref()));
        session.held.opened(response.modes.as_ref(), response.config_options.as_deref());
        Ok(session)
    }

    /// Opens a copy of a session, with all that was said in it and none of what it was allowed.
    ///
    /// # Errors
    /// Fails if the agent cannot, or does not.
    pub async fn fork_session(&self, session: &Session) -> Result<Session, HostError> {
        self.agent.check(AgentMethod::ForkSession).map_err(CallError::from)?;
        let opening = self.face.opening();
        let cwd = PathBuf::from(session.files().roots().cwd());
        let response = self.agent.fork_session(ForkSessionRequest::new(session.id().clone(), cwd)).await?;
        let (shared, id) = (self.host.shared.clone(), response.session_id.clone());
        let name = blocking(move || shared.new_name(&id)).await??;
        let forked = self.hold(response.session_id, name, Some(session.files().roots().clone()));
        self.face.add(forked.held.clone()).await?.keep();
        forked.held.opened(response.modes.as_ref(), response.config_options.as_deref());
        drop(opening);
        Ok(forked)
    }

    /// Logs in by a method that the agent offered. One that takes a terminal is the user's to run.
    ///
    /// # Errors
    /// Fails if the agent did not offer it, or says no.
    pub async fn authenticate(&self, method: &AuthMethodId) -> Result<(), HostError> {
        let offered = self.initialized.auth_methods.iter().find(|offered| offered.id() == method);
        match offered {
            None => return Err(HostError::NotOffered(method.0.to_string())),
            Some(AuthMethod::Terminal(_)) => return Err(HostError::TerminalLogin(method.0.to_string())),
            Some(_) => {}
        }
        self.agent.authenticate(AuthenticateRequest::new(method.clone())).await?;
        Ok(())
    }

    /// Ends a session: its commands are killed, and the agent is told if it can be.
    ///
    /// # Errors
    /// Fails if the agent does. The session has ended here all the same.
    pub async fn close_session(&self, session: &Session) -> Result<(), HostError> {
        session.cancel();
        self.face.remove(session.id()).await;
        if self.agent.check(AgentMethod::CloseSession).is_ok() {
            self.agent.close_session(CloseSessionRequest::new(session.id().clone())).await?;
        }
        Ok(())
    }

    /// Ends the connection and all sessions on it, and the agent if the host started it.
    pub async fn shutdown(mut self, grace: Grace) -> Option<AgentExit> {
        self.face.end().await;
        match self.process.take() {
            Some(process) => Some(process.shutdown(grace).await),
            None => {
                self.agent.caller().close();
                None
            }
        }
    }

    async fn hold_old(&self, id: &SessionId, roots: Option<Roots>) -> Result<Session, HostError> {
        let (shared, its) = (self.host.shared.clone(), id.clone());
        let named = blocking(move || {
            let name = shared.old_name(&its)?;
            let turn = shared.workspace.last_turn(&name)?;
            Ok::<_, HostError>((name, turn))
        });
        let (name, turn) = named.await??;
        let session = self.hold(id.clone(), name, roots);
        session.held.count_from(turn.unwrap_or(0));
        Ok(session)
    }

    fn hold(&self, id: SessionId, name: String, roots: Option<Roots>) -> Session {
        let shared = self.host.shared.clone();
        let workspace = &shared.workspace;
        let files = match roots {
            Some(roots) => workspace.session_within(&name, roots),
            None => workspace.session(&name),
        };
        let held = Arc::new(Held::new(id, shared, files));
        Session { held, agent: self.agent.clone() }
    }

    /// Returns the roots of a session, if they are others than the workspace's, with how an agent is told of them.
    async fn roots(
        &self,
        options: &SessionOptions,
    ) -> Result<(Option<Roots>, PathBuf, Vec<PathBuf>), HostError> {
        let own = self.host.workspace().roots();
        let more: Vec<RootSpec> = options.additional_directories.clone();
        let mut told: Vec<PathBuf> = more.iter().map(|root| PathBuf::from(&root.path)).collect();
        let gate = self.agent.gate();
        gate.check_additional_directories(&told).map_err(CallError::from)?;
        // What every session may use is told where the agent wants to know.
        let always = self.host.shared.settings.more_roots.iter().map(|root| PathBuf::from(&root.path));
        let always: Vec<PathBuf> = always.collect();
        if gate.check_additional_directories(&always).is_ok() {
            told.extend(always);
        }
        let cwd = options.cwd.clone().unwrap_or_else(|| own.cwd().to_owned());
        if more.is_empty() && options.cwd.is_none() {
            return Ok((None, PathBuf::from(cwd), told));
        }
        // What the host was given for all sessions, this one has as well.
        let all = more.into_iter().chain(self.host.shared.settings.more_roots.clone());
        let (all, spec) = (all.collect::<Vec<_>>(), RootSpec::writable(cwd.clone()));
        let roots = blocking(move || Roots::open(&spec, &all)).await??;
        let names = roots.iter().map(|(name, _)| name.to_owned());
        self.host.approvals().add_roots(names);
        Ok((Some(roots), PathBuf::from(cwd), told))
    }
}

/// Why the two did not come to terms.
enum Unmet {
    Failed(CallError),
    /// It did not answer in so many seconds.
    Silent(u64),
}

async fn greet(host: &Host, agent: &AgentHandle) -> Result<InitializeResponse, Unmet> {
    let greeted = agent.initialize(host.greeting());
    let greeted = match host.shared.settings.greeting {
        None => Ok(greeted.await),
        Some(limit) => tokio::time::timeout(limit, greeted).await.map_err(|_| Unmet::Silent(limit.as_secs())),
    };
    greeted?.map_err(Unmet::Failed)
}

/// Returns how many turns a session has had, if its agent says so. Bowline's own does: the two of them journal in the same
/// place, and a turn should have one number there.
fn turns_of(meta: Option<&Meta>) -> u64 {
    meta.and_then(|meta| meta.get("bowline")?.get("turns")?.as_u64()).unwrap_or(0)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.face.abandon();
        self.agent.caller().close();
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_say_how_many_turns_there_were() {
        let turns = |text: &str| turns_of(serde_json::from_str::<Option<Meta>>(text).unwrap().as_ref());
        let told =
            [r#"{"bowline":{"turns":3}}"#, r#"{"bowline":{"turns":-1}}"#, r#"{"bowline":7}"#, "{}", "null"];
        assert_eq!(told.map(turns), [3, 0, 0, 0, 0]);
    }
}
