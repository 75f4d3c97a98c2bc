//! The list of unreviewed files on disk, so that it outlives the program: one path a line, as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::MAX_UNREVIEWED;
use crate::calls::Calls;
use crate::storage::{OpenMode, open_private, replace_file};

/// The list is at most this long, in bytes; what is beyond is not read.
const MAX_BYTES: u64 = 16 << 20;

/// Where the list is.
#[derive(Debug)]
pub(super) struct UnreviewedList {
    path: PathBuf,
}

impl UnreviewedList {
    /// Returns the list of the workspace whose audit log is in a directory: it lies beside that.
    pub(super) fn beside(audit: &Path) -> Self {
        Self { path: audit.with_file_name("unreviewed") }
    }

    /// Returns the files in the list.
    pub(super) fn read(&self) -> BTreeMap<String, u64> {
        let Ok(file) = File::open(&self.path) else { return BTreeMap::new() };
        let lines = BufReader::new(file.take(MAX_BYTES)).lines().map_while(Result::ok);
        let files = lines.filter_map(|line| serde_json::from_str::<String>(&line).ok());
        files.map(|file| (file, 0)).take(MAX_UNREVIEWED).collect()
    }

    /// Adds files. They are on the disk when this returns.
    pub(super) fn add<'f>(&self, files: impl Iterator<Item = &'f String>) -> io::Result<()> {
        let mut list = open_private(&self.path, OpenMode::Append, &Calls::default())?;
        list.write_all(lines(files).as_bytes())?;
        list.sync_all()
    }

    /// Takes files out. Those that another process has added meanwhile stay.
    pub(super) fn remove(&self, gone: &[&String]) -> io::Result<()> {
        let mut files = self.read();
        files.retain(|file, _| !gone.contains(&file));
        let text = lines(files.keys());
        Ok(replace_file(&self.path, &self.path.with_extension("new"), text.as_bytes())?)
    }
}

fn lines<'f>(files: impl Iterator<Item = &'f String>) -> String {
    files.map(|file| format!("{}\n", serde_json::Value::from(file.as_str()))).collect()
}
