//! What a proxy does beside passing messages on, as the command line says.

use std::path::Path;

use bowline_state::policy::Preset;
use bowline_workspace::terminals::Supervisor;
use clap::Args;

use super::engine::{Plan, say};
use crate::client::config::Config;
use crate::ending::Ending;
use crate::places::Places;
use crate::quirks::quirk_mode;

/// What is done beside passing messages on.
#[derive(Args, Debug)]
pub(super) struct BesideArguments {
    /// Applies rules to what the agent asks permission for before the editor is asked, and to what it does through the
    /// editor: deny is refused, allow passes, and of the rest you are asked in the editor; what rules cannot be applied
    /// to is refused. FILE has rules in place of
    /// yours; PRESET (ask, accept-edits, read-only, full, deny) holds where none of yours does; with neither, yours alone
    #[arg(long, value_name = "FILE|PRESET", num_args = 0..=1, default_missing_value = "")]
    policy: Option<String>,
    /// Serves files and terminals to the agent where the editor does not, under your rules, with journal and undo. What
    /// rules leave open you are asked in the editor
    #[arg(long)]
    host: bool,
    /// Sends what the agent changes on disk through the editor, so that its review works: the file is put back to what it
    /// was, and the editor writes it, merged with what is not saved. If it does not, the agent's version comes back
    #[arg(long, conflicts_with = "no_observe")]
    route_writes: bool,
    /// Does not look for what the agent changes on disk
    #[arg(long)]
    no_observe: bool,
}

impl BesideArguments {
    /// Returns what is done to messages.
    pub(super) fn doing(&self) -> bowline_proxy::Options {
        bowline_proxy::Options {
            rules: self.policy.is_some(),
            host: self.host,
            route: self.route_writes,
            quirks: quirk_mode(),
        }
    }

    /// Returns how the engine works.
    pub(super) fn plan(&self, here: &Path, supervisor: Supervisor) -> Result<Plan, Ending> {
        // Without them messages pass all the same.
        let own = Places::of_user().ok();
        let given = self.policy.as_deref().filter(|given| !given.is_empty());
        let preset: Option<Preset> = given.and_then(|given| given.parse().ok());
        let file = given.filter(|_| preset.is_none()).map(|file| {
            here.join(file).canonicalize().map_err(|error| {
                Ending::Usage(format!(
                    "--policy {file}: {error}: name a file of rules, or one of ask, accept-edits, read-only, full and deny"
                ))
            })
        });
        let file = file.transpose()?;
        let config = own.as_ref().map(|own| Config::read(&own.config));
        let foreign_files = config.map(|config| config.map(|config| config.ignore_changes));
        // Messages pass whatever the configuration says.
        let foreign_files = foreign_files.transpose().unwrap_or_else(|error| {
            say(&format!("{error}: only the built-in patterns of ignore-changes are used"));
            None
        });
        let foreign_files = foreign_files.unwrap_or_default();
        let places = own.map(|own| own.for_host(file.unwrap_or_else(|| own.policy())));
        Ok(Plan { places, preset, supervisor, observe: !self.no_observe, foreign_files })
    }
}
