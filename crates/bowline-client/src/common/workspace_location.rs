//! The location of a workspace and its records: the directories that the host and the agent use for it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_access::audit::AuditLog;
use bowline_host::HostPaths;
use bowline_workspace::journal;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{OpenedWorkspace, Workspace, WorkspaceOptions};

use super::console::{escape_line, print_note};
use crate::environment::UserDirs;
use crate::error::CliError;

/// What identifies a directory as the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceMarker {
    /// A journal of changes.
    Journal,
    /// An audit log, or the remains of one.
    AuditLog,
    /// Nothing: the directory itself is the workspace, as when it is served to an agent.
    Directory,
}

/// A workspace, by its directory.
#[derive(Debug)]
pub struct WorkspaceLocation {
    /// The directory the command was started in, canonical.
    pub start_dir: PathBuf,
    /// The workspace: that directory, or the nearest parent that agents worked in.
    pub root: String,
    /// Whether agents worked in it.
    pub has_records: bool,
    /// The directory of its journal, which also contains its audit log.
    pub journal_dir: PathBuf,
    /// The anchor of its audit log.
    pub anchor: PathBuf,
    /// The user's directories.
    pub dirs: HostPaths,
}

impl WorkspaceLocation {
    /// Finds the workspace of a directory or of its nearest parent, and prints a note on stderr if it is a parent.
    ///
    /// # Errors
    /// Explains why the directory cannot be used.
    pub fn find(cwd: Option<&Path>, marker: WorkspaceMarker) -> Result<Self, CliError> {
        let location = Self::locate(cwd, marker)?;
        if Path::new(&location.root) != location.start_dir {
            print_note(&format!("in the workspace {}", escape_line(&location.root)));
        }
        Ok(location)
    }

    /// Returns the workspace of the directory itself, as for an agent that works in it.
    ///
    /// # Errors
    /// Explains why the directory cannot be used.
    pub fn of_directory(cwd: Option<&Path>) -> Result<Self, CliError> {
        Self::locate(cwd, WorkspaceMarker::Directory)
    }

    /// Finds the workspace of a directory or of its nearest parent.
    ///
    /// # Errors
    /// As [`WorkspaceLocation::find`].
    pub fn locate(cwd: Option<&Path>, marker: WorkspaceMarker) -> Result<Self, CliError> {
        Self::locate_in(&UserDirs::from_env()?, cwd, marker)
    }

    /// Finds the workspace of a directory or of its nearest parent, with its records in these directories.
    ///
    /// # Errors
    /// As [`WorkspaceLocation::find`].
    pub fn locate_in(
        user_dirs: &UserDirs,
        cwd: Option<&Path>,
        marker: WorkspaceMarker,
    ) -> Result<Self, CliError> {
        let dirs = user_dirs.for_host(user_dirs.policy_file());
        let start_dir = resolve_directory(cwd)?;
        let mut nearest = None;
        for root in start_dir.ancestors() {
            let Some(text) = root.to_str() else {
                if root == start_dir {
                    let shown = escape_line(&root.to_string_lossy());
                    return Err(CliError::Usage(format!(
                        "{shown} is not named in UTF-8, so no agent works there"
                    )));
                }
                continue;
            };
            let roots = match Roots::open(&RootSpec::writable(text), &[]) {
                Ok(roots) => roots,
                Err(error) if root == start_dir => return Err(anyhow::Error::from(error).into()),
                // The user may lack access to a parent; then no agent has worked there.
                Err(_) => continue,
            };
            let journal_dir = Workspace::journal_directory(&dirs.state, &roots);
            let (log, anchor) = AuditLog::locate(&journal_dir, &dirs.anchors);
            let journal_file = journal_dir.join(journal::FILE_NAME);
            let has_records = match marker {
                WorkspaceMarker::Journal => try_exists(&journal_file)?,
                // A missing log whose anchor exists was removed.
                WorkspaceMarker::AuditLog => log.is_dir() || anchor.exists(),
                WorkspaceMarker::Directory => journal_file.exists() || log.is_dir(),
            };
            let (start_dir, dirs) = (start_dir.clone(), dirs.clone());
            let location =
                Self { start_dir, root: roots.cwd().to_owned(), has_records, journal_dir, anchor, dirs };
            if has_records || marker == WorkspaceMarker::Directory {
                return Ok(location);
            }
            nearest.get_or_insert(location);
        }
        nearest.context("there is no directory to work in").map_err(CliError::from)
    }

    /// Opens the workspace. Notices from its journal are printed on stderr.
    ///
    /// # Errors
    /// Returns why it cannot be used, including that its damaged journal was replaced.
    pub fn open(&self, additional_roots: &[RootSpec]) -> Result<Workspace, CliError> {
        let failed = |error: anyhow::Error| CliError::from(error);
        let roots = Roots::open(&RootSpec::writable(self.root.as_str()), additional_roots)
            .map_err(|e| failed(e.into()))?;
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
    pub fn audit_log_dir(&self) -> PathBuf {
        AuditLog::locate(&self.journal_dir, &self.dirs.anchors).0
    }

    /// Returns the display path of a file: relative to the workspace if it is below it, otherwise absolute.
    pub fn relative_name<'p>(&self, path: &'p str) -> &'p str {
        let relative =
            path.strip_prefix(self.root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        relative.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }

    /// Returns the absolute path of a name relative to the start directory. The file need not exist.
    ///
    /// # Errors
    /// Reports a name that is not UTF-8.
    pub fn absolute_path(&self, name: &Path) -> Result<String, CliError> {
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
pub fn resolve_directory(cwd: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = cwd.unwrap_or(Path::new("."));
    let directory = path.canonicalize().map_err(|error| {
        CliError::Usage(format!("cannot use {}: {error}", escape_line(&path.to_string_lossy())))
    })?;
    if directory.is_dir() {
        Ok(directory)
    } else {
        Err(CliError::Usage(format!("{} is not a directory", escape_line(&path.to_string_lossy()))))
    }
}

/// Returns whether a record exists. One that cannot be accessed does not count as missing.
///
/// # Errors
/// Explains why it cannot be accessed.
fn try_exists(path: &Path) -> Result<bool, CliError> {
    let result = path.try_exists();
    Ok(result.with_context(|| format!("cannot look at {}", escape_line(&path.to_string_lossy())))?)
}
