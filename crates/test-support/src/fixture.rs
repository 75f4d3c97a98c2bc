//! A file tree and steps in, what the agent and the user see out: the language that tests of files are written in.
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
//! > disk /src/a.txt "two\n"        what somebody does behind the engine's back
//! ```
//! A path that starts with `/` is below the workspace, `$ROOT`. There are also `$OUT`, a directory outside of every
//! root, `$LIB`, one more that can be made a root, and `$BASE`, which holds them all. What starts with anything else is
//! taken as it is, `@` before an absolute path stands for nothing, and a path in quotes is a JSON string.
//!
//! Whoever serves the steps implements [`Steps`]: the engine itself ([`Direct`]), or a host at the other end of a wire
//! ([`Wired`]). The same script has to give the same text.

mod direct;
mod script;
mod wired;
mod world;

use agent_client_protocol_schema::v1::Error;
use anyhow::{Context, Result, bail};
use bowline_state::changes::{ChangeId, Reversal};
use bowline_state::lines::Window;
use bowline_state::undo::{Selection, Who};

pub use direct::Direct;
use script::{Body, Script, Words};
pub use wired::Wired;
pub use world::{Setting, World};

/// Who takes a step: a session, in a turn, by a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The session.
    pub session: String,
    /// The turn, if one was begun.
    pub turn: Option<u64>,
    /// The tool call, if there is one.
    pub call: Option<String>,
}

/// What came of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// What was said of it, each on a line of its own.
    pub notes: Vec<String>,
    /// The text that it gave.
    pub text: Option<String>,
}

impl Answer {
    /// Returns an answer of one note.
    pub fn note(note: impl Into<String>) -> Self {
        Self { notes: vec![note.into()], text: None }
    }
}

/// What a step comes to: an answer, or the error that a peer gets.
pub type Outcome = Result<Answer, Error>;

/// Whoever serves the steps of a script. Paths are absolute, as a peer would send them.
pub trait Steps {
    /// An agent reads.
    fn read(&mut self, actor: &Actor, path: &str, window: Window) -> Outcome;
    /// An agent writes.
    fn write(&mut self, actor: &Actor, path: &str, content: &str) -> Outcome;
    /// An agent deletes.
    fn delete(&mut self, actor: &Actor, path: &str) -> Outcome;
    /// A session takes changes back.
    fn undo(&mut self, actor: &Actor, selection: &Selection) -> Outcome;
    /// A session takes undos back.
    fn redo(&mut self, actor: &Actor, selection: &Selection) -> Outcome;
    /// Somebody asks what changed.
    fn changes(&mut self, selection: &Selection) -> Outcome;
    /// Somebody asks for the changes as a patch.
    fn diff(&mut self, selection: &Selection) -> Outcome;
    /// The user opens a document.
    fn open(&mut self, path: &str) -> Outcome;
    /// The user changes the text of an open document.
    fn change(&mut self, path: &str, text: &str) -> Outcome;
    /// The user saves a document.
    fn save(&mut self, path: &str) -> Outcome;
    /// The user closes a document.
    fn close(&mut self, path: &str) -> Outcome;
    /// The user looks at an open document.
    fn show(&mut self, path: &str) -> Outcome;
}

/// Runs a script, with whoever `open` makes of the files, and returns what was seen.
///
/// # Errors
/// Fails if the script is wrong or the files cannot be made; what goes wrong in a step is part of what is seen.
pub fn run<S: Steps>(script: &str, open: impl FnOnce(&World) -> Result<S>) -> Result<String> {
    let script = Script::parse(script)?;
    let world = World::create(&script)?;
    let steps = open(&world)?;
    let mut runner = Runner { world, steps, actors: Vec::new(), seen: String::new() };
    for step in &script.steps {
        runner
            .step(&step.line, step.body.as_ref())
            .with_context(|| format!("in the step {:?}", step.line))?;
    }
    Ok(runner.world.show(&runner.seen))
}

struct Runner<S> {
    world: World,
    steps: S,
    // Sessions that have begun a turn or a call.
    actors: Vec<Actor>,
    seen: String,
}

