//! The web page of a server: its files, and the JSON API beside ACP.
//!
//! ```text
//!  browser ─► /               assets.rs: the page, embedded
//!          ─► /acp            bowline-serve: the conversation, over a WebSocket
//!          ─► /api/…          api.rs: overview, changes, audit log, markdown, diffs
//! ```
//!
//! The page has no data of its own and no rights of its own: a browser exchanges a one-time ticket for a cookie, and
//! every request is authorized as on `/acp`. Text of models and files reaches the page as values, never as markup:
//! [`markdown`] returns a tree of known elements, [`diff_view`] lines with marks.

pub mod diff_view;
pub mod markdown;

mod api;
mod assets;
mod headers;

pub use assets::AssetSource;

use std::path::PathBuf;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use bowline_client::environment::UserDirs;
use bowline_serve::http::{Endpoint, check_url};

/// How the page is served.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// The user's directories, with journals and audit logs.
    pub user_dirs: UserDirs,
    /// The directories below which sessions may work.
    pub roots: Vec<PathBuf>,
    /// The names of the agents that a new session can have instead of the usual one.
    pub agents: Vec<String>,
    /// Whether the server is its user's own, for one directory.
    pub is_local: bool,
    /// Where the page's files come from.
    pub assets: AssetSource,
}

/// Returns the routes of a server with the page.
pub fn router(endpoint: Endpoint, options: WebOptions) -> Router {
    let assets = options.assets.clone();
    let page = move |request: Request| {
        let response = match check_url(request.uri()) {
            Ok(()) => assets.serve(request.method(), request.uri(), request.headers()),
            Err(refusal) => refusal.into_response(),
        };
        async move { response }
    };
    endpoint
        .clone()
        .router()
        .merge(api::router(endpoint, options))
        .fallback(page)
        .layer(axum::middleware::map_response(headers::add_security_headers))
}
