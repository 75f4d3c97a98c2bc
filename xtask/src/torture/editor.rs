//! The editor in front of `bowline proxy`, with every file open and unmodified.
//!
//! It prompts the agent turn after turn, and performs the requested writes, unless one would remove a line that its
//! user saved.

use super::record::EventRecorder;
use super::style::is_user_line;
use super::wire::JsonRpcConnection;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};

/// The options of an editor.
#[derive(Debug, Clone)]
pub(super) struct TortureEditorOptions {
    pub(super) project: PathBuf,
    /// The file that the editor and the saving programs lock for each write, since both belong to the same user.
    pub(super) lock: PathBuf,
    pub(super) record: PathBuf,
    pub(super) stop: PathBuf,
    /// The number of turns after which the editor quits.
    pub(super) turns: usize,
}

/// Works with a proxy until the turns or the round are over, or the proxy disconnects.
pub(super) fn run(plan: &TortureEditorOptions, stdin: ChildStdin, stdout: ChildStdout) -> io::Result<()> {
    let record = EventRecorder::open(&plan.record)?;
    let mut editor = TortureEditor {
        options: plan,
        connection: JsonRpcConnection::new(BufReader::new(stdout), stdin),
        record,
    };
    let files = json!({ "readTextFile": true, "writeTextFile": true });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": { "fs": files } });
    editor.connection.call("initialize", &hello)?;
    let session = editor.connection.call("session/new", &json!({ "cwd": plan.project, "mcpServers": [] }))?;
    let session = session["result"]["sessionId"].clone();
    for _ in 0..plan.turns {
        if plan.stop.exists() {
            break;
        }
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "go" }] });
        let id = editor.connection.request("session/prompt", &prompt)?;
        if !editor.serve_turn(id)? {
            break;
        }
    }
    Ok(())
}

struct TortureEditor<'p> {
    options: &'p TortureEditorOptions,
    connection: JsonRpcConnection<BufReader<ChildStdout>, ChildStdin>,
    record: EventRecorder,
}

impl TortureEditor<'_> {
    /// Serves files until a turn is answered. Returns whether the proxy is still connected.
    fn serve_turn(&mut self, id: u64) -> io::Result<bool> {
        while let Some(message) = self.connection.receive()? {
            match message["method"].as_str() {
                Some("fs/read_text_file") => self.serve_read(&message)?,
                Some("fs/write_text_file") => self.serve_write(&message)?,
                Some(_) if message.get("id").is_some() => {
                    self.connection.refuse(&message, -32601, "no such method")?;
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
            Ok(text) => self.connection.answer(request, &json!({ "content": text })),
            Err(_) => self.connection.refuse(request, -32002, "Resource not found"),
        }
    }

    fn serve_write(&mut self, request: &Value) -> io::Result<()> {
        let path = PathBuf::from(request["params"]["path"].as_str().unwrap_or_default());
        let text = request["params"]["content"].as_str().unwrap_or_default();
        let lock = File::create(&self.options.lock)?;
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
                self.connection.answer(request, &json!({}))
            }
            Some(line) => {
                self.record.record(&style, &format!("the editor refused to remove {line}"))?;
                self.connection.refuse(request, -32000, "the file was changed by its user since")
            }
        }
    }
}

/// Returns a user line that is in `found` and not in `text`.
fn removed_user_line<'t>(found: &'t str, text: &str) -> Option<&'t str> {
    let kept: std::collections::HashSet<&str> = text.lines().collect();
    found.lines().find(|line| is_user_line(line) && !kept.contains(line))
}

fn style_name(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
