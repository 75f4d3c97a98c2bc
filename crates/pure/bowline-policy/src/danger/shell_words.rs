//! The words of a command, for the purpose of warnings.
//!
//! [`policy::shell`](crate::policy::shell) parses lines to allow them, and rejects uncertain syntax. Warnings benefit
//! from guessing: this parser understands less and accepts everything.

use bowline_protocol::terminal::Invocation;

/// Returns the simple commands of an invocation, each as its words. A shell line is split without full parsing: quotes
/// are honoured, and command separators, substitutions and redirections become separate words. On odd input the result
/// is good enough to warn, but not to allow.
pub(super) fn simple_commands(invocation: &Invocation) -> Vec<Vec<String>> {
    match invocation {
        Invocation::Argv(words) => vec![words.clone()],
        Invocation::Shell(line) => split_commands(line),
    }
}

/// Splits a line at whitespace and command separators. Redirections become separate words.
pub(super) fn split_commands(text: &str) -> Vec<Vec<String>> {
    let mut parts = CommandSplitter::default();
    // The open quotes, and substitutions within double quotes.
    let mut open: Vec<char> = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (open.last(), character) {
            (Some('\''), '\'') | (Some('"'), '"') => _ = open.pop(),
            (Some('\''), other) => parts.push(other),
            // Substitutions inside double quotes are executed.
            (Some('"'), '`') => {
                parts.end_command();
                open.push('`');
            }
            (Some('"'), '$') if characters.next_if_eq(&'(').is_some() => {
                parts.end_command();
                open.push('(');
            }
            // An escaped newline is a line continuation.
            (_, '\\') => {
                characters.next().into_iter().filter(|next| *next != '\n').for_each(|next| parts.push(next));
            }
            (Some('"'), other) => parts.push(other),
            (_, '\'' | '"') => {
                parts.open_word();
                open.push(character);
            }
            (_, '&') if characters.peek() == Some(&'>') => parts.end_word(),
            (_, ';' | '|' | '&' | '\n' | '(' | ')' | '`') => {
                parts.end_command();
                if matches!((open.last(), character), (Some('('), ')') | (Some('`'), '`')) {
                    open.pop();
                }
            }
            (_, '>' | '<') => {
                parts.end_word();
                parts.push(character);
                while let Some(next) = characters.next_if(|next| matches!(next, '>' | '<' | '|' | '&')) {
                    parts.push(next);
                }
                parts.end_word();
            }
            (_, blank) if blank.is_whitespace() => parts.end_word(),
            (_, other) => parts.push(other),
        }
    }
    parts.end_command();
    parts.commands
}

#[derive(Debug, Default)]
struct CommandSplitter {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    /// The current word, if one is open.
    word: Option<String>,
}

impl CommandSplitter {
    /// Starts a word, which may remain empty.
    fn open_word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, character: char) {
        self.open_word().push(character);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        // Braces alone are not a command.
        let words = std::mem::take(&mut self.words);
        if words.iter().any(|word| !matches!(word.as_str(), "{" | "}")) {
            self.commands.push(words);
        }
    }
}
