//! The changes of a session by turn, file and hunk, and their undo and redo.
//!
//! They come from the journal of the session's directory, and only files below that directory are shown and changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse as _;
use bowline_client::common::leftovers;
use bowline_client::common::reversal::record_reversal;
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_history::changes::{Change, ChangeId, ChangeSource, Reversal};
use bowline_history::undo::{
    ChangeOwner, ChangeSelection, ConflictResolution, ReversalDirection, ReversalError, ReversalErrorReason,
};
use bowline_policy::paths::LexicalPath;
use bowline_serve::store::StoredSession;
use bowline_text::diff;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{ListedChange, Workspace};
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiError, ApiResult, Query, SessionRight, Web, run_blocking};
use crate::diff_view::{self, DiffViewOptions};

/// The most changes that are listed, the newest.
const MAX_CHANGES: usize = 500;
/// The most bytes of hunks in an answer; further changes are listed without theirs.
const MAX_HUNK_BYTES: usize = 4 << 20;
/// The most bytes of a patch.
const MAX_PATCH_BYTES: usize = 64 << 20;
/// What is shown of one change.
const VIEW_OPTIONS: DiffViewOptions =
    DiffViewOptions { ignore_whitespace: false, max_lines: 2000, max_bytes: 256 << 10, max_words: 2000 };

/// `GET /api/sessions/{id}/changes`.
pub(super) async fn list(State(web): State<Arc<Web>>, Path(id): Path<String>, request: Request) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let session = web.find_session(&principal, &id, SessionRight::See).await?;
    let ignore_whitespace = Query::parse(&parts).get("ignoreWhitespace") == Some("true");
    let options = DiffViewOptions { ignore_whitespace, ..VIEW_OPTIONS };
    let body = run_blocking(move || list_changes(&web.locate(&session.cwd)?, &session, options)).await?;
    Ok(Json(body).into_response())
}

fn list_changes(
    location: &WorkspaceLocation,
    session: &StoredSession,
    options: DiffViewOptions,
) -> Result<Value, ApiError> {
    if !location.has_records {
        return Ok(json!({ "turns": [], "foundOnDisk": [], "omitted": 0 }));
    }
    let workspace = location.open(&[])?;
    let history = workspace.changes(&ChangeSelection::default()).map_err(ApiError::failed)?;
    let titles = workspace.turn_titles();
    let selected: Vec<&ListedChange> = history.iter().filter(|it| is_listed(location, session, it)).collect();
    let omitted = selected.len().saturating_sub(MAX_CHANGES);
    let mut describer = ChangeDescriber {
        location,
        workspace: &workspace,
        undone: undone_hunks(&history),
        options,
        bytes: 0,
    };
    let (mut turns, mut found): (Vec<(u64, Vec<Value>)>, Vec<Value>) = (Vec::new(), Vec::new());
    // The newest first: they get their hunks.
    for changed in selected.iter().skip(omitted).rev() {
        let file = describer.describe(changed)?;
        if changed.change.is_unattributed() {
            found.push(file);
            continue;
        }
        let turn = changed.change.origin.turn.unwrap_or(0);
        match turns.iter_mut().find(|(known, _)| *known == turn) {
            Some((_, files)) => files.push(file),
            None => turns.push((turn, vec![file])),
        }
    }
    let turns: Vec<Value> = turns
        .into_iter()
        .map(|(turn, mut files)| {
            files.reverse();
            let label = titles.get(&session.id, turn);
            let last = files.last().cloned().unwrap_or_default();
            json!({ "id": turn, "label": label, "at": last["at"], "by": last["by"], "files": files })
        })
        .collect();
    Ok(json!({ "turns": turns, "foundOnDisk": found, "omitted": omitted }))
}

/// Returns whether a change is shown: edits of the session, and those that were found on disk since it began and that
/// belong to no session.
fn is_listed(location: &WorkspaceLocation, session: &StoredSession, changed: &ListedChange) -> bool {
    let change = &changed.change;
    let is_own = match &change.origin.session {
        Some(owner) => **owner == *session.id,
        None => change.is_unattributed() && change.at >= session.created_at,
    };
    is_own
        && change.reverses.is_empty()
        && !change.is_kept_text()
        && location.relative_name(&change.path) != change.path
}

