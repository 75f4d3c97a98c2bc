//! A small project with a workspace, for tests that need both.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use bowline_history::changes::ChangeOrigin;
use tempfile::TempDir;

use super::{WatchMode, Workspace, WorkspaceOptions};
use crate::observer::ObserverOptions;
use crate::roots::{RootSpec, Roots};

/// A project whose files are observed.
pub(super) struct TestProject {
    scratch: TempDir,
    pub(super) workspace: Workspace,
}

impl TestProject {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        Self::with_watching(files, WatchMode::Off)
    }

    pub(super) fn with_watching(files: &[(&str, &str)], watching: WatchMode) -> Self {
        Self::prepared(files, watching, |_| ())
    }

    /// A project whose directory is prepared further before it is observed.
    pub(super) fn prepared(files: &[(&str, &str)], watching: WatchMode, prepare: impl FnOnce(&Path)) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().join("project");
        fs::create_dir(&root).unwrap();
        files.iter().for_each(|(name, text)| fs::write(root.join(name), text).unwrap());
        prepare(&root);
        let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
        let workspace = Workspace::open(roots, &scratch.path().join("state"), WorkspaceOptions::default())
            .unwrap()
            .workspace;
        workspace
            .start_observing(ObserverOptions::default(), watching, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        Self { scratch, workspace }
    }

    /// Opens the workspace as another process would.
    pub(super) fn open_again(&self) -> Workspace {
        let roots = Roots::open(&RootSpec::writable(self.path("")), &[]).unwrap();
        let state = self.scratch.path().join("state");
        Workspace::open(roots, &state, WorkspaceOptions::default()).unwrap().workspace
    }

    pub(super) fn path(&self, name: &str) -> String {
        let root = self.scratch.path().canonicalize().unwrap().join("project");
        root.join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Scans the disk, and returns the number of changes found.
    pub(super) fn observe(&self, origin: &ChangeOrigin) -> usize {
        let observed = self.workspace.observe(origin, &mut |_| ControlFlow::Continue(())).unwrap();
        observed.changes.len()
    }
}
