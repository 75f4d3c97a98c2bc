//! The parts of the contract in `tests/peers/README.md` that our own agents and clients share.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use agent_client_protocol_schema::v1::{ContentBlock, PermissionOptionKind, SessionUpdate, StopReason};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The maximum number of chunk texts in a step's line.
const MAX_LOGGED_CHUNKS: usize = 50;

/// The line that the files under `/bench` repeat.
const BENCH_LINE: &str = "        if let Some(value) = map.get(\"key\") { out.push(value); }\n";

/// A task for an agent, as a prompt contains it.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PeerTask {
    /// `count` reads of `path`, `inflight` of them concurrently.
    Read {
        /// The file to read.
        path: String,
        /// The number of reads.
        count: usize,
        /// The number of concurrent reads.
        inflight: usize,
    },
    /// `count` chunks of `size` bytes.
    Stream {
        /// The number of chunks.
        count: usize,
        /// The size of each chunk in bytes.
        size: usize,
    },
    /// Every client method once.
    Flow {
        /// The file to read.
        path: String,
        /// The file to write.
        new_path: String,
    },
    /// Nothing, until the turn is cancelled.
    Wait,
}

impl PeerTask {
    /// Returns the task in a prompt's first text, or `None` if the agent should echo that text.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// One step of a client's plan.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanStep {
    /// The prompt, sent as JSON text in one text block.
    pub prompt: Value,
    /// Whether to cancel the turn after its first chunk.
    #[serde(default)]
    pub cancel_on_first_chunk: bool,
}

/// A client's command line.
#[derive(Debug)]
pub struct PeerClientArgs {
    /// The kind of the option that answers a permission request.
    pub approval_kind: PermissionOptionKind,
    /// The steps to run.
    pub plan: Vec<PlanStep>,
    /// The agent's program and arguments.
    pub agent: Vec<String>,
}

impl PeerClientArgs {
    /// Parses `--approve allow|reject --plan JSON -- AGENT ARG…`.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let (mut approval_kind, mut plan) = (PermissionOptionKind::AllowOnce, None);
        while let Some(name) = arguments.next() {
            if name == "--" {
                break;
            }
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match (name.as_str(), value.as_str()) {
                ("--approve", "allow") => approval_kind = PermissionOptionKind::AllowOnce,
                ("--approve", "reject") => approval_kind = PermissionOptionKind::RejectOnce,
                ("--plan", json) => plan = Some(serde_json::from_str(json).context("cannot read the plan")?),
                _ => bail!("unknown argument {name} {value}"),
            }
        }
        Ok(Self { approval_kind, plan: plan.context("--plan is missing")?, agent: arguments.collect() })
    }
}

/// The updates of one step.
#[derive(Debug, Default, Serialize)]
pub struct StepLog {
    updates: u64,
    chunks: Vec<String>,
    kinds: BTreeMap<&'static str, u64>,
}

impl StepLog {
    /// Counts one update.
    pub fn record(&mut self, update: SessionUpdate) {
        self.updates += 1;
        *self.kinds.entry(update_kind(&update)).or_default() += 1;
        if self.chunks.len() < MAX_LOGGED_CHUNKS
            && let SessionUpdate::AgentMessageChunk(chunk) = update
            && let ContentBlock::Text(text) = chunk.content
        {
            self.chunks.push(text.text);
        }
    }

    /// Returns whether no chunk has arrived yet.
    pub fn has_no_chunk(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the JSON line of the step, with its stop reason and duration.
    pub fn to_json_line(&self, stop: StopReason, took: Duration) -> Result<String> {
        #[derive(Serialize)]
        struct StepLogLine<'a> {
            stop: StopReason,
            seconds: f64,
            #[serde(flatten)]
            log: &'a StepLog,
        }
        Ok(serde_json::to_string(&StepLogLine { stop, seconds: took.as_secs_f64(), log: self })?)
    }
}

/// The texts under `/bench` by length, generated once and cached.
#[derive(Debug, Default)]
pub struct BenchTexts {
    texts: HashMap<usize, String>,
}

impl BenchTexts {
    /// Returns the text of `/bench/N`, or `None` for any other path.
    pub fn get(&mut self, path: &Path) -> Option<&str> {
        let bytes = path.to_str()?.strip_prefix("/bench/")?.parse().ok()?;
        let text = self.texts.entry(bytes).or_insert_with(|| {
            let mut text = BENCH_LINE.repeat(usize::div_ceil(bytes, BENCH_LINE.len()));
            text.truncate(bytes);
            text
        });
        Some(text)
    }
}

/// Returns the wire name of an update's kind.
fn update_kind(update: &SessionUpdate) -> &'static str {
    match update {
        SessionUpdate::UserMessageChunk(_) => "user_message_chunk",
        SessionUpdate::AgentMessageChunk(_) => "agent_message_chunk",
        SessionUpdate::AgentThoughtChunk(_) => "agent_thought_chunk",
        SessionUpdate::ToolCall(_) => "tool_call",
        SessionUpdate::ToolCallUpdate(_) => "tool_call_update",
        SessionUpdate::Plan(_) => "plan",
        SessionUpdate::AvailableCommandsUpdate(_) => "available_commands_update",
        SessionUpdate::CurrentModeUpdate(_) => "current_mode_update",
        SessionUpdate::ConfigOptionUpdate(_) => "config_option_update",
        SessionUpdate::SessionInfoUpdate(_) => "session_info_update",
        SessionUpdate::UsageUpdate(_) => "usage_update",
        // The enum is non-exhaustive; kinds that no peer in these tests sends share one name.
        _ => "other",
    }
}
