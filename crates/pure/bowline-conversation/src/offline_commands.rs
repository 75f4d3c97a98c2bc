//! The plain commands that the offline model understands.
//!
//! Each line is one command and one step of the turn. If any line is invalid, nothing runs: a person who made a mistake
//! in the third line does not want the first two executed.

mod lexer;

use std::time::Duration;

use serde_json::Value;

use self::lexer::{ParsedText, parse_number, parse_path, parse_quoted, strip_word, unescape};

/// The maximum number of steps; no person types more into a prompt.
pub const MAX_COMMANDS: usize = 256;
/// The maximum duration of a wait.
pub const MAX_WAIT: Duration = Duration::from_secs(3_600);
/// The maximum number of chunks that a step streams.
pub const MAX_STREAM_CHUNKS: u32 = 100_000;

/// The offline model's response to any other input.
pub const HELP_TEXT: &str = "\
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
pub enum OfflineCommand {
    /// Reads a file, or a range of its lines.
    Read {
        /// The file.
        path: String,
        /// The first line, counted from 1, and the number of lines.
        lines: Option<(u32, u32)>,
    },
    /// Writes a file.
    Write {
        /// The file.
        path: String,
        /// Its whole text.
        text: String,
    },
    /// Replaces a part of a file.
    Replace {
        /// The file.
        path: String,
        /// The old text.
        old: String,
        /// The new text.
        new: String,
        /// Whether to replace every occurrence. Otherwise the old text must occur exactly once.
        all: bool,
    },
    /// Runs a command.
    Run(String),
    /// Lists a directory; by default the session's own.
    List(Option<String>),
    /// Searches for text.
    Find(String),
    /// Publishes a plan.
    Plan(Vec<String>),
    /// Emits a thought.
    Think(String),
    /// Emits a message.
    Say(String),
    /// Waits.
    Wait(Duration),
    /// Streams this many chunks of text.
    Stream(u32),
    /// Calls a tool directly.
    Call {
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
}

/// Why a prompt is not a valid list of commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfflineCommandError {
    /// The prompt is empty.
    #[error("there is no command")]
    Empty,
    /// A line does not begin with a known command.
    #[error("line {line} is no command that I know")]
    UnknownCommand {
        /// The line, counted from 1.
        line: usize,
    },
    /// A command is incomplete.
    #[error("line {line} is not complete: {expected}")]
    Incomplete {
        /// The line, counted from 1.
        line: usize,
        /// The missing part, by example.
        expected: &'static str,
    },
    /// A command is complete but cannot be carried out.
    #[error("line {line} cannot be done: {reason}")]
    Impossible {
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// There are more steps than a turn may have.
    #[error("there are more than {MAX_COMMANDS} commands")]
    TooManyCommands,
}

/// Parses a prompt into steps.
///
/// # Errors
/// Returns which line is invalid, and why.
pub fn parse(prompt: &str) -> Result<Vec<OfflineCommand>, OfflineCommandError> {
    let mut lines = PromptLines { lines: prompt.lines().collect(), next: 0 };
    let mut steps = Vec::new();
    while let Some(line) = lines.next_command() {
        if steps.len() == MAX_COMMANDS {
            return Err(OfflineCommandError::TooManyCommands);
        }
        steps.push(parse_command(line, &mut lines)?);
    }
    if steps.is_empty() { Err(OfflineCommandError::Empty) } else { Ok(steps) }
}

/// The lines of a prompt, with a cursor.
struct PromptLines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> PromptLines<'a> {
    /// Returns the next non-empty line, without list markers.
    fn next_command(&mut self) -> Option<&'a str> {
        loop {
            let line = self.lines.get(self.next)?.trim();
            self.next += 1;
            if !line.is_empty() {
                return Some(lexer::strip_list_marker(line));
            }
        }
    }

    /// Takes the fenced block that starts at `opening`, the rest of the current line, or on the next line.
    fn take_block(&mut self, opening: &str) -> Option<Result<String, OfflineCommandError>> {
        let start = self.next;
        let fence = match lexer::parse_fence(opening) {
            Some(fence) => fence,
            None if opening.is_empty() => {
                let fence = lexer::parse_fence(self.lines.get(self.next)?.trim())?;
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
        Some(Err(OfflineCommandError::Incomplete { line: start, expected: "the fenced block has no end" }))
    }

    /// Returns the number of the current line.
    fn line_number(&self) -> usize {
        self.next
    }
}

fn parse_command(line: &str, lines: &mut PromptLines<'_>) -> Result<OfflineCommand, OfflineCommandError> {
    let number = lines.line_number();
    let incomplete = |expected| OfflineCommandError::Incomplete { line: number, expected };
    let (word, rest) = lexer::split_first_word(line);
    let bare = word.trim_end_matches([':', '.', '!']);
    let rest = rest.trim();
    match bare.to_ascii_lowercase().as_str() {
        "read" | "open" | "show" | "cat" => {
            parse_read(rest, number)?.ok_or(incomplete("`read PATH` or `read PATH lines 10-20`"))
        }
        "write" | "create" => parse_write(rest, lines)?.ok_or(incomplete("`write PATH: TEXT`")),
        "replace" => parse_replace(rest).ok_or(incomplete("`replace \"OLD\" with \"NEW\" in PATH`")),
        "run" | "execute" => {
            let command = match lines.take_block(rest) {
                Some(block) => block?.trim_end().to_owned(),
                None => lexer::strip_backticks(rest).unwrap_or(rest).to_owned(),
            };
            if command.is_empty() {
                Err(incomplete("`run COMMAND`"))
            } else {
                Ok(OfflineCommand::Run(command))
            }
        }
        "list" | "ls" => Ok(OfflineCommand::List(if rest.is_empty() { None } else { parse_path(rest) })),
        "find" | "search" => {
            let rest = strip_word(rest, "for").unwrap_or(rest);
            let text = parse_quoted_whole(rest).unwrap_or_else(|| rest.to_owned());
            if text.is_empty() { Err(incomplete("`find TEXT`")) } else { Ok(OfflineCommand::Find(text)) }
        }
        "plan" => {
            let entries: Vec<_> = rest.split(';').map(str::trim).filter(|entry| !entry.is_empty()).collect();
            if entries.is_empty() {
                return Err(incomplete("`plan: first; second; third`"));
            }
            Ok(OfflineCommand::Plan(entries.into_iter().map(str::to_owned).collect()))
        }
        "think" => Ok(OfflineCommand::Think(parse_text(rest, lines)?)),
        "say" | "echo" => Ok(OfflineCommand::Say(parse_text(rest, lines)?)),
        "wait" | "sleep" => parse_wait(rest, number)?.ok_or(incomplete("`wait SECONDS`, up to 3600")),
        "stream" => {
            let count = lexer::split_first_word(rest).0.trim_end_matches('.').parse().ok();
            let count = count.filter(|count| *count <= MAX_STREAM_CHUNKS);
            Ok(OfflineCommand::Stream(count.ok_or(incomplete("`stream N`, up to 100000"))?))
        }
        "call" => parse_call(rest, lines)?.ok_or(incomplete("`call TOOL {\"json\": \"input\"}`")),
        // A mention of a file without a command: the user wants to read it.
        _ if line.starts_with('@') && lexer::is_mention(line) => {
            parse_read(line, number)?.ok_or(incomplete("`@PATH` alone reads a file"))
        }
        _ => Err(OfflineCommandError::UnknownCommand { line: number }),
    }
}

fn parse_read(rest: &str, line: usize) -> Result<Option<OfflineCommand>, OfflineCommandError> {
    let step = |name, lines| parse_path(name).map(|path| OfflineCommand::Read { path, lines });
    let Some((before, range)) = lexer::split_last_word(rest, &["lines", "line"]) else {
        return Ok(step(rest, None));
    };
    // A file may be called `lines`, so numbers have to follow.
    let Some((first, last)) = lexer::parse_line_range(range) else { return Ok(step(rest, None)) };
    match last.checked_sub(first) {
        Some(more) => Ok(step(before, Some((first, more.saturating_add(1))))),
        None => Err(OfflineCommandError::Impossible {
            line,
            reason: format!("line {last} is not behind line {first}"),
        }),
    }
}

fn parse_write(
    rest: &str,
    lines: &mut PromptLines<'_>,
) -> Result<Option<OfflineCommand>, OfflineCommandError> {
    let Some((name, text)) = lexer::split_path(rest) else { return Ok(None) };
    let Some(path) = parse_path(name) else { return Ok(None) };
    let text = match lines.take_block(text) {
        Some(block) => block?,
        None => parse_quoted_whole(text).unwrap_or_else(|| unescape(text)),
    };
    Ok(Some(OfflineCommand::Write { path, text }))
}

fn parse_replace(rest: &str) -> Option<OfflineCommand> {
    let every = strip_word(rest, "all");
    let (old, rest) = parse_quoted(every.unwrap_or(rest))?;
    let rest = strip_word(rest, "with").or_else(|| strip_word(rest, "by"))?;
    let (new, rest) = parse_quoted(rest)?;
    let name = strip_word(rest, "in")?;
    Some(OfflineCommand::Replace { path: parse_path(name)?, old, new, all: every.is_some() })
}

fn parse_wait(rest: &str, line: usize) -> Result<Option<OfflineCommand>, OfflineCommandError> {
    let Some((amount, unit)) = parse_number(rest) else { return Ok(None) };
    let seconds = match unit.trim().trim_end_matches('.').to_ascii_lowercase().as_str() {
        "" | "s" | "sec" | "second" | "seconds" => amount,
        "ms" | "milliseconds" => amount / 1_000.0,
        "m" | "min" | "minute" | "minutes" => amount * 60.0,
        _ => return Ok(None),
    };
    match Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= MAX_WAIT) {
        Some(time) => Ok(Some(OfflineCommand::Wait(time))),
        None => {
            let reason = format!("I wait {} seconds at most", MAX_WAIT.as_secs());
            Err(OfflineCommandError::Impossible { line, reason })
        }
    }
}

