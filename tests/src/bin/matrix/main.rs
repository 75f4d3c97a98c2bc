//! The program behind `cargo xtask matrix`: it runs every installed agent and client through one script, directly and
//! behind the proxy, and writes the results to `docs/compatibility.md`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people: what it prints is its purpose"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use xtask::peers::all_files_exist;

use agents::{MatrixAgent, ToolRoute};
use clients::MatrixClient;
use report::MatrixRow;

mod agents;
mod clients;
mod editor;
mod editors;
mod host;
mod report;
mod script;

const PAGE_HEADER: &str = "\
# Compatibility

`cargo xtask matrix` writes this page. It takes every installed agent and client through one script, with a scripted model and
no network: a file that is open in the editor and not saved is read and edited, a file is created, a command is run, a command
that does not end is cancelled, sessions are listed and loaded by another process, and what still runs afterwards is counted.
An agent is driven by `bowline run`, where it uses its own tools, and by another editor behind `bowline proxy`, where it uses
those that the proxy adds. A client drives `bowline agent`, directly and behind `bowline proxy`. codex-acp
reads and edits by shell commands in `bowline run`: its patch is no function that the scripted model can call.

✓ is right. Behind the proxy, and with a client, the number of questions is how often the user was asked. `bowline run
--approve all` asks no questions; there the number is how often the agent itself asked for permission. 0 does not mean that a write would
pass unseen: what an agent does not ask for, the host asks about when it is done through the host. – names what the peer cannot do or does otherwise. **✗** is
not explained yet. n/a: the peer has nothing of the kind, or the script cannot make it do so.

Some cells need more than their words:

- opencode has the client write its edit and also writes the same text to the disk itself; which is first is chance. For the rest of
  the turn Bowline brings back what the second write removes of unsaved text; both are in the journal.
- gemini names the file of a session by the minute and the session, and opens it anew before it looks for what is to be
  loaded. In the minute in which a session began, `session/load` so removes what the session held.
- fast-agent's request names a tool only by a title, which a command could have as well. The proxy passes it on unless it is
  certain that the call is to its own tool, so the user is asked by fast-agent and by the tool.
- qwen connects to MCP servers after it has answered that a session is open, and hides their tools: its model finds them by
  `tool_search`. `_meta` of a tool does not change that, and what would (`alwaysLoadTools`) is in qwen's own settings only.
- vibe tells its model the name of an MCP server and not its tools: the model finds them by `search_tool_functions`, and calls them in a
  program that it writes. Every tool of every server is offered this way; neither the server nor vibe's settings can change that.
- Toad has no editor, so it has no unsaved text, and it reads a missing file as empty. It declares Python 3.14 and ran on 3.13, with
  annotations that are evaluated late; a script pressed its keys.
- Plugins of Emacs and Neovim come from directories that `BOWLINE_EMACS_PLUGINS` and `BOWLINE_NVIM_PLUGINS` name; the editors of Debian
  12 are too old for them. codecompanion.nvim reads a missing file as empty, and calls `authenticate` wherever an agent offers it.

Faults of peers that Bowline works around are in one table, `crates/pure/bowline-protocol/src/quirks.rs`; `BOWLINE_NO_QUIRKS=1` turns
that off.
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let (root, bowline, date) = (arguments.next(), arguments.next(), arguments.next());
    let root = PathBuf::from(root.context("the first argument is the root of the repository")?);
    let bowline = PathBuf::from(bowline.context("the second argument is the program bowline")?);
    let date = date.context("the third argument is the date")?;
    let only: Vec<String> = arguments.collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);

    let (mut agents, mut missing_agents) = (Vec::new(), Vec::new());
    for agent in MatrixAgent::all().into_iter().filter(|agent| wanted(&agent.name())) {
        if !all_files_exist(&agent.command(&root)) {
            let missing = format!("{} (`cargo xtask peers --all` installs it)", agent.name());
            eprintln!("NOT RUN: {missing}");
            missing_agents.push(missing);
            continue;
        }
        let version = agent.pinned_version();
        agents.push(finish_row(host::run_in_host(&root, &bowline, agent).await, version.clone()));
        agents.push(finish_row(script::run_behind_proxy(&root, &bowline, agent).await, version));
    }
    let (mut clients, mut missing_clients) = (Vec::new(), Vec::new());
    for client in MatrixClient::all().into_iter().filter(|client| wanted(&client.name())) {
        if let Some(reason) = client.missing_reason(&root) {
            let missing = format!("{} ({reason})", client.name());
            eprintln!("NOT RUN: {missing}");
            missing_clients.push(missing);
            continue;
        }
        for way in [ToolRoute::Direct, ToolRoute::Proxy] {
            let row = clients::run_client(&root, &bowline, client, way);
            clients.push(finish_row(row, client.pinned_version()));
        }
    }
    let open: usize = agents.iter().chain(&clients).map(MatrixRow::unexplained_count).sum();
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "{PAGE_HEADER}\nMeasured on {date} with Bowline {version}.\n\n## Agents\n\n{}\n## Clients\n\n{}",
        report::format_table(&agents, "in `bowline run`", &missing_agents),
        report::format_table(&clients, "with `bowline agent`", &missing_clients)
    );
    if only.is_empty() {
        write_page(&root, &text)?;
    }
    println!("{} peers, {open} cells to look at", agents.len().div_ceil(2) + clients.len().div_ceil(2));
    Ok(if open == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn finish_row(mut row: MatrixRow, version: Option<String>) -> MatrixRow {
    row.set_pinned_version(version);
    eprintln!("{}", row.to_line("directly"));
    row
}

fn write_page(root: &Path, text: &str) -> Result<()> {
    let docs = root.join("docs");
    std::fs::create_dir_all(&docs)?;
    std::fs::write(docs.join("compatibility.md"), text).context("cannot write docs/compatibility.md")
}
