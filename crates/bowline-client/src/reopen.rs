//! Reopening an earlier session: by its id, or an agent's last one.

pub(crate) mod last_sessions;

use bowline_host::{Connection, HostError, HostSession, SessionOptions};
use bowline_protocol::capabilities::AgentMethod;
use bowline_protocol::rpc_error::{self};
use bowline_protocol::schema::v1::{ListSessionsRequest, SessionId, SessionInfo};
use bowline_text::display;
use bowline_text::display::quote;
use bowline_wire::{AgentHandle, CallError};

use crate::common::names::find_unique_id;
use crate::common::names::shorten_id;
use crate::error::CliError;
use crate::reopen::last_sessions::LastSessions;

/// The maximum number of pages of sessions read to find the last one.
const MAX_PAGES: usize = 50;

/// How an earlier session is reopened, where an agent supports both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReopenMethod {
    /// With its history replayed, for display.
    #[default]
    Load,
    /// Without a replay.
    Resume,
}

/// Returns the id of an agent's last session in a directory.
pub(super) async fn find_last_session(
    connection: &Connection,
    cwd: &str,
    agent: &str,
    remembered: &LastSessions,
) -> Result<String, CliError> {
    let none = || CliError::NoSession("there is no session here yet: leave out --session".to_owned());
    let remembered = remembered.last_session(agent);
    if connection.agent().check(AgentMethod::ListSessions).is_err() {
        return remembered.ok_or_else(none);
    }
    let listed = match list_sessions(connection.agent(), Some(cwd), usize::MAX).await {
        Ok(listed) => listed,
        // The agent announced the method, but it fails.
        Err(error) => return remembered.ok_or_else(|| listing_failed(&error)),
    };
    let is_remembered = |session: &&SessionInfo| Some(&*session.session_id.0) == remembered.as_deref();
    let has_title = |session: &&SessionInfo| session.title.as_deref().is_some_and(|title| !title.is_empty());
    let newest = |predicate: &dyn Fn(&&SessionInfo) -> bool| {
        let dated =
            listed.iter().filter(|session| session.updated_at.is_some()).filter(|session| predicate(session));
        dated.max_by(|a, b| a.updated_at.cmp(&b.updated_at))
    };
    // A session that was only opened has no title and is not remembered.
    let found = newest(&|session| has_title(session) || is_remembered(session))
        .or_else(|| listed.iter().find(is_remembered))
        .or_else(|| newest(&|_| true))
        .or(listed.first());
    found.map(|session| session.session_id.0.to_string()).or(remembered).ok_or_else(none)
}

/// Returns an agent's sessions in a directory, or all, up to a number.
pub async fn list_sessions(
    agent: &AgentHandle,
    cwd: Option<&str>,
    max: usize,
) -> Result<Vec<SessionInfo>, CallError> {
    let mut sessions: Vec<SessionInfo> = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let request =
            ListSessionsRequest::new().cwd(cwd.map(std::path::PathBuf::from)).cursor(cursor.clone());
        let page = agent.list_sessions(request).await?;
        // Not every agent filters by directory.
        let matches_cwd = |session: &SessionInfo| cwd.is_none_or(|cwd| session.cwd == *cwd);
        sessions.extend(page.sessions.into_iter().filter(matches_cwd));
        if sessions.len() >= max || page.next_cursor.is_none() || page.next_cursor == cursor {
            break;
        }
        cursor = page.next_cursor;
    }
    sessions.truncate(max);
    Ok(sessions)
}

/// Reopens an earlier session: by its id, or by a unique prefix among the agent's listed sessions, like the commands
/// that work on records.
pub(super) async fn reopen_session(
    connection: &Connection,
    cwd: &str,
    id: &str,
    method: ReopenMethod,
    options: SessionOptions,
) -> Result<HostSession, CliError> {
    if id.is_empty() {
        // Usually an unset variable in a script.
        let message = "the session id is empty: write one, `last`, or leave out --session";
        return Err(CliError::Usage(message.to_owned()));
    }
    let full_id = resolve_session_id(connection, cwd, id).await?;
    reopen_by_id(connection, full_id.as_deref().unwrap_or(id), method, options).await
}

/// Returns the id of the only session with this prefix, if the agent lists its sessions. A session of another directory
/// is refused: opening it here would move it.
async fn resolve_session_id(
    connection: &Connection,
    cwd: &str,
    id: &str,
) -> Result<Option<String>, CliError> {
    if connection.agent().check(AgentMethod::ListSessions).is_err() {
        return Ok(None);
    }
    // An agent that cannot list sessions may still open one.
    let Ok(mut listed) = list_sessions(connection.agent(), None, usize::MAX).await else { return Ok(None) };
    // Sessions of this directory come first: a prefix has to be unique among them only.
    listed.sort_by_key(|session| session.cwd != *cwd);
    let local_ids = listed.iter().filter(|session| session.cwd == *cwd);
    let local_ids: Vec<&str> = local_ids.map(|session| &*session.session_id.0).collect();
    if let Some(found) = find_unique_id(&local_ids, id, "session")? {
        return Ok(Some(found.to_owned()));
    }
    let ids: Vec<&str> = listed.iter().map(|session| &*session.session_id.0).collect();
    let Some(found) = find_unique_id(&ids, id, "session")? else { return Ok(None) };
    let Some(session) = listed.iter().find(|session| &*session.session_id.0 == found) else {
        return Ok(None);
    };
    let directory = session.cwd.to_string_lossy();
    let quoted =
        shlex::try_quote(&directory).map_or_else(|_| directory.clone(), |word| word.into_owned().into());
    let short = quote(shorten_id(found, ids.iter().copied()));
    Err(CliError::Usage(format!(
        "session {short} works in another directory: go on with it there (--cwd {}), or copy it here with \
         `bowline sessions fork {short}`",
        display::escape_line(&quoted, 4096)
    )))
}

async fn reopen_by_id(
    connection: &Connection,
    id: &str,
    method: ReopenMethod,
    options: SessionOptions,
) -> Result<HostSession, CliError> {
    let agent = connection.agent();
    let can_load = agent.check(AgentMethod::LoadSession).is_ok();
    let can_resume = agent.check(AgentMethod::ResumeSession).is_ok();
    let session = SessionId::from(id.to_owned());
    let opened = match (method, can_load, can_resume) {
        (ReopenMethod::Load, true, _) | (ReopenMethod::Resume, true, false) => {
            connection.load_session(session, options).await
        }
        (_, _, true) => connection.resume_session(session, options).await,
        (_, false, false) => {
            let message = "the agent cannot go on with sessions of before: leave out --session";
            return Err(CliError::NoSession(message.to_owned()));
        }
    };
    opened.map_err(|error| match error {
        HostError::Call(CallError::ErrorResponse(refusal)) if is_unknown_session(refusal.code.into()) => {
            let reason = rpc_error::describe_error(&refusal);
            CliError::NoSession(format!("there is no session {}: the agent says {reason}", quote(id)))
        }
        other => super::launch::session_open_error(connection, other),
    })
}

/// Returns whether an error code means an unknown session. Agents use different codes.
fn is_unknown_session(code: i32) -> bool {
    matches!(code, -32002 | -32602 | -32603)
}

fn listing_failed(error: &CallError) -> CliError {
    let reason = anyhow::anyhow!("{}", quote(&error.to_string()));
    CliError::Failed(reason.context("the agent did not list its sessions"))
}
