//! Listing and searching the session's directories, with the client's text of files it was seen to have.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_policy::paths::Access;
use bowline_protocol::rpc_error::RpcError;
use bowline_task::spawn_blocking;
use bowline_text::lines::LineWindow;
use bowline_workspace::error::FilesError;
use bowline_workspace::list::{self, ListOptions, Listing};
use bowline_workspace::roots::Roots;
use bowline_workspace::search::{self, SearchQuery, SearchResult, UnsavedTexts};
use bowline_workspace::walker::EntryKind;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::{Backend, RuntimeError, SessionRuntime};

/// The most files read again from the client before a search, newest first; the others are searched in the text seen
/// last.
const MAX_REFRESHED: usize = 16;

/// The depth and number of results of the search for files that a model may have meant.
const NAMESAKE_DEPTH: usize = 8;
const MAX_NAMESAKES: usize = 3;

/// The most concurrent reads.
const MAX_CONCURRENT_READS: usize = 8;

/// The time limit for all of these reads together.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// A search result, and the files searched in the client's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverlaySearchResult {
    /// The matches.
    pub result: SearchResult,
    /// The canonical names of files whose client text was searched.
    pub overlaid_files: Vec<String>,
}

impl SessionRuntime {
    /// Lists a directory, through the client if it can.
    ///
    /// # Errors
    /// Fails if the directory does not exist there.
    pub async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, RuntimeError> {
        if self.backend_choice().list == Backend::Client {
            return self.client_files().list(path, options).await;
        }
        let (roots, path) = (self.roots().await?.clone(), path.to_owned());
        run_blocking(move || {
            let directory = roots.admit(&path, Access::Read).map_err(FilesError::from)?;
            Ok(list::list(&roots, &directory, &options)?)
        })
        .await
    }

    /// Returns the first few files of this name in the session's directory on this machine, relative to it.
    pub async fn find_files_named(&self, name: &str) -> Vec<String> {
        let options = ListOptions { depth: NAMESAKE_DEPTH, ..ListOptions::default() };
        let Ok(cwd) = self.roots().await.map(|roots| roots.cwd().to_owned()) else { return Vec::new() };
        // Only a hint: without a listing there are no suggestions.
        let listing = self.list(&cwd, options).await.unwrap_or_default();
        let files = listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
        let namesakes = files.filter(|entry| entry.path.rsplit('/').next() == Some(name));
        namesakes.map(|entry| entry.path).take(MAX_NAMESAKES).collect()
    }

    /// Searches the session's directories on this machine, or a directory below one, with the client's text of files
    /// that the session has read through it.
    ///
    /// # Errors
    /// Fails if the query is invalid, or if the directory does not exist here.
    pub async fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> Result<OverlaySearchResult, RuntimeError> {
        let roots = self.roots().await?.clone();
        let client_texts = self.refresh_client_texts(&roots).await?;
        let stop = Arc::new(AtomicBool::new(false));
        // Dropping the future stops the search.
        let _end = SearchStopGuard(stop.clone());
        let query = SearchQuery { stop: Some(stop), ..query };
        run_blocking(move || {
            let unsaved = resolve_overlay(&roots, client_texts);
            let directory = directory.map(|path| roots.admit(&path, Access::Read)).transpose();
            let directory = directory.map_err(FilesError::from)?;
            let result = search::search(&roots, &query, directory.as_ref(), &unsaved)?;
            Ok(OverlaySearchResult { result, overlaid_files: unsaved.into_keys().collect() })
        })
        .await
    }

    /// Returns the client's texts, as many as possible read again. Files that are now protected or outside the roots
    /// are left out: one earlier read does not permit another.
    async fn refresh_client_texts(&self, roots: &Roots) -> Result<Vec<(String, Arc<String>)>, RuntimeError> {
        let (texts, roots) = (self.client_texts().all(), roots.clone());
        if self.backend_choice().read != Backend::Client || texts.is_empty() {
            return Ok(texts);
        }
        let is_unprotected = move |path: &String| {
            roots.admit(path, Access::Read).is_ok_and(|admitted| admitted.protection().is_none())
        };
        let unprotected =
            move || Ok(texts.into_iter().map(|(path, _)| path).filter(is_unprotected).collect());
        let unprotected: Vec<String> = run_blocking(unprotected).await?;
        let paths = unprotected.iter().take(MAX_REFRESHED).cloned();
        let refresh = stream::iter(paths).for_each_concurrent(MAX_CONCURRENT_READS, |path| async move {
            // An unreadable file is searched in its last text, or not at all if it is gone.
            self.read(Backend::Client, &path, LineWindow::default()).await.ok();
        });
        timeout(REFRESH_TIMEOUT, refresh).await.ok();
        let unprotected: HashSet<String> = unprotected.into_iter().collect();
        let mut texts = self.client_texts().all();
        texts.retain(|(path, _)| unprotected.contains(path));
        Ok(texts)
    }
}

/// Keys the texts by the names that a directory walk finds.
fn resolve_overlay(roots: &Roots, texts: Vec<(String, Arc<String>)>) -> UnsavedTexts {
    let resolve = |(path, text): (String, Arc<String>)| {
        let admitted = roots.admit(&path, Access::Read).ok()?;
        Some((admitted.canonical().to_owned(), text))
    };
    texts.into_iter().filter_map(resolve).collect()
}

async fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, RuntimeError> {
    let result = spawn_blocking(operation)
        .await
        .map_err(|error| RuntimeError::EngineUnavailable(error.to_string()))?;
    result.map_err(|error| RuntimeError::Failed(RpcError::from(error)))
}

struct SearchStopGuard(Arc<AtomicBool>);

impl Drop for SearchStopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
