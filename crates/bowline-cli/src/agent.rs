//! `bowline agent`: the agent, as editors start it.

mod log;
mod login;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bowline_agent::agent::BowlineAgent;
use bowline_agent::agent_options::{self, AgentOptions, PostgresUrl, ToolSet};
use bowline_agent::model::ModelInfo;
use bowline_agent::model::catalogue::{CatalogueOptions, ModelCatalogue};
use bowline_agent::model::keys::Keyring;
use bowline_agent::model::provider::Provider;
use bowline_policy::mode::AgentMode;
use bowline_wire::run_agent;
use bowline_workspace::terminals;
use clap::{Args, Parser, ValueEnum};
use tokio::time::timeout;

use crate::signals::wait_for_signal;
use bowline_client::common::console::note_waiting_for;
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;
use bowline_client::environment::quirk_mode;
use bowline_client::launch::own_supervisor;

/// The time limit for ending all sessions after a signal or after the client disconnects.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The variable with the address of the database of stored sessions, which `bowline serve` sets. It may hold a password:
/// commands and MCP servers do not get it.
pub(crate) const SESSION_STORE_VARIABLE: &str = "BOWLINE_SESSION_STORE";

/// How the agent works.
#[derive(Args, Debug)]
pub(crate) struct AgentArguments {
    /// The model, such as `anthropic/NAME` (default: first with a key, else `offline`)
    ///
    /// One of `offline` (needs no API key), `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, or
    /// `compatible/NAME` with --base-url.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The URL of the model server
    ///
    /// For example, http://127.0.0.1:8080/v1 for a server with an OpenAI-compatible API.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model's context window in tokens
    ///
    /// Needed only if the size is unknown. By default, the server is asked for models named `ollama/NAME` or
    /// `compatible/NAME`.
    #[arg(long, value_name = "TOKENS")]
    window: Option<u64>,
    /// What the agent does without asking
    #[arg(long, value_enum, default_value_t = ModeArgument::Ask)]
    mode: ModeArgument,
    /// The most permissive mode that can be chosen
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeArgument::Full)]
    mode_at_most: ModeArgument,
    /// The tools that the model is offered
    #[arg(long, value_enum, default_value_t = ToolsArgument::Transparent)]
    tools: ToolsArgument,
    /// Let the model run commands; --mode decides whether to ask first
    #[arg(long)]
    shell: bool,
    /// Add the text of a file to the instructions for every model
    ///
    /// Can be repeated.
    #[arg(long, value_name = "FILE")]
    instruction: Vec<PathBuf>,
    /// The time limit for a command in seconds, unless the model sets its own
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    command_timeout: u64,
    /// Log turns, failures and how each session is served to a file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Accept relative session directories, for clients that send `.`
    ///
    /// They are resolved against the agent's own directory.
    #[arg(long)]
    allow_relative_cwd: bool,
    /// Record the model's replies in a file, for `--model replay:FILE`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Use the rules in FILE instead of your own
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Ask for a provider's API key, store it readable by you only, and exit
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, default_missing_value = "")]
    login: Option<String>,
    /// The remote user for whom the agent works, named in the audit log; `bowline serve` sets it
    #[arg(long, value_name = "NAME", hide = true)]
    principal: Option<String>,
}

