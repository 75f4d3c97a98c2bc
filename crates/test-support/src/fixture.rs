//! The script language of file tests: a file tree and steps as input, the view of the agent and the user as output.
//!
//! A script has settings, then files, then steps:
//! ```text
//! //= root $LIB read-only          a setting: more roots, or what the implementation understands
//! //- /src/a.txt crlf mode=0640    a file of the workspace and its text
//! one
//! //- /link -> src/a.txt           a symbolic link; `= /src/a.txt` is a hard link, `fifo` a pipe, `/dir/` a directory
//! > read /src/a.txt 2 1            a step of session s1
//! > s2 write /src/a.txt <<         a step of session s2, with a text up to the line `<<`
//! ONE
//! <<
//! > disk /src/a.txt "two\n"        a write by another program, behind the engine's back
//! > changed /src/a.txt             what the session's watches have reported, at least of these files
//! ```
//! A path that starts with `/` is below the workspace, `$ROOT`. Other directories are `$OUT`, outside every root;
//! `$LIB`, which can be made a root; and `$BASE`, which contains them all. Other paths are used as they are, a `@`
//! before an absolute path is dropped, and a path in quotes is a JSON string.
//!
//! A [`ScriptBackend`] serves the steps: the engine itself ([`DirectBackend`]), or a host at the other end of a wire
//! ([`WireBackend`]). The same script must give the same text with both.

mod direct_backend;
mod extension_call;
mod script;
mod script_dirs;
mod wire_backend;

use agent_client_protocol_schema::v1::Error;
use anyhow::{Context, Result, bail};
use bowline_history::changes::{ChangeId, Reversal};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::lines::LineWindow;
use serde_json::Value;

pub use direct_backend::{DirectBackend, delete_file};
use script::{FixtureScript, LineWords, StepBody};
pub use script_dirs::{ScriptDirs, ScriptSetting};
pub use wire_backend::WireBackend;

/// The actor of a step: a session, and its turn and tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepActor {
    /// The session.
    pub session: String,
    /// The turn, if one has begun.
    pub turn: Option<u64>,
    /// The tool call, if any.
    pub call: Option<String>,
}

/// The answer to a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepAnswer {
    /// Remarks on the step, one per line.
    pub notes: Vec<String>,
    /// The resulting text.
    pub text: Option<String>,
}

impl StepAnswer {
    /// Creates an answer with one note.
    pub fn note(note: impl Into<String>) -> Self {
        Self { notes: vec![note.into()], text: None }
    }
}

/// The outcome of a step: an answer, or the error that a peer receives.
pub type StepOutcome = Result<StepAnswer, Error>;

/// The implementation that serves the steps of a script. Paths are absolute, as a peer would send them.
pub trait ScriptBackend {
    /// Reads a file for an agent.
    fn read(&mut self, actor: &StepActor, path: &str, window: LineWindow) -> StepOutcome;
    /// Writes a file for an agent.
    fn write(&mut self, actor: &StepActor, path: &str, content: &str) -> StepOutcome;
    /// Calls a method of the file extension for an agent: its name without the prefix, and its params without a session.
    fn call_extension(&mut self, actor: &StepActor, method: &str, params: Value) -> StepOutcome;
    /// Returns what the watches of an agent's session have reported since the last call, at least these paths.
    fn take_changed_files(&mut self, actor: &StepActor, paths: &[String]) -> StepOutcome;
    /// Deletes a file for an agent.
    fn delete(&mut self, actor: &StepActor, path: &str) -> StepOutcome;
    /// Undoes changes for a session.
    fn undo(&mut self, actor: &StepActor, selection: &ChangeSelection) -> StepOutcome;
    /// Redoes undone changes for a session.
    fn redo(&mut self, actor: &StepActor, selection: &ChangeSelection) -> StepOutcome;
    /// Lists changes.
    fn changes(&mut self, selection: &ChangeSelection) -> StepOutcome;
    /// Returns changes as a patch.
    fn diff(&mut self, selection: &ChangeSelection) -> StepOutcome;
    /// Opens a document for the user.
    fn open_document(&mut self, path: &str) -> StepOutcome;
    /// Changes the text of an open document for the user.
    fn change_document(&mut self, path: &str, text: &str) -> StepOutcome;
    /// Saves a document for the user.
    fn save_document(&mut self, path: &str) -> StepOutcome;
    /// Closes a document for the user.
    fn close_document(&mut self, path: &str) -> StepOutcome;
    /// Returns the text of an open document.
    fn show_document(&mut self, path: &str) -> StepOutcome;
}

