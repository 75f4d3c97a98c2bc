//! Looks at this machine's disk beside the client's texts, and what they came to.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use bowline_workspace::glance::{Glance, glance};
use tokio::task::spawn_blocking;

use super::Runtimes;
use super::beside::{Base, Commanded, Disk, Truth, is_same, text_of, truth};

/// Larger files are not looked at: what the client says of them holds.
const MAX_LOOK: u64 = 4 << 20;

/// So many texts are kept for comparison; the oldest go first.
const MAX_BASES: usize = 256;

/// So many bytes they have together.
const MAX_BYTES: usize = 32 << 20;

/// So many files are remembered as written through the client; then none is.
const MAX_WRITTEN: usize = 10_000;

/// What looks at the disk came to.
#[derive(Debug, Default)]
pub(super) struct Looks {
    // Invariant: the newest first, each path once; at most `MAX_BASES` with at most `MAX_BYTES`, which `bytes` counts.
    bases: VecDeque<(String, Base)>,
    bytes: usize,
    commanded: Commanded,
    // Invariant: at most `MAX_WRITTEN`.
    written: HashSet<String>,
    // A file of the client's was found here with its text.
    is_here: bool,
    // A file that the client has, and that was not here when it was looked for.
    absent: Option<String>,
}

impl Looks {
    fn base(&self, path: &str) -> Option<Base> {
        self.bases.iter().find(|(known, _)| known == path).map(|(_, base)| base.clone())
    }

    fn forget(&mut self, path: &str) {
        if let Some(at) = self.bases.iter().position(|(known, _)| known == path)
            && let Some((_, base)) = self.bases.remove(at)
        {
            self.bytes -= base.text.len();
        }
    }

    fn keep(&mut self, path: &str, base: Base) {
        self.forget(path);
        self.bytes += base.text.len();
        self.bases.push_front((path.to_owned(), base));
        while self.bases.len() > MAX_BASES || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.bases.pop_back() else { return };
            self.bytes -= oldest.text.len();
        }
    }
}

impl Runtimes {
    /// Notes that something runs that may change files on this machine.
    pub fn note_command(&self) {
        self.looks().commanded.runs(SystemTime::now());
    }

    /// Notes that a file is written through the client.
    pub(super) fn note_written(&self, path: &str) {
        let mut looks = self.looks();
        if looks.written.len() >= MAX_WRITTEN {
            looks.written.clear();
        }
        looks.written.insert(path.to_owned());
    }

    /// Looks at what this machine has where the client has a text, and says which of them is the file's.
    pub(super) async fn beside(&self, path: &str, client: &Arc<String>) -> Truth {
        // A command that runs after this moment may have changed the file since the look.
        let now = SystemTime::now();
        let disk = self.glance(path).await;
        let mut looks = self.looks();
        let found = truth(client, &disk, looks.base(path).as_ref(), looks.commanded);
        match &disk {
            Disk::File(bytes, _) => {
                let text = text_of(bytes);
                // Empty files are everywhere.
                looks.is_here |= text.as_ref().is_some_and(|text| !text.is_empty() && is_same(text, client));
                if found == Truth::Served
                    && let Some(text) = text
                {
                    let text = if text == **client { client.clone() } else { Arc::new(text) };
                    looks.commanded.sees(SystemTime::now());
                    looks.keep(path, Base { text, at: now });
                }
            }
            Disk::Missing if !looks.written.contains(path) => looks.absent = Some(path.to_owned()),
            Disk::Missing | Disk::Unknown => {}
        }
        found
    }

    /// Returns what this machine's disk has.
    pub(crate) async fn glance(&self, path: &str) -> Disk {
        let Ok(roots) = self.roots().await.cloned() else { return Disk::Unknown };
        let path = path.to_owned();
        match spawn_blocking(move || glance(&roots, &path, MAX_LOOK)).await {
            Ok(Glance::File { bytes, changed }) => Disk::File(bytes, changed),
            Ok(Glance::Missing) => Disk::Missing,
            Ok(Glance::Unknown) | Err(_) => Disk::Unknown,
        }
    }

    /// Returns a file that the client has and this machine has not, if no other of the client's was found here: then the
    /// client's files are on another machine, though directories of the same names are on this one.
    pub async fn elsewhere(&self) -> Option<String> {
        let absent = {
            let looks = self.looks();
            looks.absent.clone().filter(|_| !looks.is_here)
        }?;
        (self.glance(&absent).await == Disk::Missing).then_some(absent)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.inner.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