/// Returns the undone hunks of changes that are in effect as a whole.
fn undone_hunks(history: &[ListedChange]) -> HashMap<ChangeId, BTreeSet<usize>> {
    let mut undone: HashMap<ChangeId, BTreeSet<usize>> = HashMap::new();
    for reversal in history.iter().filter(|it| it.is_in_effect).flat_map(|it| &it.change.reverses) {
        undone.entry(reversal.change).or_default().extend(reversal.hunks.iter().flatten());
    }
    undone
}

/// Describes changes, within a limit for all of them.
struct ChangeDescriber<'a> {
    location: &'a WorkspaceLocation,
    workspace: &'a Workspace,
    undone: HashMap<ChangeId, BTreeSet<usize>>,
    options: DiffViewOptions,
    bytes: usize,
}

impl ChangeDescriber<'_> {
    fn describe(&mut self, changed: &ListedChange) -> Result<Value, ApiError> {
        let change = &changed.change;
        let (before, after) = self.workspace.change_texts(change.id).map_err(ApiError::failed)?;
        let is_text =
            before.is_some() == change.before.is_some() && after.is_some() == change.after.is_some();
        let old = before.as_deref().filter(|_| is_text).unwrap_or_default();
        let new = after.as_deref().filter(|_| is_text).unwrap_or_default();
        let view = diff_view::compare(old, new, self.options);
        let empty = BTreeSet::new();
        let undone = self.undone.get(&change.id).unwrap_or(&empty);
        let is_undone = !changed.is_in_effect
            || (!undone.is_empty() && undone.len() >= diff::compute_hunks(old, new).len());
        let hunks = view.hunks.iter().map(|hunk| {
            let mut value = json!(hunk);
            value["id"] = json!(hunk.index.map(|index| format!("{}:{index}", change.id)));
            value["undone"] = json!(is_undone || hunk.index.is_some_and(|index| undone.contains(&index)));
            value
        });
        let mut hunks: Vec<Value> = hunks.collect();
        self.bytes += before.map_or(0, |text| text.len()).min(self.options.max_bytes)
            + after.map_or(0, |text| text.len()).min(self.options.max_bytes);
        let is_too_much = self.bytes > MAX_HUNK_BYTES && !hunks.is_empty();
        if is_too_much {
            hunks.clear();
        }
        Ok(json!({
            "changeId": change.id.0,
            "path": self.location.relative_name(&change.path),
            "change": describe_kind(change),
            "by": describe_source(change),
            "command": change.origin.command,
            "at": change.at.0,
            "undone": is_undone,
            "binary": !is_text && !change.is_pruned(),
            "pruned": change.is_pruned(),
            "added": view.added,
            "removed": view.removed,
            "truncated": view.truncated || is_too_much,
            "omittedLines": if is_too_much { view.added + view.removed } else { view.omitted_lines },
            "hunks": hunks,
        }))
    }
}

fn describe_kind(change: &Change) -> &'static str {
    match (change.before, change.after) {
        (None, Some(_)) => "created",
        (None, None) => "directory",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "modified",
    }
}

fn describe_source(change: &Change) -> &'static str {
    match change.source {
        ChangeSource::Written | ChangeSource::Claimed => "agent",
        ChangeSource::Observed if change.origin.command.is_some() => "command",
        ChangeSource::Observed if change.is_unattributed() => "disk",
        ChangeSource::Observed => "agent",
    }
}

/// What is taken back, or done again. Without any member, all changes of the session.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReversalRequest {
    turn: Option<u64>,
    path: Option<String>,
    change: Option<i64>,
    // A change and the number of its hunk, as `12:0`.
    hunk: Option<String>,
    conflicts: Option<ConflictChoice>,
}

/// What is done where the same lines were changed since.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ConflictChoice {
    Markers,
    Force,
}

