//! Texts for the page: markdown as trees, differences as lines, the dangers of commands.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use bowline_policy::danger::find_dangers;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_protocol::terminal::Invocation;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiError, ApiResult, Query, SessionRight, Web, run_blocking};
use crate::diff_view::{self, DiffViewOptions};
use crate::markdown;

/// The most texts or files of a request.
const MAX_TEXTS: usize = 500;
/// The most words that are compared for a request.
const MAX_COMPARED_WORDS: usize = 40_000;
/// The most bytes of markdown in a request.
const MAX_MARKDOWN_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkdownRequest {
    texts: Vec<String>,
}

/// `POST /api/markdown`.
pub(super) async fn markdown(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (_, body) = web.receive::<MarkdownRequest>(request).await?;
    let bytes: usize = body.texts.iter().map(String::len).sum();
    if body.texts.len() > MAX_TEXTS || bytes > MAX_MARKDOWN_BYTES {
        return Err(ApiError::invalid(format!(
            "a request has at most {MAX_TEXTS} texts with {MAX_MARKDOWN_BYTES} bytes"
        )));
    }
    run_blocking(move || {
        let trees: Vec<Value> =
            body.texts.iter().map(|text| json!({ "blocks": markdown::parse(text) })).collect();
        Ok(Json(json!({ "trees": trees })).into_response())
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DiffRequest {
    files: Vec<DiffFile>,
    #[serde(default)]
    ignore_whitespace: bool,
}

#[derive(Deserialize)]
struct DiffFile {
    path: String,
    old: Option<String>,
    new: Option<String>,
}

/// `POST /api/diff`.
pub(super) async fn diff(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (_, body) = web.receive::<DiffRequest>(request).await?;
    if body.files.len() > MAX_TEXTS {
        return Err(ApiError::invalid(format!("a request has at most {MAX_TEXTS} files")));
    }
    let options = DiffViewOptions {
        ignore_whitespace: body.ignore_whitespace,
        max_words: MAX_COMPARED_WORDS / body.files.len().max(1),
        ..DiffViewOptions::default()
    };
    run_blocking(move || {
        let compare = |file: &DiffFile| {
            let (old, new) = (file.old.as_deref(), file.new.as_deref());
            let mut view =
                json!(diff_view::compare(old.unwrap_or_default(), new.unwrap_or_default(), options));
            view["path"] = json!(file.path);
            view
        };
        let files: Vec<Value> = body.files.iter().map(compare).collect();
        Ok(Json(json!({ "files": files })).into_response())
    })
    .await
}

/// `GET /api/command`.
pub(super) async fn command(State(web): State<Arc<Web>>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let query = Query::parse(&parts);
    let line = query.get("text").ok_or_else(|| ApiError::invalid("text is missing"))?;
    let cwd = match query.get("session") {
        None => String::new(),
        Some(id) => {
            let session = web.find_session(&principal, id, SessionRight::See).await?;
            session.cwd.to_string_lossy().into_owned()
        }
    };
    let command = CommandSpec {
        invocation: Invocation::Shell(line.to_owned()),
        cwd: cwd.clone(),
        env: Vec::new(),
        named_paths: Vec::new(),
    };
    let operation = Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) };
    let dangers = find_dangers(&[operation], &[cwd]);
    let dangers: Vec<&str> = dangers.iter().map(|danger| danger.text.as_str()).collect();
    Ok(Json(json!({ "dangers": dangers })).into_response())
}