impl<S: Steps> Runner<S> {
    fn step(&mut self, line: &str, body: Option<&Body>) -> Result<()> {
        let mut words = Words::new(line);
        let mut verb = words.next()?.context("a step says what to do")?;
        let mut session = "s1".to_owned();
        if verb.starts_with('s') && verb.len() > 1 && verb[1..].bytes().all(|digit| digit.is_ascii_digit()) {
            session = std::mem::replace(&mut verb, words.next()?.context("a step says what to do")?);
        }
        let actor = self.actor(&session).clone();
        if self.user_step(&verb, &mut words, body)? || self.look(&verb, &mut words)? {
            return words.end();
        }
        let outcome = match verb.as_str() {
            "turn" => {
                let turn = words.next()?.context("which turn")?.parse()?;
                let actor = self.actor(&session);
                (actor.turn, actor.call) = (Some(turn), None);
                return words.end();
            }
            "call" => {
                self.actor(&session).call = Some(words.next()?.context("which call")?);
                return words.end();
            }
            "read" => {
                let path = self.path(&mut words)?;
                let number = |word: Option<String>| {
                    word.filter(|word| word != "-").map(|word| word.parse()).transpose()
                };
                let window = Window { line: number(words.next()?)?, limit: number(words.next()?)? };
                self.steps.read(&actor, &path, window)
            }
            "write" => {
                let path = self.path(&mut words)?;
                let content = text(body, &mut words)?;
                self.steps.write(&actor, &path, &content)
            }
            "delete" => {
                let path = self.path(&mut words)?;
                self.steps.delete(&actor, &path)
            }
            "undo" => {
                let selection = self.selection(&session, &mut words)?;
                self.steps.undo(&actor, &selection)
            }
            "redo" => {
                let selection = self.selection(&session, &mut words)?;
                self.steps.redo(&actor, &selection)
            }
            "changes" => {
                let selection = self.selection(&session, &mut words)?;
                self.steps.changes(&selection)
            }
            "diff" => {
                let selection = self.selection(&session, &mut words)?;
                self.steps.diff(&selection)
            }
            "open" | "save" | "close" | "show" => {
                let path = self.path(&mut words)?;
                match verb.as_str() {
                    "open" => self.steps.open(&path),
                    "save" => self.steps.save(&path),
                    "close" => self.steps.close(&path),
                    _ => self.steps.show(&path),
                }
            }
            "type" => {
                let path = self.path(&mut words)?;
                let content = text(body, &mut words)?;
                self.steps.change(&path, &content)
            }
            other => bail!("there is no step {other}"),
        };
        words.end()?;
        self.tell(outcome);
        Ok(())
    }

