//! What our own agents and clients share of the contract in `tests/peers/README.md`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use agent_client_protocol_schema::v1::{ContentBlock, PermissionOptionKind, SessionUpdate, StopReason};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many texts of chunks a step's line holds.
const KEPT_CHUNKS: usize = 50;

/// The line that a file under `/bench` repeats.
const LINE: &str = "        if let Some(value) = map.get(\"key\") { out.push(value); }\n";

/// What a prompt asks an agent to do.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Task {
    /// `count` reads of `path`, `inflight` of them at any time.
    Read {
        /// The file to read.
        path: String,
        /// How often.
        count: usize,
        /// How many at any time.
        inflight: usize,
    },
    /// `count` chunks of `size` bytes.
    Stream {
        /// How many chunks.
        count: usize,
        /// The bytes of each.
        size: usize,
    },
    /// Every method of the client once.
    Flow {
        /// The file to read.
        path: String,
        /// The file to write.
        new_path: String,
    },
    /// Nothing, until the turn is cancelled.
    Wait,
}

impl Task {
    /// Returns the task in a prompt's first text, `None` if that text is to be echoed.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// One step of a client's plan.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// What is sent, as JSON text in one text block.
    pub prompt: Value,
    /// Whether the turn is cancelled once its first chunk came.
    #[serde(default)]
    pub cancel_on_first_chunk: bool,
}

/// A client's command line.
#[derive(Debug)]
pub struct ClientArguments {
    /// The kind of the option that answers a permission request.
    pub approve: PermissionOptionKind,
    /// The steps to take.
    pub plan: Vec<Step>,
    /// The agent's program and arguments.
    pub agent: Vec<String>,
}

impl ClientArguments {
    /// Reads `--approve allow|reject --plan JSON -- AGENT ARG…`.
    pub fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let (mut approve, mut plan) = (PermissionOptionKind::AllowOnce, None);
        while let Some(name) = given.next() {
            if name == "--" {
                break;
            }
            let value = given.next().with_context(|| format!("{name} needs a value"))?;
            match (name.as_str(), value.as_str()) {
                ("--approve", "allow") => approve = PermissionOptionKind::AllowOnce,
                ("--approve", "reject") => approve = PermissionOptionKind::RejectOnce,
                ("--plan", json) => plan = Some(serde_json::from_str(json).context("cannot read the plan")?),
                _ => bail!("unknown argument {name} {value}"),
            }
        }
        Ok(Self { approve, plan: plan.context("--plan is missing")?, agent: given.collect() })
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
        *self.kinds.entry(kind(&update)).or_default() += 1;
        if self.chunks.len() < KEPT_CHUNKS
            && let SessionUpdate::AgentMessageChunk(chunk) = update
            && let ContentBlock::Text(text) = chunk.content
        {
            self.chunks.push(text.text);
        }
    }

    /// Whether no chunk has come yet.
    pub fn has_no_chunk(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the JSON line of the step, which ended so after `took`.
    pub fn line(&self, stop: StopReason, took: Duration) -> Result<String> {
        #[derive(Serialize)]
        struct Line<'a> {
            stop: StopReason,
            seconds: f64,
            #[serde(flatten)]
            log: &'a StepLog,
        }
        Ok(serde_json::to_string(&Line { stop, seconds: took.as_secs_f64(), log: self })?)
    }
}

/// The texts under `/bench` by their length, made once and kept.
#[derive(Debug, Default)]
pub struct BenchTexts {
    made: HashMap<usize, String>,
}

impl BenchTexts {
    /// Returns the text of `/bench/N`, `None` for any other path.
    pub fn get(&mut self, path: &Path) -> Option<&str> {
        let bytes = path.to_str()?.strip_prefix("/bench/")?.parse().ok()?;
        let text = self.made.entry(bytes).or_insert_with(|| {
            let mut text = LINE.repeat(usize::div_ceil(bytes, LINE.len()));
            text.truncate(bytes);
            text
        });
        Some(text)
    }
}

/// Returns the wire name of an update's kind.
fn kind(update: &SessionUpdate) -> &'static str {
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
        // The enum is open; a kind that no peer of these tests sends is counted under one name.
        _ => "other",
    }
}
