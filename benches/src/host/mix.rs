//! Many files of different sizes and depths, read one after the other in no order of the disk: whatever a side remembers
//! of the few files that it read last does not help it.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::files::data::Text;

/// How many files there are: far more than any side remembers the paths of.
pub(super) const FILES: usize = 2000;

/// The directories above a file are at most so many, below the project.
const MAX_DEPTH: usize = 8;

/// The least bytes of a file, and how often that is doubled at most: 256 bytes to 128 KiB, as many files of each size.
const LEAST: usize = 256;
const DOUBLED: usize = 10;

/// A step from one file to the next in the order of reading; it has no divisor in common with [`FILES`].
const STRIDE: usize = 7919;

/// A file, and how long its text is.
#[derive(Debug)]
pub(super) struct MixFile {
    pub(super) path: String,
    pub(super) bytes: usize,
}

/// Makes the files below a directory and returns them in the order in which they are to be read.
pub(super) fn make(project: &Path) -> Result<Vec<MixFile>> {
    let mut text = Text::new(5);
    let mut files = Vec::with_capacity(FILES);
    for number in 0..FILES {
        let path = project.join(name(number));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let content = text.of_bytes(LEAST << (number % DOUBLED));
        fs::write(&path, &content)?;
        files.push(Some(MixFile { path: path.display().to_string(), bytes: content.len() }));
    }
    Ok((0..FILES).filter_map(|at| files[at * STRIDE % FILES].take()).collect())
}

/// Returns the name of a file: every depth has as many files, and no directory more than two others in it.
fn name(number: usize) -> String {
    let mut name = "mix/".to_owned();
    for level in 0..number % (MAX_DEPTH + 1) {
        name.push_str(&format!("part{}/", number >> level & 1));
    }
    name + &format!("file{number}.txt")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::{FILES, STRIDE, name};

    #[test]
    fn every_file_is_read_once_before_one_is_read_again() {
        let read: HashSet<_> = (0..FILES).map(|at| at * STRIDE % FILES).collect();
        assert_eq!(read.len(), FILES);
    }

    #[test]
    fn files_are_spread_over_depths_and_directories() {
        let names: Vec<_> = (0..FILES).map(name).collect();
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
