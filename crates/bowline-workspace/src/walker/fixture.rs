//! File trees written as text, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use test_support::wait::wait_until;

use crate::roots::{RootSpec, Roots};

/// A temporary directory, removed with the test. Most tests work in its `/w`; the rest is outside.
pub(crate) struct TestTree {
    directory: tempfile::TempDir,
    base: String,
}

impl TestTree {
    /// Creates a tree: `//- /path` begins a file, `//- /path/` is a directory, `//- /path -> target` a link.
    pub(crate) fn new(fixture: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap().to_str().unwrap().to_owned();
        let tree = Self { directory, base };
        fs::create_dir_all(tree.path("/w")).unwrap();
        for part in fixture.trim_start().split("//- ").skip(1) {
            let (head, text) = part.split_once('\n').unwrap_or((part, ""));
            if let Some((name, target)) = head.split_once(" -> ") {
                fs::create_dir_all(tree.path(name).parent().unwrap()).unwrap();
                let target = target.replace("$T", &tree.base);
                symlink(target, tree.path(name)).unwrap();
            } else if head.ends_with('/') {
                fs::create_dir_all(tree.path(head)).unwrap();
            } else {
                tree.write(head, text);
            }
        }
        tree
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name.trim_start_matches('/'))
    }

    pub(crate) fn path_text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Waits until the file system's clock advances, so that the next write has a different time.
    pub(crate) fn wait_for_clock_tick(&self) {
        let look = || {
            self.write("/tick", "");
            rustix::fs::stat(self.path("/tick")).map(|stat| (stat.st_ctime, stat.st_ctime_nsec)).unwrap()
        };
        let before = look();
        wait_until("a later file timestamp", || look() != before);
    }

    pub(crate) fn roots(&self, names: &[&str]) -> Roots {
        let specs: Vec<RootSpec> =
            names.iter().map(|name| RootSpec::writable(self.path_text(name))).collect();
        Roots::open(&specs[0], &specs[1..]).unwrap()
    }

    /// Returns a text without the path of the temporary directory.
    pub(crate) fn without_base(&self, text: &str) -> String {
        text.replace(&self.base, "")
    }
}
