//! Lines of shell text, as far as they mean the same to every shell and hide nothing.
//!
//! This is a recogniser, not a shell: it takes what it surely understands and refuses the rest with a reason. What it takes
//! is a list of simple commands, with quotes, escapes, comments, assignments and redirections; the words it gives are the
//! words that the program gets, unless they are marked as not literal. What it refuses is nothing that a rule by words can
//! speak of: whatever depends on variables, substitution, braces, history, here-documents or the grammar of scripts, and
//! what `bash`, `dash` and `zsh` read in different ways.

use std::ops::Range;

/// A line is at most this long, in bytes.
pub const MAX_LINE: usize = 16 << 10;
/// A line has at most this many commands.
pub const MAX_COMMANDS: usize = 64;
/// A line has at most this many words, all commands together.
pub const MAX_WORDS: usize = 1024;

/// A line that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its commands, in order. They are joined by `;`, `&&`, `||`, `|`, `|&`, `&` or a line end, and any of them may run.
    pub commands: Vec<Simple>,
}

/// One command of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// What it finds in its environment, or, if there are no words, what the shell does from then on.
    pub assignments: Vec<(String, Word)>,
    /// The program and its arguments. Empty only if there are assignments or redirections.
    pub words: Vec<Word>,
    /// The files it reads and writes by the shell's hand.
    pub redirections: Vec<Redirection>,
    /// The command as it stands in the line.
    pub text: String,
}

/// A word after quotes are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What it says.
    pub text: String,
    /// Whether that is what the program gets. Otherwise the shell puts names of files, or a home directory, in its place.
    pub is_literal: bool,
}

/// A file that a shell opens for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    /// What for.
    pub access: Access,
    /// Its name.
    pub target: Word,
}

/// What a redirection does with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is read: `<`.
    Read,
    /// It is written: `>`, `>>`, `>|` and `<>`.
    Write,
}

/// Why a line is not understood. Each text ends a sentence that begins with "the line".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unparsed {
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
    Nothing,
    /// It has a character that shells read in different ways, or not at all.
    #[error("has the character {0:?} where shells differ on what it means")]
    Character(char),
    /// A quote is not closed.
    #[error("has a quote that is not closed")]
    OpenQuote,
    /// It ends where something has to follow.
    #[error("ends too early")]
    Unfinished,
    /// There is no command where one has to be, as in `;;`.
    #[error("has an operator without a command before it")]
    Empty,
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
    Redirection,
    /// It continues on the next line in the middle of a word.
    #[error("goes on in the next line in the middle of a word")]
    Continuation,
    /// It is a piece of a script.
    #[error("has `{0}`, which belongs to the grammar of scripts")]
    Reserved(String),
    /// The program's name is only known to the shell.
    #[error("has a program name that the shell makes up (`{0}`)")]
    Program(String),
    /// It has a form of assignment, or of home directory, that depends on the shell.
    #[error("has a word that shells read in different ways (`{0}`)")]
    Ambiguous(String),
}

/// Words that begin or end a construct, or change how the rest is read, in one of the shells.
const RESERVED: &[&str] = &[
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "for",
    "while",
    "until",
    "do",
    "done",
    "case",
    "esac",
    "in",
    "function",
    "select",
    "time",
    "coproc",
    "[[",
    "]]",
    "repeat",
    "foreach",
    "end",
    "always",
    "nocorrect",
    "noglob",
    "-",
];

/// Reads a line.
///
/// # Errors
/// Returns why the line is not understood. Nothing is ever left out: a line is understood as a whole or not at all.
pub fn parse(line: &str) -> Result<Line, Unparsed> {
    if line.len() > MAX_LINE {
        return Err(Unparsed::TooLong(line.len()));
    }
    if let Some(control) = line.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n')) {
        return Err(Unparsed::Character(control));
    }
    let mut reader =
        Reader { line, at: 0, words: 0, commands: Vec::new(), current: Simple::default(), span: None };
    reader.read()?;
    Ok(Line { commands: reader.commands })
}

/// Says whether a text is the name of a variable.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

struct Reader<'l> {
    line: &'l str,
    at: usize,
    words: usize,
    commands: Vec<Simple>,
    current: Simple,
    // Where the current command stands in the line.
    span: Option<Range<usize>>,
}

