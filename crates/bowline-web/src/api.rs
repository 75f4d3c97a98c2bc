//! The JSON API of the page.
//!
//! Each request is authorized as on `/acp`, by a cookie or a token. Sessions that a principal may not see are as
//! unknown as absent ones. A request that changes something has a body of JSON and, with a cookie, comes from a page of
//! an allowed origin: a form of another site can send neither.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::CliError;
use bowline_serve::event::SessionId;
use bowline_serve::http::{Endpoint, Refusal, check_url};
use bowline_serve::store::{StoreError, StoredSession};
use bowline_serve::token::Principal;
use http::request::Parts;
use http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::WebOptions;

mod audit;
mod changes;
mod files;
mod overview;
mod records;
mod render;

/// The largest body that is read.
const MAX_BODY_BYTES: usize = 4 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What requests need.
#[derive(Debug)]
pub(crate) struct Web {
    endpoint: Endpoint,
    options: WebOptions,
    started_at: Instant,
    // How many files each session has changed, and the time of the session's last change when they were counted.
    changed_files: Mutex<HashMap<SessionId, overview::ChangedFiles>>,
}

/// Why a request is refused.
#[derive(Debug)]
struct ApiError {
    status: StatusCode,
    text: String,
}

impl ApiError {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    fn invalid(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    fn failed(error: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    fn unknown_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such session")
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.status, refusal.reason)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<CliError> for ApiError {
    fn from(error: CliError) -> Self {
        Self::failed(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.text }))).into_response()
    }
}

/// The answer to a request.
type ApiResult = Result<Response, ApiError>;

/// What a principal needs of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionRight {
    See,
    Use,
}

/// Returns the routes.
pub(crate) fn router(endpoint: Endpoint, options: WebOptions) -> Router {
    let web = Web { endpoint, options, started_at: Instant::now(), changed_files: Mutex::default() };
    Router::new()
        .route("/api/me", get(show_principal))
        .route("/api/overview", get(overview::list))
        .route("/api/overview/events", get(overview::stream_changes))
        .route("/api/markdown", post(render::markdown))
        .route("/api/diff", post(render::diff))
        .route("/api/command", get(render::command))
        .route("/api/sessions/{id}/archive", post(overview::archive))
        .route("/api/sessions/{id}/changes", get(changes::list))
        .route("/api/sessions/{id}/undo", post(changes::undo))
        .route("/api/sessions/{id}/redo", post(changes::redo))
        .route("/api/sessions/{id}/patch", get(changes::patch))
        .route("/api/sessions/{id}/files", get(files::search))
        .route("/api/sessions/{id}/events", get(records::events))
        .route("/api/audit", get(audit::list))
        .route("/api/audit/verify", post(audit::verify))
        .route("/api/status", get(records::status))
        .route("/api/{*rest}", any(unknown_route))
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn(refuse_tokens_in_urls))
        .with_state(Arc::new(web))
}

async fn refuse_tokens_in_urls(request: Request, next: Next) -> ApiResult {
    check_url(request.uri())?;
    Ok(next.run(request).await)
}

async fn unknown_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is no such request")
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this request needs another method")
}

impl Web {
    /// Returns who sends a request.
    async fn authenticate(&self, parts: &Parts) -> Result<Principal, ApiError> {
        Ok(self.endpoint.authenticate(parts).await?)
    }

    /// Returns who sends a request that has a body, and the body.
    async fn receive<T: DeserializeOwned>(&self, request: Request) -> Result<(Principal, T), ApiError> {
        let (parts, body) = request.into_parts();
        let principal = self.authenticate(&parts).await?;
        // The origin itself was checked with the principal. Browsers send one with every POST.
        let is_browser = !parts.headers.contains_key(header::AUTHORIZATION);
        if is_browser && !parts.headers.contains_key(header::ORIGIN) {
            return Err(ApiError::new(StatusCode::FORBIDDEN, "the header Origin is missing"));
        }
        let media_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let why = "send JSON: Content-Type: application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let too_slow = || ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
        let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
        let read = read.map_err(|_| too_slow())?;
        let body = read.map_err(|_| {
            let why = format!("a body has at most {MAX_BODY_BYTES} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, why)
        })?;
        let body = serde_json::from_slice(&body).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok((principal, body))
    }

    /// Returns a session, if the principal has the right.
    async fn find_session(
        &self,
        principal: &Principal,
        id: &str,
        right: SessionRight,
    ) -> Result<StoredSession, ApiError> {
        let stored = self.endpoint.hub.store().session(&id.into()).await?;
        let session = stored.filter(|session| principal.may_see(&session.principal));
        let session = session.ok_or_else(ApiError::unknown_session)?;
        if right == SessionRight::Use && !principal.may_use(&session.principal) {
            return Err(ApiError::new(StatusCode::FORBIDDEN, "an observer may not change anything"));
        }
        Ok(session)
    }

    /// Returns the workspace of a session's directory. The directory is checked again: it may have been replaced by a
    /// link since the session was created.
    fn locate(&self, directory: &Path) -> Result<WorkspaceLocation, ApiError> {
        let gone = || ApiError::new(StatusCode::NOT_FOUND, "the session's directory does not exist any more");
        let canonical = directory.canonicalize().map_err(|_| gone())?;
        if !self.options.roots.iter().any(|root| canonical.starts_with(root)) {
            let why = "the session's directory is not below the directories of this server";
            return Err(ApiError::new(StatusCode::FORBIDDEN, why));
        }
        let dirs = &self.options.user_dirs;
        Ok(WorkspaceLocation::locate_in(dirs, Some(&canonical), WorkspaceMarker::Directory)?)
    }
}

/// Runs what reads or writes files.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    bowline_task::spawn_blocking(work).await.map_err(ApiError::failed)?
}

/// The parameters of a request's address.
struct Query(HashMap<String, String>);

impl Query {
    fn parse(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns a parameter that is not empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let parse =
            |text: &str| text.parse().map_err(|_| ApiError::invalid(format!("{name} is not a number")));
        self.get(name).map(parse).transpose()
    }
}

async fn show_principal(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let roots: Vec<PathBuf> = web.options.roots.clone();
    let body = json!({
        "name": principal.name,
        "role": principal.role.name(),
        "version": env!("CARGO_PKG_VERSION"),
        "roots": roots,
        "agent": web.endpoint.hub.agent_info(&principal.name),
        "agents": web.options.agents,
        "isLocal": web.options.is_local,
    });
    Ok(Json(body).into_response())
}
