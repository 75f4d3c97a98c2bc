//! `bowline doctor`: what works, what does not, and what to do about it.

mod agent;
mod machine;
mod models;
mod own;
mod peers;
mod process;
mod report;
mod serving;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::agent::signalled;
use crate::ending::Ending;
use crate::places::Places;
use crate::records::showing::print;
use report::{Report, Style};

/// What is asked for.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct DoctorArguments {
    /// The directory of the workspace, if it is not the current one
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// Shows all that was looked at, not only what it comes to
    #[arg(long)]
    all: bool,
    /// Writes one JSON document for programs, with all of it
    #[arg(long)]
    json: bool,
    /// Also asks over the network whether the servers of models are there. No key is sent
    #[arg(long)]
    online: bool,
    /// How many seconds an agent may take for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// An agent to be started and looked at: how it starts, what it can do, whether a session opens. It is ended again,
    /// with all that it started
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const AFTER: &str = "\
It also looks for the editors and agents on this machine, and says what to do next.

Lines begin with ✓ where all is well, with ! where something is missing that you may want, and with ✗ where something is
broken. The agent of -- COMMAND is started as `bowline run --agent` starts it: under a supervisor, which ends all of it.

Exit status: 0 if nothing is broken, 1 if something is, 2 for wrong usage, 130 if it was interrupted.

Examples:
  bowline doctor
  bowline doctor --all
  bowline doctor --json | jq .sections
  bowline doctor -- gemini --acp
  bowline doctor -- bowline agent --shell";

/// Looks at everything, and tells.
pub(crate) async fn run(arguments: DoctorArguments) -> Result<(), Ending> {
    let cwd = match &arguments.cwd {
        Some(cwd) => {
            std::path::absolute(cwd).context("the current directory is gone: name another with --cwd")?
        }
        None => std::env::current_dir().context("the current directory is gone: name another with --cwd")?,
    };
    let mut report = Report::default();
    let places = Places::of_user();
    report.add(own::versions());
    report.add(own::directories(&places, &cwd));
    if let Ok(places) = &places {
        let (section, config) = own::configuration(places);
        report.add(own::rules(places, &cwd));
        report.add(own::workspace(places, &cwd));
        let model = config.and_then(|config| config.model);
        report.add(models::look(places, model.as_deref(), arguments.online).await);
        report.add(section);
    }
    let peers = peers::look(|name| std::env::var_os(name), std::env::var_os("PATH").as_ref(), &cwd);
    report.add(peers.editors());
    report.add(peers.agents());
    report.add(machine::look());
    let is_short = !arguments.all && !arguments.json && arguments.command.is_empty();
    if !is_short {
        report.add(serving::look());
    }
    if !arguments.command.is_empty() {
        let patience = Duration::from_secs(arguments.timeout);
        // Who gives up takes the agent along.
        report.add(tokio::select! {
            looked = agent::look(&arguments.command, &cwd, patience) => looked,
            _ = signalled() => return Err(Ending::Interrupted),
        });
    } else if !is_short {
        report.add(serving::questions());
    }
    let out = std::io::stdout();
    let text = if arguments.json {
        report.json()
    } else {
        let is_coloured =
            out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let style = if is_coloured { Style::Coloured } else { Style::Plain };
        // First comes what is broken, which says how to repair it.
        let next = if report.broken() == 0 { peers.next() } else { Vec::new() };
        if is_short { report.short(style, &next) } else { report.text(style) }
    };
    print(&text)?;
    match report.broken() {
        0 => Ok(()),
        1 => Err(anyhow!("one thing is broken: see ✗ above").into()),
        many => Err(anyhow!("{many} things are broken: see ✗ above").into()),
    }
}
