//! Protected names: files whose content is executed later, and secrets.
//!
//! A name counts at any depth, whether or not it exists, and in every spelling that some file system treats as equal:
//! other case, trailing dots and spaces, a stream after `:`, `\` as a separator, a short name like `GIT~1`, and
//! characters that HFS+ ignores.

use super::{Access, LexicalPath};

mod names;

use names::{GIT_REPOSITORY_ENTRIES, PRIVATE_KEY_STEMS, PROTECTED_AFFIXES, PROTECTED_NAMES, PROTECTED_PAIRS};

/// The file by which git recognises a directory as a repository.
const GIT_HEAD: &str = "head";

/// Why a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// A hook of a version control system.
    VcsHook,
    /// The store and settings of a version control system.
    Repository,
    /// The file by which git recognises a directory as a repository.
    GitHead,
    /// The settings of an editor.
    EditorSettings,
    /// The settings of a coding agent, or the servers it starts.
    AgentSettings,
    /// Instructions to coding agents in a project.
    AgentInstructions,
    /// The settings of a tool, which name the programs that its ordinary commands run.
    ToolSettings,
    /// Code that runs when a directory is entered.
    DirectoryEnvironment,
    /// The description of a development container.
    DevContainer,
    /// A CI workflow.
    CiWorkflow,
    /// A shell's startup file.
    ShellStartup,
    /// A private key.
    PrivateKey,
    /// A file of secrets.
    Secrets,
}

impl Protection {
    /// Describes to the user what the path is, or what a write there does.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Protection::VcsHook => "writes a git hook: runs later",
            Protection::Repository => {
                "writes into the repository's own files: they name commands that run later"
            }
            Protection::GitHead => {
                "writes a git HEAD: git takes its directory for a repository and runs what its settings name"
            }
            Protection::EditorSettings => {
                "writes editor settings: they name tasks and programs that run later"
            }
            Protection::AgentSettings => {
                "writes an agent's settings: they grant it rights and name servers it starts"
            }
            Protection::AgentInstructions => "writes instructions that coding agents follow",
            Protection::ToolSettings => {
                "writes a tool's settings: they name programs that its ordinary commands run"
            }
            Protection::DirectoryEnvironment => {
                "is an environment file: may hold secrets, and runs when the directory is entered"
            }
            Protection::DevContainer => "writes a container's description: its commands run when it is built",
            Protection::CiWorkflow => "writes a workflow: runs on the build server",
            Protection::ShellStartup => "writes a shell's startup file: runs with the next shell",
            Protection::PrivateKey => "is a private key",
            Protection::Secrets => "holds secrets",
        }
    }

    /// Returns whether it guards against an access: files that run later may be read, secrets may not.
    #[must_use]
    pub fn guards_against(self, access: Access) -> bool {
        match self {
            Protection::DirectoryEnvironment | Protection::PrivateKey | Protection::Secrets => true,
            _ => access == Access::Write,
        }
    }
}

/// Returns why a path is protected from an access, by any component. If several components protect it, returns the
/// outermost one's reason.
#[must_use]
pub fn find_protection(path: &LexicalPath, access: Access) -> Option<Protection> {
    classify(path.as_str(), access)
}

/// Returns the components that protect a path from an access, outermost first.
pub(crate) fn find_protected_components(path: &str, access: Access) -> Vec<&str> {
    let names: Vec<&str> = path.split(['/', '\\']).collect();
    let folded: Vec<String> = names.iter().map(|name| fold_name(name)).collect();
    let guards =
        |protection: Option<Protection>| protection.is_some_and(|found| found.guards_against(access));
    let mut is_protecting = vec![false; names.len()];
    for at in 0..names.len() {
        is_protecting[at] |= guards(classify_name(&folded[at]));
        is_protecting[at] |= at + 1 == names.len() && guards(classify_head(&folded[at]));
        if at > 0 && guards(classify_pair(&folded[at - 1], &folded[at])) {
            is_protecting[at - 1] = true;
            is_protecting[at] = true;
        }
    }
    names.into_iter().zip(is_protecting).filter_map(|(name, protects)| protects.then_some(name)).collect()
}

/// A component of a pattern, as far as it is literal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatternComponent {
    /// The text before its first wildcard; all of it if it has none.
    pub(crate) prefix: String,
    /// The text after its last wildcard; `None` if it has none.
    pub(crate) suffix: Option<String>,
}

