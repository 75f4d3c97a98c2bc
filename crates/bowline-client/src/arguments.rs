//! The options of `run` and `chat`.

pub mod options;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// How a workspace is served to an agent.
#[derive(Args, Debug, Clone)]
pub struct ClientArguments {
    /// The agent's command line, or its name in `config.toml` (default: Bowline's own)
    ///
    /// The command line is split as a shell would split it, but runs without a shell. A name refers to
    /// `[agents.NAME]` in `config.toml`, which has a `command` and optionally `args` and `env`. Bowline's own agent
    /// runs in a separate process.
    #[arg(long, value_name = "COMMAND")]
    pub agent: Option<String>,
    // A documentation comment would become the help text of the whole command.
    #[allow(missing_docs, reason = "the type is documented")]
    #[command(flatten)]
    pub remote: RemoteArguments,
    /// The workspace directory (default: the current directory)
    #[arg(long, value_name = "DIRECTORY")]
    pub cwd: Option<PathBuf>,
    /// Let the agent use another directory; append `:ro` to make it read-only
    ///
    /// Can be repeated.
    #[arg(long, value_name = "DIRECTORY[:ro]")]
    pub add_dir: Vec<String>,
    /// Treat a file as open in the editor
    ///
    /// With `=TEXTFILE`, the content of TEXTFILE is the unsaved text that the editor shows. Can be repeated.
    #[arg(long, value_name = "FILE[=TEXTFILE]")]
    pub open: Vec<String>,
    /// The model to use, by the agent's name for it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The URL of the model server, for Bowline's own agent
    ///
    /// For example, http://127.0.0.1:8080/v1 for a server with an OpenAI-compatible API. Requires --model.
    #[arg(long, value_name = "URL", requires = "model")]
    pub base_url: Option<String>,
    /// The model's context window in tokens, for Bowline's own agent
    ///
    /// Needed only if the size is unknown. By default, the server is asked for models named `ollama/NAME` or
    /// `compatible/NAME`. Requires --model.
    #[arg(long, value_name = "TOKENS", requires = "model")]
    pub window: Option<u64>,
    /// The session mode to use, by the agent's name for it
    ///
    /// Bowline's own agent has `read-only`, `ask`, `accept-edits` and `full`, which correspond to --approve `reads`,
    /// `ask`, `edits` and `all`.
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// What to allow without asking (default: your preset)
    ///
    /// Your rules still apply. This option replaces your preset unless that is `read-only` or `deny`.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub approve: Option<ApprovalLevel>,
    /// Use the rules in FILE instead of your own
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Do not offer files to the agent
    ///
    /// The agent then needs its own file access, which Bowline cannot control.
    #[arg(long)]
    pub no_fs: bool,
    /// Do not offer terminals to the agent
    #[arg(long)]
    pub no_terminal: bool,
    /// Offer only reading, and deny every change
    ///
    /// Writing and commands are not offered. Any operation that changes something is denied, even if a rule or
    /// another option allows it.
    #[arg(long)]
    pub read_only: bool,
    /// Sandbox the commands run for the agent: no network, no writes elsewhere
    ///
    /// The kernel lets these commands write only in the workspace's directories, and blocks the network. Fails if the
    /// kernel does not support this (Linux before 6.2). The commands can still read everything you can, and change
    /// the modes, owners and times of your files elsewhere (chmod, chown, touch). Commands that an agent runs by
    /// itself are not confined.
    #[arg(long)]
    pub confine: bool,
    /// Give the agent an MCP server: a command line, or a URL for HTTP
    ///
    /// Can be repeated.
    #[arg(long, value_name = "NAME=COMMAND|URL")]
    pub mcp: Vec<String>,
    /// Continue a session: its id, or `last` for this agent's last one here
    #[arg(long, value_name = "ID|last")]
    pub session: Option<String>,
    /// The login method, if the agent requires one before it opens a session
    ///
    /// METHOD is the id of a method that the agent offers; `bowline doctor` lists them. At a terminal, you are asked.
    #[arg(long, value_name = "METHOD")]
    pub auth: Option<String>,
    /// Stop after this many seconds, such as 600 or 0.5 (default: no limit)
    ///
    /// `bowline run` counts from its start, `bowline chat` for each turn.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Record all messages to and from the agent in a file, for `bowline trace`
    ///
    /// Each line is a JSON object with one message as sent and its time. The file must be outside the workspace. An
    /// older trace is overwritten; any other existing file is not.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// The server of an agent that runs elsewhere, instead of an agent that is started here.
#[derive(Args, Debug, Clone, Default)]
pub struct RemoteArguments {
    /// Connect to an agent on a server instead of starting one
    ///
    /// The URL begins with http://, https://, ws:// or wss://; without a path, `/acp` is added. A token that the server
    /// requires comes from --token-file, else from the environment variable BOWLINE_TOKEN.
    #[arg(long, value_name = "URL", conflicts_with_all = ["agent", "base_url", "window"])]
    pub connect: Option<String>,
    /// The file with the server's token, readable by you only
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub token_file: Option<PathBuf>,
    /// Send the token to another machine without encryption
    #[arg(long, requires = "connect")]
    pub insecure: bool,
}

/// Parses a duration in seconds.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    // A duration that overflows is no limit.
    let time = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| "write a number of seconds that leaves some time, such as 600 or 0.5".to_owned())
}

/// What is allowed without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalLevel {
    /// Everything, but ask about secrets and variables that run code
    All,
    /// Reading and changing files of the workspace; ask about commands
    Edits,
    /// Reading; deny everything else
    Reads,
    /// Reading; ask about everything else
    Ask,
    /// Nothing
    None,
}
