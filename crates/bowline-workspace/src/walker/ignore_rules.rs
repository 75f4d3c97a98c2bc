//! Ignore rules: `.gitignore` and `.ignore` of every directory on the path, and the repository's own `info/exclude`.
//!
//! They are read through the handles of the walk, never through links. As in git, the rule of the innermost directory
//! decides, and within a file the last one; as in ripgrep, `.ignore` takes precedence over `.gitignore`, and a
//! `.gitignore` also applies outside of repositories. A nested repository has only its own git rules. Rules kept
//! elsewhere (`core.excludesFile`, the store of a linked worktree) are not read.
//!
//! A scan for changes evaluates the rules twice: as they are now, and as they were at the last scan.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use bowline_history::observation::FileStamp;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, OFlags};

use super::ignore_snapshot::{IgnoreSnapshot, PreviousText};
use super::{open_at, stat_at};
use crate::roots::RootHandle;
use bowline_storage::file_clock::file_stamp;

/// The maximum size of an ignore file, in bytes.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// The maximum number of lines. People write hundreds; ten thousand of the worst kind take seconds to compile.
const MAX_RULES_LINES: usize = 2_000;

/// The rules of one directory.
struct DirectoryRules {
    // The length of the directory's path.
    base_length: usize,
    current: IgnoreFiles,
    // `None` if unchanged.
    previous: Option<IgnoreFiles>,
    is_repository: bool,
}

/// The ignore files of one directory.
#[derive(Default)]
struct IgnoreFiles {
    dot_ignore: Option<Arc<Gitignore>>,
    gitignore: Option<Arc<Gitignore>>,
    exclude: Option<Arc<Gitignore>>,
}

impl IgnoreFiles {
    fn has_rules(&self) -> bool {
        self.dot_ignore.is_some() || self.gitignore.is_some()
    }
}

/// Which rules hide an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HiddenState {
    /// The current rules.
    pub(super) by_current: bool,
    /// The rules at the last scan.
    pub(super) by_previous: bool,
}

impl HiddenState {
    /// Returns whether the entry is skipped. Rules that were added or removed since the last scan hide nothing.
    pub(super) fn is_left_out(self) -> bool {
        self.by_current && self.by_previous
    }

    /// Returns the state of an entry within a directory of the given state.
    pub(super) fn within(self, directory: Self) -> Self {
        Self {
            by_current: self.by_current || directory.by_current,
            by_previous: self.by_previous || directory.by_previous,
        }
    }
}

/// Compiled rules, for walks that encounter the same files repeatedly. Valid for one scan: a file that is written twice
/// within a clock tick may be mistaken for its earlier version.
#[derive(Default)]
pub(crate) struct IgnoreRulesCache {
    // At most `MAX_CACHED`; `None` is a file that was skipped.
    compiled: HashMap<FileStamp, Option<CompiledRules>>,
    history: RulesHistory,
}

/// The contents of ignore files, by path; `None` is a deleted one.
pub(crate) type IgnoreFileTexts = HashMap<String, Option<Arc<[u8]>>>;

/// Whether earlier rules are tracked.
#[derive(Default)]
enum RulesHistory {
    /// They are not.
    #[default]
    NotTracked,
    /// They are: the contents encountered so far, and those at the last scan, if known.
    Tracked { previous: Option<IgnoreSnapshot>, current: IgnoreFileTexts },
}

/// Compiled rules, with their source.
#[derive(Clone)]
struct CompiledRules {
    rules: Arc<Gitignore>,
    text: Arc<[u8]>,
}

/// How many ignore files stay compiled.
const MAX_CACHED: usize = 256;

/// The rules that apply at the current position of a walk.
pub(super) struct IgnoreRules<'c> {
    cache: &'c mut IgnoreRulesCache,
    // Invariant: each directory is inside the previous one; directories without rules are omitted.
    levels: Vec<DirectoryRules>,
}

impl<'c> IgnoreRules<'c> {
    pub(super) fn new(cache: &'c mut IgnoreRulesCache) -> Self {
        Self { cache, levels: Vec::new() }
    }

