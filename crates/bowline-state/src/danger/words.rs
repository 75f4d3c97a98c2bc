//! The words of a command, as far as they are needed to warn of it.
//!
//! [`policy::shell`](crate::policy::shell) takes lines apart to allow them, and refuses what it is not sure of. To warn, it
//! is better to guess: what is here understands less and takes everything.

use crate::operation::Invocation;

/// Returns the simple commands of an invocation, each as its words. A line for a shell is taken apart without
/// understanding it: quotes are honoured, and what separates commands, opens a substitution or redirects stands by
/// itself. What this makes of odd text is good enough to warn and not to allow.
pub(super) fn simple_commands(invocation: &Invocation) -> Vec<Vec<String>> {
    match invocation {
        Invocation::Argv(words) => vec![words.clone()],
        Invocation::Shell(line) => split(line),
    }
}

/// Takes a line apart at whitespace and at what separates commands. Redirections become words of their own.
pub(super) fn split(text: &str) -> Vec<Vec<String>> {
    let mut parts = Parts::default();
    // What is open: quotes, and substitutions within double quotes.
    let mut open: Vec<char> = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (open.last(), character) {
            (Some('\''), '\'') | (Some('"'), '"') => _ = open.pop(),
            (Some('\''), other) => parts.push(other),
            // What is to be run inside of double quotes is run.
            (Some('"'), '`') => {
                parts.end_command();
                open.push('`');
            }
            (Some('"'), '$') if characters.next_if_eq(&'(').is_some() => {
                parts.end_command();
                open.push('(');
            }
            // An escaped line end is none.
            (_, '\\') => {
                characters.next().into_iter().filter(|next| *next != '\n').for_each(|next| parts.push(next));
            }
            (Some('"'), other) => parts.push(other),
            (_, '\'' | '"') => {
                parts.open();
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
struct Parts {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    /// The word that goes on, if one does.
    word: Option<String>,
}

impl Parts {
    /// Begins a word, which may stay empty.
    fn open(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, character: char) {
        self.open().push(character);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        // Braces and the words of loops stand before a command and are none.
        let words = std::mem::take(&mut self.words);
        if words.iter().any(|word| !matches!(word.as_str(), "{" | "}")) {
            self.commands.push(words);
        }
    }
}
