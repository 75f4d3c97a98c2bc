//! The plain commands that the offline model understands.
//!
//! One command a line, each line a step of the turn. What is not understood runs nothing: a person who made a mistake in
//! the third line does not want the first two done.

mod words;

use std::time::Duration;

use serde_json::Value;

use self::words::{Text, after_word, number, path, quoted, unescape};

/// More steps than this are no prompt that a person typed.
pub const MAX_STEPS: usize = 256;
/// No step waits longer.
pub const MAX_WAIT: Duration = Duration::from_secs(3_600);
/// No step streams more pieces.
pub const MAX_STREAM: u32 = 100_000;

/// What the offline model says when it is asked for something else.
pub const HELP: &str = "\
I am the offline model: no network, no key, no guessing. I do what plain commands say, one per line, in order:

- `read PATH` or `read PATH lines 10-20`; `@PATH` alone reads it, too
- `write PATH: TEXT` (`\\n` begins a new line; or put a fenced block below `write PATH:`)
- `replace \"OLD\" with \"NEW\" in PATH`, or `replace all \"OLD\" …` for every place
- `run COMMAND`
- `list` or `list DIR`
- `find TEXT`
- `plan: first; second; third`
- `think TEXT` and `say TEXT`
- `wait SECONDS` and `stream N`
- `call TOOL {\"json\": \"input\"}` for any tool, as it is

For a model that understands more, set a key such as `ANTHROPIC_API_KEY`, or choose a local one with `ollama/NAME`.";

/// A step of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A file is read, from a line on and so many lines, if they are given.
    Read {
        /// Which file.
        path: String,
        /// The first line, from 1, and how many.
        lines: Option<(u32, u32)>,
    },
    /// A file is written.
    Write {
        /// Which file.
        path: String,
        /// All of its text.
        text: String,
    },
    /// A piece of a file is replaced.
    Replace {
        /// Which file.
        path: String,
        /// The piece.
        old: String,
        /// What stands there then.
        new: String,
        /// Whether it is replaced wherever it is found, not just if it is there once.
        all: bool,
    },
    /// A command is run.
    Run(String),
    /// A directory is listed; the session's own if none is named.
    List(Option<String>),
    /// Text is searched for.
    Find(String),
    /// The plan is made known.
    Plan(Vec<String>),
    /// Something is thought.
    Think(String),
    /// Something is said.
    Say(String),
    /// Nothing happens for a while.
    Wait(Duration),
    /// So many pieces of text come.
    Stream(u32),
    /// A tool is called as it is.
    Call {
        /// The tool.
        tool: String,
        /// What with.
        input: Value,
    },
}

/// Why a prompt is not a list of commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// There is nothing in it.
    #[error("there is no command")]
    Empty,
    /// A line does not begin with a command.
    #[error("line {line} is no command that I know")]
    Unknown {
        /// Which line, from 1.
        line: usize,
    },
    /// A command is not complete.
    #[error("line {line} is not complete: {why}")]
    Incomplete {
        /// Which line, from 1.
        line: usize,
        /// What is missing, by example.
        why: &'static str,
    },
    /// A command is complete and cannot be done.
    #[error("line {line} cannot be done: {why}")]
    Impossible {
        /// Which line, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// There are more steps than a turn may have.
    #[error("there are more than {MAX_STEPS} commands")]
    TooMany,
}

/// Reads a prompt as steps.
///
/// # Errors
/// Says which line is not understood, and why.
pub fn parse(prompt: &str) -> Result<Vec<Step>, Unclear> {
    let mut lines = Lines { lines: prompt.lines().collect(), next: 0 };
    let mut steps = Vec::new();
    while let Some(line) = lines.command() {
        if steps.len() == MAX_STEPS {
            return Err(Unclear::TooMany);
        }
        steps.push(step(line, &mut lines)?);
    }
    if steps.is_empty() { Err(Unclear::Empty) } else { Ok(steps) }
}