/// Runs a script on the backend that `open` creates, and returns the output.
///
/// # Errors
/// Fails if the script is malformed or the files cannot be created; a failed step is part of the output.
pub fn run_script<S: ScriptBackend>(
    script: &str,
    open: impl FnOnce(&ScriptDirs) -> Result<S>,
) -> Result<String> {
    let script = FixtureScript::parse(script)?;
    let dirs = ScriptDirs::create(&script)?;
    let backend = open(&dirs)?;
    let mut runner = ScriptRunner { dirs, backend, actors: Vec::new(), output: String::new() };
    for step in &script.steps {
        runner
            .run_step(&step.line, step.body.as_ref())
            .with_context(|| format!("in the step {:?}", step.line))?;
    }
    Ok(runner.dirs.restore_variables(&runner.output))
}

struct ScriptRunner<S> {
    dirs: ScriptDirs,
    backend: S,
    // Sessions with a turn or a call in progress.
    actors: Vec<StepActor>,
    output: String,
}

impl<S: ScriptBackend> ScriptRunner<S> {
    fn run_step(&mut self, line: &str, body: Option<&StepBody>) -> Result<()> {
        let mut words = LineWords::new(line);
        let mut verb = words.next()?.context("a step says what to do")?;
        let mut session = "s1".to_owned();
        if verb.starts_with('s') && verb.len() > 1 && verb[1..].bytes().all(|digit| digit.is_ascii_digit()) {
            session = std::mem::replace(&mut verb, words.next()?.context("a step says what to do")?);
        }
        let actor = self.actor_mut(&session).clone();
        if self.run_user_step(&verb, &mut words, body)? || self.run_disk_step(&verb, &mut words)? {
            return words.expect_end();
        }
        let outcome = match verb.as_str() {
            "turn" => {
                let turn = words.next()?.context("which turn")?.parse()?;
                let actor = self.actor_mut(&session);
                (actor.turn, actor.call) = (Some(turn), None);
                return words.expect_end();
            }
            "call" => {
                self.actor_mut(&session).call = Some(words.next()?.context("which call")?);
                return words.expect_end();
            }
            "read" => {
                let path = self.next_path(&mut words)?;
                let number = |word: Option<String>| {
                    word.filter(|word| word != "-").map(|word| word.parse()).transpose()
                };
                let window = LineWindow { line: number(words.next()?)?, limit: number(words.next()?)? };
                self.backend.read(&actor, &path, window)
            }
            "write" => {
                let path = self.next_path(&mut words)?;
                let content = step_text(body, &mut words)?;
                self.backend.write(&actor, &path, &content)
            }
            "extension" => {
                let method = words.next()?.context("which method")?;
                let params = self.dirs.expand_variables(words.take_rest());
                self.backend.call_extension(&actor, &method, serde_json::from_str(&params)?)
            }
            "changed" => {
                let mut paths = Vec::new();
                while let Some(word) = words.next()? {
                    paths.push(self.dirs.resolve_path(&word));
                }
                self.backend.take_changed_files(&actor, &paths)
            }
            "delete" => {
                let path = self.next_path(&mut words)?;
                self.backend.delete(&actor, &path)
            }
            "undo" => {
                let selection = self.parse_selection(&session, &mut words)?;
                self.backend.undo(&actor, &selection)
            }
            "redo" => {
                let selection = self.parse_selection(&session, &mut words)?;
                self.backend.redo(&actor, &selection)
            }
            "changes" => {
                let selection = self.parse_selection(&session, &mut words)?;
                self.backend.changes(&selection)
            }
            "diff" => {
                let selection = self.parse_selection(&session, &mut words)?;
                self.backend.diff(&selection)
            }
            "open" | "save" | "close" | "show" => {
                let path = self.next_path(&mut words)?;
                match verb.as_str() {
                    "open" => self.backend.open_document(&path),
                    "save" => self.backend.save_document(&path),
                    "close" => self.backend.close_document(&path),
                    _ => self.backend.show_document(&path),
                }
            }
            "type" => {
                let path = self.next_path(&mut words)?;
                let content = step_text(body, &mut words)?;
                self.backend.change_document(&path, &content)
            }
            other => bail!("there is no step {other}"),
        };
        words.expect_end()?;
        self.push_outcome(outcome);
        Ok(())
    }

