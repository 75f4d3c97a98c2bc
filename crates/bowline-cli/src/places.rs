//! Where the user's own things are: the directories of the XDG specification, below the user's home.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// Where the user's own things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    /// Sessions, journals, audit logs.
    pub(crate) state: PathBuf,
    /// The directory of `policy.toml` and of stored keys.
    pub(crate) config: PathBuf,
    /// Anchors of audit logs: elsewhere than the logs.
    pub(crate) anchors: PathBuf,
}

impl Places {
    /// Returns the places of the user who runs this program.
    ///
    /// # Errors
    /// Says that there is no home.
    pub(crate) fn of_user() -> Result<Self> {
        Self::of(|name| std::env::var_os(name), std::env::home_dir())
    }

    /// Returns the file of rules, unless another one is named.
    pub(crate) fn policy(&self) -> PathBuf {
        self.config.join("policy.toml")
    }

    /// Returns the file of stored keys.
    pub(crate) fn keys(&self) -> PathBuf {
        self.config.join("keys.json")
    }

    /// Returns the places that a host uses, with this file of rules.
    pub(crate) fn for_host(&self, policy: PathBuf) -> bowline_host::Places {
        bowline_host::Places { state: self.state.clone(), policy, anchors: self.anchors.clone() }
    }

    /// Returns the places of a user with this environment; `home` is what `HOME` says, else the home of the account.
    ///
    /// # Errors
    /// Says that there is no home.
    fn of(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Self> {
        // The specification has relative paths ignored.
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = home.filter(|home| home.is_absolute());
        let base = |name: &str, below: &str| {
            let found = absolute(name).or_else(|| home.as_ref().map(|home| home.join(below)));
            let found = found.with_context(|| format!("set HOME or {name} to an absolute path"))?;
            anyhow::Ok(found.join("bowline"))
        };
        Ok(Self {
            state: base("XDG_STATE_HOME", ".local/state")?,
            config: base("XDG_CONFIG_HOME", ".config")?,
            anchors: base("XDG_DATA_HOME", ".local/share")?.join("anchors"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(home: Option<&str>, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, it)| it.into());
        match Places::of(variable, home.map(PathBuf::from)) {
            Ok(Places { state, config, anchors }) => {
                format!("{} {} {}", state.display(), config.display(), anchors.display())
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn places_are_those_of_the_specification() {
        assert_eq!(
            of(Some("/h"), &[]),
            "/h/.local/state/bowline /h/.config/bowline /h/.local/share/bowline/anchors"
        );
        assert_eq!(
            of(Some("/h"), &[("XDG_STATE_HOME", "/s"), ("XDG_CONFIG_HOME", "relative")]),
            "/s/bowline /h/.config/bowline /h/.local/share/bowline/anchors"
        );
        for none in [None, Some("relative"), Some("")] {
            assert_eq!(of(none, &[]), "set HOME or XDG_STATE_HOME to an absolute path");
        }
    }
}
