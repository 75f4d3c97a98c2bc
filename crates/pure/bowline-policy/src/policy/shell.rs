//! A recogniser for shell lines that mean the same to every shell and hide nothing.
//!
//! This is not a shell: it accepts what it surely understands and refuses the rest with a reason. It accepts a list
//! of simple commands, with quotes, escapes, comments, assignments and redirections; its words are those that the
//! program receives, unless they are marked as not literal. It refuses what a rule by words cannot match: everything
//! that depends on variables, substitution, braces, history, here-documents or the grammar of scripts, and text that
//! `bash`, `dash` and `zsh` read in different ways.

use std::ops::Range;

/// The maximum length of a line, in bytes.
pub const MAX_LINE: usize = 16 << 10;
/// The maximum number of commands in a line.
pub const MAX_COMMANDS: usize = 64;
/// The maximum number of words in a line, over all commands.
pub const MAX_WORDS: usize = 1024;

/// A line that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellLine {
    /// Its commands, in order. They are joined by `;`, `&&`, `||`, `|`, `|&`, `&` or a line end, and any of them may
    /// run.
    pub commands: Vec<SimpleCommand>,
}

/// One command of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Variables in its environment or, if there are no words, in the shell from then on.
    pub assignments: Vec<(String, ShellWord)>,
    /// The program and its arguments. Empty only if there are assignments or redirections.
    pub words: Vec<ShellWord>,
    /// The files that the shell opens for it.
    pub redirections: Vec<Redirection>,
    /// The command as written in the line.
    pub text: String,
}

/// A word after quotes are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWord {
    /// Its text.
    pub text: String,
    /// Whether the program receives exactly this text. Otherwise the shell replaces it with file names or a home
    /// directory.
    pub is_literal: bool,
}

/// A file that a shell opens for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    /// The access.
    pub access: RedirectionAccess,
    /// Its name.
    pub target: ShellWord,
}

/// The access of a redirection to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectionAccess {
    /// It is read: `<`.
    Read,
    /// It is written: `>`, `>>`, `>|` and `<>`.
    Write,
}

/// Why a line is not understood. Each message completes a sentence that begins with "the line".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellParseError {
    /// It is longer than [`MAX_LINE`].
    #[error("has {0} bytes, at most {MAX_LINE} are looked at")]
    TooLong(usize),
    /// It has more commands than [`MAX_COMMANDS`].
    #[error("has more than {MAX_COMMANDS} commands")]
    TooManyCommands,
    /// It has more words than [`MAX_WORDS`].
    #[error("has more than {MAX_WORDS} words")]
    TooManyWords,
    /// It has no command.
    #[error("has no command")]
    NoCommand,
    /// It has a character that shells read in different ways, or not at all.
    #[error("has the character {0:?} where shells differ on what it means")]
    AmbiguousCharacter(char),
    /// A quote is not closed.
    #[error("has a quote that is not closed")]
    UnclosedQuote,
    /// It ends where more has to follow.
    #[error("ends too early")]
    UnexpectedEnd,
    /// A command is missing, as in `;;`.
    #[error("has an operator without a command before it")]
    MissingCommand,
    /// It uses a value that only the shell knows.
    #[error("uses a variable or a substitution ($ or `)")]
    Substitution,
    /// It uses the history of an interactive shell.
    #[error("has an exclamation mark, which negates or stands for earlier commands")]
    History,
    /// It has parentheses.
    #[error("has a subshell, a function or another form in parentheses")]
    Parentheses,
    /// It has braces.
    #[error("has braces, which group commands or stand for several words")]
    Braces,
    /// It has text that follows on later lines.
    #[error("has a here-document or a here-string")]
    HereDocument,
    /// It redirects in a way that shells read differently.
    #[error("has a redirection that shells read in different ways")]
    AmbiguousRedirection,
    /// It continues on the next line in the middle of a word.
    #[error("goes on in the next line in the middle of a word")]
    Continuation,
    /// It is a piece of a script.
    #[error("has `{0}`, which belongs to the grammar of scripts")]
    ReservedWord(String),
    /// Only the shell knows the program's name.
    #[error("has a program name that the shell makes up (`{0}`)")]
    DynamicProgram(String),
    /// It has a form of assignment, or of home directory, that depends on the shell.
    #[error("has a word that shells read in different ways (`{0}`)")]
    AmbiguousWord(String),
}

