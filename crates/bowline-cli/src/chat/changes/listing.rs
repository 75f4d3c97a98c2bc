//! The list of changes: by turn, then by file, then in the order they were made.

use std::cell::OnceCell;
use std::collections::HashMap;

use bowline_state::changes::{ChangeId, Source};
use bowline_state::diff::Stat;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Entry;
use crate::chat::parts::cells::{self, Stays};
use crate::chat::parts::theme;

/// So many characters of a long id are shown.
const SHORT_ID: usize = 8;

/// What became of a change, or of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    InEffect,
    Undone,
    Partly,
    Uncertain,
}

/// Whose changes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of agents.
    Agents,
    /// All, also those that may be the user's own.
    All,
}

impl Scope {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Agents => Self::All,
            Self::All => Self::Agents,
        }
    }
}

/// A row of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// The turn of the edits below: one of them, by its place among the edits.
    Turn(usize),
    /// An edit, by its place among the edits.
    Edit(usize),
}

/// Changes in the order in which they are listed.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) rows: Vec<Row>,
    /// The places of the edits among the entries.
    pub(super) edits: Vec<usize>,
    /// How many edits are left out because the user may have made them.
    pub(super) hidden: usize,
    /// The directory that all of the files are below.
    pub(super) directory: String,
    // Looked for when it is shown: texts may be long, and many.
    stats: Vec<OnceCell<Stat>>,
    // The newest undo that is in effect, by change and by hunk of it.
    undos: HashMap<(ChangeId, Option<usize>), ChangeId>,
}

impl Listing {
    pub(super) fn of(entries: &[Entry], scope: Scope) -> Self {
        let mut undos = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.changed.in_effect) {
            for reversal in &entry.change().reverses {
                let hunks = reversal.hunks.iter().flatten().map(|hunk| Some(*hunk));
                let whole = reversal.hunks.is_none().then_some(None);
                for hunk in hunks.chain(whole) {
                    undos.insert((reversal.change, hunk), entry.change().id);
                }
            }
        }
        let mut edits: Vec<usize> =
            (0..entries.len()).filter(|at| entries[*at].change().reverses.is_empty()).collect();
        let all = edits.len();
        edits.retain(|at| scope == Scope::All || !entries[*at].may_be_users());
        let hidden = all - edits.len();
        // Turns and files stand where their first change would.
        let mut first: HashMap<(Option<&str>, Option<u64>), usize> = HashMap::new();
        let mut first_of_file = HashMap::new();
        let turn = |at: usize| {
            let origin = &entries[at].change().origin;
            (origin.session.as_deref(), origin.turn)
        };
        for at in &edits {
            first.entry(turn(*at)).or_insert(*at);
            first_of_file.entry((turn(*at), &entries[*at].change().path)).or_insert(*at);
        }
        edits.sort_by_key(|at| {
            let path = &entries[*at].change().path;
            (first.get(&turn(*at)), first_of_file.get(&(turn(*at), path)), *at)
        });
        let mut rows = Vec::new();
        for (at, edit) in edits.iter().enumerate() {
            let is_same = at.checked_sub(1).is_some_and(|before| turn(edits[before]) == turn(*edit));
            if !is_same {
                rows.push(Row::Turn(at));
            }
            rows.push(Row::Edit(at));
        }
        let stats = vec![OnceCell::new(); edits.len()];
        let directory = directory(edits.iter().map(|at| entries[*at].change().path.as_str()));
        Self { rows, hidden, directory, stats, undos, edits }
    }

    /// Returns the edit that was made last, of those in effect if there are any.
    pub(super) fn newest(&self, entries: &[Entry]) -> usize {
        let places = self.edits.iter().enumerate();
        places
            .max_by_key(|(_, at)| (entries[**at].changed.in_effect, entries[**at].change().id))
            .map_or(0, |(place, _)| place)
    }

    /// Returns the newest undo in effect that took back a hunk of a change, or the whole of it.
    pub(super) fn undo_of(&self, change: ChangeId, hunk: Option<usize>) -> Option<ChangeId> {
        self.undos.get(&(change, hunk)).copied()
    }

    pub(super) fn state(&self, entry: &Entry) -> State {
        let id = entry.change().id;
        if !entry.changed.in_effect {
            State::Undone
        } else if entry.changed.uncertain {
            State::Uncertain
        } else if self.undos.keys().any(|(change, _)| *change == id) {
            State::Partly
        } else {
            State::InEffect
        }
    }

    pub(super) fn line(&self, row: &Row, entries: &[Entry], width: usize, selected: usize) -> Line<'static> {
        match row {
            Row::Turn(edit) => {
                let entry = &entries[self.edits[*edit]];
                let origin = &entry.change().origin;
                let text = match (&origin.session, origin.turn, &entry.title) {
                    (Some(session), Some(turn), Some(title)) => {
                        format!("turn {turn} of {}: {title}", short(session))
                    }
                    (Some(session), Some(turn), None) => format!("turn {turn} of session {}", short(session)),
                    (Some(session), None, _) => format!("between turns of session {}", short(session)),
                    (None, ..) => "not by an agent".to_owned(),
                };
                Line::styled(cells::fit(&text, width, Stays::Start), theme::title())
            }
            Row::Edit(edit) => self.edit(*edit, entries, width, *edit == selected),
        }
    }

    /// Returns what a file is called here.
    pub(super) fn name(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.directory).unwrap_or(path).trim_start_matches('/');
        cells::visible(below)
    }

    fn edit(&self, edit: usize, entries: &[Entry], width: usize, is_selected: bool) -> Line<'static> {
        let entry = &entries[self.edits[edit]];
        let Stat { added, removed } = self.stats[edit].get_or_init(|| entry.stat());
        let counts = match entry.is_text() {
            true => [format!(" +{added}"), format!(" −{removed}")],
            false => [" no text".to_owned(), String::new()],
        };
        let state = match self.state(entry) {
            State::InEffect => "  ",
            State::Undone => "u ",
            State::Partly => "p ",
            State::Uncertain => "? ",
        };
        let how = match entry.change().source {
            Source::Observed if entry.change().is_unexplained() => " (may be yours)",
            Source::Written => "",
            Source::Observed => " (by a command)",
            Source::Claimed => " (claimed)",
        };
        let used = state.len() + how.len() + counts.iter().map(|text| cells::width(text)).sum::<usize>();
        let name = cells::fit(&self.name(&entry.change().path), width.saturating_sub(used), Stays::End);
        let blank = " ".repeat(width.saturating_sub(used + cells::width(&name)));
        let style = if is_selected { theme::chosen() } else { Style::new() };
        let mut line = Line::styled(format!("{state}{name}{how}{blank}"), style);
        let [added, removed] = counts;
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
        line
    }
}

