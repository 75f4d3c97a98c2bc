//! Names that are not ordinary files: what is in them runs later, or is a secret.
//!
//! A name counts at any depth, whether it exists or not, and in every spelling that some file system takes for it:
//! other case, trailing dots and spaces, a stream after `:`, `\` as a separator, a short name like `GIT~1`, and
//! characters that HFS+ does not see.

use super::{Access, LexicalPath};

mod names;

use names::{AFFIXES, IN_REPOSITORY, KEY_STEMS, NAMES, PAIRS};

/// By a file of this name git knows a directory as a repository.
const HEAD: &str = "head";

/// Why a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// A hook of a version control system.
    Hook,
    /// The store and settings of a version control system.
    Repository,
    /// The file by which git takes a directory for a repository.
    Head,
    /// The settings of an editor.
    Editor,
    /// The settings of a coding agent, or the servers it starts.
    Agent,
    /// What coding agents are told to do in a project.
    Instructions,
    /// The settings of a tool, which name the programs that its plain commands run.
    Tool,
    /// What is run when a directory is entered.
    DirectoryEnvironment,
    /// The description of a development container.
    Container,
    /// A workflow of a build server.
    Workflow,
    /// What a shell runs when it starts.
    ShellStartup,
    /// A private key.
    PrivateKey,
    /// A file of secrets.
    Secrets,
}

impl Protection {
    /// Says in words for the user what the path is, or what a write there does.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Protection::Hook => "writes a git hook: runs later",
            Protection::Repository => {
                "writes into the repository's own files: they name commands that run later"
            }
            Protection::Head => {
                "writes a git HEAD: git takes its directory for a repository and runs what its settings name"
            }
            Protection::Editor => "writes editor settings: they name tasks and programs that run later",
            Protection::Agent => {
                "writes an agent's settings: they grant it rights and name servers it starts"
            }
            Protection::Instructions => "writes instructions that coding agents follow",
            Protection::Tool => "writes a tool's settings: they name programs that its ordinary commands run",
            Protection::DirectoryEnvironment => {
                "is an environment file: may hold secrets, and runs when the directory is entered"
            }
            Protection::Container => "writes a container's description: its commands run when it is built",
            Protection::Workflow => "writes a workflow: runs on the build server",
            Protection::ShellStartup => "writes a shell's startup file: runs with the next shell",
            Protection::PrivateKey => "is a private key",
            Protection::Secrets => "holds secrets",
        }
    }

    /// Says whether it stands against an access: what runs later may be read, a secret may not.
    #[must_use]
    pub fn guards(self, access: Access) -> bool {
        match self {
            Protection::DirectoryEnvironment | Protection::PrivateKey | Protection::Secrets => true,
            _ => access == Access::Write,
        }
    }
}

/// Returns why a path is protected from an access, by any name on the way from `/`. Where several stand against it, the
/// outermost is named.
#[must_use]
pub fn protected(path: &LexicalPath, access: Access) -> Option<Protection> {
    classify(path.as_str(), access)
}

/// Returns the names in a path that protect it from an access, from the outermost on.
pub(crate) fn protecting(path: &str, access: Access) -> Vec<&str> {
    let names: Vec<&str> = path.split(['/', '\\']).collect();
    let folded: Vec<String> = names.iter().map(|name| fold(name)).collect();
    let guards = |protection: Option<Protection>| protection.is_some_and(|found| found.guards(access));
    let mut is_protecting = vec![false; names.len()];
    for at in 0..names.len() {
        is_protecting[at] |= guards(single(&folded[at]));
        is_protecting[at] |= at + 1 == names.len() && guards(head(&folded[at]));
        if at > 0 && guards(pair(&folded[at - 1], &folded[at])) {
            is_protecting[at - 1] = true;
            is_protecting[at] = true;
        }
    }
    names.into_iter().zip(is_protecting).filter_map(|(name, protects)| protects.then_some(name)).collect()
}

/// A component of a pattern, as far as it is literal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatternName {
    /// What stands before its first wildcard; all of it if it has none.
    pub(crate) start: String,
    /// What stands after its last wildcard; nothing if it has none.
    pub(crate) end: Option<String>,
}

