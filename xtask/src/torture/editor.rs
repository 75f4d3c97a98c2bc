//! The editor in front of `bowline proxy`: it has every file open and unmodified, prompts the agent turn after turn, and
//! writes what it is asked to, unless that would remove a line that its user saved.

use super::record::Recorder;
use super::style::is_user_line;
use super::wire::Wire;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};

/// What an editor needs to know.
#[derive(Debug, Clone)]
pub(super) struct EditorPlan {
    pub(super) project: PathBuf,
    /// Locked during each write, and by the saving programs: the editor and they are one person's.
    pub(super) lock: PathBuf,
    pub(super) record: PathBuf,
    pub(super) stop: PathBuf,
    /// After so many turns the editor leaves.
    pub(super) turns: usize,
}

/// Works with a proxy until the turns are over, the round is, or the proxy is gone.
pub(super) fn run(plan: &EditorPlan, stdin: ChildStdin, stdout: ChildStdout) -> io::Result<()> {
    let record = Recorder::open(&plan.record)?;
    let mut editor = Editor { plan, wire: Wire::new(BufReader::new(stdout), stdin), record };
    let files = json!({ "readTextFile": true, "writeTextFile": true });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": { "fs": files } });
    editor.wire.call("initialize", &hello)?;
    let session = editor.wire.call("session/new", &json!({ "cwd": plan.project, "mcpServers": [] }))?;
    let session = session["result"]["sessionId"].clone();
    for _ in 0..plan.turns {
        if plan.stop.exists() {
            break;
        }
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
        let id = editor.wire.request("session/prompt", &prompt)?;
        if !editor.serve_turn(id)? {
            break;
        }
    }
    Ok(())
}

struct Editor<'p> {
    plan: &'p EditorPlan,
    wire: Wire<BufReader<ChildStdout>, ChildStdin>,
    record: Recorder,
}

impl Editor<'_> {
    /// Serves files until a turn is answered; says whether the proxy is still there.
    fn serve_turn(&mut self, id: u64) -> io::Result<bool> {
        while let Some(message) = self.wire.receive()? {
            match message["method"].as_str() {
                Some("fs/read_text_file") => self.serve_read(&message)?,
                Some("fs/write_text_file") => self.serve_write(&message)?,
                Some(_) if message.get("id").is_some() => {
                    self.wire.refuse(&message, -32601, "no such method")?;
                }
                None if message["id"] == id => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    fn serve_read(&mut self, request: &Value) -> io::Result<()> {
        let path = request["params"]["path"].as_str().unwrap_or_default();
        match fs::read_to_string(path) {
            Ok(text) => self.wire.answer(request, &json!({ "content": text })),
            Err(_) => self.wire.refuse(request, -32002, "Resource not found"),
        }
    }

    fn serve_write(&mut self, request: &Value) -> io::Result<()> {
        let path = PathBuf::from(request["params"]["path"].as_str().unwrap_or_default());
        let text = request["params"]["content"].as_str().unwrap_or_default();
        let lock = File::create(&self.plan.lock)?;
        lock.lock()?;
        let found = fs::read_to_string(&path).unwrap_or_default();
        let removed = removed_user_line(&found, text);
        if removed.is_none() {
            fs::write(&path, text)?;
        }
        drop(lock);
        let style = style_name(&path);
        match removed {
            None => {
                self.record.record(&style, "the editor wrote what it was asked to")?;
                self.wire.answer(request, &json!({}))
            }
            Some(line) => {
                self.record.record(&style, &format!("the editor refused to remove {line}"))?;
                self.wire.refuse(request, -32000, "the file was changed by its user since")
            }
        }
    }
}

/// Returns a line of the user that is in the one text and not in the other.
fn removed_user_line<'t>(found: &'t str, text: &str) -> Option<&'t str> {
    let kept: std::collections::HashSet<&str> = text.lines().collect();
    found.lines().find(|line| is_user_line(line) && !kept.contains(line))
}

fn style_name(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