/// Returns the whole path of a change, and all else there is to know of it, in rows.
pub(super) fn about(entry: &Entry, state: State, width: u16) -> Vec<Line<'static>> {
    let change = entry.change();
    let how = match change.source {
        Source::Written => "written through Bowline",
        Source::Observed => "found on disk",
        Source::Claimed => "claimed by the agent",
    };
    let mut parts = vec![format!("change {}", change.id), how.to_owned(), at(change.at.0)];
    if let (Some(before), Some(after)) = (&change.before, &change.after)
        && before.mode != after.mode
    {
        parts.push(format!("mode {:o} → {:o}", before.mode & 0o7777, after.mode & 0o7777));
    }
    parts.extend(change.origin.call.as_ref().map(|call| format!("call {call}")));
    parts.extend(change.origin.command.as_ref().map(|command| format!("by {command}")));
    parts.extend(match state {
        State::InEffect => None,
        State::Undone => Some("undone".to_owned()),
        State::Partly => Some("partly undone".to_owned()),
        State::Uncertain => Some("interrupted: nobody can tell whether it was done".to_owned()),
    });
    let fault = (!entry.is_text()).then(|| "The text is not kept, or it is no text.".to_owned());
    let texts = [
        (Some(change.path.clone()), theme::title()),
        (Some(parts.join(" · ")), theme::aside()),
        (fault, theme::danger()),
    ];
    let texts = texts.into_iter().filter_map(|(text, style)| Some((text?, style)));
    let rows = texts.flat_map(|(text, style)| {
        cells::prose(&text, usize::from(width)).into_iter().map(move |row| Line::styled(row, style))
    });
    rows.collect()
}

/// Returns a session's id, of a long one the start.
fn short(session: &str) -> String {
    let start = session.chars().take(SHORT_ID).collect::<String>();
    cells::visible(if session.chars().count() > 2 * SHORT_ID { &start } else { session })
}

/// Returns the time of day of a moment, in the time that needs no zone.
fn at(milliseconds: i64) -> String {
    let seconds = milliseconds.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns the directory that all of some files are in or below.
fn directory<'a>(mut paths: impl Iterator<Item = &'a str>) -> String {
    let parent = |path: &'a str| path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let Some(mut common) = paths.next().map(parent) else { return String::new() };
    for path in paths {
        while !path.strip_prefix(common).is_some_and(|rest| rest.starts_with('/')) && !common.is_empty() {
            common = parent(common);
        }
    }
    if common.is_empty() { "/".to_owned() } else { common.to_owned() }
}
