//! The text files of a repository, read from disk.

use std::fs;
use std::io;
use std::path::Path;

/// What `.gitignore` leaves out, and the version control itself. A folder or file of this name is skipped anywhere.
const SKIPPED: [&str; 7] =
    [".git", "target", "node_modules", "__pycache__", "corpus", "artifacts", "mutants.out"];

/// One text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// From the root of the repository, with `/` between the parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The text files of a repository, sorted by path.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// The files.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads every file below `root` that is UTF-8 text, except what `.gitignore` names.
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
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_folder(&entry.path(), &path, files)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;
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

        let tree = Tree::read(root.path()).unwrap();

        let found: Vec<_> = tree.files.iter().map(|f| (f.path.as_str(), f.text.as_str())).collect();
        assert_eq!(found, [(".ci/run", "three\n"), ("a.md", "one\n"), ("src/b.rs", "two\n")]);
    }
}
