//! The list of changes: by turn, then by file, then in order of creation.

use std::cell::OnceCell;
use std::collections::HashMap;

use bowline_history::changes::{ChangeId, ChangeSource};
use bowline_text::diff::DiffStat;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::ChangeEntry;
use crate::view::widgets::cells::{self, Truncation};
use crate::view::widgets::theme;

/// The maximum number of characters shown of a long id.
const SHORT_ID_CHARS: usize = 8;

/// The status of a change or hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListedChangeStatus {
    InEffect,
    Undone,
    PartlyUndone,
    Uncertain,
}

/// Whose changes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListScope {
    /// Agents' changes.
    Agents,
    /// All changes, including those that may be the user's own.
    All,
}

impl ListScope {
    pub(super) fn toggled(self) -> Self {
        match self {
            Self::Agents => Self::All,
            Self::All => Self::Agents,
        }
    }
}

/// A row of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListRow {
    /// The turn of the edits below, by the index of one of these edits.
    Turn(usize),
    /// An edit, by its index.
    Edit(usize),
}

/// Changes in listing order.
#[derive(Debug)]
pub(super) struct ChangesPaneList {
    pub(super) rows: Vec<ListRow>,
    /// The indices of the edits among the entries.
    pub(super) edits: Vec<usize>,
    /// The number of edits left out because the user may have made them.
    pub(super) hidden_count: usize,
    /// The common parent directory of all files.
    pub(super) common_directory: String,
    // Computed when shown: there may be many long texts.
    stats: Vec<OnceCell<DiffStat>>,
    // The newest undo in effect, by change and hunk.
    undos: HashMap<(ChangeId, Option<usize>), ChangeId>,
}

impl ChangesPaneList {
    pub(super) fn new(entries: &[ChangeEntry], scope: ListScope) -> Self {
        let mut undos = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.record.is_in_effect) {
            for reversal in &entry.change().reverses {
                let hunks = reversal.hunks.iter().flatten().map(|hunk| Some(*hunk));
                let whole_change = reversal.hunks.is_none().then_some(None);
                for hunk in hunks.chain(whole_change) {
                    undos.insert((reversal.change, hunk), entry.change().id);
                }
            }
        }
        let mut edits: Vec<usize> =
            (0..entries.len()).filter(|index| entries[*index].change().reverses.is_empty()).collect();
        let total = edits.len();
        edits.retain(|index| scope == ListScope::All || !entries[*index].is_possibly_users());
        let hidden_count = total - edits.len();
        // Turns and files are ordered by their first change.
        let mut first_of_turn: HashMap<(Option<&str>, Option<u64>), usize> = HashMap::new();
        let mut first_of_file = HashMap::new();
        let turn = |index: usize| {
            let origin = &entries[index].change().origin;
            (origin.session.as_deref(), origin.turn)
        };
        for index in &edits {
            first_of_turn.entry(turn(*index)).or_insert(*index);
            first_of_file.entry((turn(*index), &entries[*index].change().path)).or_insert(*index);
        }
        edits.sort_by_key(|index| {
            let path = &entries[*index].change().path;
            (first_of_turn.get(&turn(*index)), first_of_file.get(&(turn(*index), path)), *index)
        });
        let mut rows = Vec::new();
        for (index, edit) in edits.iter().enumerate() {
            let is_same = index.checked_sub(1).is_some_and(|previous| turn(edits[previous]) == turn(*edit));
            if !is_same {
                rows.push(ListRow::Turn(index));
            }
            rows.push(ListRow::Edit(index));
        }
        let stats = vec![OnceCell::new(); edits.len()];
        let directory = common_directory(edits.iter().map(|index| entries[*index].change().path.as_str()));
        Self { rows, hidden_count, common_directory: directory, stats, undos, edits }
    }

    /// Returns the newest edit, preferring those in effect.
    pub(super) fn newest_edit(&self, entries: &[ChangeEntry]) -> usize {
        let edits = self.edits.iter().enumerate();
        edits
            .max_by_key(|(_, index)| (entries[**index].record.is_in_effect, entries[**index].change().id))
            .map_or(0, |(position, _)| position)
    }

    /// Returns the newest undo in effect that reverted a hunk of a change, or all of it.
    pub(super) fn find_undo(&self, change: ChangeId, hunk: Option<usize>) -> Option<ChangeId> {
        self.undos.get(&(change, hunk)).copied()
    }

    pub(super) fn status(&self, entry: &ChangeEntry) -> ListedChangeStatus {
        let id = entry.change().id;
        if !entry.record.is_in_effect {
            ListedChangeStatus::Undone
        } else if entry.record.is_uncertain {
            ListedChangeStatus::Uncertain
        } else if self.undos.keys().any(|(change, _)| *change == id) {
            ListedChangeStatus::PartlyUndone
        } else {
            ListedChangeStatus::InEffect
        }
    }

    pub(super) fn render_row(
        &self,
        row: &ListRow,
        entries: &[ChangeEntry],
        width: usize,
        selected: usize,
    ) -> Line<'static> {
        match row {
            ListRow::Turn(edit) => {
                let entry = &entries[self.edits[*edit]];
                let origin = &entry.change().origin;
                let text = match (&origin.session, origin.turn, &entry.title) {
                    (Some(session), Some(turn), Some(title)) => {
                        format!("turn {turn} of {}: {title}", short_session_id(session))
                    }
                    (Some(session), Some(turn), None) => {
                        format!("turn {turn} of session {}", short_session_id(session))
                    }
                    (Some(session), None, _) => {
                        format!("between turns of session {}", short_session_id(session))
                    }
                    (None, ..) => "not by an agent".to_owned(),
                };
                Line::styled(cells::truncate(&text, width, Truncation::KeepStart), theme::title())
            }
            ListRow::Edit(edit) => self.render_edit(*edit, entries, width, *edit == selected),
        }
    }

    /// Returns the display name of a file.
    pub(super) fn display_name(&self, path: &str) -> String {
        let relative = path.strip_prefix(&self.common_directory).unwrap_or(path).trim_start_matches('/');
        cells::escape_line(relative)
    }

    fn render_edit(
        &self,
        edit: usize,
        entries: &[ChangeEntry],
        width: usize,
        is_selected: bool,
    ) -> Line<'static> {
        let entry = &entries[self.edits[edit]];
        let DiffStat { added, removed } = self.stats[edit].get_or_init(|| entry.stat());
        let counts = match entry.has_texts() {
            true => [format!(" +{added}"), format!(" −{removed}")],
            false => [" no text".to_owned(), String::new()],
        };
        let status_mark = match self.status(entry) {
            ListedChangeStatus::InEffect => "  ",
            ListedChangeStatus::Undone => "u ",
            ListedChangeStatus::PartlyUndone => "p ",
            ListedChangeStatus::Uncertain => "? ",
        };
        let source_note = match entry.change().source {
            ChangeSource::Observed if entry.change().is_unattributed() => " (may be yours)",
            ChangeSource::Written => "",
            ChangeSource::Observed => " (by a command)",
            ChangeSource::Claimed => " (claimed)",
        };
        let used = status_mark.len()
            + source_note.len()
            + counts.iter().map(|text| cells::text_width(text)).sum::<usize>();
        let name = cells::truncate(
            &self.display_name(&entry.change().path),
            width.saturating_sub(used),
            Truncation::KeepEnd,
        );
        let padding = " ".repeat(width.saturating_sub(used + cells::text_width(&name)));
        let style = if is_selected { theme::selected() } else { Style::new() };
        let mut line = Line::styled(format!("{status_mark}{name}{source_note}{padding}"), style);
        let [added, removed] = counts;
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
        line
    }
}