    /// Does what somebody does behind the engine's back. Says whether the step is such a one.
    fn user_step(&mut self, verb: &str, words: &mut Words<'_>, body: Option<&Body>) -> Result<bool> {
        match verb {
            "disk" => {
                let path = self.path(words)?;
                let mut attributes = Vec::new();
                let inline = loop {
                    match words.next_quoted()? {
                        Some((text, true)) => break Some(text),
                        Some((attribute, false)) => attributes.push(attribute),
                        None => break None,
                    }
                };
                let content = inline.or_else(|| body.map(|body| body.text.clone()));
                self.world.write(&path, &content.context("with which text")?, &attributes)?;
            }
            "rename" => {
                let (from, to) = (self.path(words)?, self.path(words)?);
                std::fs::rename(from, to)?;
            }
            "rm" => std::fs::remove_file(self.path(words)?)?,
            "mkdir" => std::fs::create_dir_all(self.path(words)?)?,
            "link" => {
                let (path, target) = (self.path(words)?, words.next()?.context("to where")?);
                std::os::unix::fs::symlink(self.world.expand(&target), path)?;
            }
            "chmod" => {
                let path = self.path(words)?;
                world::set_mode(&path, &words.next()?.context("which mode")?)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Looks at the disk. Says whether the step is such a one.
    fn look(&mut self, verb: &str, words: &mut Words<'_>) -> Result<bool> {
        match verb {
            "cat" => {
                let path = self.path(words)?;
                match std::fs::read(&path) {
                    Ok(bytes) => self.seen.push_str(&world::escaped(&bytes)),
                    Err(why) => self.seen.push_str(&format!("nothing: {}\n", why.kind())),
                }
            }
            "mode" => {
                let path = self.path(words)?;
                self.seen.push_str(&format!("{:04o}\n", world::mode(&path)?));
            }
            "tree" => self.seen.push_str(&self.world.tree()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tell(&mut self, outcome: Outcome) {
        match outcome {
            Ok(answer) => {
                for note in answer.notes {
                    self.seen.push_str(&note);
                    self.seen.push('\n');
                }
                if let Some(text) = answer.text {
                    self.seen.push_str(&shown(&text));
                }
            }
            Err(error) => {
                let said = error.data.unwrap_or_else(|| error.message.into());
                let said: String = said.to_string().chars().map(visible).collect();
                self.seen.push_str(&format!("! {} {said}\n", i32::from(error.code)));
            }
        }
    }

    fn actor(&mut self, session: &str) -> &mut Actor {
        let known = self.actors.iter().position(|actor| actor.session == session);
        let at = known.unwrap_or_else(|| {
            self.actors.push(Actor { session: session.to_owned(), turn: None, call: None });
            self.actors.len() - 1
        });
        &mut self.actors[at]
    }

    fn path(&self, words: &mut Words<'_>) -> Result<String> {
        Ok(self.world.path(&words.next()?.context("a path is missing")?))
    }

    /// Reads which changes are meant: `turn 1`, `call c1`, `file /p`, `session`, `change 3 hunk 0`, `last 2`, in any
    /// number.
    fn selection(&self, session: &str, words: &mut Words<'_>) -> Result<Selection> {
        let mut selection = Selection::default();
        while let Some(word) = words.next()? {
            let mut next = || words.next()?.with_context(|| format!("{word} says which"));
            let session = session.to_owned();
            match word.as_str() {
                "session" => selection.who = Who::Session(session),
                "turn" => selection.who = Who::Turn { session, turn: next()?.parse()? },
                "call" => selection.who = Who::Call { session, call: next()? },
                "file" => selection.path = Some(self.world.path(&next()?)),
                "last" => selection.last = Some(next()?.parse()?),
                "change" => {
                    let change = ChangeId(next()?.parse()?);
                    selection.change = Some(Reversal { change, hunks: None });
                }
                "hunk" => {
                    let hunk = next()?.parse()?;
                    let of = selection.change.as_mut().context("a hunk of which change")?;
                    of.hunks.get_or_insert_default().push(hunk);
                }
                other => bail!("changes cannot be selected by {other}"),
            }
        }
        Ok(selection)
    }
}

/// Returns the text of a step: what follows its line, or a JSON string on it.
fn text(body: Option<&Body>, words: &mut Words<'_>) -> Result<String> {
    match (body, words.next_quoted()?) {
        (Some(body), None) => Ok(body.text.clone()),
        (None, Some((text, true))) => Ok(text),
        _ => bail!("the text is a JSON string on the line of the step, or follows it after `<<`"),
    }
}

/// Returns a text with every line behind a bar, so that ends and blanks can be seen.
fn shown(text: &str) -> String {
    if text.is_empty() {
        return "(empty)\n".to_owned();
    }
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, "\n\\ no newline\n"), |line| (line, "\n"));
        let line: String = line.chars().map(visible).collect();
        shown.push_str(format!("| {line}").trim_end());
        shown.push_str(end);
    }
    shown
}

/// Returns a character so that it can be seen: one that steers a terminal, or reorders text, by its number.
fn visible(character: char) -> String {
    match character {
        '\t' => "\t".to_owned(),
        control if control.is_control() => control.escape_default().to_string(),
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            character.escape_unicode().to_string()
        }
        other => other.to_string(),
    }
}
