//! A small project with a workspace, for tests that need both.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::ops::ControlFlow;

use bowline_state::changes::Origin;
use tempfile::TempDir;

use super::{Settings, Watching, Workspace};
use crate::observer::ObserverOptions;
use crate::roots::{RootSpec, Roots};

/// A project whose files are observed.
pub(super) struct Project {
    scratch: TempDir,
    pub(super) workspace: Workspace,
}

impl Project {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        Self::observed(files, Watching::No)
    }

    pub(super) fn observed(files: &[(&str, &str)], watching: Watching) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().join("project");
        fs::create_dir(&root).unwrap();
        files.iter().for_each(|(name, text)| fs::write(root.join(name), text).unwrap());
        let roots = Roots::open(&RootSpec::writable(root.to_str().unwrap()), &[]).unwrap();
        let workspace =
            Workspace::open(roots, &scratch.path().join("state"), Settings::default()).unwrap().workspace;
        workspace
            .start_observing(ObserverOptions::default(), watching, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        Self { scratch, workspace }
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

    /// Looks at the disk, and returns how many changes were found.
    pub(super) fn observe(&self, origin: &Origin) -> usize {
        let observed = self.workspace.observe(origin, &mut |_| ControlFlow::Continue(())).unwrap();
        observed.changes.len()
    }
}