fn parse_call(
    rest: &str,
    lines: &mut PromptLines<'_>,
) -> Result<Option<OfflineCommand>, OfflineCommandError> {
    let (tool, input) = lexer::split_first_word(rest);
    let tool = tool.trim_matches('`');
    let line = lines.line_number();
    if tool.is_empty() {
        return Ok(None);
    }
    let input = input.trim();
    let input = match lines.take_block(input) {
        Some(block) => block?,
        None if input.is_empty() => "{}".to_owned(),
        None => lexer::strip_backticks(input).unwrap_or(input).to_owned(),
    };
    let impossible = |detail: &str| OfflineCommandError::Impossible {
        line,
        reason: format!("the input is no JSON object{detail}"),
    };
    match serde_json::from_str::<Value>(&input) {
        Ok(input @ Value::Object(_)) => Ok(Some(OfflineCommand::Call { tool: tool.to_owned(), input })),
        Ok(_) => Err(impossible("")),
        Err(error) => Err(impossible(&format!(" ({error})"))),
    }
}

/// Returns the text to emit: the block below, the quoted text, or the line itself.
fn parse_text(rest: &str, lines: &mut PromptLines<'_>) -> Result<String, OfflineCommandError> {
    match lines.take_block(rest) {
        Some(block) => block,
        None => Ok(parse_quoted_whole(rest).unwrap_or_else(|| unescape(rest))),
    }
}

/// Returns the quoted text, if the quotes enclose the whole input.
fn parse_quoted_whole(text: &str) -> ParsedText {
    let (inside, rest) = parse_quoted(text)?;
    rest.trim().trim_end_matches('.').is_empty().then_some(inside)
}

#[cfg(test)]
mod tests;
