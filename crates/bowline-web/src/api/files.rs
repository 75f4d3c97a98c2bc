//! The files of a session, to mention them in a prompt.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse as _;
use bowline_access::policy::PolicyFile;
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::policy::{Effect, PolicyContext};
use bowline_storage::clock::now;
use bowline_workspace::list::{IgnoredFiles, ListOptions, MAX_LIST_ENTRIES, list};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::walker::EntryKind;
use serde_json::json;

use super::{ApiError, ApiResult, Query, SessionRight, Web, run_blocking};

/// The most files of an answer.
const MAX_FILES: usize = 50;
/// The deepest directory that is searched.
const MAX_DEPTH: usize = 32;

/// `GET /api/sessions/{id}/files`.
pub(super) async fn search(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let session = web.find_session(&principal, &id, SessionRight::See).await?;
    let text = Query::parse(&parts).get("query").unwrap_or_default().to_owned();
    let files = run_blocking(move || find_files(&web.locate(&session.cwd)?, &session.id, &text)).await?;
    Ok(Json(json!({ "files": files })).into_response())
}

/// Returns the files whose path has a text, the closest first. Ignored and secret files, and those that the rules deny,
/// are left out.
fn find_files(location: &WorkspaceLocation, session: &str, text: &str) -> Result<Vec<String>, ApiError> {
    let roots = Roots::open(&RootSpec::writable(location.root.as_str()), &[]).map_err(ApiError::failed)?;
    let roots = roots.with_reserved_paths([&location.dirs.state, &location.dirs.anchors]);
    let directory = roots.admit(roots.cwd(), Access::Read).map_err(ApiError::failed)?;
    let options =
        ListOptions { depth: MAX_DEPTH, ignored: IgnoredFiles::Skip, max_entries: MAX_LIST_ENTRIES };
    let listing = list(&roots, &directory, &options).map_err(ApiError::failed)?;
    let files = listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    let files = rank(files.map(|entry| entry.path), text);
    let policy = PolicyFile::open(&location.dirs.policy, &[roots.cwd().into()]);
    let policy = policy.and_then(|policy| policy.policy()).map_err(ApiError::failed)?;
    let context = PolicyContext { session: session.to_owned(), turn: None, now: now() };
    let is_readable = |path: &String| {
        let admitted = roots.admit(&format!("{}/{path}", roots.cwd().trim_end_matches('/')), Access::Read);
        admitted.is_ok_and(|file| {
            file.protection().is_none()
                && policy.evaluate(&file.operation(OperationKind::Read), &context).effect != Effect::Deny
        })
    };
    Ok(files.into_iter().filter(is_readable).take(MAX_FILES).collect())
}

/// Returns the paths that have a text: first those whose name starts with it, then those whose name has it, then the
/// others; shorter ones first.
fn rank(paths: impl Iterator<Item = String>, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut found: Vec<(usize, usize, String)> = paths
        .filter_map(|path| {
            let lower = path.to_lowercase();
            let name = lower.rsplit('/').next().unwrap_or_default();
            let rank = match () {
                () if name.starts_with(&text) => 0,
                () if name.contains(&text) => 1,
                () if lower.contains(&text) => 2,
                () => return None,
            };
            Some((rank, path.len(), path))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, _, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn names_come_before_directories() {
        let paths = ["src/lib.rs", "lib/main.rs", "src/old_lib.rs", "tests/a.rs"].map(str::to_owned);
        assert_eq!(rank(paths.clone().into_iter(), "LIB"), ["src/lib.rs", "src/old_lib.rs", "lib/main.rs"]);
        assert_eq!(
            rank(paths.into_iter(), ""),
            ["src/lib.rs", "tests/a.rs", "lib/main.rs", "src/old_lib.rs"]
        );
    }
}