impl AgentArguments {
    /// Returns what applies without any option.
    pub(crate) fn usual() -> Self {
        #[derive(Parser)]
        struct NoOptions {
            #[command(flatten)]
            arguments: AgentArguments,
        }
        NoOptions::parse_from(["bowline"]).arguments
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArgument {
    /// Change nothing and run nothing
    ReadOnly,
    /// Ask before every change and every command
    Ask,
    /// Edit files of the project without asking
    AcceptEdits,
    /// Edit files and run commands; still ask about secrets and files that run code
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ToolsArgument {
    /// One set, served by the editor if it can, otherwise by this machine
    Transparent,
    /// Two sets: `ide_…` for the user's machine, plain names for the agent's own
    Dual,
}

/// Serves a client on stdin and stdout until it disconnects.
pub(crate) async fn run(mut arguments: AgentArguments) -> Result<ExitCode> {
    let dirs = UserDirs::from_env()?;
    let keys = load_keyring(&dirs);
    if let Some(provider) = &arguments.login {
        login::run(&keys, provider)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.model.is_none() {
        let config = Config::read(&dirs.config).map_err(|error| anyhow::anyhow!("{error}"))?;
        arguments.model = config.model;
    }
    note_waiting_for("an editor that speaks ACP");
    let models = ModelCatalogue::new(build_model_options(&arguments, keys.clone())?);
    let agent = BowlineAgent::new(build_agent_options(arguments, &dirs)?, models, keys);
    let serving = run_agent(agent.clone());
    tokio::pin!(serving);
    let code = tokio::select! {
        result = &mut serving => result.context("the connection to the client failed").map(|()| ExitCode::SUCCESS),
        signal = wait_for_signal() => {
            // The client is still connected, so its turns end as cancelled.
            tokio::select! {
                _ = timeout(SHUTDOWN_TIMEOUT, agent.shut_down()) => {}
                _ = &mut serving => {}
            }
            Ok(ExitCode::from(128 + signal))
        }
    };
    // However the client disconnected, its sessions' processes are stopped and their state is saved.
    if timeout(SHUTDOWN_TIMEOUT, agent.shut_down()).await.is_err() {
        anyhow::bail!("sessions did not end in time; what they ran is killed");
    }
    code
}

/// Returns the keys from the environment and the user's key file.
pub(crate) fn load_keyring(dirs: &UserDirs) -> Keyring {
    let keys = Keyring::new(Some(dirs.keys_file()));
    Provider::ALL.into_iter().fold(keys, |keys, provider| match std::env::var(provider.key_variable()) {
        Ok(key) => keys.with_key(provider, &key),
        // The variable is usually unset; one that is not valid Unicode is ignored.
        Err(_) => keys,
    })
}

/// Returns the database of stored sessions, if the environment names one.
fn read_session_database() -> Result<Option<PostgresUrl>> {
    match std::env::var(SESSION_STORE_VARIABLE) {
        Ok(url) if !url.is_empty() => Ok(Some(url.parse().context(SESSION_STORE_VARIABLE)?)),
        // It is not shown, because it may hold a password.
        Err(std::env::VarError::NotUnicode(_)) => anyhow::bail!("{SESSION_STORE_VARIABLE} is not UTF-8"),
        _ => Ok(None),
    }
}

/// Returns the base URLs of providers that the environment sets.
pub(crate) fn base_urls_from_env() -> BTreeMap<Provider, String> {
    Provider::ALL
        .into_iter()
        .filter_map(|provider| Some((provider, std::env::var(provider.url_variable()).ok()?)))
        .collect()
}

fn build_model_options(arguments: &AgentArguments, keys: Keyring) -> Result<CatalogueOptions> {
    let mut settings =
        CatalogueOptions { keys, recording_file: arguments.record.clone(), ..CatalogueOptions::default() };
    settings.base_urls = base_urls_from_env();
    let provider = arguments.model.as_deref().and_then(|model| Provider::from_id(model.split('/').next()?));
    if provider.is_none() && (arguments.base_url.is_some() || arguments.window.is_some()) {
        anyhow::bail!("--base-url and --window are for a model: name it, as with --model compatible/NAME");
    }
    if let (Some(url), Some(provider)) = (&arguments.base_url, provider) {
        settings.base_urls.insert(provider, url.clone());
    }
    // Listed by name, so that the user can switch back to it after choosing another model.
    if let Some(info) =
        arguments.model.as_deref().and_then(|name| ModelCatalogue::new(settings.clone()).info(name))
    {
        settings
            .extra_models
            .push(ModelInfo { context_window: arguments.window.unwrap_or(info.context_window), ..info });
    }
    if let Some(file) = &arguments.record {
        log::open_for_append(file)
            .with_context(|| format!("cannot write the recording {}", file.display()))?;
    }
    Ok(settings)
}

fn build_agent_options(arguments: AgentArguments, dirs: &UserDirs) -> Result<AgentOptions> {
    let environment = std::env::vars_os().filter(|(name, _)| name != SESSION_STORE_VARIABLE);
    let mut terminal_options = terminals::TerminalOptions::with_environment(own_supervisor()?, environment);
    terminal_options.temp_directory = std::env::temp_dir();
    let paths = agent_options::AgentPaths {
        state_dir: dirs.state.clone(),
        policy_file: match &arguments.policy {
            None => dirs.policy_file(),
            Some(file) => {
                file.canonicalize().with_context(|| format!("cannot read the rules {}", file.display()))?
            }
        },
        anchors_dir: dirs.anchors.clone(),
        keys_file: dirs.keys_file(),
    };
    let mut settings = AgentOptions::new(paths, terminal_options);
    settings.quirks = quirk_mode();
    settings.session_database = read_session_database()?;
    settings.principal = arguments.principal;
    settings.tool_set = match arguments.tools {
        ToolsArgument::Transparent => ToolSet::Transparent,
        ToolsArgument::Dual => ToolSet::Dual,
    };
    let mode = |argument| match argument {
        ModeArgument::ReadOnly => AgentMode::ReadOnly,
        ModeArgument::Ask => AgentMode::Ask,
        ModeArgument::AcceptEdits => AgentMode::AcceptEdits,
        ModeArgument::Full => AgentMode::Full,
    };
    settings.widest_mode = mode(arguments.mode_at_most);
    settings.mode = mode(arguments.mode).min(settings.widest_mode);
    settings.is_shell_enabled = arguments.shell;
    settings.model = arguments.model;
    settings.command_timeout = Duration::from_secs(arguments.command_timeout.max(1));
    for file in arguments.instruction {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read the instruction {}", file.display()))?;
        settings.instructions.push((file.display().to_string(), text.into()));
    }
    if arguments.allow_relative_cwd {
        settings.relative_cwd_base = Some(std::env::current_dir().context("the agent has no directory")?);
    }
    if let Some(file) = arguments.log {
        settings.log = log::log_to_file(&file)?;
    }
    Ok(settings)
}