/// Words that begin or end a construct, or change how the rest is read, in at least one of the shells.
const RESERVED: &[&str] = &[
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
    "function", "select", "time", "coproc", "[[", "]]", "repeat", "foreach", "end", "always", "nocorrect",
    "noglob", "-",
];

/// Parses a line.
///
/// # Errors
/// Returns why the line is not understood. A line is understood as a whole or not at all.
pub fn parse(line: &str) -> Result<ShellLine, ShellParseError> {
    if line.len() > MAX_LINE {
        return Err(ShellParseError::TooLong(line.len()));
    }
    if let Some(control) = line.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n')) {
        return Err(ShellParseError::AmbiguousCharacter(control));
    }
    let mut reader = ShellParser {
        line,
        at: 0,
        word_count: 0,
        commands: Vec::new(),
        current: SimpleCommand::default(),
        span: None,
    };
    reader.parse()?;
    Ok(ShellLine { commands: reader.commands })
}

/// Returns whether a text is a valid variable name.
#[must_use]
pub fn is_variable_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct ShellParser<'l> {
    line: &'l str,
    at: usize,
    word_count: usize,
    commands: Vec<SimpleCommand>,
    current: SimpleCommand,
    // The span of the current command in the line.
    span: Option<Range<usize>>,
}

/// A word with details that are needed only while parsing.
struct RawWord {
    text: String,
    is_literal: bool,
    is_quoted: bool,
    // The position of an unquoted `=`, if everything before it is unquoted.
    assignment_at: Option<usize>,
}