    /// Returns whether there are any rules.
    pub(super) fn has_rules(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Returns how many directories have rules, for `truncate`.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Leaves directories until `depth` of them remain.
    pub(super) fn truncate(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// Reads the rules of a directory that the walk enters.
    pub(super) fn enter(&mut self, directory: &OwnedFd, path: &str) {
        let repository = stat_at(directory, ".git").is_ok();
        let mut read = |directory: &OwnedFd, name: &str| self.cache.read_ignore_file(directory, name, path);
        let ignore = read(directory, ".ignore");
        let git = read(directory, ".gitignore");
        let info = if repository { open_git_info(directory) } else { None };
        let exclude = info.map(|info| read(&info, "exclude")).unwrap_or_default();
        let before =
            [&ignore, &git, &exclude].iter().any(|file| file.previous.is_some()).then(|| IgnoreFiles {
                dot_ignore: ignore.previous_rules(),
                gitignore: git.previous_rules(),
                exclude: exclude.previous_rules(),
            });
        let now =
            IgnoreFiles { dot_ignore: ignore.current, gitignore: git.current, exclude: exclude.current };
        if repository || now.has_rules() || before.as_ref().is_some_and(IgnoreFiles::has_rules) {
            self.levels.push(DirectoryRules {
                base_length: path.len(),
                current: now,
                previous: before,
                is_repository: repository,
            });
        }
    }

    /// Returns whether any rules differ from those at the last scan.
    pub(super) fn differ_from_previous(&self) -> bool {
        self.levels.iter().any(|level| level.previous.is_some())
    }

    /// Reads the rules of a root's parent directories, if they are in the same repository.
    pub(super) fn enter_parents(&mut self, root: RootHandle<'_>) {
        let up = |from: &OwnedFd| open_at(from, "..", OFlags::PATH | OFlags::DIRECTORY);
        let mut path = root.canonical.as_str().trim_end_matches('/');
        if stat_at(root.directory, ".git").is_ok() {
            return;
        }
        // Innermost first.
        let mut parents: Vec<(OwnedFd, &str)> = Vec::new();
        while let Some((parent, _)) = path.rsplit_once('/') {
            let from = parents.last().map_or(root.directory, |(directory, _)| directory);
            let Ok(directory) = up(from) else { return };
            let top = stat_at(&directory, ".git").is_ok();
            parents.push((directory, parent));
            path = parent;
            if top {
                for (directory, path) in parents.iter().rev() {
                    self.enter(directory, path);
                }
                return;
            }
        }
    }

    /// Returns whether rules hide a path itself. Rules that hide a parent directory do not count.
    pub(super) fn hidden_state(&self, path: &str, is_directory: bool) -> HiddenState {
        let now = self.is_hidden_by(|level| &level.current, path, is_directory);
        let before = if self.differ_from_previous() {
            self.is_hidden_by(|level| level.previous.as_ref().unwrap_or(&level.current), path, is_directory)
        } else {
            now
        };
        HiddenState { by_current: now, by_previous: before }
    }

    fn is_hidden_by(
        &self,
        files: impl Fn(&DirectoryRules) -> &IgnoreFiles,
        path: &str,
        is_directory: bool,
    ) -> bool {
        let decide = |rules: &Option<Arc<Gitignore>>, base: usize| {
            let below = path.get(base + 1..)?;
            match rules.as_ref()?.matched(below, is_directory) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            }
        };
        let by_ignore =
            self.levels.iter().rev().find_map(|level| decide(&files(level).dot_ignore, level.base_length));
        if let Some(decided) = by_ignore {
            return decided;
        }
        for level in self.levels.iter().rev() {
            let IgnoreFiles { gitignore: git, exclude, .. } = files(level);
            let decided = decide(git, level.base_length).or_else(|| decide(exclude, level.base_length));
            if decided.is_some() || level.is_repository {
                return decided.unwrap_or(false);
            }
        }
        false
    }
}

/// Opens `.git/info`. If `.git` is a file that names the store of a linked worktree, there is none.
fn open_git_info(directory: &OwnedFd) -> Option<OwnedFd> {
    let enter = |from: &OwnedFd, name| open_at(from, name, OFlags::PATH | OFlags::DIRECTORY).ok();
    enter(&enter(directory, ".git")?, "info")
}

/// The rules of one ignore file.
#[derive(Default)]
struct IgnoreFile {
    current: Option<Arc<Gitignore>>,
    // The outer `None` means unchanged.
    previous: Option<Option<Arc<Gitignore>>>,
}

impl IgnoreFile {
    fn previous_rules(&self) -> Option<Arc<Gitignore>> {
        self.previous.clone().unwrap_or_else(|| self.current.clone())
    }
}

impl IgnoreRulesCache {
    /// Returns a cache for a scan that compares with the rules at the last scan; `None` if there was none.
    pub(crate) fn with_previous(was: Option<IgnoreSnapshot>) -> Self {
        Self { history: RulesHistory::Tracked { previous: was, current: HashMap::new() }, ..Self::default() }
    }