/// `POST /api/sessions/{id}/undo`.
pub(super) async fn undo(web: State<Arc<Web>>, id: Path<String>, request: Request) -> ApiResult {
    reverse(web, id, request, ReversalDirection::Undo).await
}

/// `POST /api/sessions/{id}/redo`.
pub(super) async fn redo(web: State<Arc<Web>>, id: Path<String>, request: Request) -> ApiResult {
    reverse(web, id, request, ReversalDirection::Redo).await
}

async fn reverse(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    request: Request,
    direction: ReversalDirection,
) -> ApiResult {
    let (principal, body) = web.receive::<ReversalRequest>(request).await?;
    let session = web.find_session(&principal, &id, SessionRight::Use).await?;
    let session_id = session.id.clone();
    let reversed = {
        let web = Arc::clone(&web);
        run_blocking(move || reverse_changes(&web.locate(&session.cwd)?, &session, &body, direction)).await?
    };
    web.forget_changed_files();
    web.endpoint.hub.announce_change(&session_id);
    Ok(Json(reversed).into_response())
}

fn reverse_changes(
    location: &WorkspaceLocation,
    session: &StoredSession,
    request: &ReversalRequest,
    direction: ReversalDirection,
) -> Result<Value, ApiError> {
    let conflict = |text: String| ApiError::new(StatusCode::CONFLICT, text);
    if !location.has_records {
        return Err(conflict(format!("there is nothing to {}", direction.verb())));
    }
    let workspace = location.open(&[])?;
    let history = workspace.changes(&ChangeSelection::default()).map_err(ApiError::failed)?;
    let is_known = |change: &Change| {
        history.iter().any(|it| it.change.id == change.id && is_listed(location, session, it))
    };
    let selection = request
        .select(location, session, direction, |id| workspace.change(id).ok().filter(is_known).map(|_| ()))?;
    let resolution = match request.conflicts {
        None => ConflictResolution::Refuse,
        Some(ConflictChoice::Markers) => ConflictResolution::Markers,
        Some(ConflictChoice::Force) => ConflictResolution::Force,
    };
    let outcome = match workspace.undo_or_redo(direction, &selection, resolution, &|_, _| {}) {
        Ok(outcome) => outcome,
        Err(error @ (FilesError::NothingToUndo(_) | FilesError::OnlyObservedChanges(_))) => {
            return Err(conflict(error.to_string()));
        }
        Err(error) => {
            // The refusal names one file; the preview names all.
            let refusals = workspace.preview_undo(direction, &selection).map(|preview| {
                let refused =
                    preview.files.into_iter().filter_map(|file| Some((file.path, file.patch.err()?)));
                refused
                    .flat_map(|(path, error)| describe_refusal(location, &path, &error))
                    .collect::<Vec<_>>()
            });
            return match refusals {
                Ok(refusals) if !refusals.is_empty() => Ok(json!({ "changed": [], "conflicts": refusals })),
                _ => Err(conflict(error.to_string())),
            };
        }
    };
    record_reversal(location, &workspace, &outcome.files);
    if direction == ReversalDirection::Undo {
        leftovers::clean_up(location, &workspace, &outcome.files);
    }
    let names = outcome.files.iter().map(|file| location.relative_name(&file.path));
    let changed: Vec<&str> = names.collect();
    Ok(json!({ "changed": changed, "conflicts": [], "left": outcome.skipped.len() }))
}

