//! Ignore rules: `.gitignore` and `.ignore` of every directory on the way, and the repository's own `info/exclude`.
//!
//! They are read through the handles of the walk, never through links. As git has it, the rule of the innermost
//! directory decides, and the last of a file; as ripgrep has it, `.ignore` goes before `.gitignore`, and a
//! `.gitignore` counts outside of repositories too. A repository in another one has only its own git rules. What a
//! user keeps elsewhere (`core.excludesFile`, the store of a linked worktree) is not read.
//!
//! Whoever looks for what changed asks twice: by the rules as they are, and as they were at the last look.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use bowline_state::observation::Stamp;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, OFlags};

use super::remembered::{Remembered, Was};
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
    now: Files,
    // None: as now.
    before: Option<Files>,
    repository: bool,
}

/// The files of rules of one directory.
#[derive(Default)]
struct Files {
    ignore: Option<Arc<Gitignore>>,
    git: Option<Arc<Gitignore>>,
    exclude: Option<Arc<Gitignore>>,
}

impl Files {
    fn any(&self) -> bool {
        self.ignore.is_some() || self.git.is_some()
    }
}

/// Which rules hide something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// Those that are there now.
    pub(super) now: bool,
    /// Those that were there at the last look.
    pub(super) before: bool,
}

impl Hidden {
    /// Says whether it is left out: rules that are new, or gone, hide nothing.
    pub(super) fn is_left_out(self) -> bool {
        self.now && self.before
    }

    /// Returns what hides something in a directory that is hidden like this.
    pub(super) fn within(self, directory: Self) -> Self {
        Self { now: self.now || directory.now, before: self.before || directory.before }
    }
}

/// Compiled rules, for walks that come by the same files again and again. It holds for one scan: a file that is written
/// twice within a tick of the clock may be taken for what it was.
#[derive(Default)]
pub(crate) struct RulesCache {
    // At most `MAX_CACHED`; none is a file that was left out.
    compiled: HashMap<Stamp, Option<Compiled>>,
    past: Past,
}

/// What files of rules hold, by their paths; none is one that is gone.
pub(crate) type RulesTexts = HashMap<String, Option<Arc<[u8]>>>;

/// Whether it is asked what rules there were before.
#[derive(Default)]
enum Past {
    /// It is not.
    #[default]
    Unasked,
    /// It is from now on: this is what there is, and what was before, if that is known.
    Asked { was: Option<Remembered>, is: RulesTexts },
}

/// Rules, and what they were made of.
#[derive(Clone)]
struct Compiled {
    rules: Arc<Gitignore>,
    text: Arc<[u8]>,
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
        let exclude = info.map(|info| read(&info, "exclude")).unwrap_or_default();
        let before = [&ignore, &git, &exclude].iter().any(|file| file.before.is_some()).then(|| Files {
            ignore: ignore.was(),
            git: git.was(),
            exclude: exclude.was(),
        });
        let now = Files { ignore: ignore.now, git: git.now, exclude: exclude.now };
        if repository || now.any() || before.as_ref().is_some_and(Files::any) {
            self.levels.push(Level { base: path.len(), now, before, repository });
        }
    }

    /// Says whether some of them are others than at the last look.
    pub(super) fn differ(&self) -> bool {
        self.levels.iter().any(|level| level.before.is_some())
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
    pub(super) fn hide(&self, path: &str, is_directory: bool) -> Hidden {
        let now = self.hide_by(|level| &level.now, path, is_directory);
        let before = if self.differ() {
            self.hide_by(|level| level.before.as_ref().unwrap_or(&level.now), path, is_directory)
        } else {
            now
        };
        Hidden { now, before }
    }

    fn hide_by(&self, files: impl Fn(&Level) -> &Files, path: &str, is_directory: bool) -> bool {
        let decide = |rules: &Option<Arc<Gitignore>>, base: usize| {
            let below = path.get(base + 1..)?;
            match rules.as_ref()?.matched(below, is_directory) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            }
        };
        let by_ignore = self.levels.iter().rev().find_map(|level| decide(&files(level).ignore, level.base));
        if let Some(decided) = by_ignore {
            return decided;
        }
        for level in self.levels.iter().rev() {
            let Files { git, exclude, .. } = files(level);
            let decided = decide(git, level.base).or_else(|| decide(exclude, level.base));
            if decided.is_some() || level.repository {
                return decided.unwrap_or(false);
            }
        }
        false
    }
}

