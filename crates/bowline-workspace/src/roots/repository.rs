//! What git obeys below a root, beside what its names tell: the repository that a `.git` file points to, the directory of
//! hooks that its settings name, and directories that are repositories by themselves.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bowline_state::paths::{LexicalPath, Protection, maybe_repositories};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

/// Longer than any path.
const LONGEST_PATH: u64 = 8 << 10;
/// Of a repository's settings no more is read.
const LONGEST_SETTINGS: u64 = 1 << 20;

/// Where the repository of a root keeps what git obeys, if its names do not tell.
#[derive(Debug, Default)]
pub(super) struct Repository {
    // The repository's own files, if `.git` is a file that says where: a worktree or a submodule.
    own: Option<LexicalPath>,
    // The hooks, if the settings name a directory for them.
    hooks: Option<LexicalPath>,
}

impl Repository {
    /// Looks at the repository whose working tree begins in a directory, if there is one.
    pub(super) fn find(directory: &OwnedFd, canonical: &str) -> Self {
        let top = Path::new(canonical);
        let pointed = read(directory, ".git", LONGEST_PATH).and_then(|text| {
            let target = text.strip_prefix("gitdir:")?.trim().to_owned();
            std::fs::canonicalize(top.join(target)).ok()
        });
        let own = pointed.clone().unwrap_or_else(|| top.join(".git"));
        let common = read(CWD, own.join("commondir"), LONGEST_PATH).map(|text| own.join(text.trim()));
        let settings = read(CWD, common.unwrap_or(own).join("config"), LONGEST_SETTINGS);
        let hooks = settings.as_deref().and_then(hooks_path).map(|named| top.join(named));
        let real = |path: PathBuf| std::fs::canonicalize(&path).unwrap_or(path);
        let parse = |path: PathBuf| LexicalPath::parse(path).ok();
        Self { own: pointed.and_then(parse), hooks: hooks.map(real).and_then(parse) }
    }

    /// Returns why a write to a path is not an ordinary one, if it is not.
    pub(super) fn protection(&self, path: &LexicalPath) -> Option<Protection> {
        let is_below =
            |place: &Option<LexicalPath>| place.as_ref().is_some_and(|it| path.below(it).is_some());
        if is_below(&self.hooks) {
            return Some(Protection::Hook);
        }
        is_below(&self.own).then_some(Protection::Repository)
    }
}

/// Says whether a write below a directory changes a repository that is one by itself, as a bare one is. Git takes any
/// directory for one that has a `HEAD`, and little else; a write of that is protected by its name, so that however the rest
/// is put together, one of the writes is not an ordinary one.
pub(super) fn changes_repository(directory: &OwnedFd, below: &str) -> bool {
    let has_head = |candidate: &str| {
        let name = if candidate.is_empty() { "HEAD".to_owned() } else { format!("{candidate}/HEAD") };
        rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)
    };
    maybe_repositories(below).into_iter().any(has_head)
}

/// Returns the text of a regular file, if it is one.
fn read(directory: impl std::os::fd::AsFd, name: impl AsRef<Path>, longest: u64) -> Option<String> {
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

/// Returns the directory that `core.hooksPath` names in a repository's settings; the last one counts. What other files
/// those settings include is not looked at.
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