impl ShellParser<'_> {
    fn parse(&mut self) -> Result<(), ShellParseError> {
        // Whether an operator requires another command.
        let mut needs_command = false;
        loop {
            self.skip_blanks();
            let Some(next) = self.peek() else { break };
            match next {
                '\n' => {
                    self.at += 1;
                    if self.has_command() {
                        self.finish_command()?;
                    }
                    continue;
                }
                '#' => {
                    self.at = self.line[self.at..].find('\n').map_or(self.line.len(), |end| self.at + end);
                    continue;
                }
                ';' | '&' | '|' => {
                    needs_command = self.parse_operator()?;
                    continue;
                }
                '<' | '>' => {
                    let start = self.at;
                    self.parse_redirection(start)?;
                }
                _ => self.parse_word_or_number()?,
            }
            needs_command = false;
        }
        if needs_command {
            return Err(ShellParseError::UnexpectedEnd);
        }
        if self.has_command() {
            self.finish_command()?;
        }
        if self.commands.is_empty() { Err(ShellParseError::NoCommand) } else { Ok(()) }
    }

    /// Parses an operator between commands, and returns whether another command has to follow.
    fn parse_operator(&mut self) -> Result<bool, ShellParseError> {
        if !self.has_command() {
            return Err(ShellParseError::MissingCommand);
        }
        let rest = &self.line[self.at..];
        // Some shells read `&>` as a redirection, others as the end of a command and the start of the next.
        if rest.starts_with("&>") {
            return Err(ShellParseError::AmbiguousRedirection);
        }
        let (length, needs_command) = match rest {
            _ if rest.starts_with("&&") || rest.starts_with("||") || rest.starts_with("|&") => (2, true),
            _ if rest.starts_with('|') => (1, true),
            _ => (1, false),
        };
        self.at += length;
        self.finish_command()?;
        Ok(needs_command)
    }

    fn has_command(&self) -> bool {
        self.span.is_some()
    }

    fn finish_command(&mut self) -> Result<(), ShellParseError> {
        let mut command = std::mem::take(&mut self.current);
        if self.commands.len() == MAX_COMMANDS {
            return Err(ShellParseError::TooManyCommands);
        }
        if let Some(span) = self.span.take() {
            command.text = self.line[span].to_owned();
        }
        self.commands.push(command);
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.line[self.at..].chars().next()
    }

    fn extend_span(&mut self, start: usize) {
        let start = self.span.as_ref().map_or(start, |span| span.start);
        self.span = Some(start..self.at);
    }

    /// Skips spaces and tabs, and line ends that are escaped where a word could begin.
    fn skip_blanks(&mut self) {
        let bytes = self.line.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\t') => self.at += 1,
                // After anything but a blank it would join the words around it.
                Some(b'\\')
                    if bytes.get(self.at + 1) == Some(&b'\n')
                        && self
                            .at
                            .checked_sub(1)
                            .is_none_or(|before| matches!(bytes[before], b' ' | b'\t' | b'\n')) =>
                {
                    self.at += 2;
                }
                _ => return,
            }
        }
    }

    fn parse_word_or_number(&mut self) -> Result<(), ShellParseError> {
        let start = self.at;
        let word = self.parse_word()?;
        let is_number = !word.is_quoted && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && matches!(self.peek(), Some('<' | '>')) {
            // With two digits some shells take both as the number, others take the first as an argument.
            return if word.text.len() == 1 {
                self.parse_redirection(start)
            } else {
                Err(ShellParseError::AmbiguousRedirection)
            };
        }
        self.extend_span(start);
        self.count_word()?;
        if self.current.words.is_empty() {
            return self.push_first_word(word);
        }
        self.current.words.push(ShellWord { text: word.text, is_literal: word.is_literal });
        Ok(())
    }

    /// Adds a word in a position where a program's name can stand.
    fn push_first_word(&mut self, word: RawWord) -> Result<(), ShellParseError> {
        if let Some(equals) = word.assignment_at {
            let name = &word.text[..equals];
            if !is_variable_name(name) {
                return Err(ShellParseError::AmbiguousWord(word.text));
            }
            let value = ShellWord { text: word.text[equals + 1..].to_owned(), is_literal: word.is_literal };
            self.current.assignments.push((name.to_owned(), value));
            return Ok(());
        }
        if RESERVED.contains(&word.text.as_str()) {
            return Err(ShellParseError::ReservedWord(word.text));
        }
        if !word.is_literal || word.text.is_empty() || word.text.starts_with('%') || word.text == "{}" {
            return Err(ShellParseError::DynamicProgram(word.text));
        }
        self.current.words.push(ShellWord { text: word.text, is_literal: true });
        Ok(())
    }

    fn count_word(&mut self) -> Result<(), ShellParseError> {
        self.word_count += 1;
        if self.word_count > MAX_WORDS { Err(ShellParseError::TooManyWords) } else { Ok(()) }
    }

    fn parse_redirection(&mut self, start: usize) -> Result<(), ShellParseError> {
        let rest = &self.line[self.at..];
        if rest.starts_with("<<") {
            return Err(ShellParseError::HereDocument);
        }
        if rest.starts_with("<(") || rest.starts_with(">(") {
            return Err(ShellParseError::Parentheses);
        }
        let duplicates = rest.starts_with(">&") || rest.starts_with("<&");
        let (length, access) = match rest {
            _ if rest.starts_with(">>") || rest.starts_with(">|") || rest.starts_with("<>") => {
                (2, RedirectionAccess::Write)
            }
            _ if duplicates => (2, RedirectionAccess::Write),
            _ if rest.starts_with('>') => (1, RedirectionAccess::Write),
            _ => (1, RedirectionAccess::Read),
        };
        self.at += length;
        self.skip_blanks();
        match self.peek() {
            None => return Err(ShellParseError::UnexpectedEnd),
            Some('<' | '>' | '|' | '&' | ';' | '#' | '\n') => {
                return Err(ShellParseError::AmbiguousRedirection);
            }
            Some(_) => {}
        }
        let word = self.parse_word()?;
        self.extend_span(start);
        self.count_word()?;
        if duplicates {
            let is_descriptor = !word.is_quoted
                && (word.text == "-"
                    || (word.text.len() == 1 && word.text.bytes().all(|byte| byte.is_ascii_digit())));
            return if is_descriptor { Ok(()) } else { Err(ShellParseError::AmbiguousRedirection) };
        }
        let target = ShellWord { text: word.text, is_literal: word.is_literal };
        self.current.redirections.push(Redirection { access, target });
        Ok(())
    }

    fn parse_word(&mut self) -> Result<RawWord, ShellParseError> {
        let mut word =
            RawWord { text: String::new(), is_literal: true, is_quoted: false, assignment_at: None };
        let start = self.at;
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' => break,
                '\'' => self.parse_single_quoted(&mut word)?,
                '"' => self.parse_double_quoted(&mut word)?,
                '\\' => {
                    word.is_quoted = true;
                    self.at += 1;
                    match self.peek() {
                        None => return Err(ShellParseError::UnexpectedEnd),
                        Some('\n') => return Err(ShellParseError::Continuation),
                        Some(escaped) => self.push_char(&mut word, escaped),
                    }
                }
                '(' | ')' => return Err(ShellParseError::Parentheses),
                '$' | '`' => return Err(ShellParseError::Substitution),
                '!' => return Err(ShellParseError::History),
                '{' if self.at == start && self.is_empty_braces() => {
                    word.text.push_str("{}");
                    self.at += 2;
                }
                '{' | '}' => return Err(ShellParseError::Braces),
                '~' => {
                    let at_start = self.at == start;
                    if at_start && !self.ends_word(self.at + 1, true) {
                        return Err(ShellParseError::AmbiguousWord("~".to_owned()));
                    }
                    if at_start || word.text.ends_with(['=', ':']) {
                        word.is_literal = false;
                    }
                    self.push_char(&mut word, '~');
                }
                '=' => {
                    // To some shells `=word` is the path of a program.
                    if self.at == start && !self.ends_word(self.at + 1, false) {
                        return Err(ShellParseError::AmbiguousWord("=".to_owned()));
                    }
                    if self.at > start && !word.is_quoted && word.assignment_at.is_none() {
                        word.assignment_at = Some(word.text.len());
                    }
                    self.push_char(&mut word, '=');
                }
                '*' | '?' | '[' => {
                    word.is_literal = false;
                    self.push_char(&mut word, next);
                }
                next if next.is_ascii() => self.push_char(&mut word, next),
                next => return Err(ShellParseError::AmbiguousCharacter(next)),
            }
        }
        Ok(word)
    }

    fn push_char(&mut self, word: &mut RawWord, character: char) {
        word.text.push(character);
        self.at += character.len_utf8();
    }

    fn is_empty_braces(&self) -> bool {
        self.line[self.at..].starts_with("{}") && self.ends_word(self.at + 2, false)
    }

    /// Returns whether a word ends at a position, or continues there with `/` if `or_slash` is set.
    fn ends_word(&self, at: usize, or_slash: bool) -> bool {
        match self.line.as_bytes().get(at) {
            None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|') => true,
            Some(b'/') => or_slash,
            Some(_) => false,
        }
    }

    fn parse_single_quoted(&mut self, word: &mut RawWord) -> Result<(), ShellParseError> {
        word.is_quoted = true;
        let body = &self.line[self.at + 1..];
        let end = body.find('\'').ok_or(ShellParseError::UnclosedQuote)?;
        word.text.push_str(&body[..end]);
        self.at += end + 2;
        Ok(())
    }

    fn parse_double_quoted(&mut self, word: &mut RawWord) -> Result<(), ShellParseError> {
        word.is_quoted = true;
        self.at += 1;
        loop {
            match self.peek().ok_or(ShellParseError::UnclosedQuote)? {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '$' | '`' => return Err(ShellParseError::Substitution),
                '!' => return Err(ShellParseError::History),
                '\\' => {
                    self.at += 1;
                    match self.peek().ok_or(ShellParseError::UnclosedQuote)? {
                        '\n' => return Err(ShellParseError::Continuation),
                        escaped @ ('"' | '\\' | '$' | '`') => self.push_char(word, escaped),
                        // The backslash stays where it escapes nothing; the next character is read as usual.
                        _ => word.text.push('\\'),
                    }
                }
                other => self.push_char(word, other),
            }
        }
    }
}

#[cfg(test)]
mod tests;