/// Returns the full path and all other details of a change, in rows.
pub(super) fn describe_change(
    entry: &ChangeEntry,
    status: ListedChangeStatus,
    width: u16,
) -> Vec<Line<'static>> {
    let change = entry.change();
    let source = match change.source {
        ChangeSource::Written => "written through Bowline",
        ChangeSource::Observed => "found on disk",
        ChangeSource::Claimed => "claimed by the agent",
    };
    let mut parts = vec![format!("change {}", change.id), source.to_owned(), format_time(change.at.0)];
    if let (Some(before), Some(after)) = (&change.before, &change.after)
        && before.mode != after.mode
    {
        parts.push(format!("mode {:o} → {:o}", before.mode & 0o7777, after.mode & 0o7777));
    }
    parts.extend(change.origin.call.as_ref().map(|call| format!("call {call}")));
    parts.extend(change.origin.command.as_ref().map(|command| format!("by {command}")));
    parts.extend(match status {
        ListedChangeStatus::InEffect => None,
        ListedChangeStatus::Undone => Some("undone".to_owned()),
        ListedChangeStatus::PartlyUndone => Some("partly undone".to_owned()),
        ListedChangeStatus::Uncertain => Some("interrupted; outcome unknown".to_owned()),
    });
    let warning = (!entry.has_texts()).then(|| "The text is not kept, or it is no text.".to_owned());
    let texts = [
        (Some(change.path.clone()), theme::title()),
        (Some(parts.join(" · ")), theme::secondary()),
        (warning, theme::danger()),
    ];
    let texts = texts.into_iter().filter_map(|(text, style)| Some((text?, style)));
    let rows = texts.flat_map(|(text, style)| {
        cells::wrap_prose(&text, usize::from(width)).into_iter().map(move |row| Line::styled(row, style))
    });
    rows.collect()
}

/// Returns a session's id, shortened if it is long.
fn short_session_id(session: &str) -> String {
    let start = session.chars().take(SHORT_ID_CHARS).collect::<String>();
    cells::escape_line(if session.chars().count() > 2 * SHORT_ID_CHARS { &start } else { session })
}

/// Returns the time of day in UTC.
fn format_time(milliseconds: i64) -> String {
    let seconds = milliseconds.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns the common parent directory of some files.
fn common_directory<'a>(mut paths: impl Iterator<Item = &'a str>) -> String {
    let parent = |path: &'a str| path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let Some(mut common) = paths.next().map(parent) else { return String::new() };
    for path in paths {
        while !path.strip_prefix(common).is_some_and(|rest| rest.starts_with('/')) && !common.is_empty() {
            common = parent(common);
        }
    }
    if common.is_empty() { "/".to_owned() } else { common.to_owned() }
}
