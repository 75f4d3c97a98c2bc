//! `bowline doctor`: what works, what does not, and what to do about it.

mod agent;
mod capabilities;
mod installation;
mod machine;
mod models;
mod peers;
mod process;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::signals::wait_for_signal;
use bowline_client::common::console::{OutputStyle, print};
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use report::DoctorReport;

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DoctorArguments {
    /// The workspace directory (default: the current directory)
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// Show every check, not only the conclusions
    #[arg(long)]
    all: bool,
    /// Print one JSON document with every check
    #[arg(long)]
    json: bool,
    /// Also check over the network that model servers respond; sends no API key
    #[arg(long)]
    online: bool,
    /// How long an agent may take for each answer, in seconds (1 to 600)
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// An agent to start and check: its startup, its features, a new session
    ///
    /// Afterwards, the agent is stopped with all the processes it started.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const AFTER_HELP: &str = "\
Doctor also looks for editors and agents on this machine, and suggests next steps.

Lines begin with ✓ if all is well, with ! if something useful is missing, and with ✗ if something is \
broken. The agent after -- is started as by `bowline run --agent`, under a supervisor that stops all \
its processes.

Exit status: 0 nothing is broken, 1 something is broken, 2 wrong usage, 130 interrupted.

Examples:
  bowline doctor
  bowline doctor --all
  bowline doctor --json | jq .sections
  bowline doctor -- gemini --acp
  bowline doctor -- bowline agent --shell";

/// Runs all checks, and prints the report.
pub(crate) async fn run(arguments: DoctorArguments) -> Result<(), CliError> {
    let cwd = match &arguments.cwd {
        Some(cwd) => {
            std::path::absolute(cwd).context("the current directory is gone: name another with --cwd")?
        }
        None => std::env::current_dir().context("the current directory is gone: name another with --cwd")?,
    };
    let mut report = DoctorReport::default();
    let dirs = UserDirs::from_env();
    report.add(installation::check_versions());
    report.add(installation::check_directories(&dirs, &cwd));
    if let Ok(dirs) = &dirs {
        let (section, config) = installation::check_configuration(dirs);
        report.add(installation::check_rules(dirs, &cwd));
        report.add(installation::check_workspace(dirs, &cwd));
        let model = config.and_then(|config| config.model);
        report.add(models::check_models(dirs, model.as_deref(), arguments.online).await);
        report.add(section);
    }
    let peers = peers::find_peers(|name| std::env::var_os(name), std::env::var_os("PATH").as_ref(), &cwd);
    report.add(peers.editors_section());
    report.add(peers.agents_section());
    report.add(machine::check_machine());
    let is_short = !arguments.all && !arguments.json && arguments.command.is_empty();
    if !is_short {
        report.add(capabilities::describe_serving());
    }
    if !arguments.command.is_empty() {
        let timeout = Duration::from_secs(arguments.timeout);
        // An interrupt ends the agent, too.
        report.add(tokio::select! {
            section = agent::check_agent(&arguments.command, &cwd, timeout) => section,
            _ = wait_for_signal() => return Err(CliError::Interrupted),
        });
    } else if !is_short {
        report.add(capabilities::troubleshooting());
    }
    let text = if arguments.json {
        report.to_json()
    } else {
        let style = OutputStyle::for_stdout();
        // Broken findings come first, and include their own advice.
        let next = if report.broken_count() == 0 { peers.next_steps() } else { Vec::new() };
        if is_short { report.to_short_text(style, &next) } else { report.to_full_text(style) }
    };
    print(&text)?;
    match report.broken_count() {
        0 => Ok(()),
        1 => Err(anyhow!("one thing is broken: see ✗ above").into()),
        many => Err(anyhow!("{many} things are broken: see ✗ above").into()),
    }
}
