//! The files that git obeys below a root besides those recognised by name: the repository that a `.git` file points to,
//! the hooks directory that its configuration names, and directories that are themselves repositories.
//!
//! A directory with a `HEAD` counts as a repository, for the names that git keeps in one. `HEAD` is also a protected
//! name, so that no order of writes assembles a repository without a permission request.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bowline_policy::paths::{LexicalPath, Protection, find_possible_repositories};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use super::OpenRoot;

/// The maximum size of a `.git` file; longer than any path.
const MAX_POINTER_BYTES: u64 = 8 << 10;
/// How much of a repository's configuration is read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The repositories of all roots, read when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct GitRepositories(OnceCell<Vec<GitRepository>>);

impl GitRepositories {
    pub(super) fn of(&self, roots: &[OpenRoot]) -> &[GitRepository] {
        let find = |root: &OpenRoot| GitRepository::find(&root.directory, root.canonical.as_str());
        self.0.get_or_init(|| roots.iter().map(find).collect())
    }
}

/// Where a root's repository keeps the files that git obeys, if not under their usual names.
#[derive(Debug, Default)]
pub(super) struct GitRepository {
    // The git directory, if `.git` is a file that points to it: a worktree or a submodule.
    git_dir: Option<LexicalPath>,
    // The hooks directory, if the configuration names one.
    hooks_dir: Option<LexicalPath>,
}

impl GitRepository {
    /// Inspects the repository whose working tree is a directory, if there is one.
    pub(super) fn find(directory: &OwnedFd, canonical: &str) -> Self {
        let top = Path::new(canonical);
        let pointed = read_pointer(directory, top);
        let own = pointed.clone().unwrap_or_else(|| top.join(".git"));
        let settings = read_regular_file(CWD, common_directory(own).join("config"), MAX_CONFIG_BYTES);
        let hooks = settings.as_deref().and_then(hooks_path).map(|named| top.join(named));
        let real = |path: PathBuf| std::fs::canonicalize(&path).unwrap_or(path);
        let parse = |path: PathBuf| LexicalPath::parse(path).ok();
        Self { git_dir: pointed.and_then(parse), hooks_dir: hooks.map(real).and_then(parse) }
    }

    /// Returns why a write to a path is protected, if it is.
    pub(super) fn protection(&self, path: &LexicalPath) -> Option<Protection> {
        let is_below =
            |place: &Option<LexicalPath>| place.as_ref().is_some_and(|it| path.strip_root(it).is_some());
        if is_below(&self.hooks_dir) {
            return Some(Protection::VcsHook);
        }
        is_below(&self.git_dir).then_some(Protection::Repository)
    }
}

/// Returns the directory of the objects of the repository that a canonical directory is in.
pub(crate) fn find_git_objects(canonical: &str) -> Option<PathBuf> {
    let top = Path::new(canonical).ancestors().find(|directory| directory.join(".git").exists())?;
    let directory = rustix::fs::open(top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let own = read_pointer(&directory, top).unwrap_or_else(|| top.join(".git"));
    Some(common_directory(own).join("objects"))
}

/// Returns the git directory that the `.git` file in a directory points to, if it is a file.
fn read_pointer(directory: &OwnedFd, top: &Path) -> Option<PathBuf> {
    let text = read_regular_file(directory, ".git", MAX_POINTER_BYTES)?;
    std::fs::canonicalize(top.join(text.strip_prefix("gitdir:")?.trim())).ok()
}

/// Returns the directory that a git directory shares with other worktrees, or itself.
fn common_directory(own: PathBuf) -> PathBuf {
    match read_regular_file(CWD, own.join("commondir"), MAX_POINTER_BYTES) {
        Some(text) => own.join(text.trim()),
        None => own,
    }
}

/// Returns whether a write below a directory changes a directory that is itself a repository, such as a bare one. Git
/// accepts any directory that has a `HEAD` and little else. Writing `HEAD` is protected by its name, so that in any
/// order of writes at least one is protected.
pub(super) fn changes_repository(directory: &OwnedFd, below: &str) -> bool {
    let has_head = |candidate: &str| {
        let name = if candidate.is_empty() { "HEAD".to_owned() } else { format!("{candidate}/HEAD") };
        rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)
    };
    find_possible_repositories(below).into_iter().any(has_head)
}

/// Returns the text of a file, if it is a regular one.
fn read_regular_file(
    directory: impl std::os::fd::AsFd,
    name: impl AsRef<Path>,
    longest: u64,
) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name.as_ref(), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = String::new();
    File::from(file).take(longest).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the directory that `core.hooksPath` names in a repository's configuration; the last entry counts. Included
/// files are not read.
fn hooks_path(settings: &str) -> Option<&str> {
    let mut in_core = false;
    let mut found = None;
    for line in settings.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let name = section.split(']').next().unwrap_or_default();
            in_core = name.trim().eq_ignore_ascii_case("core");
        }
        let setting = line.rsplit(']').next().unwrap_or_default();
        if in_core
            && let Some((key, value)) = setting.split_once('=')
            && key.trim().eq_ignore_ascii_case("hookspath")
        {
            let value = value.split([';', '#']).next().unwrap_or_default();
            found = Some(value.trim().trim_matches('"')).filter(|value| !value.is_empty());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::hooks_path;

    #[test]
    fn the_last_directory_of_hooks_that_settings_name_counts() {
        let cases = [
            ("", None),
            ("[core]\n\tbare = false\n", None),
            ("[core]\n\thooksPath = .hooks\n", Some(".hooks")),
            ("[CORE] HooksPath = \"tools/git hooks\" ; ours\n", Some("tools/git hooks")),
            ("[core]\nhookspath=a\n[user]\nhooksPath = b\n[core]\nhooksPath = c # last\n", Some("c")),
            ("[core \"sub\"]\nhooksPath = a\n", None),
            ("[core]\nhooksPath =\n", None),
        ];
        for (settings, expected) in cases {
            assert_eq!(hooks_path(settings), expected, "{settings}");
        }
    }
}