impl ReversalRequest {
    /// Returns the selection of changes. `find` returns whether a change belongs to the session.
    fn select(
        &self,
        location: &WorkspaceLocation,
        session: &StoredSession,
        direction: ReversalDirection,
        find: impl Fn(ChangeId) -> Option<()>,
    ) -> Result<ChangeSelection, ApiError> {
        let unknown = |id: ChangeId| {
            ApiError::new(StatusCode::NOT_FOUND, format!("there is no change {id} in this session"))
        };
        let named = match (&self.hunk, self.change) {
            (Some(hunk), _) => {
                let (change, index) = parse_hunk(hunk)
                    .ok_or_else(|| ApiError::invalid("a hunk is named by its change and its number: 12:0"))?;
                Some(Reversal { change, hunks: Some(vec![index]) })
            }
            (None, Some(change)) => Some(Reversal { change: ChangeId(change), hunks: None }),
            (None, None) => None,
        };
        if let Some(reversal) = named {
            find(reversal.change).ok_or_else(|| unknown(reversal.change))?;
            return Ok(ChangeSelection { change: Some(reversal), ..ChangeSelection::default() });
        }
        let session = session.id.to_string();
        let owner = match self.turn {
            Some(turn) => ChangeOwner::Turn { session, turn },
            None => ChangeOwner::Session(session),
        };
        let path = match &self.path {
            None => location.root.clone(),
            Some(path) => resolve(location, path)?,
        };
        Ok(ChangeSelection {
            path: Some(path),
            owner,
            // What was merely found on disk may be the user's own work, and has to be named.
            only_explained: direction == ReversalDirection::Undo,
            ..ChangeSelection::default()
        })
    }
}

fn parse_hunk(text: &str) -> Option<(ChangeId, usize)> {
    let (change, index) = text.split_once(':')?;
    Some((ChangeId(change.parse().ok()?), index.parse().ok()?))
}

/// Returns the absolute path of a file below a workspace.
fn resolve(location: &WorkspaceLocation, path: &str) -> Result<String, ApiError> {
    let joined = std::path::Path::new(&location.root).join(path);
    let parsed = joined.to_str().and_then(|path| LexicalPath::parse(path).ok());
    let parsed = parsed.filter(|path| location.relative_name(path.as_str()) != path.as_str());
    let parsed = parsed.ok_or_else(|| ApiError::invalid("the path is not below the session's directory"))?;
    Ok(parsed.as_str().to_owned())
}

/// Describes why a file cannot be reverted: each place with both sides, or only the reason.
fn describe_refusal(location: &WorkspaceLocation, path: &str, error: &FilesError) -> Vec<Value> {
    let path = location.relative_name(path);
    let (reason, places) = match error {
        FilesError::CannotReverse(ReversalError { reason, .. }) => match reason {
            ReversalErrorReason::Conflict(conflict) => {
                ("the same lines were changed since".to_owned(), conflict.hunks.as_slice())
            }
            other => (other.to_string(), &[][..]),
        },
        other => (other.to_string(), &[][..]),
    };
    if places.is_empty() {
        return vec![json!({ "path": path, "reason": reason })];
    }
    let place = |hunk: &bowline_text::merge::ConflictHunk| {
        json!({
            "path": path, "reason": reason, "line": hunk.line,
            "ours": hunk.ours, "theirs": hunk.theirs, "base": hunk.base,
        })
    };
    places.iter().map(place).collect()
}

/// `GET /api/sessions/{id}/patch`.
pub(super) async fn patch(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult {
    let (parts, _) = request.into_parts();
    let principal = web.authenticate(&parts).await?;
    let session = web.find_session(&principal, &id, SessionRight::See).await?;
    let turn = Query::parse(&parts).number("turn")?;
    let request = ReversalRequest { turn, ..ReversalRequest::default() };
    let patch = run_blocking(move || {
        let location = web.locate(&session.cwd)?;
        if !location.has_records {
            return Ok(String::new());
        }
        let selection = request.select(&location, &session, ReversalDirection::Redo, |_| None)?;
        let patch = location.open(&[])?.diff(&selection).map_err(ApiError::failed)?;
        if patch.len() > MAX_PATCH_BYTES {
            return Err(ApiError::failed("the patch is too large: use `bowline diff`"));
        }
        Ok(patch)
    })
    .await?;
    let headers = [
        (header::CONTENT_TYPE, "text/x-diff; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"bowline.patch\""),
    ];
    Ok((headers, patch).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_named_by_change_and_number() {
        assert_eq!(parse_hunk("12:0"), Some((ChangeId(12), 0)));
        for wrong in ["", "12", "12:", ":1", "12:-1", "a:1", "12:1:2"] {
            assert_eq!(parse_hunk(wrong), None, "{wrong}");
        }
    }
}