    /// Returns the rules at the last scan, and the current contents of the ignore files that the scan encountered.
    pub(crate) fn into_parts(self) -> (Option<IgnoreSnapshot>, IgnoreFileTexts) {
        match self.history {
            RulesHistory::NotTracked => Default::default(),
            RulesHistory::Tracked { previous: was, current: is } => (was, is),
        }
    }

    /// Records that an ignore file was deleted.
    pub(crate) fn record_deletion(&mut self, path: &str) {
        if let RulesHistory::Tracked { current: is, .. } = &mut self.history {
            is.insert(path.to_owned(), None);
        }
    }

    /// Reads an ignore file, if it exists and is readable; invalid lines are skipped.
    fn read_ignore_file(&mut self, directory: &OwnedFd, name: &str, path: &str) -> IgnoreFile {
        let compiled = self.read_current(directory, name);
        let now = compiled.as_ref().map(|compiled| compiled.rules.clone()).filter(|rules| !rules.is_empty());
        let text = compiled.map(|compiled| compiled.text);
        let RulesHistory::Tracked { previous: was, current: is } = &mut self.history else {
            return IgnoreFile { current: now, previous: None };
        };
        let path = format!("{path}/{name}");
        let before = match (was.as_ref().map_or(PreviousText::Unknown, |was| was.previous_text(&path)), &text)
        {
            (PreviousText::Unknown, _) | (PreviousText::Nothing, None) => None,
            (PreviousText::Text(was), Some(is)) if was == *is => None,
            (PreviousText::Nothing, Some(_)) => Some(None),
            // The change of such a file is found once, so the compiled rules need no caching.
            (PreviousText::Text(was), _) => {
                Some(compile_rules(&was).map(Arc::new).filter(|rules: &Arc<Gitignore>| !rules.is_empty()))
            }
        };
        if text.is_some() || before.is_some() {
            is.insert(path, text);
        }
        IgnoreFile { current: now, previous: before }
    }

    fn read_current(&mut self, directory: &OwnedFd, name: &str) -> Option<CompiledRules> {
        let file = open_at(directory, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        if self.compiled.len() >= MAX_CACHED {
            self.compiled.clear();
        }
        let compiled = self.compiled.entry(file_stamp(&stat));
        compiled.or_insert_with(|| load_rules(file.into())).clone()
    }
}

/// Reads and compiles rules, unless there are too many.
fn load_rules(file: std::fs::File) -> Option<CompiledRules> {
    let mut bytes = Vec::new();
    file.take(MAX_RULES_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_RULES_BYTES {
        return None;
    }
    let rules = Arc::new(compile_rules(&bytes)?);
    Some(CompiledRules { rules, text: bytes.into() })
}

/// Compiles rules, unless there are too many.
fn compile_rules(bytes: &[u8]) -> Option<Gitignore> {
    let text = String::from_utf8_lossy(bytes);
    let mut builder = GitignoreBuilder::new(Path::new(""));
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if at >= MAX_RULES_LINES {
            return None;
        }
        // An invalid pattern matches nothing, as in git.
        if builder.add_line(None, line).is_err() {
            continue;
        }
    }
    builder.build().ok()
}
