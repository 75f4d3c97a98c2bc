//! What a command finds in its environment: what it needs of the user's, none of the user's secrets.

use std::collections::BTreeMap;

use super::{MAX_VARIABLE_BYTES, MAX_VARIABLES};
use crate::failure::quote;

/// The variables that every command inherits. One that ends in `*` stands for all that begin so, but for those whose
/// name speaks of a secret.
pub const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "MANPATH",
    "INFOPATH",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOBIN",
    "GOMODCACHE",
    "GOFLAGS",
    "JAVA_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "GRADLE_USER_HOME",
    "ANDROID_HOME",
    "NVM_DIR",
    "NVM_BIN",
    "FNM_DIR",
    "VOLTA_HOME",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "RBENV_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "SDKMAN_DIR",
    "DOTNET_ROOT",
    "NIX_PATH",
    "NIX_PROFILES",
    "HOMEBREW_PREFIX",
    "HOMEBREW_CELLAR",
    "HOMEBREW_REPOSITORY",
];

/// What is set unless somebody sets it: a pager would wait for a person.
pub const SET: &[(&str, &str)] = &[("PAGER", "cat"), ("GIT_PAGER", "cat")];

/// Settings that every git is given which a command starts, stronger than those of any repository: a directory is not taken
/// for a repository because it looks like one, and no program is asked which files changed.
pub const GIT_SETTINGS: &[(&str, &str)] = &[("safe.bareRepository", "explicit"), ("core.fsmonitor", "false")];

/// How many settings git finds in its environment.
const GIT_COUNT: &str = "GIT_CONFIG_COUNT";

/// Why a request's variables cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadVariable {
    /// The name is no name.
    #[error("{} is no name for a variable: it has to be there, without = and NUL", quote(.0))]
    Name(String),
    /// The value holds a NUL, which no program can be given.
    #[error("the value of the variable {} holds a NUL character: leave it out", quote(.0))]
    Nul(String),
    /// There are too many variables, or they are too long together.
    #[error(
        "{count} variables with {bytes} bytes are too many, the limit is {MAX_VARIABLES} with {MAX_VARIABLE_BYTES} \
         bytes: use a file"
    )]
    TooMany {
        /// How many.
        count: usize,
        /// How long they are together.
        bytes: usize,
    },
}

/// Returns the environment of a command, by name: what is [`SET`], overridden by what of `inherited` every command gets
/// and the user `allows` (written as in [`INHERITED`]), overridden by what the request asks for, and [`GIT_SETTINGS`].
///
/// # Errors
/// Returns which of the request's variables cannot be set.
pub fn environment(
    inherited: &BTreeMap<String, String>,
    allows: &[String],
    request: &[(String, String)],
) -> Result<Vec<(String, String)>, BadVariable> {
    for (name, value) in request {
        if !is_name(name) {
            return Err(BadVariable::Name(name.clone()));
        }
        if value.contains('\0') {
            return Err(BadVariable::Nul(name.clone()));
        }
    }
    let size = |(name, value): &(String, String)| name.len() + value.len() + 2;
    let bytes = request.iter().map(size).sum();
    if request.len() > MAX_VARIABLES || bytes > MAX_VARIABLE_BYTES {
        return Err(BadVariable::TooMany { count: request.len(), bytes });
    }
    let passes = |name: &str| {
        let listed = INHERITED.iter().copied().any(|pattern| matches(pattern, name));
        // What the user names is the user's decision, whatever it is called.
        listed || allows.iter().any(|pattern| pattern == name || matches(pattern, name))
    };
    let mut variables: BTreeMap<&str, &str> = SET.iter().copied().collect();
    for (name, value) in inherited {
        if is_name(name) && !value.contains('\0') && passes(name) {
            variables.insert(name, value);
        }
    }
    // Of two with the same name the last one counts, as in a shell.
    variables.extend(request.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut variables: BTreeMap<String, String> = variables.into_iter().map(owned).collect();
    set_git(&mut variables);
    Ok(variables.into_iter().collect())
}

/// Adds [`GIT_SETTINGS`] after those that are there already: of two for the same the last one counts.
fn set_git(variables: &mut BTreeMap<String, String>) {
    let there: usize =
        variables.get(GIT_COUNT).and_then(|count| count.trim().parse().ok()).unwrap_or_default();
    for (at, (key, value)) in GIT_SETTINGS.iter().enumerate() {
        let at = there.saturating_add(at);
        variables.insert(format!("GIT_CONFIG_KEY_{at}"), (*key).to_owned());
        variables.insert(format!("GIT_CONFIG_VALUE_{at}"), (*value).to_owned());
    }
    variables.insert(GIT_COUNT.to_owned(), there.saturating_add(GIT_SETTINGS.len()).to_string());
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning) && !speaks_of_a_secret(name),
        None => pattern == name,
    }
}

fn speaks_of_a_secret(name: &str) -> bool {
    const WORDS: [&str; 7] = ["TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH", "COOKIE"];
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests;