/// The lines of a prompt, and the next one to be read.
struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    /// Returns the next line that has something on it, without what lists put before their items.
    fn command(&mut self) -> Option<&'a str> {
        loop {
            let line = self.lines.get(self.next)?.trim();
            self.next += 1;
            if !line.is_empty() {
                return Some(words::item(line));
            }
        }
    }

    /// Takes the fenced block that begins at `opening`, the rest of the current line, or else at the next line.
    fn block(&mut self, opening: &str) -> Option<Result<String, Unclear>> {
        let begun = self.next;
        let fence = match words::fence(opening) {
            Some(fence) => fence,
            None if opening.is_empty() => {
                let fence = words::fence(self.lines.get(self.next)?.trim())?;
                self.next += 1;
                fence
            }
            None => return None,
        };
        let mut text = String::new();
        while let Some(line) = self.lines.get(self.next) {
            self.next += 1;
            if fence.is_closed_by(line) {
                return Some(Ok(text));
            }
            text.push_str(line);
            text.push('\n');
        }
        Some(Err(Unclear::Incomplete { line: begun, why: "the fenced block has no end" }))
    }

    /// Returns the number of the current line.
    fn number(&self) -> usize {
        self.next
    }
}

fn step(line: &str, lines: &mut Lines<'_>) -> Result<Step, Unclear> {
    let number = lines.number();
    let incomplete = |why| Unclear::Incomplete { line: number, why };
    let (word, rest) = words::first(line);
    let bare = word.trim_end_matches([':', '.', '!']);
    let rest = rest.trim();
    match bare.to_ascii_lowercase().as_str() {
        "read" | "open" | "show" | "cat" => {
            read(rest, number)?.ok_or(incomplete("`read PATH` or `read PATH lines 10-20`"))
        }
        "write" | "create" => write(rest, lines)?.ok_or(incomplete("`write PATH: TEXT`")),
        "replace" => replace(rest).ok_or(incomplete("`replace \"OLD\" with \"NEW\" in PATH`")),
        "run" | "execute" => {
            let command = match lines.block(rest) {
                Some(block) => block?.trim_end().to_owned(),
                None => words::in_backticks(rest).unwrap_or(rest).to_owned(),
            };
            if command.is_empty() { Err(incomplete("`run COMMAND`")) } else { Ok(Step::Run(command)) }
        }
        "list" | "ls" => Ok(Step::List(if rest.is_empty() { None } else { path(rest) })),
        "find" | "search" => {
            let rest = after_word(rest, "for").unwrap_or(rest);
            let text = whole(rest).unwrap_or_else(|| rest.to_owned());
            if text.is_empty() { Err(incomplete("`find TEXT`")) } else { Ok(Step::Find(text)) }
        }
        "plan" => {
            let entries: Vec<_> = rest.split(';').map(str::trim).filter(|entry| !entry.is_empty()).collect();
            if entries.is_empty() {
                return Err(incomplete("`plan: first; second; third`"));
            }
            Ok(Step::Plan(entries.into_iter().map(str::to_owned).collect()))
        }
        "think" => Ok(Step::Think(spoken(rest, lines)?)),
        "say" | "echo" => Ok(Step::Say(spoken(rest, lines)?)),
        "wait" | "sleep" => wait(rest, number)?.ok_or(incomplete("`wait SECONDS`, up to 3600")),
        "stream" => {
            let count = words::first(rest).0.trim_end_matches('.').parse().ok();
            let count = count.filter(|count| *count <= MAX_STREAM);
            Ok(Step::Stream(count.ok_or(incomplete("`stream N`, up to 100000"))?))
        }
        "call" => call(rest, lines)?.ok_or(incomplete("`call TOOL {\"json\": \"input\"}`")),
        // A file that is mentioned and nothing else: the user wants to see it.
        _ if line.starts_with('@') && words::is_mention(line) => {
            read(line, number)?.ok_or(incomplete("`@PATH` alone reads a file"))
        }
        _ => Err(Unclear::Unknown { line: number }),
    }
}