    /// Runs a step that changes the disk behind the engine's back. Returns whether `verb` is such a step.
    fn run_user_step(
        &mut self,
        verb: &str,
        words: &mut LineWords<'_>,
        body: Option<&StepBody>,
    ) -> Result<bool> {
        match verb {
            "disk" => {
                let path = self.next_path(words)?;
                let mut attributes = Vec::new();
                let inline = loop {
                    match words.next_quoted()? {
                        Some((text, true)) => break Some(text),
                        Some((attribute, false)) => attributes.push(attribute),
                        None => break None,
                    }
                };
                let content = inline.or_else(|| body.map(|body| body.text.clone()));
                self.dirs.write_file(&path, &content.context("with which text")?, &attributes)?;
            }
            "rename" => {
                let (from, to) = (self.next_path(words)?, self.next_path(words)?);
                std::fs::rename(from, to)?;
            }
            "rm" => std::fs::remove_file(self.next_path(words)?)?,
            "mkdir" => std::fs::create_dir_all(self.next_path(words)?)?,
            "link" => {
                let (path, target) = (self.next_path(words)?, words.next()?.context("to where")?);
                std::os::unix::fs::symlink(self.dirs.expand_variables(&target), path)?;
            }
            "chmod" => {
                let path = self.next_path(words)?;
                script_dirs::set_mode(&path, &words.next()?.context("which mode")?)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs a step that shows the state of the disk. Returns whether `verb` is such a step.
    fn run_disk_step(&mut self, verb: &str, words: &mut LineWords<'_>) -> Result<bool> {
        match verb {
            "cat" => {
                let path = self.next_path(words)?;
                match std::fs::read(&path) {
                    Ok(bytes) => self.output.push_str(&script_dirs::escape_bytes(&bytes)),
                    Err(error) => self.output.push_str(&format!("nothing: {}\n", error.kind())),
                }
            }
            "mode" => {
                let path = self.next_path(words)?;
                self.output.push_str(&format!("{:04o}\n", script_dirs::file_mode(&path)?));
            }
            "tree" => self.output.push_str(&self.dirs.format_tree()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn push_outcome(&mut self, outcome: StepOutcome) {
        match outcome {
            Ok(answer) => {
                for note in answer.notes {
                    self.output.push_str(&note);
                    self.output.push('\n');
                }
                if let Some(text) = answer.text {
                    self.output.push_str(&format_text(&text));
                }
            }
            Err(error) => {
                let detail = error.data.unwrap_or_else(|| error.message.into());
                let detail: String = detail.to_string().chars().map(escape_character).collect();
                self.output.push_str(&format!("! {} {detail}\n", i32::from(error.code)));
            }
        }
    }

    fn actor_mut(&mut self, session: &str) -> &mut StepActor {
        let known = self.actors.iter().position(|actor| actor.session == session);
        let at = known.unwrap_or_else(|| {
            self.actors.push(StepActor { session: session.to_owned(), turn: None, call: None });
            self.actors.len() - 1
        });
        &mut self.actors[at]
    }

    fn next_path(&self, words: &mut LineWords<'_>) -> Result<String> {
        Ok(self.dirs.resolve_path(&words.next()?.context("a path is missing")?))
    }

    /// Parses a selection of changes: any number of `turn 1`, `call c1`, `file /p`, `session`, `change 3 hunk 0`,
    /// `last 2`.
    fn parse_selection(&self, session: &str, words: &mut LineWords<'_>) -> Result<ChangeSelection> {
        let mut selection = ChangeSelection::default();
        while let Some(word) = words.next()? {
            let mut next = || words.next()?.with_context(|| format!("{word} says which"));
            let session = session.to_owned();
            match word.as_str() {
                "session" => selection.owner = ChangeOwner::Session(session),
                "turn" => selection.owner = ChangeOwner::Turn { session, turn: next()?.parse()? },
                "call" => selection.owner = ChangeOwner::Call { session, call: next()? },
                "file" => selection.path = Some(self.dirs.resolve_path(&next()?)),
                "last" => selection.limit = Some(next()?.parse()?),
                "change" => {
                    let change = ChangeId(next()?.parse()?);
                    selection.change = Some(Reversal { change, hunks: None });
                }
                "hunk" => {
                    let hunk = next()?.parse()?;
                    let reversal = selection.change.as_mut().context("a hunk of which change")?;
                    reversal.hunks.get_or_insert_default().push(hunk);
                }
                other => bail!("changes cannot be selected by {other}"),
            }
        }
        Ok(selection)
    }
}

/// Returns the text of a step: the body after its line, or a JSON string on it.
fn step_text(body: Option<&StepBody>, words: &mut LineWords<'_>) -> Result<String> {
    match (body, words.next_quoted()?) {
        (Some(body), None) => Ok(body.text.clone()),
        (None, Some((text, true))) => Ok(text),
        _ => bail!("the text is a JSON string on the line of the step, or follows it after `<<`"),
    }
}

/// Formats a text with a bar before every line, so that line ends and blanks are visible.
fn format_text(text: &str) -> String {
    if text.is_empty() {
        return "(empty)\n".to_owned();
    }
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, "\n\\ no newline\n"), |line| (line, "\n"));
        let line: String = line.chars().map(escape_character).collect();
        shown.push_str(format!("| {line}").trim_end());
        shown.push_str(end);
    }
    shown
}

/// Escapes a character that controls a terminal or reorders text by its number.
fn escape_character(character: char) -> String {
    match character {
        '\t' => "\t".to_owned(),
        control if control.is_control() => control.escape_default().to_string(),
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            character.escape_unicode().to_string()
        }
        other => other.to_string(),
    }
}