impl PatternComponent {
    /// Returns whether it names a protected name rather than just happening to match it: it is that name, ignoring
    /// case, or it contains literally the part that makes such names protected, as `.env*` and `*.pem` do.
    pub(crate) fn names_explicitly(&self, protected: &str) -> bool {
        let (start, protected) = (fold_name(&self.prefix), fold_name(protected));
        let Some(end) = &self.suffix else { return start == protected };
        let end = end.to_lowercase();
        let has_affixes = |name: (&str, &str), affix: (&str, &str)| {
            name.0.starts_with(affix.0) && name.1.ends_with(affix.1)
        };
        let protecting = |prefix: &str, suffix: &str| {
            has_affixes((&protected, &protected), (prefix, suffix))
                && has_affixes((&start, &end), (prefix, suffix))
        };
        PROTECTED_AFFIXES.iter().any(|(prefix, suffix, _)| protecting(prefix, suffix))
    }
}

/// Characters that HFS+ ignores in a name.
const HFS_IGNORED: &[char] = &[
    '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
    '\u{202e}', '\u{206a}', '\u{206b}', '\u{206c}', '\u{206d}', '\u{206e}', '\u{206f}', '\u{feff}',
];

/// Returns why a path is protected from an access, by any component.
pub(super) fn classify(path: &str, access: Access) -> Option<Protection> {
    let names: Vec<String> = path.split(['/', '\\']).map(fold_name).collect();
    (0..names.len()).find_map(|at| {
        let next = names.get(at + 1).map_or("", String::as_str);
        let last = || (at + 1 == names.len()).then(|| classify_head(&names[at])).flatten();
        let found = classify_pair(&names[at], next).or_else(|| classify_name(&names[at])).or_else(last);
        found.filter(|protection| protection.guards_against(access))
    })
}

/// Returns the ancestor directories that a write to this path would modify as repositories, were they bare ones:
/// those whose next component is a name that git keeps in a repository. They are relative if the path is.
#[must_use]
pub fn find_possible_repositories(path: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for name in path.split('/') {
        if GIT_REPOSITORY_ENTRIES.contains(&fold_name(name).as_str()) {
            found.push(path[..start].trim_end_matches('/'));
        }
        start += name.len() + 1;
    }
    found
}

fn classify_head(name: &str) -> Option<Protection> {
    (name == GIT_HEAD).then_some(Protection::GitHead)
}

fn classify_pair(name: &str, next: &str) -> Option<Protection> {
    let (is_outer, is_inner) = (name_matcher(name), name_matcher(next));
    let pair = PROTECTED_PAIRS.iter().find(|(outer, inner, _)| is_outer(outer) && is_inner(inner));
    pair.map(|(_, _, protection)| *protection)
}

fn classify_name(name: &str) -> Option<Protection> {
    let is_name = name_matcher(name);
    if let Some((protection, _)) =
        PROTECTED_NAMES.iter().find(|(_, names)| names.iter().any(|protected| is_name(protected)))
    {
        return Some(*protection);
    }
    if is_private_key_name(name) {
        return Some(Protection::PrivateKey);
    }
    let affix = PROTECTED_AFFIXES
        .iter()
        .find(|(prefix, suffix, _)| name.starts_with(prefix) && name.ends_with(suffix));
    affix.map(|(_, _, protection)| *protection)
}

/// Returns whether a name looks like a private key's: `id_` without an extension, or one of OpenSSH's stems with any
/// extension but the public half's. Source files such as `id_map.rs` do not match.
fn is_private_key_name(name: &str) -> bool {
    match name.split_once('.') {
        None => name.starts_with("id_"),
        Some((stem, extension)) => PRIVATE_KEY_STEMS.contains(&stem) && extension != "pub",
    }
}

/// Returns a function that tells whether a folded name is a protected one, or may be a short name for it.
fn name_matcher(name: &str) -> impl Fn(&str) -> bool {
    // Each name is compared with many, and few are short names.
    let has_tilde = name.contains('~');
    move |protected| name == protected || has_tilde && is_short_name_for(name, protected)
}

/// Returns whether a name is the Windows 8.3 short form of a long name: up to six letters, `~`, a number. Letters
/// that a short name drops or replaces are ignored, so it may match several long names.
fn is_short_name_for(name: &str, protected: &str) -> bool {
    let Some((letters, number)) = name.split_once('~') else { return false };
    let number = number.split('.').next().unwrap_or_default();
    let stem = protected.trim_start_matches('.').split('.').next().unwrap_or_default();
    let stem = stem.get(..6).unwrap_or(stem);
    letters == stem && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a name as the most lenient file system reads it.
fn fold_name(name: &str) -> String {
    let name = &name[..name.find(':').unwrap_or(name.len())];
    let mut folded = if name.is_ascii() { name.to_ascii_lowercase() } else { fold_unicode(name) };
    folded.truncate(folded.trim_end_matches(['.', ' ']).len());
    folded
}

fn fold_unicode(name: &str) -> String {
    name.chars()
        .filter(|character| !HFS_IGNORED.contains(character))
        .flat_map(char::to_lowercase)
        // The long s has no lower case, but file systems that fold case treat it as an s.
        .map(|character| if character == 'ſ' { 's' } else { character })
        .collect()
}
