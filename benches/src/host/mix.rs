//! Many files of different sizes and depths, read in an order unrelated to that on disk, so that caching the most
//! recently read files does not help either side.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::files::data::TextGenerator;

/// The number of files: far more paths than either side caches.
pub(super) const FILES: usize = 2000;

/// The maximum number of directories between the project and a file.
const MAX_DEPTH: usize = 8;

/// The smallest file size, and the number of sizes, each twice the previous: 256 bytes to 128 KiB, equally frequent.
const MIN_BYTES: usize = 256;
const SIZES: usize = 10;

/// The step from one file to the next in reading order; coprime to [`FILES`].
const STRIDE: usize = 7919;

/// A file, and the length of its text.
#[derive(Debug)]
pub(super) struct MixFile {
    pub(super) path: String,
    pub(super) bytes: usize,
}

/// Creates the files under a directory, and returns them in reading order.
pub(super) fn make_files(project: &Path) -> Result<Vec<MixFile>> {
    let mut text = TextGenerator::new(5);
    let mut files = Vec::with_capacity(FILES);
    for number in 0..FILES {
        let path = project.join(file_name(number));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let content = text.next_bytes(MIN_BYTES << (number % SIZES));
        fs::write(&path, &content)?;
        files.push(Some(MixFile { path: path.display().to_string(), bytes: content.len() }));
    }
    Ok((0..FILES).filter_map(|at| files[at * STRIDE % FILES].take()).collect())
}

/// Returns the name of a file: every depth has equally many files, and a directory has at most two subdirectories.
fn file_name(number: usize) -> String {
    let mut name = "mix/".to_owned();
    for level in 0..number % (MAX_DEPTH + 1) {
        name.push_str(&format!("part{}/", number >> level & 1));
    }
    name + &format!("file{number}.txt")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::{FILES, STRIDE, file_name};

    #[test]
    fn every_file_is_read_once_before_one_is_read_again() {
        let read: HashSet<_> = (0..FILES).map(|at| at * STRIDE % FILES).collect();
        assert_eq!(read.len(), FILES);
    }

    #[test]
    fn files_are_spread_over_depths_and_directories() {
        let names: Vec<_> = (0..FILES).map(file_name).collect();
        let mut depths: BTreeMap<usize, usize> = BTreeMap::new();
        for name in &names {
            *depths.entry(name.matches('/').count()).or_default() += 1;
        }
        assert_eq!(depths.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(depths.values().all(|&files| (222..=223).contains(&files)), "{depths:?}");
        let directories: HashSet<_> =
            names.iter().filter_map(|name| Some(name.rsplit_once('/')?.0)).collect();
        assert!(directories.len() > 256, "{}", directories.len());
    }
}
