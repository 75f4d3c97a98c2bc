//! The files that an observer knows, by directory: each directory's path is kept once, not with every file in it.

use std::collections::BTreeMap;
use std::ops::Bound;

use bowline_history::observation::KnownFile;

/// A file that an observer knows.
#[derive(Debug)]
pub(super) struct TrackedFile {
    pub(super) known: KnownFile,
    /// The last scan that saw it.
    pub(super) last_scan: u64,
}

type FilesByName = BTreeMap<Box<str>, TrackedFile>;

/// The known files by canonical path.
#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    // Invariant: no directory is empty.
    directories: BTreeMap<Box<str>, FilesByName>,
}

/// A known file at its path.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileEntry<'f> {
    directory: &'f str,
    name: &'f str,
    pub(super) tracked: &'f TrackedFile,
}

impl FileEntry<'_> {
    pub(super) fn path(&self) -> String {
        [self.directory, "/", self.name].concat()
    }
}

impl KnownFiles {
    pub(super) fn get(&self, path: &str) -> Option<&TrackedFile> {
        let (directory, name) = split_path(path);
        self.directories.get(directory)?.get(name)
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut TrackedFile> {
        let (directory, name) = split_path(path);
        self.directories.get_mut(directory)?.get_mut(name)
    }

    pub(super) fn insert(&mut self, path: &str, tracked: TrackedFile) {
        let (directory, name) = split_path(path);
        match self.directories.get_mut(directory) {
            Some(files) => _ = files.insert(name.into(), tracked),
            None => _ = self.directories.insert(directory.into(), BTreeMap::from([(name.into(), tracked)])),
        }
    }

    pub(super) fn remove(&mut self, path: &str) -> Option<TrackedFile> {
        let (directory, name) = split_path(path);
        let files = self.directories.get_mut(directory)?;
        let removed = files.remove(name);
        if files.is_empty() {
            self.directories.remove(directory);
        }
        removed
    }

    /// Returns all files.
    pub(super) fn iter(&self) -> impl Iterator<Item = FileEntry<'_>> {
        self.directories.iter().flat_map(|(directory, files)| entries(directory, files))
    }

    /// Returns the file at a path, and all files below it.
    pub(super) fn iter_from<'f>(&'f self, path: &'f str) -> impl Iterator<Item = FileEntry<'f>> {
        let path = path.trim_end_matches('/');
        let (directory, name) = split_path(path);
        let itself = self.get(path).map(|tracked| FileEntry { directory, name, tracked });
        let inside = self.directories.get_key_value(path).into_iter();
        let prefix = format!("{path}/");
        let start = Bound::Included(prefix.clone().into_boxed_str());
        let below = self
            .directories
            .range((start, Bound::Unbounded))
            .take_while(move |(directory, _)| directory.starts_with(&prefix));
        itself.into_iter().chain(inside.chain(below).flat_map(|(directory, files)| entries(directory, files)))
    }
}

/// Collects known files. Those of a directory that arrive one after the other, by name, take the least memory.
#[derive(Debug, Default)]
pub(super) struct KnownFilesBuilder {
    all: KnownFiles,
    // The last directory, and the files of it that arrived one after the other.
    directory: Box<str>,
    files: Vec<(Box<str>, TrackedFile)>,
}

impl KnownFilesBuilder {
    pub(super) fn push(&mut self, path: &str, tracked: TrackedFile) {
        let (directory, name) = split_path(path);
        if *self.directory != *directory {
            self.flush();
            self.directory = directory.into();
        }
        self.files.push((name.into(), tracked));
    }

    fn flush(&mut self) {
        if !self.files.is_empty() {
            // A new map has full nodes; inserting in order would leave them half empty.
            let mut files: FilesByName = std::mem::take(&mut self.files).into_iter().collect();
            self.all.directories.entry(std::mem::take(&mut self.directory)).or_default().append(&mut files);
        }
    }

    pub(super) fn finish(mut self) -> KnownFiles {
        self.flush();
        self.all
    }
}

fn entries<'f>(directory: &'f str, files: &'f FilesByName) -> impl Iterator<Item = FileEntry<'f>> {
    files.iter().map(move |(name, tracked)| FileEntry { directory, name, tracked })
}

/// Splits a canonical path into its directory and its name.
fn split_path(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests;
