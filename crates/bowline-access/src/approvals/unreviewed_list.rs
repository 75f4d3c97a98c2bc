//! The persistent list of unreviewed files: one path per line, as a JSON string.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::MAX_UNREVIEWED_FILES;
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{OpenMode, open_private, replace_file};

/// The maximum number of bytes read from the list.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// The list file.
#[derive(Debug)]
pub(super) struct UnreviewedList {
    path: PathBuf,
}

impl UnreviewedList {
    /// Returns the list of the workspace whose audit log is in `audit`. The list is a sibling of that directory.
    pub(super) fn next_to_audit_log(audit: &Path) -> Self {
        Self { path: audit.with_file_name("unreviewed") }
    }

    /// Returns the files in the list.
    pub(super) fn read(&self) -> BTreeMap<String, u64> {
        let Ok(file) = File::open(&self.path) else { return BTreeMap::new() };
        let lines = BufReader::new(file.take(MAX_LIST_BYTES)).lines().map_while(Result::ok);
        let files = lines.filter_map(|line| serde_json::from_str::<String>(&line).ok());
        files.map(|file| (file, 0)).take(MAX_UNREVIEWED_FILES).collect()
    }

    /// Adds files durably.
    pub(super) fn add<'f>(&self, files: impl Iterator<Item = &'f String>) -> io::Result<()> {
        let mut list = open_private(&self.path, OpenMode::Append, &DiskCalls::default())?;
        list.write_all(to_json_lines(files).as_bytes())?;
        list.sync_all()
    }

    /// Removes files. Files that another process has added meanwhile are kept.
    pub(super) fn remove(&self, gone: &[&String]) -> io::Result<()> {
        let mut files = self.read();
        files.retain(|file, _| !gone.contains(&file));
        let text = to_json_lines(files.keys());
        Ok(replace_file(&self.path, &self.path.with_extension("new"), text.as_bytes())?)
    }
}

fn to_json_lines<'f>(files: impl Iterator<Item = &'f String>) -> String {
    files.map(|file| format!("{}\n", serde_json::Value::from(file.as_str()))).collect()
}
