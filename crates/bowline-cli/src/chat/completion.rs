//! Completion of `/` commands and `@` mentions.

use bowline_protocol::schema::v1::{AvailableCommand, AvailableCommandInput};

/// The maximum number of items offered.
const MAX_ITEMS: usize = 50;

/// The incomplete token at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CompletionToken {
    /// An agent's command: the text after the `/`.
    Command(String),
    /// A file: the text after the `@`.
    File(String),
    /// A quoted file: the text after the `@"`.
    QuotedFile(String),
}

/// An item to complete to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompletionItem {
    /// The text to insert, with its `/` or `@`.
    pub(crate) text: String,
    /// Its description.
    pub(crate) description: String,
}

/// The open completion list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The token being completed.
    pub(crate) token: CompletionToken,
    /// The items, best first; never empty.
    pub(crate) items: Vec<CompletionItem>,
    /// The index of the selected item.
    pub(crate) selected: usize,
}

impl CompletionToken {
    /// Returns the token at the cursor, if it can be completed: `before` is the line up to the cursor, `row` its
    /// number.
    pub(crate) fn at_cursor(before: &str, row: usize) -> Option<Self> {
        if let Some(name) = before.strip_prefix('/')
            && row == 0
            && !name.contains(char::is_whitespace)
        {
            return Some(Self::Command(name.to_owned()));
        }
        if let Some(path) = find_open_quote(before) {
            return Some(Self::QuotedFile(path.to_owned()));
        }
        let word = before.rsplit(char::is_whitespace).next()?;
        let path = word.strip_prefix('@')?;
        Some(Self::File(path.to_owned()))
    }

    /// Returns how many of its characters are before the cursor.
    pub(crate) fn char_count(&self) -> usize {
        let sign = if let Self::QuotedFile(_) = self { 2 } else { 1 };
        self.text().chars().count() + sign
    }

    fn text(&self) -> &str {
        let (Self::Command(text) | Self::File(text) | Self::QuotedFile(text)) = self;
        text
    }
}

impl Completion {
    /// Returns the completions of a token; `None` if there are none, or it is complete.
    pub(crate) fn for_token(
        token: CompletionToken,
        commands: &[AvailableCommand],
        files: &[String],
    ) -> Option<Self> {
        let typed = token.text();
        let (offers, best) = match &token {
            CompletionToken::Command(_) => {
                let found = rank_matches(commands, typed, |command| &command.name);
                let best = found.first().map(|command| command.name.as_str());
                let offer = |command: &&AvailableCommand| CompletionItem {
                    text: format!("/{} ", command.name),
                    description: describe_command(command),
                };
                (found.iter().map(offer).collect::<Vec<_>>(), best)
            }
            CompletionToken::File(_) | CompletionToken::QuotedFile(_) => {
                let mut found = rank_matches(files, typed, |file| file);
                // A complete directory is followed by its contents, not by itself.
                found.retain(|file| !typed.ends_with('/') || *file != typed);
                let best = found.first().map(|file| file.as_str());
                (found.iter().filter_map(|file| mention_item(file)).collect(), best)
            }
        };
        let is_done = best == Some(typed);
        (!offers.is_empty() && !is_done).then_some(Self { token, items: offers, selected: 0 })
    }

    /// Selects the next item, or the previous one.
    pub(crate) fn move_selection(&mut self, forward: bool) {
        let count = self.items.len().max(1);
        let step = if forward { 1 } else { count - 1 };
        self.selected = (self.selected + step) % count;
    }

    /// Returns the selected item.
    pub(crate) fn selected_item(&self) -> Option<&CompletionItem> {
        self.items.get(self.selected)
    }
}

/// Returns the mention of a file; `None` if a prompt cannot mention it.
fn mention_item(file: &str) -> Option<CompletionItem> {
    let has_blank = file.contains(char::is_whitespace);
    // A quoted name ends at the next quote, an unquoted one at whitespace.
    if file.starts_with('"') || has_blank && file.contains(['"', '\n']) {
        return None;
    }
    let text = match (has_blank, file.ends_with('/')) {
        // Completion continues inside a directory.
        (true, true) => format!("@\"{file}"),
        (true, false) => format!("@\"{file}\" "),
        (false, true) => format!("@{file}"),
        (false, false) => format!("@{file} "),
    };
    Some(CompletionItem { text, description: String::new() })
}

/// Returns the text after an unclosed `@"` at the start of a word.
fn find_open_quote(before: &str) -> Option<&str> {
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

fn describe_command(command: &AvailableCommand) -> String {
    match &command.input {
        Some(AvailableCommandInput::Unstructured(input)) if !input.hint.is_empty() => {
            format!("{}  ({})", command.description, input.hint)
        }
        _ => command.description.clone(),
    }
}

/// Returns the matches, best first: prefixes of the path or of one of its parts, then substrings, then subsequences.
fn rank_matches<'a, T>(all: &'a [T], typed: &str, name: impl Fn(&T) -> &str) -> Vec<&'a T> {
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
        } else if is_subsequence(&lower, &typed) {
            3
        } else {
            continue;
        };
        found.push((rank, name(one).len(), one));
    }
    found.sort_by_key(|(rank, length, _)| (*rank, *length));
    found.into_iter().take(MAX_ITEMS).map(|(_, _, one)| one).collect()
}

fn is_subsequence(text: &str, letters: &str) -> bool {
    let mut rest = text.chars();
    letters.chars().all(|letter| rest.any(|other| other == letter))
}

#[cfg(test)]
mod tests;