/// Opens `.git/info`. Where `.git` is a file that names the store of a linked worktree, there is none.
fn info(directory: &OwnedFd) -> Option<OwnedFd> {
    let enter = |from: &OwnedFd, name| open_at(from, name, OFlags::PATH | OFlags::DIRECTORY).ok();
    enter(&enter(directory, ".git")?, "info")
}

/// A file of rules.
#[derive(Default)]
struct Rule {
    now: Option<Arc<Gitignore>>,
    // None outside: as now.
    before: Option<Option<Arc<Gitignore>>>,
}

impl Rule {
    fn was(&self) -> Option<Arc<Gitignore>> {
        self.before.clone().unwrap_or_else(|| self.now.clone())
    }
}

impl RulesCache {
    /// Returns one for a look that asks what rules there were at the last one. None: that was never looked at.
    pub(crate) fn after(was: Option<Remembered>) -> Self {
        Self { past: Past::Asked { was, is: HashMap::new() }, ..Self::default() }
    }

    /// Returns the rules as they were before the look, and the files of rules that it came by as they are now.
    pub(crate) fn into_parts(self) -> (Option<Remembered>, RulesTexts) {
        match self.past {
            Past::Unasked => Default::default(),
            Past::Asked { was, is } => (was, is),
        }
    }

    /// Takes note that a file of rules is gone.
    pub(crate) fn is_gone(&mut self, path: &str) {
        if let Past::Asked { is, .. } = &mut self.past {
            is.insert(path.to_owned(), None);
        }
    }

    /// Reads a file of rules, if there is one that can be read; lines that are no rules are passed over.
    fn read(&mut self, directory: &OwnedFd, name: &str, path: &str, report: &mut WalkReport) -> Rule {
        let compiled = self.read_now(directory, name, path, report);
        let now = compiled.as_ref().map(|compiled| compiled.rules.clone()).filter(|rules| !rules.is_empty());
        let text = compiled.map(|compiled| compiled.text);
        let Past::Asked { was, is } = &mut self.past else { return Rule { now, before: None } };
        let path = format!("{path}/{name}");
        let before = match (was.as_ref().map_or(Was::Unknown, |was| was.was(&path)), &text) {
            (Was::Unknown, _) | (Was::Nothing, None) => None,
            (Was::Text(was), Some(is)) if was == *is => None,
            (Was::Nothing, Some(_)) => Some(None),
            // The change of such a file is found once, so nobody has to remember what this came to.
            (Was::Text(was), _) => {
                Some(compile(&was).map(Arc::new).filter(|rules: &Arc<Gitignore>| !rules.is_empty()))
            }
        };
        if text.is_some() || before.is_some() {
            is.insert(path, text);
        }
        Rule { now, before }
    }

    fn read_now(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        path: &str,
        report: &mut WalkReport,
    ) -> Option<Compiled> {
        let file = open_at(directory, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        if self.compiled.len() >= MAX_CACHED {
            self.compiled.clear();
        }
        let compiled = self.compiled.entry(stamp(&stat));
        let compiled = compiled.or_insert_with(|| load(file.into())).clone();
        if compiled.is_none() && report.rules_left_out.len() < MAX_NAMED {
            report.rules_left_out.push(format!("{path}/{name}"));
        }
        compiled
    }
}

/// Reads rules, unless they are too many.
fn load(file: std::fs::File) -> Option<Compiled> {
    let mut bytes = Vec::new();
    file.take(MAX_RULES_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_RULES_BYTES {
        return None;
    }
    let rules = Arc::new(compile(&bytes)?);
    Some(Compiled { rules, text: bytes.into() })
}

/// Compiles rules, unless they are too many.
fn compile(bytes: &[u8]) -> Option<Gitignore> {
    let text = String::from_utf8_lossy(bytes);
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
