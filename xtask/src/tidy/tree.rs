//! The text files of a repository, read from disk.

use std::fs;
use std::io;
use std::path::Path;

/// Files and folders that `.gitignore` excludes, and the version control directory. They are skipped at any depth.
const SKIPPED_NAMES: [&str; 7] =
    [".git", "target", "node_modules", "__pycache__", "corpus", "artifacts", "mutants.out"];

/// One text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// The path relative to the root of the repository, with `/` as separator.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The text files of a repository, sorted by path.
#[derive(Debug, Clone, Default)]
pub struct RepoTree {
    /// The files.
    pub files: Vec<RepoFile>,
}

impl RepoTree {
    /// Reads every UTF-8 text file under `root`, except those that `.gitignore` excludes.
    ///
    /// # Errors
    /// Fails when a folder or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// Returns the file at `path`.
    pub fn file(&self, path: &str) -> Option<&RepoFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<RepoFile>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED_NAMES.contains(&name.as_str()) {
            continue;
        }
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_folder(&entry.path(), &path, files)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.push(RepoFile { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::RepoTree;
    use std::fs;

    #[test]
    fn a_tree_holds_the_text_files_that_git_would_track() {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in [
            ("src/b.rs", &b"two\n"[..]),
            ("a.md", b"one\n"),
            ("target/debug/x.rs", b"built"),
            (".git/config", b"hidden"),
            ("web/node_modules/x.js", b"theirs"),
            (".ci/run", b"three\n"),
            ("logo.png", b"\x89PNG\xff"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        let tree = RepoTree::read(root.path()).unwrap();

        let found: Vec<_> = tree.files.iter().map(|f| (f.path.as_str(), f.text.as_str())).collect();
        assert_eq!(found, [(".ci/run", "three\n"), ("a.md", "one\n"), ("src/b.rs", "two\n")]);
    }
}
