//! What a server records: the messages of a session, and its own state.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse as _;
use bowline_serve::event::{Event, EventKind, Recipient};
use bowline_serve::token::Role;
use http::StatusCode;
use serde_json::{Value, json};

use super::{ApiError, ApiResult, Query, SessionRight, Web};

/// About how many bytes of messages an answer has.
const PAGE_BYTES: usize = 256 << 10;

/// How many characters of a connection's id are shown.
const CLIENT_CHARS: usize = 6;

/// `GET /api/sessions/{id}/events`.
pub(super) async fn events(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let session = web.find_session(&principal, &id, SessionRight::See).await?;
    let after = Query::parse(&parts).number("after")?.unwrap_or(0);
    let events = web.endpoint.hub.store().events_after(&session.id, after, PAGE_BYTES).await?;
    let last = events.last().map_or(after, |event| event.seq);
    // As on a stream: questions are for those who may answer.
    let is_shown = |event: &&Event| {
        let is_for_users =
            matches!(event.kind, EventKind::Question | EventKind::Withdrawal | EventKind::Answer);
        principal.role != Role::Observer || !is_for_users
    };
    let events: Vec<Value> = events.iter().filter(is_shown).map(describe_event).collect();
    Ok(Json(json!({ "events": events, "last": last })).into_response())
}

fn describe_event(event: &Event) -> Value {
    let kind = match event.kind {
        EventKind::Update => "update",
        EventKind::Notification => "notification",
        EventKind::Question => "question",
        EventKind::ClientRequest => "request",
        EventKind::Withdrawal => "withdrawal",
        EventKind::Response => "response",
        EventKind::TurnEnd => "turnEnd",
        EventKind::ClientMessage => "message",
        EventKind::Answer => "answer",
    };
    // Requests to one client are not stored.
    let message: Value = serde_json::from_slice(&event.body).unwrap_or_default();
    let mut described =
        json!({ "seq": event.seq, "at": event.at.map(|at| at.0), "kind": kind, "message": message });
    if let Recipient::Agent(client) | Recipient::Only(client) = &event.recipient {
        // Enough to tell clients apart.
        described["client"] = json!(client.chars().take(CLIENT_CHARS).collect::<String>());
    }
    described
}

/// `GET /api/status`.
pub(super) async fn status(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    if principal.role != Role::Admin {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "only admins see the state of the server"));
    }
    let hub = &web.endpoint.hub;
    let gauges = hub.gauges();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": web.started_at.elapsed().as_secs(),
        "connections": gauges.connections,
        "sessions": gauges.sessions,
        "turns": gauges.turns,
        "questions": gauges.open_questions,
        "agents": gauges.agents,
        "events": hub.metrics().events(),
        "storeOk": hub.metrics().is_store_ok(),
        "ready": hub.is_ready(),
        "roots": web.options.roots,
    });
    Ok(Json(body).into_response())
}
