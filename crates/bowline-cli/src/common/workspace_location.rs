//! The location of a workspace and its records: the directories that the host and the agent use for it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_host::HostPaths as HostPlaces;
use bowline_workspace::audit::AuditLog;
use bowline_workspace::journal;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{OpenedWorkspace, Workspace, WorkspaceOptions};

use super::console::{escape_line, print_note};
use crate::error::CliError;
use crate::user_dirs::UserDirs;

/// What identifies a directory as the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkspaceMarker {
    /// A journal of changes.
    Journal,
    /// An audit log, or the remains of one.
    AuditLog,
    /// Nothing: the directory itself is the workspace, as when it is served to an agent.
    Directory,
}

/// A workspace, by its directory.
#[derive(Debug)]
pub(crate) struct WorkspaceLocation {
    /// The directory the command was started in, canonical.
    pub(crate) start_dir: PathBuf,
    /// The workspace: that directory, or the nearest parent that agents worked in.
    pub(crate) root: String,
    /// Whether agents worked in it.
    pub(crate) has_records: bool,
    /// The directory of its journal, which also contains its audit log.
    pub(crate) journal_dir: PathBuf,
    /// The anchor of its audit log.
    pub(crate) anchor: PathBuf,
    /// The user's directories.
    pub(crate) dirs: HostPlaces,
}

impl WorkspaceLocation {
    /// Finds the workspace of a directory or of its nearest parent, and prints a note on stderr if it is a parent.
    ///
    /// # Errors
    /// Explains why the directory cannot be used.
    pub(crate) fn find(cwd: Option<&Path>, sign: WorkspaceMarker) -> Result<Self, CliError> {
        let here = Self::locate(cwd, sign)?;
        if Path::new(&here.root) != here.start_dir {
            print_note(&format!("in the workspace {}", escape_line(&here.root)));
        }
        Ok(here)
    }

    /// Returns the workspace of the directory itself, as for an agent that works in it.
    ///
    /// # Errors
    /// Explains why the directory cannot be used.
    pub(crate) fn of_directory(cwd: Option<&Path>) -> Result<Self, CliError> {
        Self::locate(cwd, WorkspaceMarker::Directory)
    }

    /// Finds the workspace of a directory or of its nearest parent.
    ///
    /// # Errors
    /// As [`WorkspaceLocation::find`].
    pub(super) fn locate(cwd: Option<&Path>, sign: WorkspaceMarker) -> Result<Self, CliError> {
        let own = UserDirs::from_env()?;
        let places = own.for_host(own.policy_file());
        let start = resolve_directory(cwd)?;
        let mut nearest = None;
        for root in start.ancestors() {
            let Some(text) = root.to_str() else {
                if root == start {
                    let shown = escape_line(&root.to_string_lossy());
                    return Err(CliError::Usage(format!(
                        "{shown} is not named in UTF-8, so no agent works there"
                    )));
                }
                continue;
            };
            let roots = match Roots::open(&RootSpec::writable(text), &[]) {
                Ok(roots) => roots,
                Err(error) if root == start => return Err(anyhow::Error::from(error).into()),
                // The user may lack access to a parent; then no agent has worked there.
                Err(_) => continue,
            };
            let directory = Workspace::journal_directory(&places.state, &roots);
            let (log, anchor) = AuditLog::locate(&directory, &places.anchors);
            let history = directory.join(journal::FILE_NAME);
            let known = match sign {
                WorkspaceMarker::Journal => try_exists(&history)?,
                // A missing log whose anchor exists was removed.
                WorkspaceMarker::AuditLog => log.is_dir() || anchor.exists(),
                WorkspaceMarker::Directory => history.exists() || log.is_dir(),
            };
            let (start, places) = (start.clone(), places.clone());
            let found = Self {
                start_dir: start,
                root: roots.cwd().to_owned(),
                has_records: known,
                journal_dir: directory,
                anchor,
                dirs: places,
            };
            if known || sign == WorkspaceMarker::Directory {
                return Ok(found);
            }
            nearest.get_or_insert(found);
        }
        nearest.context("there is no directory to work in").map_err(CliError::from)
    }

    /// Opens the workspace. Notices from its journal are printed on stderr.
    ///
    /// # Errors
    /// Returns why it cannot be used, including that its damaged journal was replaced.
    pub(crate) fn open(&self, more: &[RootSpec]) -> Result<Workspace, CliError> {
        let failed = |error: anyhow::Error| CliError::from(error);
        let roots =
            Roots::open(&RootSpec::writable(self.root.as_str()), more).map_err(|e| failed(e.into()))?;
        let roots = roots.with_reserved_paths([&self.dirs.state, &self.dirs.anchors]);
        let opened = Workspace::open(roots, &self.journal_dir, WorkspaceOptions::default());
        let OpenedWorkspace { workspace, notices, recovered } =
            opened.map_err(|error| failed(error.into()))?;
        for recovered in recovered {
            print_note(&recovered.to_string());
        }
        workspace.report_kept_texts(|text| print_note(&text.to_string()));
        for notice in notices {
            if let journal::JournalNotice::SetAside { .. } = notice {
                return Err(failed(notice.into()));
            }
            print_note(&notice.to_string());
        }
        Ok(workspace)
    }

    /// Returns the directory of the audit log.
    pub(crate) fn audit_log_dir(&self) -> PathBuf {
        AuditLog::locate(&self.journal_dir, &self.dirs.anchors).0
    }

    /// Returns the display path of a file: relative to the workspace if it is below it, otherwise absolute.
    pub(crate) fn relative_name<'p>(&self, path: &'p str) -> &'p str {
        let below =
            path.strip_prefix(self.root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        below.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }

    /// Returns the absolute path of a name relative to the start directory. The file need not exist.
    ///
    /// # Errors
    /// Reports a name that is not UTF-8.
    pub(crate) fn absolute_path(&self, name: &Path) -> Result<String, CliError> {
        let path = self.start_dir.join(name);
        let Some(text) = path.to_str() else {
            let shown = escape_line(&path.to_string_lossy());
            return Err(CliError::Usage(format!(
                "{shown} is not named in UTF-8, so no agent can have changed it"
            )));
        };
        Ok(bowline_policy::paths::LexicalPath::parse(text)
            .map_or_else(|_| text.to_owned(), |path| path.as_str().to_owned()))
    }
}

/// Returns the canonical path of a directory: the named one, or the current one.
///
/// # Errors
/// Explains why it cannot be used.
pub(crate) fn resolve_directory(cwd: Option<&Path>) -> Result<PathBuf, CliError> {
    let named = cwd.unwrap_or(Path::new("."));
    let found = named.canonicalize().map_err(|error| {
        CliError::Usage(format!("cannot use {}: {error}", escape_line(&named.to_string_lossy())))
    })?;
    if found.is_dir() {
        Ok(found)
    } else {
        Err(CliError::Usage(format!("{} is not a directory", escape_line(&named.to_string_lossy()))))
    }
}

/// Returns whether a record exists. One that cannot be accessed does not count as missing.
///
/// # Errors
/// Explains why it cannot be accessed.
fn try_exists(kept: &Path) -> Result<bool, CliError> {
    let looked = kept.try_exists();
    Ok(looked.with_context(|| format!("cannot look at {}", escape_line(&kept.to_string_lossy())))?)
}
