//! What the environment says: the user's directories, following the XDG specification, and the workarounds for other
//! programs' faults.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bowline_protocol::quirks::{DISABLE_VARIABLE, QuirkMode};

/// The user's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDirs {
    /// Sessions, journals, audit logs.
    pub state: PathBuf,
    /// The directory of `policy.toml` and of stored keys.
    pub config: PathBuf,
    /// Anchors of audit logs, kept apart from the logs.
    pub anchors: PathBuf,
}

impl UserDirs {
    /// Returns the directories of the user who runs this program.
    ///
    /// # Errors
    /// Fails if there is no home directory.
    pub fn from_env() -> Result<Self> {
        Self::resolve(|name| std::env::var_os(name), std::env::home_dir())
    }

    /// Returns the default policy file.
    pub fn policy_file(&self) -> PathBuf {
        self.config.join("policy.toml")
    }

    /// Returns the file of stored keys.
    pub fn keys_file(&self) -> PathBuf {
        self.config.join("keys.json")
    }

    /// Returns the paths for a host, with this policy file.
    pub fn for_host(&self, policy: PathBuf) -> bowline_host::HostPaths {
        bowline_host::HostPaths { state: self.state.clone(), policy, anchors: self.anchors.clone() }
    }

    /// Returns the directories for an environment; `home` is the value of `HOME`, or else the account's home directory.
    ///
    /// # Errors
    /// Fails if there is no home directory.
    fn resolve(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Self> {
        // The specification requires relative paths to be ignored.
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = home.filter(|home| home.is_absolute());
        let base = |name: &str, fallback: &str| {
            let path = absolute(name).or_else(|| home.as_ref().map(|home| home.join(fallback)));
            let path = path.with_context(|| format!("set HOME or {name} to an absolute path"))?;
            anyhow::Ok(path.join("bowline"))
        };
        Ok(Self {
            state: base("XDG_STATE_HOME", ".local/state")?,
            config: base("XDG_CONFIG_HOME", ".config")?,
            anchors: base("XDG_DATA_HOME", ".local/share")?.join("anchors"),
        })
    }
}

/// Returns the mode that the user chose.
pub fn quirk_mode() -> QuirkMode {
    QuirkMode::from_variable(std::env::var_os(DISABLE_VARIABLE).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(home: Option<&str>, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        match UserDirs::resolve(variable, home.map(PathBuf::from)) {
            Ok(UserDirs { state, config, anchors }) => {
                format!("{} {} {}", state.display(), config.display(), anchors.display())
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn places_are_those_of_the_specification() {
        assert_eq!(
            resolve(Some("/h"), &[]),
            "/h/.local/state/bowline /h/.config/bowline /h/.local/share/bowline/anchors"
        );
        assert_eq!(
            resolve(Some("/h"), &[("XDG_STATE_HOME", "/s"), ("XDG_CONFIG_HOME", "relative")]),
            "/s/bowline /h/.config/bowline /h/.local/share/bowline/anchors"
        );
        for home in [None, Some("relative"), Some("")] {
            assert_eq!(resolve(home, &[]), "set HOME or XDG_STATE_HOME to an absolute path");
        }
    }
}
