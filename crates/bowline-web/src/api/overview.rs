//! The overview: every session that a principal may see, with what it is doing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path as PathParameter, Request, State};
use axum::response::{IntoResponse as _, Response};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_serve::event::SessionId;
use bowline_serve::store::{SessionQuery, StoredSession};
use bowline_serve::token::{Principal, Role};
use bowline_serve::{HubEvent, SessionActivity, SessionState};
use bowline_text::time::Timestamp;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{ApiError, ApiResult, Query, SessionRight, Web, run_blocking};

/// The most sessions of an answer.
const PAGE_SIZE: usize = 100;
/// The most sessions that are searched for an answer.
const MAX_SEARCHED: usize = 2000;
/// The most sessions whose changed files are remembered.
const MAX_COUNTED_SESSIONS: usize = 4096;
/// How often a stream without changes shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How many files a session has changed, as of its last change.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangedFiles {
    as_of: Timestamp,
    count: Option<usize>,
}

/// `GET /api/overview`.
pub(super) async fn list(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let query = Query::parse(&parts);
    let (sessions, next) = match query.get("session") {
        Some(id) => (vec![web.find_session(&principal, id, SessionRight::See).await?], None),
        None => find_sessions(&web, &principal, &query).await?,
    };
    let activities: Vec<SessionActivity> =
        sessions.iter().map(|session| web.endpoint.hub.activity(session)).collect();
    let counts = {
        let states = activities.iter().map(|activity| activity.state);
        let sessions: Vec<_> = sessions.iter().cloned().zip(states).collect();
        let web = Arc::clone(&web);
        run_blocking(move || Ok(web.count_changed_files(&sessions))).await?
    };
    let mut workspaces = HashMap::new();
    let sessions: Vec<Value> = sessions
        .iter()
        .zip(activities)
        .map(|(session, activity)| {
            let workspace = workspaces
                .entry(session.cwd.as_path())
                .or_insert_with(|| find_workspace(&session.cwd, &web.options.roots));
            describe(session, activity, workspace, counts.get(&session.id).copied().flatten())
        })
        .collect();
    Ok(Json(json!({ "sessions": sessions, "next": next })).into_response())
}

async fn find_sessions(
    web: &Web,
    principal: &Principal,
    query: &Query,
) -> Result<(Vec<StoredSession>, Option<String>), ApiError> {
    let archived = match query.get("archived") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::invalid("archived is true or false")),
    };
    let mut after = match query.get("cursor") {
        None => None,
        Some(cursor) => Some(parse_cursor(cursor).ok_or_else(|| ApiError::invalid("the cursor is unknown"))?),
    };
    let text = query.get("query").unwrap_or_default().to_lowercase();
    let mut found = Vec::new();
    let mut searched = 0;
    loop {
        let page = web.endpoint.hub.store().sessions(SessionQuery {
            principal: (principal.role == Role::User).then(|| principal.name.clone()),
            cwd: None,
            archived,
            after: after.clone(),
            limit: PAGE_SIZE,
        });
        let page = page.await?;
        let is_last = page.len() < PAGE_SIZE;
        searched += page.len();
        for session in page {
            after = Some((session.updated_at, session.id.clone()));
            if matches(&session, &text) {
                found.push(session);
            }
            if found.len() == PAGE_SIZE {
                break;
            }
        }
        if found.len() == PAGE_SIZE || is_last || searched >= MAX_SEARCHED {
            let next = after.filter(|_| found.len() == PAGE_SIZE || !is_last);
            return Ok((found, next.map(|(time, id)| format!("{}:{id}", time.0))));
        }
    }
}

fn parse_cursor(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (time, id) = cursor.split_once(':')?;
    Some((Timestamp(time.parse().ok()?), id.into()))
}

/// Returns whether a session has a text, in lower case, in its title, its directory or its agent's name.
fn matches(session: &StoredSession, text: &str) -> bool {
    let has = |value: &str| value.to_lowercase().contains(text);
    let names = [session.title.as_deref(), session.agent()];
    text.is_empty() || names.into_iter().flatten().any(has) || has(&session.cwd.to_string_lossy())
}

fn describe(
    session: &StoredSession,
    activity: SessionActivity,
    workspace: &Path,
    changed_files: Option<usize>,
) -> Value {
    let usage = activity
        .usage
        .as_ref()
        .map(|usage| json!({ "used": usage["used"], "size": usage["size"], "cost": usage["cost"] }));
    json!({
        "id": session.id,
        "cwd": session.cwd,
        "workspace": workspace,
        "title": session.title,
        "principal": session.principal,
        "agent": session.agent(),
        "state": activity.state.name(),
        "failure": activity.failure,
        "waitingFor": activity.waiting_for.filter(|_| activity.state == SessionState::Waiting),
        "createdAt": session.created_at.0,
        "updatedAt": session.updated_at.0,
        "archived": session.archived_at.is_some(),
        "changedFiles": changed_files,
        "usage": usage,
    })
}

/// Returns the directory to which a session belongs: the repository around it, within the server's directories, or else
/// the server's directory.
fn find_workspace(cwd: &Path, roots: &[PathBuf]) -> PathBuf {
    let Some(root) = roots.iter().find(|root| cwd.starts_with(root)) else { return cwd.to_owned() };
    let inside = cwd.ancestors().take_while(|directory| directory.starts_with(root));
    let repository = inside.into_iter().find(|directory| directory.join(".git").exists());
    repository.unwrap_or(root).to_owned()
}

