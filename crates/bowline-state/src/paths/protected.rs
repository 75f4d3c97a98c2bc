//! Names that are not ordinary files: what is in them runs later, or is a secret.
//!
//! A name counts at any depth, whether it exists or not, and in every spelling that some file system takes for it:
//! other case, trailing dots and spaces, a stream after `:`, `\` as a separator, a short name like `GIT~1`, and
//! characters that HFS+ does not see.

use super::{Access, LexicalPath};

/// Why a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// A hook of a version control system.
    Hook,
    /// The store and settings of a version control system.
    Repository,
    /// The settings of an editor.
    Editor,
    /// The settings of a coding agent, or the servers it starts.
    Agent,
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
            Protection::Editor => "writes editor settings: they name tasks and programs that run later",
            Protection::Agent => {
                "writes an agent's settings: they grant it rights and name servers it starts"
            }
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
        let ends = |extension: &str| protected.ends_with(extension) && end.ends_with(extension);
        (protected.starts_with(".env") && start.starts_with(".env")) || ends(".pem") || ends(".key")
    }
}

/// Names that are protected wherever they stand, in their folded form.
const NAMES: &[(&str, Protection)] = &[
    (".husky", Protection::Hook),
    (".git", Protection::Repository),
    (".gitconfig", Protection::Repository),
    (".hg", Protection::Repository),
    (".svn", Protection::Repository),
    (".vscode", Protection::Editor),
    (".idea", Protection::Editor),
    (".zed", Protection::Editor),
    (".cursor", Protection::Agent),
    (".claude", Protection::Agent),
    (".codex", Protection::Agent),
    (".agents", Protection::Agent),
    (".mcp.json", Protection::Agent),
    (".envrc", Protection::DirectoryEnvironment),
    (".devcontainer", Protection::Container),
    (".devcontainer.json", Protection::Container),
    (".bashrc", Protection::ShellStartup),
    (".bash_profile", Protection::ShellStartup),
    (".bash_login", Protection::ShellStartup),
    (".bash_logout", Protection::ShellStartup),
    (".bash_aliases", Protection::ShellStartup),
    (".profile", Protection::ShellStartup),
    (".zshrc", Protection::ShellStartup),
    (".zshenv", Protection::ShellStartup),
    (".zprofile", Protection::ShellStartup),
    (".zlogin", Protection::ShellStartup),
    (".zlogout", Protection::ShellStartup),
    (".kshrc", Protection::ShellStartup),
    (".cshrc", Protection::ShellStartup),
    (".tcshrc", Protection::ShellStartup),
    (".login", Protection::ShellStartup),
    (".inputrc", Protection::ShellStartup),
    ("config.fish", Protection::ShellStartup),
    (".ssh", Protection::Secrets),
    (".gnupg", Protection::Secrets),
    (".aws", Protection::Secrets),
    (".netrc", Protection::Secrets),
    (".git-credentials", Protection::Secrets),
];

/// Two names that are protected where one stands in the other, in their folded form.
const PAIRS: &[(&str, &str, Protection)] =
    &[(".git", "hooks", Protection::Hook), (".github", "workflows", Protection::Workflow)];

/// The stems of the private keys that OpenSSH makes.
const KEY_STEMS: &[&str] =
    &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "id_xmss"];

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
        pair(&names[at], next).or_else(|| single(&names[at])).filter(|protection| protection.guards(access))
    })
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
    if name.ends_with(".pem") || name.ends_with(".key") || is_key(name) {
        return Some(Protection::PrivateKey);
    }
    name.starts_with(".env").then_some(Protection::Secrets)
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
