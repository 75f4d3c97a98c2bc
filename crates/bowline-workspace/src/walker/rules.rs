//! Ignore rules: `.gitignore` and `.ignore` of every directory on the way, and the repository's own `info/exclude`.
//!
//! They are read through the handles of the walk, never through links. As git has it, the rule of the innermost
//! directory decides, and the last of a file; as ripgrep has it, `.ignore` goes before `.gitignore`, and a
//! `.gitignore` counts outside of repositories too. A repository in another one has only its own git rules. What a
//! user keeps elsewhere (`core.excludesFile`, the store of a linked worktree) is not read.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use bowline_state::observation::Stamp;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, OFlags};

use super::{MAX_NAMED, WalkReport, open_at, stamp, stat_at};
use crate::roots::RootHandle;

/// A file of rules is at most this long, in bytes.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// It has at most this many lines. People write hundreds; ten thousand of the worst kind take seconds to compile.
const MAX_RULES_LINES: usize = 2_000;

/// The rules of one directory.
struct Level {
    // How long the path of the directory is.
    base: usize,
    ignore: Option<Arc<Gitignore>>,
    git: Option<Arc<Gitignore>>,
    exclude: Option<Arc<Gitignore>>,
    repository: bool,
}

/// Compiled rules, for walks that come by the same files again and again. It holds for one scan: a file that is written
/// twice within a tick of the clock may be taken for what it was.
#[derive(Default)]
pub(crate) struct RulesCache {
    // At most `MAX_CACHED`; none is a file that was left out.
    compiled: HashMap<Stamp, Option<Arc<Gitignore>>>,
}

/// So many files of rules stay compiled.
const MAX_CACHED: usize = 256;

/// The rules that hold where a walk is.
pub(super) struct Rules<'c> {
    cache: &'c mut RulesCache,
    // Invariant: each directory is in the one before it; one that says nothing is not here.
    levels: Vec<Level>,
}

impl<'c> Rules<'c> {
    pub(super) fn new(cache: &'c mut RulesCache) -> Self {
        Self { cache, levels: Vec::new() }
    }

    /// Says whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Returns how many directories have rules, to come back to.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Leaves directories until so many are left.
    pub(super) fn leave(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// Reads the rules of a directory that the walk enters.
    pub(super) fn enter(&mut self, directory: &OwnedFd, path: &str, report: &mut WalkReport) {
        let repository = stat_at(directory, ".git").is_ok();
        let mut read = |directory: &OwnedFd, name: &str| self.cache.read(directory, name, path, report);
        let ignore = read(directory, ".ignore");
        let git = read(directory, ".gitignore");
        let info = if repository { info(directory) } else { None };
        let exclude = info.and_then(|info| read(&info, "exclude"));
        let level = Level { base: path.len(), ignore, git, exclude, repository };
        if repository || level.ignore.is_some() || level.git.is_some() {
            self.levels.push(level);
        }
    }

    /// Reads the rules of the directories around a root, if they are in the same repository.
    pub(super) fn enter_parents(&mut self, root: RootHandle<'_>, report: &mut WalkReport) {
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
                    self.enter(directory, path, report);
                }
                return;
            }
        }
    }

    /// Says whether a path is hidden. That it is in a directory that is hidden does not count.
    pub(super) fn hide(&self, path: &str, is_directory: bool) -> bool {
        let decide = |rules: &Option<Arc<Gitignore>>, base: usize| {
            let below = path.get(base + 1..)?;
            match rules.as_ref()?.matched(below, is_directory) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            }
        };
        let by_ignore = self.levels.iter().rev().find_map(|level| decide(&level.ignore, level.base));
        by_ignore.or_else(|| self.hide_by_git(decide)).unwrap_or(false)
    }

    fn hide_by_git(&self, decide: impl Fn(&Option<Arc<Gitignore>>, usize) -> Option<bool>) -> Option<bool> {
        for level in self.levels.iter().rev() {
            let decided = decide(&level.git, level.base).or_else(|| decide(&level.exclude, level.base));
            if decided.is_some() || level.repository {
                return decided;
            }
        }
        None
    }
}

/// Opens `.git/info`. Where `.git` is a file that names the store of a linked worktree, there is none.
fn info(directory: &OwnedFd) -> Option<OwnedFd> {
    let enter = |from: &OwnedFd, name| open_at(from, name, OFlags::PATH | OFlags::DIRECTORY).ok();
    enter(&enter(directory, ".git")?, "info")
}

impl RulesCache {
    /// Reads a file of rules, if there is one that can be read; lines that are no rules are passed over.
    fn read(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        path: &str,
        report: &mut WalkReport,
    ) -> Option<Arc<Gitignore>> {
        let file = open_at(directory, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        if self.compiled.len() >= MAX_CACHED {
            self.compiled.clear();
        }
        let compiled = self.compiled.entry(stamp(&stat));
        let rules = compiled.or_insert_with(|| compile(file.into()).map(Arc::new)).clone();
        if rules.is_none() && report.rules_left_out.len() < MAX_NAMED {
            report.rules_left_out.push(format!("{path}/{name}"));
        }
        rules.filter(|rules| !rules.is_empty())
    }
}

/// Compiles rules, unless they are too many.
fn compile(file: std::fs::File) -> Option<Gitignore> {
    let mut bytes = Vec::new();
    file.take(MAX_RULES_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_RULES_BYTES {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(Path::new(""));
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if at >= MAX_RULES_LINES {
            return None;
        }
        // A line that is no pattern matches nothing, as in git.
        if builder.add_line(None, line).is_err() {
            continue;
        }
    }
    builder.build().ok()
}
