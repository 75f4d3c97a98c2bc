//! Which workspace is meant, and where what is recorded of it lies: the places that a host and the agent use for it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_host::Places as HostPlaces;
use bowline_workspace::audit::AuditLog;
use bowline_workspace::journal;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Opened, Settings, Workspace};

use super::showing::{note, safe};
use crate::ending::Ending;
use crate::places::Places;

/// What a directory must have had, to be taken for the workspace that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A journal of changes.
    Journal,
    /// An audit log, or what is left of one.
    Log,
    /// Nothing: it is the directory itself, as for whoever serves it to an agent.
    Itself,
}

/// A workspace, by its directory.
#[derive(Debug)]
pub(crate) struct Here {
    /// Where the command was started, without links.
    pub(crate) start: PathBuf,
    /// The workspace: that directory, or the nearest above it that agents worked in.
    pub(crate) root: String,
    /// Whether agents worked in it.
    pub(crate) known: bool,
    /// Where its journal is, and below that its audit log.
    pub(crate) directory: PathBuf,
    /// The anchor of its audit log.
    pub(crate) anchor: PathBuf,
    /// The user's own places.
    pub(crate) places: HostPlaces,
}

impl Here {
    /// Finds the workspace that a directory is, or is in, and says on stderr if it is another one.
    ///
    /// # Errors
    /// Says why the directory cannot be used.
    pub(crate) fn find(cwd: Option<&Path>, sign: Sign) -> Result<Self, Ending> {
        let here = Self::look(cwd, sign)?;
        if Path::new(&here.root) != here.start {
            note(&format!("in the workspace {}", safe(&here.root)));
        }
        Ok(here)
    }

    /// Returns the workspace that a directory itself is, as for an agent that works in it.
    ///
    /// # Errors
    /// Says why the directory cannot be used.
    pub(crate) fn itself(cwd: Option<&Path>) -> Result<Self, Ending> {
        Self::look(cwd, Sign::Itself)
    }

    /// Finds the workspace that a directory is, or is in.
    ///
    /// # Errors
    /// As [`Here::find`].
    pub(super) fn look(cwd: Option<&Path>, sign: Sign) -> Result<Self, Ending> {
        let own = Places::of_user()?;
        let places = own.for_host(own.policy());
        let start = directory(cwd)?;
        let mut nearest = None;
        for root in start.ancestors() {
            let Some(text) = root.to_str() else {
                if root == start {
                    let shown = safe(&root.to_string_lossy());
                    return Err(Ending::Usage(format!(
                        "{shown} is not named in UTF-8, so no agent works there"
                    )));
                }
                continue;
            };
            let roots = match Roots::open(&RootSpec::writable(text), &[]) {
                Ok(roots) => roots,
                Err(error) if root == start => return Err(anyhow::Error::from(error).into()),
                // What is above may be closed to the user; nobody has worked there then.
                Err(_) => continue,
            };
            let directory = Workspace::journal_directory(&places.state, &roots);
            let (log, anchor) = AuditLog::locate(&directory, &places.anchors);
            let history = directory.join(journal::FILE_NAME);
            let known = match sign {
                Sign::Journal => is_there(&history)?,
                // A log that is gone while its anchor is there was removed.
                Sign::Log => log.is_dir() || anchor.exists(),
                Sign::Itself => history.exists() || log.is_dir(),
            };
            let (start, places) = (start.clone(), places.clone());
            let found = Self { start, root: roots.cwd().to_owned(), known, directory, anchor, places };
            if known || sign == Sign::Itself {
                return Ok(found);
            }
            nearest.get_or_insert(found);
        }
        nearest.context("there is no directory to work in").map_err(Ending::from)
    }

    /// Opens the workspace. What its journal has to say is said on stderr.
    ///
    /// # Errors
    /// Returns why it cannot be used: also that its journal was damaged, and is another one now.
    pub(crate) fn open(&self, more: &[RootSpec]) -> Result<Workspace, Ending> {
        let failed = |error: anyhow::Error| Ending::from(error);
        let roots =
            Roots::open(&RootSpec::writable(self.root.as_str()), more).map_err(|e| failed(e.into()))?;
        let roots = roots.keeping_out([&self.places.state, &self.places.anchors]);
        let opened = Workspace::open(roots, &self.directory, Settings::default());
        let Opened { workspace, notices, recovered } = opened.map_err(|error| failed(error.into()))?;
        for recovered in recovered {
            note(&recovered.to_string());
        }
        workspace.tell_kept_texts(|text| note(&text.to_string()));
        for notice in notices {
            if let journal::Notice::SetAside { .. } = notice {
                return Err(failed(notice.into()));
            }
            note(&notice.to_string());
        }
        Ok(workspace)
    }

    /// Returns the directory of the audit log.
    pub(crate) fn log(&self) -> PathBuf {
        AuditLog::locate(&self.directory, &self.places.anchors).0
    }

    /// Returns how a file is called by whoever is in the workspace's directory: below it from there, else in full.
    pub(crate) fn name<'p>(&self, path: &'p str) -> &'p str {
        let below =
            path.strip_prefix(self.root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        below.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }

    /// Returns the absolute name of a file that is named from where the command was started. No file has to be there.
    ///
    /// # Errors
    /// Says that the name is no text.
    pub(crate) fn file(&self, name: &Path) -> Result<String, Ending> {
        let path = self.start.join(name);
        let Some(text) = path.to_str() else {
            let shown = safe(&path.to_string_lossy());
            return Err(Ending::Usage(format!(
                "{shown} is not named in UTF-8, so no agent can have changed it"
            )));
        };
        Ok(bowline_state::paths::LexicalPath::parse(text)
            .map_or_else(|_| text.to_owned(), |path| path.as_str().to_owned()))
    }
}

/// Returns a directory by its own name: the one that is named, else the one that the program was started in.
///
/// # Errors
/// Says why there is none.
pub(crate) fn directory(cwd: Option<&Path>) -> Result<PathBuf, Ending> {
    let named = cwd.unwrap_or(Path::new("."));
    let found = named
        .canonicalize()
        .map_err(|error| Ending::Usage(format!("cannot use {}: {error}", safe(&named.to_string_lossy()))))?;
    if found.is_dir() {
        Ok(found)
    } else {
        Err(Ending::Usage(format!("{} is not a directory", safe(&named.to_string_lossy()))))
    }
}

/// Says whether something was kept. What cannot be looked at is not taken for missing.
///
/// # Errors
/// Says why that cannot be told.
fn is_there(kept: &Path) -> Result<bool, Ending> {
    let looked = kept.try_exists();
    Ok(looked.with_context(|| format!("cannot look at {}", safe(&kept.to_string_lossy())))?)
}