impl Web {
    /// Counts the files that sessions changed, as far as their changes are in effect. While an agent works, the last
    /// count is good enough: the overview is asked for often then, and a journal can be long.
    fn count_changed_files(
        &self,
        sessions: &[(StoredSession, SessionState)],
    ) -> HashMap<SessionId, Option<usize>> {
        let known = self.changed_files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut counts = HashMap::new();
        let mut unknown: HashMap<&Path, Vec<&StoredSession>> = HashMap::new();
        for (session, state) in sessions {
            let is_recent =
                |known: &&ChangedFiles| known.as_of == session.updated_at || *state == SessionState::Working;
            match known.get(&session.id).filter(is_recent) {
                Some(known) => drop(counts.insert(session.id.clone(), known.count)),
                None => unknown.entry(&session.cwd).or_default().push(session),
            }
        }
        for (directory, sessions) in unknown {
            let by_session = self.count_in_directory(directory);
            let mut remembered = self.changed_files.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() + sessions.len() > MAX_COUNTED_SESSIONS {
                remembered.clear();
            }
            for session in sessions {
                let count = by_session.as_ref().map(|counts| counts.get(&*session.id).copied().unwrap_or(0));
                remembered.insert(session.id.clone(), ChangedFiles { as_of: session.updated_at, count });
                counts.insert(session.id.clone(), count);
            }
        }
        counts
    }

    /// Counts the files that each session changed in a directory; `None` if its journal cannot be read.
    fn count_in_directory(&self, directory: &Path) -> Option<HashMap<String, usize>> {
        let location = self.locate(directory).ok()?;
        if !location.has_records {
            return Some(HashMap::new());
        }
        let workspace = location.open(&[]).ok()?;
        let selection = ChangeSelection { owner: ChangeOwner::Agents, ..ChangeSelection::default() };
        let mut files: HashMap<String, HashSet<String>> = HashMap::new();
        for changed in workspace.changes(&selection).ok()? {
            let change = changed.change;
            if let (true, true, Some(session)) =
                (changed.is_in_effect, change.reverses.is_empty(), change.origin.session)
            {
                files.entry(session).or_default().insert(change.path);
            }
        }
        Some(files.into_iter().map(|(session, files)| (session, files.len())).collect())
    }

    /// Forgets how many files were changed, after an undo.
    pub(super) fn forget_changed_files(&self) {
        self.changed_files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// `GET /api/overview/events`.
pub(super) async fn stream_changes(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let changes = web.endpoint.hub.subscribe();
    if !web.endpoint.hub.is_ready() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"));
    }
    let state = (web, principal, changes);
    let body = Body::from_stream(unfold(state, |(web, principal, mut changes)| async move {
        let event = next_event(&web, &principal, &mut changes).await?;
        Some((Ok::<_, std::convert::Infallible>(event), (web, principal, changes)))
    }));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies must not wait for more before they pass events on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, body).into_response())
}

/// Waits for the next change that a principal may know of; `None` when the server stops.
async fn next_event(
    web: &Web,
    principal: &Principal,
    changes: &mut broadcast::Receiver<HubEvent>,
) -> Option<Bytes> {
    loop {
        let id = match tokio::time::timeout(KEEP_ALIVE, changes.recv()).await {
            Err(_) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            Ok(Ok(HubEvent::SessionChanged(id))) => {
                let owner = web.endpoint.hub.store().session(&id).await.ok().flatten();
                match owner {
                    Some(session) if principal.may_see(&session.principal) => Some(id),
                    Some(_) => continue,
                    // It was deleted, and its owner is not known any more.
                    None => None,
                }
            }
            // Some were missed: the page looks again.
            Ok(Err(broadcast::error::RecvError::Lagged(_))) => None,
            Ok(Ok(HubEvent::Stopped) | Err(broadcast::error::RecvError::Closed)) => return None,
        };
        return Some(format!("data: {}\n\n", json!({ "id": id })).into());
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchiveRequest {
    archived: bool,
}

/// `POST /api/sessions/{id}/archive`.
pub(super) async fn archive(
    State(web): State<Arc<Web>>,
    PathParameter(id): PathParameter<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (principal, body) = web.receive::<ArchiveRequest>(request).await?;
    let session = web.find_session(&principal, &id, SessionRight::Use).await?;
    web.endpoint.hub.archive(&session.id, body.archived).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_belongs_to_the_repository_around_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("repository/.git")).unwrap();
        std::fs::create_dir_all(root.join("repository/src")).unwrap();
        std::fs::create_dir_all(root.join("plain")).unwrap();
        let roots = [root.clone()];
        assert_eq!(find_workspace(&root.join("repository/src"), &roots), root.join("repository"));
        assert_eq!(find_workspace(&root.join("plain"), &roots), root);
        // A repository above the server's directory is none of its business.
        let inner = [root.join("repository/src")];
        assert_eq!(find_workspace(&root.join("repository/src"), &inner), root.join("repository/src"));
    }
}