impl PatternName {
    /// Says whether it names a protected name and does not just happen to match it: it is that name, letter for letter but
    /// for case, or has literally what makes such names protected, as `.env*` and `*.pem` have.
    pub(crate) fn names(&self, protected: &str) -> bool {
        let (start, protected) = (fold(&self.start), fold(protected));
        let Some(end) = &self.end else { return start == protected };
        let end = end.to_lowercase();
        let has = |name: (&str, &str), affix: (&str, &str)| {
            name.0.starts_with(affix.0) && name.1.ends_with(affix.1)
        };
        let protecting = |begins: &str, ends: &str| {
            has((&protected, &protected), (begins, ends)) && has((&start, &end), (begins, ends))
        };
        AFFIXES.iter().any(|(begins, ends, _)| protecting(begins, ends))
    }
}

/// Characters that HFS+ ignores in a name.
const IGNORED: &[char] = &[
    '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
    '\u{202e}', '\u{206a}', '\u{206b}', '\u{206c}', '\u{206d}', '\u{206e}', '\u{206f}', '\u{feff}',
];

/// Returns why a path is protected from an access, by any name in it.
pub(super) fn classify(path: &str, access: Access) -> Option<Protection> {
    let names: Vec<String> = path.split(['/', '\\']).map(fold).collect();
    (0..names.len()).find_map(|at| {
        let next = names.get(at + 1).map_or("", String::as_str);
        let last = || (at + 1 == names.len()).then(|| head(&names[at])).flatten();
        let found = pair(&names[at], next).or_else(|| single(&names[at])).or_else(last);
        found.filter(|protection| protection.guards(access))
    })
}

/// Returns the directories on the way to a path that a write there changes if they are repositories by themselves, as bare
/// ones are: those in which the next name is one that git keeps in a repository. Relative as the path is.
#[must_use]
pub fn maybe_repositories(path: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for name in path.split('/') {
        if IN_REPOSITORY.contains(&fold(name).as_str()) {
            found.push(path[..start].trim_end_matches('/'));
        }
        start += name.len() + 1;
    }
    found
}

fn head(name: &str) -> Option<Protection> {
    (name == HEAD).then_some(Protection::Head)
}

fn pair(name: &str, next: &str) -> Option<Protection> {
    let (_, _, protection) =
        PAIRS.iter().find(|(outer, inner, _)| is_spelled(name, outer) && is_spelled(next, inner))?;
    Some(*protection)
}

fn single(name: &str) -> Option<Protection> {
    if let Some((_, protection)) = NAMES.iter().find(|(protected, _)| is_spelled(name, protected)) {
        return Some(*protection);
    }
    if is_key(name) {
        return Some(Protection::PrivateKey);
    }
    let affix = AFFIXES.iter().find(|(begins, ends, _)| name.starts_with(begins) && name.ends_with(ends));
    affix.map(|(_, _, protection)| *protection)
}

/// Says whether a name is one that private keys have: `id_` and no extension, or a stem of OpenSSH's with any but that
/// of the public half. Source files such as `id_map.rs` are none.
fn is_key(name: &str) -> bool {
    match name.split_once('.') {
        None => name.starts_with("id_"),
        Some((stem, extension)) => KEY_STEMS.contains(&stem) && extension != "pub",
    }
}

/// Says whether a folded name is the protected one, or may be a short name for it.
fn is_spelled(name: &str, protected: &str) -> bool {
    name == protected || is_short_for(name, protected)
}

/// Says whether a name is the form that Windows gives a long name in eight letters and three: up to six letters, `~`,
/// a number. Letters that such a name drops or replaces are not looked at, so it may mean several long names.
fn is_short_for(name: &str, protected: &str) -> bool {
    let Some((letters, number)) = name.split_once('~') else { return false };
    let number = number.split('.').next().unwrap_or_default();
    let stem = protected.trim_start_matches('.').split('.').next().unwrap_or_default();
    let stem = stem.get(..6).unwrap_or(stem);
    letters == stem && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a name as the most forgiving file system reads it.
fn fold(name: &str) -> String {
    let stream = name.find(':').unwrap_or(name.len());
    let seen: String = name[..stream]
        .chars()
        .filter(|character| !IGNORED.contains(character))
        .flat_map(char::to_lowercase)
        // The long s has no lower case, but file systems that fold case take it for an s.
        .map(|character| if character == 'ſ' { 's' } else { character })
        .collect();
    seen.trim_end_matches(['.', ' ']).to_owned()
}