fn read(rest: &str, line: usize) -> Result<Option<Step>, Unclear> {
    let step = |name, lines| path(name).map(|path| Step::Read { path, lines });
    let Some((before, range)) = words::split_last_word(rest, &["lines", "line"]) else {
        return Ok(step(rest, None));
    };
    // A file may be called `lines`; what follows has to be numbers.
    let Some((first, last)) = words::range(range) else { return Ok(step(rest, None)) };
    match last.checked_sub(first) {
        Some(more) => Ok(step(before, Some((first, more.saturating_add(1))))),
        None => Err(Unclear::Impossible { line, why: format!("line {last} is not behind line {first}") }),
    }
}

fn write(rest: &str, lines: &mut Lines<'_>) -> Result<Option<Step>, Unclear> {
    let Some((name, text)) = words::split_path(rest) else { return Ok(None) };
    let Some(path) = path(name) else { return Ok(None) };
    let text = match lines.block(text) {
        Some(block) => block?,
        None => whole(text).unwrap_or_else(|| unescape(text)),
    };
    Ok(Some(Step::Write { path, text }))
}

fn replace(rest: &str) -> Option<Step> {
    let every = after_word(rest, "all");
    let (old, rest) = quoted(every.unwrap_or(rest))?;
    let rest = after_word(rest, "with").or_else(|| after_word(rest, "by"))?;
    let (new, rest) = quoted(rest)?;
    let name = after_word(rest, "in")?;
    Some(Step::Replace { path: path(name)?, old, new, all: every.is_some() })
}

fn wait(rest: &str, line: usize) -> Result<Option<Step>, Unclear> {
    let Some((amount, unit)) = number(rest) else { return Ok(None) };
    let seconds = match unit.trim().trim_end_matches('.').to_ascii_lowercase().as_str() {
        "" | "s" | "sec" | "second" | "seconds" => amount,
        "ms" | "milliseconds" => amount / 1_000.0,
        "m" | "min" | "minute" | "minutes" => amount * 60.0,
        _ => return Ok(None),
    };
    match Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= MAX_WAIT) {
        Some(time) => Ok(Some(Step::Wait(time))),
        None => {
            let why = format!("I wait {} seconds at most", MAX_WAIT.as_secs());
            Err(Unclear::Impossible { line, why })
        }
    }
}

fn call(rest: &str, lines: &mut Lines<'_>) -> Result<Option<Step>, Unclear> {
    let (tool, input) = words::first(rest);
    let tool = tool.trim_matches('`');
    let line = lines.number();
    if tool.is_empty() {
        return Ok(None);
    }
    let input = input.trim();
    let input = match lines.block(input) {
        Some(block) => block?,
        None if input.is_empty() => "{}".to_owned(),
        None => words::in_backticks(input).unwrap_or(input).to_owned(),
    };
    let impossible =
        |why: &str| Unclear::Impossible { line, why: format!("the input is no JSON object{why}") };
    match serde_json::from_str::<Value>(&input) {
        Ok(input @ Value::Object(_)) => Ok(Some(Step::Call { tool: tool.to_owned(), input })),
        Ok(_) => Err(impossible("")),
        Err(error) => Err(impossible(&format!(" ({error})"))),
    }
}

/// Returns what is to be said: the block below, what is in quotes, or the line as it is.
fn spoken(rest: &str, lines: &mut Lines<'_>) -> Result<String, Unclear> {
    match lines.block(rest) {
        Some(block) => block,
        None => Ok(whole(rest).unwrap_or_else(|| unescape(rest))),
    }
}

/// Returns what is in quotes, if the quotes are around all of it.
fn whole(text: &str) -> Text {
    let (inside, rest) = quoted(text)?;
    rest.trim().trim_end_matches('.').is_empty().then_some(inside)
}

#[cfg(test)]
mod tests;
