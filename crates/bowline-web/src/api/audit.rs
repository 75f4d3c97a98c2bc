//! The audit log of a workspace.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use bowline_access::audit::{self, AuditFilter};
use bowline_policy::audit::{AuditRecord, AuditSubject, FoldedEntries};
use bowline_serve::store::{SessionQuery, StoredSession};
use bowline_serve::token::{Principal, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiError, ApiResult, Query, SessionRight, Web, run_blocking};

/// The most entries of an answer.
const PAGE_SIZE: usize = 200;
/// The most sessions of a directory whose owners are looked up.
const MAX_SESSIONS: usize = 1000;

/// The workspace whose log is read, and the sessions there that the principal may see, with their owners.
struct AuditScope {
    directory: PathBuf,
    session: Option<String>,
    owners: HashMap<String, String>,
}

/// `GET /api/audit`.
pub(super) async fn list(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let query = Query::parse(&parts);
    let scope = find_scope(&web, &principal, query.get("session"), query.get("cwd")).await?;
    let before = query.number("before")?.unwrap_or(u64::MAX);
    let decision = query.get("decision").map(str::to_owned);
    let text = query.get("query").unwrap_or_default().to_lowercase();
    let only_own = principal.role == Role::User;
    let body = run_blocking(move || {
        let location = web.locate(&scope.directory)?;
        let filter = AuditFilter { session: scope.session.clone(), ..AuditFilter::default() };
        let mut folded = FoldedEntries::default();
        let read =
            || audit::read_entries(&location.audit_log_dir(), filter.clone()).map_err(ApiError::failed);
        for record in read()? {
            folded.add(&record.map_err(ApiError::failed)?);
        }
        let mut newest: VecDeque<Value> = VecDeque::new();
        let mut has_more = false;
        for record in read()? {
            let record = record.map_err(ApiError::failed)?;
            let owner = record.entry.session.as_ref().and_then(|session| scope.owners.get(session));
            let is_shown = record.seq < before
                && !folded.is_hidden(&record)
                && (!only_own || owner.is_some())
                && decision.as_ref().is_none_or(|decision| record.entry.decision.as_str() == decision);
            if !is_shown {
                continue;
            }
            let entry = describe(&record, owner);
            if !text.is_empty() && !entry.to_string().to_lowercase().contains(&text) {
                continue;
            }
            newest.push_front(entry);
            if newest.len() > PAGE_SIZE {
                newest.pop_back();
                has_more = true;
            }
        }
        let next = newest.back().filter(|_| has_more).map(|entry| entry["number"].clone());
        Ok(json!({ "workspace": location.root, "entries": newest, "next": next }))
    });
    Ok(Json(body.await?).into_response())
}

fn describe(record: &AuditRecord, owner: Option<&String>) -> Value {
    let entry = &record.entry;
    let target = match &entry.subject {
        AuditSubject::None => None,
        AuditSubject::Path { requested, .. } => Some(requested),
        AuditSubject::Command { line: text, .. } | AuditSubject::Url(text) | AuditSubject::Text(text) => {
            Some(text)
        }
    };
    json!({
        "number": record.seq,
        "at": entry.at.0,
        "session": entry.session,
        "turn": entry.turn,
        "principal": owner,
        "operation": entry.action.as_str(),
        "target": target,
        "decision": entry.decision.as_str(),
        "by": entry.decided_by.to_string(),
        "reason": entry.reason,
        "exit": entry.exit,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifyRequest {
    session: Option<String>,
    cwd: Option<String>,
}

/// `POST /api/audit/verify`.
pub(super) async fn verify(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (principal, body) = web.receive::<VerifyRequest>(request).await?;
    let scope = find_scope(&web, &principal, body.session.as_deref(), body.cwd.as_deref()).await?;
    let body = run_blocking(move || {
        let location = web.locate(&scope.directory)?;
        let report = audit::verify(&location.audit_log_dir(), &location.anchor).map_err(ApiError::failed)?;
        let mut lines = vec![match (report.is_intact(), report.has_only_crash_artifacts()) {
            (true, _) => format!("{} entries, unchanged since they were written", report.entries),
            (false, true) => format!("{} entries, intact except for what a crash left", report.entries),
            (false, false) => "the log is not as it was written".to_owned(),
        }];
        lines.extend(report.findings.iter().map(ToString::to_string));
        if report.omitted_findings > 0 {
            lines.push(format!("and {} more", report.omitted_findings));
        }
        let is_ok = report.has_only_crash_artifacts();
        Ok(json!({ "ok": is_ok, "text": lines.join("\n"), "workspace": location.root }))
    });
    Ok(Json(body.await?).into_response())
}

/// Returns the scope that a request names: a session, or a directory of sessions that the principal may see. Without
/// either, the directory of the session that changed last.
async fn find_scope(
    web: &Web,
    principal: &Principal,
    session: Option<&str>,
    cwd: Option<&str>,
) -> Result<AuditScope, ApiError> {
    if let Some(id) = session {
        let session = web.find_session(principal, id, SessionRight::See).await?;
        let owners = HashMap::from([(session.id.to_string(), session.principal)]);
        return Ok(AuditScope { directory: session.cwd, session: Some(id.to_owned()), owners });
    }
    let mut sessions: Vec<StoredSession> = Vec::new();
    for archived in [false, true] {
        let query = SessionQuery {
            principal: (principal.role == Role::User).then(|| principal.name.clone()),
            cwd: cwd.map(PathBuf::from),
            archived,
            after: None,
            limit: MAX_SESSIONS,
        };
        sessions.extend(web.endpoint.hub.store().sessions(query).await?);
    }
    let directory = sessions.first().map(|session| session.cwd.clone());
    let directory = directory.ok_or_else(ApiError::unknown_session)?;
    let owners = sessions.into_iter().filter(|session| session.cwd == directory);
    let owners = owners.map(|session| (session.id.to_string(), session.principal)).collect();
    Ok(AuditScope { directory, session: None, owners })
}
