//! Going on with a session of before: by its id, or the last one of an agent.

use bowline_host::{Connection, HostError, Session, SessionOptions};
use bowline_state::capabilities::AgentMethod;
use bowline_state::display;
use bowline_state::failure::{self, quote};
use bowline_state::schema::v1::{ListSessionsRequest, SessionId, SessionInfo};
use bowline_wire::CallError;

use super::last::LastSessions;
use crate::changes::unique;
use crate::ending::Ending;
use crate::records::names::shortened;

/// So many pages of sessions are looked through for the last one.
const MAX_PAGES: usize = 50;

/// How a session of before is opened, where an agent can do both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reopen {
    /// With all that was said in it, to be shown.
    #[default]
    Load,
    /// Without hearing that again.
    Resume,
}

/// Returns the id of the session that an agent was in last in a directory.
pub(super) async fn last(
    connection: &Connection,
    cwd: &str,
    agent: &str,
    remembered: &LastSessions,
) -> Result<String, Ending> {
    let none = || Ending::NoSession("there is no session here yet: leave out --session".to_owned());
    let remembered = remembered.of(agent);
    if connection.agent().check(AgentMethod::ListSessions).is_err() {
        return remembered.ok_or_else(none);
    }
    let listed = match list(connection, Some(cwd)).await {
        Ok(listed) => listed,
        // It said that it can, and cannot.
        Err(error) => return remembered.ok_or_else(|| failed(&error)),
    };
    let is_remembered = |session: &&SessionInfo| Some(&*session.session_id.0) == remembered.as_deref();
    let has_title = |session: &&SessionInfo| session.title.as_deref().is_some_and(|title| !title.is_empty());
    let newest = |is_meant: &dyn Fn(&&SessionInfo) -> bool| {
        let dated = listed.iter().filter(|session| session.updated_at.is_some()).filter(|it| is_meant(it));
        dated.max_by(|one, other| one.updated_at.cmp(&other.updated_at))
    };
    // One that was merely opened has neither a title, nor is it remembered.
    let found = newest(&|session| has_title(session) || is_remembered(session))
        .or_else(|| listed.iter().find(is_remembered))
        .or_else(|| newest(&|_| true))
        .or(listed.first());
    found.map(|session| session.session_id.0.to_string()).or(remembered).ok_or_else(none)
}

/// Returns the sessions of a directory, or all.
async fn list(connection: &Connection, cwd: Option<&str>) -> Result<Vec<SessionInfo>, CallError> {
    let mut sessions: Vec<SessionInfo> = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let request =
            ListSessionsRequest::new().cwd(cwd.map(std::path::PathBuf::from)).cursor(cursor.clone());
        let page = connection.agent().list_sessions(request).await?;
        // Not every agent takes the directory into account.
        let is_meant = |session: &SessionInfo| cwd.is_none_or(|cwd| session.cwd == *cwd);
        sessions.extend(page.sessions.into_iter().filter(is_meant));
        if page.next_cursor.is_none() || page.next_cursor == cursor {
            break;
        }
        cursor = page.next_cursor;
    }
    Ok(sessions)
}

/// Opens a session of before: by its id, or by the beginning of it if the agent lists one that begins so, as the commands
/// for what was recorded do.
pub(super) async fn open(
    connection: &Connection,
    cwd: &str,
    id: &str,
    how: Reopen,
    options: SessionOptions,
) -> Result<Session, Ending> {
    if id.is_empty() {
        // Most often a variable of a script that is not set.
        let why = "the session id is empty: write one, `last`, or leave out --session";
        return Err(Ending::Usage(why.to_owned()));
    }
    let whole = whole_id(connection, cwd, id).await?;
    open_exactly(connection, whole.as_deref().unwrap_or(id), how, options).await
}

/// Returns the id of the one session that begins so, if the agent says which there are. One of another directory is
/// refused: to open it here would move it.
async fn whole_id(connection: &Connection, cwd: &str, id: &str) -> Result<Option<String>, Ending> {
    if connection.agent().check(AgentMethod::ListSessions).is_err() {
        return Ok(None);
    }
    // An agent that cannot list sessions may still open one.
    let Ok(mut listed) = list(connection, None).await else { return Ok(None) };
    // Those of this directory come first: the beginning of an id has to be unique among them only.
    listed.sort_by_key(|session| session.cwd != *cwd);
    let here = listed.iter().filter(|session| session.cwd == *cwd);
    let here: Vec<&str> = here.map(|session| &*session.session_id.0).collect();
    if let Some(found) = unique(&here, id, "session")? {
        return Ok(Some(found.to_owned()));
    }
    let ids: Vec<&str> = listed.iter().map(|session| &*session.session_id.0).collect();
    let Some(found) = unique(&ids, id, "session")? else { return Ok(None) };
    let Some(session) = listed.iter().find(|session| &*session.session_id.0 == found) else {
        return Ok(None);
    };
    let place = session.cwd.to_string_lossy();
    let quoted = shlex::try_quote(&place).map_or_else(|_| place.clone(), |word| word.into_owned().into());
    let short = quote(shortened(found, ids.iter().copied()));
    Err(Ending::Usage(format!(
        "session {short} works in another directory: go on with it there (--cwd {}), or copy it here with \
         `bowline sessions fork {short}`",
        display::line(&quoted, 4096)
    )))
}

async fn open_exactly(
    connection: &Connection,
    id: &str,
    how: Reopen,
    options: SessionOptions,
) -> Result<Session, Ending> {
    let agent = connection.agent();
    let can_load = agent.check(AgentMethod::LoadSession).is_ok();
    let can_resume = agent.check(AgentMethod::ResumeSession).is_ok();
    let session = SessionId::from(id.to_owned());
    let opened = match (how, can_load, can_resume) {
        (Reopen::Load, true, _) | (Reopen::Resume, true, false) => {
            connection.load_session(session, options).await
        }
        (_, _, true) => connection.resume_session(session, options).await,
        (_, false, false) => {
            let why = "the agent cannot go on with sessions of before: leave out --session";
            return Err(Ending::NoSession(why.to_owned()));
        }
    };
    opened.map_err(|error| match error {
        HostError::Call(CallError::Refused(refusal)) if is_unknown(refusal.code.into()) => {
            let why = failure::error_text(&refusal);
            Ending::NoSession(format!("there is no session {}: the agent says {why}", quote(id)))
        }
        other => super::launch::failed_to_open(connection, other),
    })
}

/// Says whether an error means that there is no such thing. Agents differ in how they say so.
fn is_unknown(code: i32) -> bool {
    matches!(code, -32002 | -32602 | -32603)
}

fn failed(error: &CallError) -> Ending {
    let why = anyhow::anyhow!("{}", quote(&error.to_string()));
    Ending::Failed(why.context("the agent did not list its sessions"))
}
