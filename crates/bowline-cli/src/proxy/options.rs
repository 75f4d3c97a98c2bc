//! The command-line options of the proxy.

use std::path::Path;

use bowline_policy::policy::Preset;
use bowline_workspace::terminals::SupervisorProgram;
use clap::Args;

use super::engine::{LocalEngineOptions, log_to_stderr};
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::environment::quirk_mode;
use bowline_client::error::CliError;

/// What is done beside passing messages on.
#[derive(Args, Debug)]
pub(super) struct EngineArguments {
    /// Apply your rules, rules from a FILE, or your rules with a PRESET
    ///
    /// The rules apply to the agent's permission requests, before the editor sees them, and to its operations through
    /// the editor. `deny` refuses, `allow` passes, and the editor asks you about the rest. Requests that the rules
    /// cannot evaluate are refused. FILE replaces your rules. PRESET (ask, accept-edits, read-only, full, deny)
    /// applies where none of your rules matches. Without a value, only your own policy applies.
    #[arg(long, value_name = "FILE|PRESET", num_args = 0..=1, default_missing_value = "")]
    policy: Option<String>,
    /// Serve files and terminals to the agent where the editor does not
    ///
    /// Your rules apply, and changes are journaled and can be undone. The editor asks you about operations that the
    /// rules leave open. If the editor has no files at all, the file extension `_bowline/fs/…` is served, too.
    #[arg(long)]
    host: bool,
    /// Send the agent's changes on disk through the editor for review
    ///
    /// The file is restored to its earlier content, and the editor writes the change, merged with unsaved text. If
    /// the editor does not write it, the agent's version is put back.
    #[arg(long, conflicts_with = "no_observe")]
    route_writes: bool,
    /// Do not look for changes that the agent makes on disk
    #[arg(long)]
    no_observe: bool,
    /// The remote user for whom the agent works, named in the audit log; `bowline serve` sets it
    #[arg(long, value_name = "NAME", hide = true)]
    principal: Option<String>,
}

impl EngineArguments {
    /// Returns the options of the interceptor.
    pub(super) fn engine_options(&self) -> bowline_proxy::EngineInterceptorOptions {
        bowline_proxy::EngineInterceptorOptions {
            enforce_policy: self.policy.is_some(),
            serve_as_host: self.host,
            route_writes: self.route_writes,
            quirks: quirk_mode(),
        }
    }

    /// Returns the options of the engine.
    pub(super) fn local_engine_options(
        &self,
        cwd: &Path,
        supervisor: SupervisorProgram,
    ) -> Result<LocalEngineOptions, CliError> {
        // Without the user's directories, messages are forwarded all the same.
        let user_dirs = UserDirs::from_env().ok();
        let policy = self.policy.as_deref().filter(|policy| !policy.is_empty());
        let preset: Option<Preset> = policy.and_then(|policy| policy.parse().ok());
        let file = policy.filter(|_| preset.is_none()).map(|file| {
            cwd.join(file).canonicalize().map_err(|error| {
                CliError::Usage(format!(
                    "--policy {file}: {error}: name a file of rules, or one of ask, accept-edits, read-only, full and deny"
                ))
            })
        });
        let file = file.transpose()?;
        let config = user_dirs.as_ref().map(|user_dirs| Config::read(&user_dirs.config));
        let foreign_files = config.map(|config| config.map(|config| config.ignore_changes));
        // Messages are forwarded even if the configuration is invalid.
        let foreign_files = foreign_files.transpose().unwrap_or_else(|error| {
            log_to_stderr(&format!("{error}: only the built-in patterns of ignore-changes are used"));
            None
        });
        let foreign_files = foreign_files.unwrap_or_default();
        let paths =
            user_dirs.map(|user_dirs| user_dirs.for_host(file.unwrap_or_else(|| user_dirs.policy_file())));
        Ok(LocalEngineOptions {
            places: paths,
            preset,
            supervisor,
            is_observing: !self.no_observe,
            foreign_files,
            principal: self.principal.clone(),
        })
    }
}
