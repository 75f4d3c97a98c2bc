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
        let prefix_length = if let Self::QuotedFile(_) = self { 2 } else { 1 };
        self.text().chars().count() + prefix_length
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
        let (items, best) = match &token {
            CompletionToken::Command(_) => {
                let matches = rank_matches(commands, typed, |command| &command.name);
                let best = matches.first().map(|command| command.name.as_str());
                let make_item = |command: &&AvailableCommand| CompletionItem {
                    text: format!("/{} ", command.name),
                    description: describe_command(command),
                };
                (matches.iter().map(make_item).collect::<Vec<_>>(), best)
            }
            CompletionToken::File(_) | CompletionToken::QuotedFile(_) => {
                let mut matches = rank_matches(files, typed, |file| file);
                // A complete directory is followed by its contents, not by itself.
                matches.retain(|file| !typed.ends_with('/') || *file != typed);
                let best = matches.first().map(|file| file.as_str());
                (matches.iter().filter_map(|file| mention_item(file)).collect(), best)
            }
        };
        let is_complete = best == Some(typed);
        (!items.is_empty() && !is_complete).then_some(Self { token, items, selected: 0 })
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
        let start = rest.find("@\"")?;
        let starts_word = rest[..start].chars().next_back().is_none_or(char::is_whitespace);
        let inner = &rest[start + 2..];
        rest = match inner.find('"') {
            None if starts_word => return Some(inner),
            Some(end) if starts_word => &inner[end + 1..],
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
fn rank_matches<'a, T>(items: &'a [T], typed: &str, name: impl Fn(&T) -> &str) -> Vec<&'a T> {
    let typed = typed.to_lowercase();
    let mut matches: Vec<(u8, usize, &T)> = Vec::new();
    for item in items {
        let lower = name(item).to_lowercase();
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
        matches.push((rank, name(item).len(), item));
    }
    matches.sort_by_key(|(rank, length, _)| (*rank, *length));
    matches.into_iter().take(MAX_ITEMS).map(|(_, _, item)| item).collect()
}

fn is_subsequence(text: &str, letters: &str) -> bool {
    let mut rest = text.chars();
    letters.chars().all(|letter| rest.any(|character| character == letter))
}

#[cfg(test)]
mod tests;
