//! Looking around in the session's directories, with the client's text of what it was seen to have.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::paths::Access;
use bowline_workspace::error::FilesError;
use bowline_workspace::listing::{self, ListOptions, Listing};
use bowline_workspace::roots::Roots;
use bowline_workspace::search::{self, SearchQuery, SearchResult, Unsaved};
use bowline_workspace::walker::Kind;
use futures_util::{StreamExt as _, stream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Fault, Runtimes, Server};

/// So many files are read from the client again before a search, the newest first; of others the text that was seen
/// last is searched.
const MAX_REFRESHED: usize = 16;

/// So deep and so many are files looked for that a model may have meant.
const NAMESAKE_DEPTH: usize = 8;
const MAX_NAMESAKES: usize = 3;

/// So many at a time.
const AT_ONCE: usize = 8;

/// How long reading them again may take in all.
const REFRESH: Duration = Duration::from_secs(2);

/// What a search found, and of how many files the client's text was searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlaid {
    /// What was found.
    pub found: SearchResult,
    /// The files whose client's text was searched, by their own names.
    pub from_client: Vec<String>,
}

impl Runtimes {
    /// Lists a directory of this machine.
    ///
    /// # Errors
    /// Returns why there is no such directory here.
    pub async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Fault> {
        let (roots, path) = (self.roots().await?.clone(), path.to_owned());
        blocking(move || {
            let directory = roots.admit(&path, Access::Read).map_err(FilesError::from)?;
            Ok(listing::list(&roots, &directory, &options)?)
        })
        .await
    }

    /// Returns where files of this name lie in the session's directory on this machine, as ways from there: the first few.
    pub async fn namesakes(&self, name: &str) -> Vec<String> {
        let options = ListOptions { depth: NAMESAKE_DEPTH, ..ListOptions::default() };
        let Ok(cwd) = self.roots().await.map(|roots| roots.cwd().to_owned()) else { return Vec::new() };
        // It is a hint: where nothing can be listed there is none.
        let listing = self.list(&cwd, options).await.unwrap_or_default();
        let files = listing.entries.into_iter().filter(|entry| entry.kind == Kind::File);
        let same = files.filter(|entry| entry.path.rsplit('/').next() == Some(name));
        same.map(|entry| entry.path).take(MAX_NAMESAKES).collect()
    }

    /// Searches the session's directories on this machine, or what is below one; with the client's text of files that the
    /// session has read through it.
    ///
    /// # Errors
    /// Returns what is wrong with the query, or why there is no such directory here.
    pub async fn search(&self, query: SearchQuery, below: Option<String>) -> Result<Overlaid, Fault> {
        let roots = self.roots().await?.clone();
        let kept = self.refreshed(&roots).await?;
        let stop = Arc::new(AtomicBool::new(false));
        // A search that nobody waits for ends.
        let _end = StopOnDrop(stop.clone());
        let query = SearchQuery { stop: Some(stop), ..query };
        blocking(move || {
            let unsaved = overlay(&roots, kept);
            let under = below.map(|path| roots.admit(&path, Access::Read)).transpose();
            let under = under.map_err(FilesError::from)?;
            let found = search::search(&roots, &query, under.as_ref(), &unsaved)?;
            Ok(Overlaid { found, from_client: unsaved.into_keys().collect() })
        })
        .await
    }

    /// Returns the client's texts, read again as far as that goes quickly. What is protected or lies outside is left out:
    /// that it was read once does not allow it to be read again.
    async fn refreshed(&self, roots: &Roots) -> Result<Vec<(String, Arc<String>)>, Fault> {
        let (kept, roots) = (self.kept().all(), roots.clone());
        if self.choice().read != Server::Client || kept.is_empty() {
            return Ok(kept);
        }
        let is_open = move |path: &String| {
            roots.admit(path, Access::Read).is_ok_and(|admitted| admitted.protection().is_none())
        };
        let open = move || Ok(kept.into_iter().map(|(path, _)| path).filter(is_open).collect());
        let open: Vec<String> = blocking(open).await?;
        let paths = open.iter().take(MAX_REFRESHED).cloned();
        let again = stream::iter(paths).for_each_concurrent(AT_ONCE, |path| async move {
            // What cannot be read again is searched as it was, or not at all if it is gone.
            self.read(Server::Client, &path, Window::default()).await.ok();
        });
        timeout(REFRESH, again).await.ok();
        let open: HashSet<String> = open.into_iter().collect();
        let mut kept = self.kept().all();
        kept.retain(|(path, _)| open.contains(path));
        Ok(kept)
    }
}

/// Returns texts by the names that a walk comes by.
fn overlay(roots: &Roots, kept: Vec<(String, Arc<String>)>) -> Unsaved {
    let own_name = |(path, text): (String, Arc<String>)| {
        let admitted = roots.admit(&path, Access::Read).ok()?;
        Some((admitted.canonical().to_owned(), text))
    };
    kept.into_iter().filter_map(own_name).collect()
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, FilesError> + Send + 'static,
) -> Result<T, Fault> {
    let done = spawn_blocking(act).await.map_err(|ended| Fault::Unusable(ended.to_string()))?;
    done.map_err(|error| Fault::Said(Failure::from(error)))
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