/// A word with what is known only while it is read.
struct Raw {
    text: String,
    is_literal: bool,
    is_quoted: bool,
    // Where an unquoted `=` stands, if all before it is unquoted.
    assigns: Option<usize>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), Unparsed> {
        // Whether an operator waits for the command that has to follow it.
        let mut wanting = false;
        loop {
            self.skip_blanks();
            let Some(next) = self.peek() else { break };
            match next {
                '\n' => {
                    self.at += 1;
                    if self.has_command() {
                        self.finish()?;
                    }
                    continue;
                }
                '#' => {
                    self.at = self.line[self.at..].find('\n').map_or(self.line.len(), |end| self.at + end);
                    continue;
                }
                ';' | '&' | '|' => {
                    wanting = self.operator()?;
                    continue;
                }
                '<' | '>' => {
                    let start = self.at;
                    self.redirection(start)?;
                }
                _ => self.word_or_number()?,
            }
            wanting = false;
        }
        if wanting {
            return Err(Unparsed::Unfinished);
        }
        if self.has_command() {
            self.finish()?;
        }
        if self.commands.is_empty() { Err(Unparsed::Nothing) } else { Ok(()) }
    }

    /// Reads an operator between commands, and says whether another command has to follow.
    fn operator(&mut self) -> Result<bool, Unparsed> {
        if !self.has_command() {
            return Err(Unparsed::Empty);
        }
        let rest = &self.line[self.at..];
        // Some shells read `&>` as a redirection, others as the end of a command and the start of the next.
        if rest.starts_with("&>") {
            return Err(Unparsed::Redirection);
        }
        let (length, wanting) = match rest {
            _ if rest.starts_with("&&") || rest.starts_with("||") || rest.starts_with("|&") => (2, true),
            _ if rest.starts_with('|') => (1, true),
            _ => (1, false),
        };
        self.at += length;
        self.finish()?;
        Ok(wanting)
    }

    fn has_command(&self) -> bool {
        self.span.is_some()
    }

    fn finish(&mut self) -> Result<(), Unparsed> {
        let mut command = std::mem::take(&mut self.current);
        if self.commands.len() == MAX_COMMANDS {
            return Err(Unparsed::TooManyCommands);
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

    fn extend(&mut self, start: usize) {
        let start = self.span.as_ref().map_or(start, |span| span.start);
        self.span = Some(start..self.at);
    }

    /// Skips spaces and tabs, and line ends that are escaped where a word could begin.
    fn skip_blanks(&mut self) {
        let bytes = self.line.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\t') => self.at += 1,
                // After anything but a blank it would join what is before it and what is after it.
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

    fn word_or_number(&mut self) -> Result<(), Unparsed> {
        let start = self.at;
        let word = self.word()?;
        let is_number = !word.is_quoted && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && matches!(self.peek(), Some('<' | '>')) {
            // Of two digits some shells take both for the number, others the first for an argument.
            return if word.text.len() == 1 { self.redirection(start) } else { Err(Unparsed::Redirection) };
        }
        self.extend(start);
        self.count_word()?;
        if self.current.words.is_empty() {
            return self.first(word);
        }
        self.current.words.push(Word { text: word.text, is_literal: word.is_literal });
        Ok(())
    }

    /// Takes a word that stands where a program's name can.
    fn first(&mut self, word: Raw) -> Result<(), Unparsed> {
        if let Some(equals) = word.assigns {
            let name = &word.text[..equals];
            if !is_name(name) {
                return Err(Unparsed::Ambiguous(word.text));
            }
            let value = Word { text: word.text[equals + 1..].to_owned(), is_literal: word.is_literal };
            self.current.assignments.push((name.to_owned(), value));
            return Ok(());
        }
        if RESERVED.contains(&word.text.as_str()) {
            return Err(Unparsed::Reserved(word.text));
        }
        if !word.is_literal || word.text.is_empty() || word.text.starts_with('%') || word.text == "{}" {
            return Err(Unparsed::Program(word.text));
        }
        self.current.words.push(Word { text: word.text, is_literal: true });
        Ok(())
    }

    fn count_word(&mut self) -> Result<(), Unparsed> {
        self.words += 1;
        if self.words > MAX_WORDS { Err(Unparsed::TooManyWords) } else { Ok(()) }
    }

    fn redirection(&mut self, start: usize) -> Result<(), Unparsed> {
        let rest = &self.line[self.at..];
        if rest.starts_with("<<") {
            return Err(Unparsed::HereDocument);
        }
        if rest.starts_with("<(") || rest.starts_with(">(") {
            return Err(Unparsed::Parentheses);
        }
        let duplicates = rest.starts_with(">&") || rest.starts_with("<&");
        let (length, access) = match rest {
            _ if rest.starts_with(">>") || rest.starts_with(">|") || rest.starts_with("<>") => {
                (2, Access::Write)
            }
            _ if duplicates => (2, Access::Write),
            _ if rest.starts_with('>') => (1, Access::Write),
            _ => (1, Access::Read),
        };
        self.at += length;
        self.skip_blanks();
        match self.peek() {
            None => return Err(Unparsed::Unfinished),
            Some('<' | '>' | '|' | '&' | ';' | '#' | '\n') => return Err(Unparsed::Redirection),
            Some(_) => {}
        }
        let word = self.word()?;
        self.extend(start);
        self.count_word()?;
        if duplicates {
            let is_descriptor = !word.is_quoted
                && (word.text == "-"
                    || (word.text.len() == 1 && word.text.bytes().all(|byte| byte.is_ascii_digit())));
            return if is_descriptor { Ok(()) } else { Err(Unparsed::Redirection) };
        }
        let target = Word { text: word.text, is_literal: word.is_literal };
        self.current.redirections.push(Redirection { access, target });
        Ok(())
    }

    fn word(&mut self) -> Result<Raw, Unparsed> {
        let mut word = Raw { text: String::new(), is_literal: true, is_quoted: false, assigns: None };
        let start = self.at;
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' => break,
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '\\' => {
                    word.is_quoted = true;
                    self.at += 1;
                    match self.peek() {
                        None => return Err(Unparsed::Unfinished),
                        Some('\n') => return Err(Unparsed::Continuation),
                        Some(escaped) => self.take(&mut word, escaped),
                    }
                }
                '(' | ')' => return Err(Unparsed::Parentheses),
                '$' | '`' => return Err(Unparsed::Substitution),
                '!' => return Err(Unparsed::History),
                '{' if self.at == start && self.is_empty_braces() => {
                    word.text.push_str("{}");
                    self.at += 2;
                }
                '{' | '}' => return Err(Unparsed::Braces),
                '~' => {
                    let at_start = self.at == start;
                    if at_start && !self.ends_word(self.at + 1, true) {
                        return Err(Unparsed::Ambiguous("~".to_owned()));
                    }
                    if at_start || word.text.ends_with(['=', ':']) {
                        word.is_literal = false;
                    }
                    self.take(&mut word, '~');
                }
                '=' => {
                    // To some shells `=word` is the path of a program.
                    if self.at == start && !self.ends_word(self.at + 1, false) {
                        return Err(Unparsed::Ambiguous("=".to_owned()));
                    }
                    if self.at > start && !word.is_quoted && word.assigns.is_none() {
                        word.assigns = Some(word.text.len());
                    }
                    self.take(&mut word, '=');
                }
                '*' | '?' | '[' => {
                    word.is_literal = false;
                    self.take(&mut word, next);
                }
                next if next.is_ascii() => self.take(&mut word, next),
                next => return Err(Unparsed::Character(next)),
            }
        }
        Ok(word)
    }

    fn take(&mut self, word: &mut Raw, character: char) {
        word.text.push(character);
        self.at += character.len_utf8();
    }

    fn is_empty_braces(&self) -> bool {
        self.line[self.at..].starts_with("{}") && self.ends_word(self.at + 2, false)
    }

    /// Says whether a word that reaches to a place ends there, or goes on with `/` if it may.
    fn ends_word(&self, at: usize, or_slash: bool) -> bool {
        match self.line.as_bytes().get(at) {
            None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|') => true,
            Some(b'/') => or_slash,
            Some(_) => false,
        }
    }

    fn single_quoted(&mut self, word: &mut Raw) -> Result<(), Unparsed> {
        word.is_quoted = true;
        let body = &self.line[self.at + 1..];
        let end = body.find('\'').ok_or(Unparsed::OpenQuote)?;
        word.text.push_str(&body[..end]);
        self.at += end + 2;
        Ok(())
    }

    fn double_quoted(&mut self, word: &mut Raw) -> Result<(), Unparsed> {
        word.is_quoted = true;
        self.at += 1;
        loop {
            match self.peek().ok_or(Unparsed::OpenQuote)? {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '$' | '`' => return Err(Unparsed::Substitution),
                '!' => return Err(Unparsed::History),
                '\\' => {
                    self.at += 1;
                    match self.peek().ok_or(Unparsed::OpenQuote)? {
                        '\n' => return Err(Unparsed::Continuation),
                        escaped @ ('"' | '\\' | '$' | '`') => self.take(word, escaped),
                        // The backslash stays where it escapes nothing; what follows is read as ever.
                        _ => word.text.push('\\'),
                    }
                }
                other => self.take(word, other),
            }
        }
    }
}

#[cfg(test)]
mod tests;
