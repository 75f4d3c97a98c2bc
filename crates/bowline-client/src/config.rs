//! The user's `config.toml`: agents by name, and defaults for the command line.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use bowline_history::foreign_files::ForeignFiles;
use bowline_text::display::quote;
use serde::Deserialize;

use super::arguments::{ApprovalLevel, ClientArguments};
use crate::error::CliError;

/// The maximum size of the configuration, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The user's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its path, whether or not it exists.
    #[serde(skip)]
    pub path: PathBuf,
    /// The default agent of `run` and `chat`.
    pub agent: Option<String>,
    /// The model of Bowline's own agent.
    pub model: Option<String>,
    /// What `run` and `chat` allow without asking.
    pub approve: Option<ApprovalLevel>,
    /// Files whose changes on disk are attributed to other programs, in addition to the built-in ones.
    #[serde(default, rename = "ignore-changes")]
    pub ignore_changes: ForeignFiles,
    /// Agents by name.
    #[serde(default)]
    pub agents: BTreeMap<String, ConfiguredAgent>,
}

/// An agent in the user's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with command, and args and env if it needs them")]
pub struct ConfiguredAgent {
    /// Its command line.
    pub command: String,
    /// Additional arguments, taken verbatim.
    #[serde(default)]
    pub args: Vec<String>,
    /// Additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl Config {
    /// Reads the configuration in a directory; it need not exist.
    ///
    /// # Errors
    /// Reports where it is invalid.
    pub fn read(directory: &Path) -> Result<Self, CliError> {
        let path = directory.join("config.toml");
        let shown = quote(&path.display().to_string());
        let read_error = |error: std::io::Error| CliError::Failed(anyhow!("cannot read {shown}: {error}"));
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self { path, ..Self::default() }),
            Err(error) => return Err(read_error(error)),
        };
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(read_error)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(CliError::Failed(anyhow!("{shown} has more than {MAX_BYTES} bytes")));
        }
        let config: Self = toml_edit::de::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line_suffix = if line > 0 { format!(":{line}") } else { String::new() };
            CliError::Usage(format!("{shown}{line_suffix}: {}", error.message().trim()))
        })?;
        Ok(Self { path, ..config })
    }

    /// Returns its path for messages.
    pub fn display_path(&self) -> String {
        quote(&self.path.display().to_string())
    }

    /// Fills in the arguments that were not given. The model is not among them: Bowline's agent reads it itself, and
    /// other agents have their own models.
    pub fn fill_arguments(&self, mut arguments: ClientArguments) -> ClientArguments {
        if arguments.remote.connect.is_none() {
            arguments.agent = arguments.agent.or_else(|| self.agent.clone());
        }
        // Each of these options already sets what is allowed.
        if arguments.mode.is_none() && !arguments.read_only {
            arguments.approve = arguments.approve.or(self.approve);
        }
        arguments
    }

    /// Describes the defaults that it sets, in one line.
    pub fn describe_defaults(&self) -> Option<String> {
        use clap::ValueEnum as _;
        let approve = self.approve.and_then(|approve| approve.to_possible_value());
        let approve = approve.map(|value| value.get_name().to_owned());
        let defaults = [("agent", self.agent.clone()), ("model", self.model.clone()), ("approve", approve)];
        let set = defaults.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", quote(&value?))));
        let set: Vec<String> = set.collect();
        (!set.is_empty()).then(|| set.join(", "))
    }
}
