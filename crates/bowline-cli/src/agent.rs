//! `bowline agent`: the agent, as editors start it.

mod log;
mod login;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bowline_agent::agent::BowlineAgent;
use bowline_agent::keys::Keyring;
use bowline_agent::model::ModelInfo;
use bowline_agent::model::catalogue::{Models, ModelsSettings};
use bowline_agent::model::provider::Provider;
use bowline_agent::settings::{self, Settings, ToolSet};
use bowline_state::mode::Mode;
use bowline_wire::run_agent;
use bowline_workspace::terminals::{self, Supervisor};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::SUPERVISOR;
use crate::client::config::Config;
use crate::places::Places;
use crate::quirks::quirk_mode;
use crate::records::showing::waits;

/// How long ending all sessions may take after a signal, or after the client is gone.
const SHUT_DOWN: Duration = Duration::from_secs(4);

/// How the agent works.
#[derive(Args, Debug)]
pub(crate) struct AgentArguments {
    /// The model: `offline` (needs no key), `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, or
    /// `compatible/NAME` with --base-url. Without it: the first that has a key, else `offline`
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the server of the model is, such as http://127.0.0.1:8080/v1 for one that speaks as OpenAI's does
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// How many tokens the window of the model has, where that is not known; without it a server of `ollama/NAME` or
    /// `compatible/NAME` is asked
    #[arg(long, value_name = "TOKENS")]
    window: Option<u64>,
    /// What is done without asking
    #[arg(long, value_enum, default_value_t = ModeArgument::Ask)]
    mode: ModeArgument,
    /// The widest mode that there is to choose from
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ModeArgument::Full)]
    mode_at_most: ModeArgument,
    /// Which tools the model is offered: one set, or one for the user's machine beside one for the agent's own
    #[arg(long, value_enum, default_value_t = ToolsArgument::Transparent)]
    tools: ToolsArgument,
    /// Lets the model run commands; they are asked about as --mode says
    #[arg(long)]
    shell: bool,
    /// A text file that every model is told; may be given several times
    #[arg(long, value_name = "FILE")]
    instruction: Vec<PathBuf>,
    /// How many seconds a command may take unless the model says otherwise
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    command_timeout: u64,
    /// Writes what happens to a file: who serves each session and why, turns, failures
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Takes a relative directory of a session as one below the agent's own, for clients that send `.`
    #[arg(long)]
    allow_relative_cwd: bool,
    /// Writes the replies of models to a file, which `--model replay:FILE` plays back
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// A file of rules that hold in place of yours
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Asks for the key of a provider in this terminal, stores it for you alone, and ends
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, default_missing_value = "")]
    login: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArgument {
    /// Changes nothing and runs nothing
    ReadOnly,
    /// Asks before every change and every command
    Ask,
    /// Edits files of the project without asking
    AcceptEdits,
    /// Edits and runs commands without asking
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ToolsArgument {
    /// One set, served by the editor where it can and else by this machine
    Transparent,
    /// `ide_…` for the user's machine, the plain ones for the agent's own
    Dual,
}

/// Serves a client on stdin and stdout until it is gone.
pub(crate) async fn run(mut arguments: AgentArguments) -> Result<ExitCode> {
    let places = Places::of_user()?;
    let keys = keyring(&places);
    if let Some(provider) = &arguments.login {
        login::run(&keys, provider)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.model.is_none() {
        let config = Config::read(&places.config).map_err(|error| anyhow::anyhow!("{error}"))?;
        arguments.model = config.model;
    }
    waits("an editor that speaks ACP");
    let models = Models::new(models_settings(&arguments, keys.clone())?);
    let agent = BowlineAgent::new(settings(arguments, &places)?, models, keys);
    let serving = run_agent(agent.clone());
    tokio::pin!(serving);
    let code = tokio::select! {
        served = &mut serving => served.context("the connection to the client failed").map(|()| ExitCode::SUCCESS),
        number = signalled() => {
            // The client is still there: its turns end as cancelled.
            tokio::select! {
                _ = timeout(SHUT_DOWN, agent.shut_down()) => {}
                _ = &mut serving => {}
            }
            Ok(ExitCode::from(128 + number))
        }
    };
    // However the client went, what its sessions run is stopped, and what they are is saved.
    if timeout(SHUT_DOWN, agent.shut_down()).await.is_err() {
        anyhow::bail!("sessions did not end in time; what they ran is killed");
    }
    code
}

/// Returns the keys that the environment and the user's file hold.
pub(crate) fn keyring(places: &Places) -> Keyring {
    let keys = Keyring::new(Some(places.keys()));
    Provider::ALL.into_iter().fold(keys, |keys, provider| match std::env::var(provider.variable()) {
        Ok(key) => keys.with(provider, &key),
        // That there is none, or none that is text, is usual.
        Err(_) => keys,
    })
}

/// Returns where the environment says that providers are.
pub(crate) fn base_urls() -> BTreeMap<Provider, String> {
    Provider::ALL
        .into_iter()
        .filter_map(|provider| Some((provider, std::env::var(provider.url_variable()).ok()?)))
        .collect()
}

fn models_settings(arguments: &AgentArguments, keys: Keyring) -> Result<ModelsSettings> {
    let mut settings = ModelsSettings { keys, record: arguments.record.clone(), ..ModelsSettings::default() };
    settings.base_urls = base_urls();
    let named = arguments.model.as_deref().and_then(|model| Provider::of(model.split('/').next()?));
    if named.is_none() && (arguments.base_url.is_some() || arguments.window.is_some()) {
        anyhow::bail!("--base-url and --window are for a model: name it, as with --model compatible/NAME");
    }
    if let (Some(url), Some(provider)) = (&arguments.base_url, named) {
        settings.base_urls.insert(provider, url.clone());
    }
    // Known by name, so that it can be chosen again once another was.
    if let Some(info) = arguments.model.as_deref().and_then(|name| Models::new(settings.clone()).info(name)) {
        settings.extras.push(ModelInfo { window: arguments.window.unwrap_or(info.window), ..info });
    }
    if let Some(file) = &arguments.record {
        log::open(file).with_context(|| format!("cannot write the recording {}", file.display()))?;
    }
    Ok(settings)
}

fn settings(arguments: AgentArguments, places: &Places) -> Result<Settings> {
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
    let mut inheriting = terminals::Settings::inheriting(supervisor, std::env::vars_os());
    inheriting.temporary = std::env::temp_dir();
    let places = settings::Places {
        state: places.state.clone(),
        policy: match &arguments.policy {
            None => places.policy(),
            Some(file) => {
                file.canonicalize().with_context(|| format!("cannot read the rules {}", file.display()))?
            }
        },
        anchors: places.anchors.clone(),
        keys: places.keys(),
    };
    let mut settings = Settings::new(places, inheriting);
    settings.quirks = quirk_mode();
    settings.tools = match arguments.tools {
        ToolsArgument::Transparent => ToolSet::Transparent,
        ToolsArgument::Dual => ToolSet::Dual,
    };
    let mode = |argument| match argument {
        ModeArgument::ReadOnly => Mode::ReadOnly,
        ModeArgument::Ask => Mode::Ask,
        ModeArgument::AcceptEdits => Mode::AcceptEdits,
        ModeArgument::Full => Mode::Full,
    };
    settings.widest = mode(arguments.mode_at_most);
    settings.mode = mode(arguments.mode).min(settings.widest);
    settings.shell = arguments.shell;
    settings.model = arguments.model;
    settings.command_timeout = Duration::from_secs(arguments.command_timeout.max(1));
    for file in arguments.instruction {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read the instruction {}", file.display()))?;
        settings.instructions.push((file.display().to_string(), text.into()));
    }
    if arguments.allow_relative_cwd {
        settings.relative_to = Some(std::env::current_dir().context("the agent has no directory")?);
    }
    if let Some(file) = arguments.log {
        settings.log = log::to(&file)?;
    }
    Ok(settings)
}

/// Waits for a signal that asks the program to end, and returns its number.
pub(crate) async fn signalled() -> u8 {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            // Where signals cannot be waited for, they end the program by themselves.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::hangup()) => 1,
        () = wait(SignalKind::interrupt()) => 2,
        () = wait(SignalKind::terminate()) => 15,
    }
}
