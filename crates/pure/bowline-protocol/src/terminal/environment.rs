//! The environment of a command: what it needs from the user's, without the user's secrets.

use std::collections::BTreeMap;

use super::{MAX_VARIABLE_BYTES, MAX_VARIABLES};
use bowline_text::display::quote;

/// The variables that every command inherits. A name that ends in `*` matches all variables with that prefix, except
/// those whose name indicates a secret.
pub const INHERITED_VARIABLES: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "NO_COLOR",
    "TZ", "TMPDIR", "XDG_*", "MANPATH", "INFOPATH", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOPATH",
    "GOROOT", "GOBIN", "GOMODCACHE", "GOFLAGS", "JAVA_HOME", "MAVEN_HOME", "GRADLE_HOME", "GRADLE_USER_HOME",
    "ANDROID_HOME", "NVM_DIR", "NVM_BIN", "FNM_DIR", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR",
    "PYENV_ROOT", "PYENV_VERSION", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "RBENV_ROOT",
    "GEM_HOME", "GEM_PATH", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "SDKMAN_DIR", "DOTNET_ROOT",
    "NIX_PATH", "NIX_PROFILES", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR", "HOMEBREW_REPOSITORY",
];

/// Defaults for variables that are not set otherwise: a pager would wait for a person.
pub const DEFAULT_VARIABLES: &[(&str, &str)] = &[("PAGER", "cat"), ("GIT_PAGER", "cat")];

/// Settings for every git that a command starts, which override those of any repository: a directory that merely
/// looks like a repository is not treated as one, and no program is asked which files changed.
pub const GIT_SETTINGS: &[(&str, &str)] = &[("safe.bareRepository", "explicit"), ("core.fsmonitor", "false")];

/// The variable with the number of settings in git's environment.
const GIT_CONFIG_COUNT: &str = "GIT_CONFIG_COUNT";

/// Why a request's variables cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVariableError {
    /// The name is invalid.
    #[error("{} is no name for a variable: it has to be there, without = and NUL", quote(.0))]
    InvalidName(String),
    /// The value holds a NUL, which cannot be passed to a program.
    #[error("the value of the variable {} holds a NUL character: leave it out", quote(.0))]
    ContainsNul(String),
    /// There are too many variables, or they are too long together.
    #[error(
        "{count} variables with {bytes} bytes are too many, the limit is {MAX_VARIABLES} with {MAX_VARIABLE_BYTES} \
         bytes: use a file"
    )]
    TooMany {
        /// The number of variables.
        count: usize,
        /// Their total length.
        bytes: usize,
    },
}

/// Returns the environment of a command, by name: [`DEFAULT_VARIABLES`], overridden by the variables of `inherited`
/// that every command gets ([`INHERITED_VARIABLES`]), overridden by the request's, plus [`GIT_SETTINGS`].
///
/// # Errors
/// Returns the variable of the request that cannot be set.
pub fn command_environment(
    inherited: &BTreeMap<String, String>,
    request: &[(String, String)],
) -> Result<Vec<(String, String)>, InvalidVariableError> {
    for (name, value) in request {
        if !is_variable_name(name) {
            return Err(InvalidVariableError::InvalidName(name.clone()));
        }
        if value.contains('\0') {
            return Err(InvalidVariableError::ContainsNul(name.clone()));
        }
    }
    let size = |(name, value): &(String, String)| name.len() + value.len() + 2;
    let bytes = request.iter().map(size).sum();
    if request.len() > MAX_VARIABLES || bytes > MAX_VARIABLE_BYTES {
        return Err(InvalidVariableError::TooMany { count: request.len(), bytes });
    }
    let passes = |name: &str| INHERITED_VARIABLES.iter().any(|pattern| matches_pattern(pattern, name));
    let mut variables: BTreeMap<&str, &str> = DEFAULT_VARIABLES.iter().copied().collect();
    for (name, value) in inherited {
        if is_variable_name(name) && !value.contains('\0') && passes(name) {
            variables.insert(name, value);
        }
    }
    // Of two variables with the same name the last wins, as in a shell.
    variables.extend(request.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut variables: BTreeMap<String, String> = variables.into_iter().map(owned).collect();
    add_git_settings(&mut variables);
    Ok(variables.into_iter().collect())
}

/// Adds [`GIT_SETTINGS`] after the existing ones: of two values for a setting the last wins.
fn add_git_settings(variables: &mut BTreeMap<String, String>) {
    let existing: usize =
        variables.get(GIT_CONFIG_COUNT).and_then(|count| count.trim().parse().ok()).unwrap_or_default();
    for (at, (key, value)) in GIT_SETTINGS.iter().enumerate() {
        let at = existing.saturating_add(at);
        variables.insert(format!("GIT_CONFIG_KEY_{at}"), (*key).to_owned());
        variables.insert(format!("GIT_CONFIG_VALUE_{at}"), (*value).to_owned());
    }
    variables.insert(GIT_CONFIG_COUNT.to_owned(), existing.saturating_add(GIT_SETTINGS.len()).to_string());
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning) && !is_secret_name(name),
        None => pattern == name,
    }
}

fn is_secret_name(name: &str) -> bool {
    const WORDS: [&str; 7] = ["TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH", "COOKIE"];
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests;
