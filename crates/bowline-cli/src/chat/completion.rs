//! What `/` and `@` could be completed to.

use bowline_state::schema::v1::{AvailableCommand, AvailableCommandInput};

/// So many are offered.
const MAX_OFFERED: usize = 50;

/// What is being written at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A command of the agent's: what follows the `/`.
    Command(String),
    /// A file: what follows the `@`.
    File(String),
    /// A file in quotes: what follows the `@"`.
    Quoted(String),
}

/// One thing to complete to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// What is inserted, with its `/` or `@`.
    pub(crate) text: String,
    /// What it is.
    pub(crate) about: String,
}

/// What is offered at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    /// What it is for.
    pub(crate) token: Token,
    /// The offers, the best first; never empty.
    pub(crate) offers: Vec<Offer>,
    /// Which is chosen.
    pub(crate) selected: usize,
}

impl Token {
    /// Returns what is being written, if it can be completed: `before` is the line up to the cursor, `row` its number.
    pub(crate) fn at(before: &str, row: usize) -> Option<Self> {
        if let Some(name) = before.strip_prefix('/')
            && row == 0
            && !name.contains(char::is_whitespace)
        {
            return Some(Self::Command(name.to_owned()));
        }
        if let Some(path) = open_quote(before) {
            return Some(Self::Quoted(path.to_owned()));
        }
        let word = before.rsplit(char::is_whitespace).next()?;
        let path = word.strip_prefix('@')?;
        Some(Self::File(path.to_owned()))
    }

    /// Returns how many characters of it are before the cursor.
    pub(crate) fn characters(&self) -> usize {
        let sign = if let Self::Quoted(_) = self { 2 } else { 1 };
        self.typed().chars().count() + sign
    }

    fn typed(&self) -> &str {
        let (Self::Command(text) | Self::File(text) | Self::Quoted(text)) = self;
        text
    }
}

impl Completion {
    /// Returns what a token could be completed to; none if there is nothing, or nothing more.
    pub(crate) fn of(token: Token, commands: &[AvailableCommand], files: &[String]) -> Option<Self> {
        let typed = token.typed();
        let (offers, best) = match &token {
            Token::Command(_) => {
                let found = ranked(commands, typed, |command| &command.name);
                let best = found.first().map(|command| command.name.as_str());
                let offer = |command: &&AvailableCommand| Offer {
                    text: format!("/{} ", command.name),
                    about: about(command),
                };
                (found.iter().map(offer).collect::<Vec<_>>(), best)
            }
            Token::File(_) | Token::Quoted(_) => {
                let mut found = ranked(files, typed, |file| file);
                // Whoever wrote a directory wants what is in it.
                found.retain(|file| !typed.ends_with('/') || *file != typed);
                let best = found.first().map(|file| file.as_str());
                (found.iter().filter_map(|file| mention(file)).collect(), best)
            }
        };
        let is_done = best == Some(typed);
        (!offers.is_empty() && !is_done).then_some(Self { token, offers, selected: 0 })
    }

    /// Chooses the next, or the one before.
    pub(crate) fn select(&mut self, forward: bool) {
        let count = self.offers.len().max(1);
        let step = if forward { 1 } else { count - 1 };
        self.selected = (self.selected + step) % count;
    }

    /// Returns what is chosen.
    pub(crate) fn chosen(&self) -> Option<&Offer> {
        self.offers.get(self.selected)
    }
}

/// Returns how a prompt mentions a file; none if it cannot.
fn mention(file: &str) -> Option<Offer> {
    let has_blank = file.contains(char::is_whitespace);
    // Quotes end at the next one, and without them a name ends at a blank.
    if file.starts_with('"') || has_blank && file.contains(['"', '\n']) {
        return None;
    }
    let text = match (has_blank, file.ends_with('/')) {
        // A directory is gone on with.
        (true, true) => format!("@\"{file}"),
        (true, false) => format!("@\"{file}\" "),
        (false, true) => format!("@{file}"),
        (false, false) => format!("@{file} "),
    };
    Some(Offer { text, about: String::new() })
}

/// Returns what follows an `@"` at the start of a word that no quote ends.
fn open_quote(before: &str) -> Option<&str> {
    let mut rest = before;
    loop {
        let at = rest.find("@\"")?;
        let begins = rest[..at].chars().next_back().is_none_or(char::is_whitespace);
        let inner = &rest[at + 2..];
        rest = match inner.find('"') {
            None if begins => return Some(inner),
            Some(end) if begins => &inner[end + 1..],
            _ => inner,
        };
    }
}

fn about(command: &AvailableCommand) -> String {
    match &command.input {
        Some(AvailableCommandInput::Unstructured(input)) if !input.hint.is_empty() => {
            format!("{}  ({})", command.description, input.hint)
        }
        _ => command.description.clone(),
    }
}

/// Returns what fits, the best first: what begins with the text, in whole or at a part of its path; what holds it; what
/// has its letters in that order.
fn ranked<'a, T>(all: &'a [T], typed: &str, name: impl Fn(&T) -> &str) -> Vec<&'a T> {
    let typed = typed.to_lowercase();
    let mut found: Vec<(u8, usize, &T)> = Vec::new();
    for one in all {
        let lower = name(one).to_lowercase();
        let last = lower.trim_end_matches('/').rsplit('/').next().unwrap_or(&lower);
        let rank = if lower.starts_with(&typed) {
            0
        } else if last.starts_with(&typed) {
            1
        } else if lower.contains(&typed) {
            2
        } else if has_letters(&lower, &typed) {
            3
        } else {
            continue;
        };
        found.push((rank, name(one).len(), one));
    }
    found.sort_by_key(|(rank, length, _)| (*rank, *length));
    found.into_iter().take(MAX_OFFERED).map(|(_, _, one)| one).collect()
}

fn has_letters(text: &str, letters: &str) -> bool {
    let mut rest = text.chars();
    letters.chars().all(|letter| rest.any(|other| other == letter))
}

#[cfg(test)]
mod tests;
