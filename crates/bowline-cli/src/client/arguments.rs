//! The options of `run` and `chat`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// How a workspace is served to an agent.
#[derive(Args, Debug, Clone)]
pub(crate) struct ClientArguments {
    /// The agent: a command line, split as a shell would but run without one, or a name from `config.toml`
    /// (`[agents.NAME]` with `command`, and `args` and `env` if they are needed). Without it: Bowline's own, in a process of
    /// its own
    #[arg(long, value_name = "COMMAND")]
    pub(crate) agent: Option<String>,
    /// The directory of the workspace, if it is not the current one
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cwd: Option<PathBuf>,
    /// One more directory that the agent may use; with `:ro` at its end only to read. May be given several times
    #[arg(long, value_name = "DIRECTORY[:ro]")]
    pub(crate) add_dir: Vec<String>,
    /// A file that is open in the editor. With `=TEXTFILE` that file's content is what the editor shows and has not saved.
    /// May be given several times
    #[arg(long, value_name = "FILE[=TEXTFILE]")]
    pub(crate) open: Vec<String>,
    /// The model that the agent should use, as the agent names it
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// For Bowline's own agent and a --model: where the server of the model is, such as http://127.0.0.1:8080/v1 for one that
    /// speaks as OpenAI's does
    #[arg(long, value_name = "URL", requires = "model")]
    pub(crate) base_url: Option<String>,
    /// For Bowline's own agent and a --model: how many tokens the window of the model has, where that is not known; without it
    /// a server of `ollama/NAME` or `compatible/NAME` is asked
    #[arg(long, value_name = "TOKENS", requires = "model")]
    pub(crate) window: Option<u64>,
    /// The mode that the agent should work in, as the agent names it; Bowline's own has `read-only`, `ask`, `accept-edits`
    /// and `full`, which are --approve `reads`, `ask`, `edits` and `all` in other words
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
    /// What is allowed without a question, where no rule of yours says otherwise
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) approve: Option<Approve>,
    /// A file of rules that hold in place of yours
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Does not offer files to the agent: it has to find its own way, and what it does then cannot be kept from it
    #[arg(long)]
    pub(crate) no_fs: bool,
    /// Does not offer terminals to the agent
    #[arg(long)]
    pub(crate) no_terminal: bool,
    /// Offers files to read, and neither writing nor commands; denies what changes something, whatever else allows it
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Confines the commands that are run for the agent: the kernel lets them write in the directories of the workspace
    /// alone, and use no network. Fails where it cannot (Linux before 6.2). They can still read
    /// what you can, and change modes, owners and times of your files elsewhere (chmod, chown, touch): that the kernel does
    /// not keep them from. What an agent runs by itself is not confined
    #[arg(long)]
    pub(crate) confine: bool,
    /// An MCP server that the agent should use: a command line, or an URL for one that speaks HTTP. May be given several
    /// times
    #[arg(long, value_name = "NAME=COMMAND|URL")]
    pub(crate) mcp: Vec<String>,
    /// Goes on with a session: its id, or `last` for the one that this agent was in last here
    #[arg(long, value_name = "ID|last")]
    pub(crate) session: Option<String>,
    /// How to log in, if the agent wants that before it opens a session: the id of one of the ways that it offers, which
    /// `bowline doctor` lists. At a terminal you are asked
    #[arg(long, value_name = "METHOD")]
    pub(crate) auth: Option<String>,
    /// Ends a turn that takes longer; a fraction such as 0.5 will do
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Writes every message between here and the agent to a file, as it was sent, with its time: one JSON object a line,
    /// for `bowline trace`. The file lies outside of the workspace; a trace of before is overwritten, and nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Reads a span of time.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    // A time that no clock tells is no limit.
    let time = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| "write a number of seconds that leaves some time, such as 600 or 0.5".to_owned())
}

/// What is allowed without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Approve {
    /// Everything
    All,
    /// Reading, and changing files of the workspace; commands are asked about
    Edits,
    /// Reading; everything else is denied
    Reads,
    /// Reading; everything else is asked about
    Ask,
    /// Nothing
    None,
}
