//! The changes pane: lists what was changed here, and undoes and redoes it by hunk.
//!
//! Agents' changes are listed; a key shows the others. Those may be the user's own work, so undoing one needs a
//! confirmation that names it.

mod change_list;
mod draw;
mod recent_changes;

use bowline_history::changes::{Change, ChangeId, Reversal};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::diff::{DiffStat, compute_hunks, compute_stat};
use bowline_workspace::workspace::ListedChange;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::view::diff::{DiffLayout, RenderedDiff};
use crate::view::widgets::viewport::Viewport;
use change_list::{ChangesPaneList, ListScope};
pub(crate) use recent_changes::{OlderCounts, RecentChanges, is_possibly_users, select_newest};

/// One change with its texts.
#[derive(Debug, Clone)]
pub(crate) struct ChangeEntry {
    /// The change, as the workspace lists it. Undos and redos are entries too: they determine what is undone.
    pub(crate) record: ListedChange,
    /// The text before; `None` if there was no file, or it is not text or not kept.
    pub(crate) before: Option<String>,
    /// The text after; `None` in the same cases.
    pub(crate) after: Option<String>,
    /// The prompt of its turn, if known.
    pub(crate) title: Option<String>,
}

impl ChangeEntry {
    fn change(&self) -> &Change {
        &self.record.change
    }

    fn is_possibly_users(&self) -> bool {
        is_possibly_users(self.change())
    }

    fn texts(&self) -> [&str; 2] {
        [&self.before, &self.after].map(|text| text.as_deref().unwrap_or_default())
    }

    fn stat(&self) -> DiffStat {
        let [before, after] = self.texts();
        compute_stat(before, after)
    }

    fn hunk_count(&self) -> usize {
        let [before, after] = self.texts();
        compute_hunks(before, after).len()
    }

    /// Returns whether the text is known on each side that has a file.
    fn has_texts(&self) -> bool {
        let Change { before, after, .. } = self.change();
        (self.before.is_some() || before.is_none()) && (self.after.is_some() || after.is_none())
    }
}

/// An action that the user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangesAction {
    /// Close the pane.
    Close,
    /// Undo changes. [`ChangesPane::finish_action`] reports the result.
    Undo(ChangeSelection),
    /// Redo undone changes.
    Redo(ChangeSelection),
    /// List the changes again.
    Refresh,
}

/// The changes, and the user's position in them.
#[derive(Debug)]
pub(crate) struct ChangesPane {
    entries: Vec<ChangeEntry>,
    older_counts: OlderCounts,
    list_scope: ListScope,
    change_list: ChangesPaneList,
    // The selected edit of the list, and the selected hunk of the edit.
    selected_edit: usize,
    selected_hunk: usize,
    focus: ChangesFocus,
    layout: Option<DiffLayout>,
    list_viewport: Viewport,
    diff_viewport: Viewport,
    message: Option<String>,
    // An undo that may revert the user's own work, until it is confirmed.
    confirmation: Option<ChangeSelection>,
    // Whether an undo or redo is running.
    is_busy: bool,
    help_viewport: Option<Viewport>,
    rendered: Option<RenderedChange>,
    // Whether to scroll to the hunk under the cursor.
    reveals_hunk: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangesFocus {
    List,
    Diff,
}

/// The rendered diff of a change, and what it was rendered for.
#[derive(Debug)]
struct RenderedChange {
    key: (ChangeId, u16, DiffLayout),
    diff: RenderedDiff,
}

impl ChangesPane {
    /// Returns the pane, with the newest change of an agent selected.
    pub(crate) fn new(recent: RecentChanges) -> Self {
        let RecentChanges { entries, older_counts } = recent;
        let scope = ListScope::Agents;
        let change_list = ChangesPaneList::new(&entries, scope);
        let selected = change_list.newest_edit(&entries);
        Self {
            entries,
            older_counts,
            list_scope: scope,
            change_list,
            selected_edit: selected,
            selected_hunk: 0,
            focus: ChangesFocus::List,
            layout: None,
            list_viewport: Viewport::default(),
            diff_viewport: Viewport::default(),
            message: None,
            confirmation: None,
            is_busy: false,
            help_viewport: None,
            rendered: None,
            reveals_hunk: false,
        }
    }

    /// Updates the list. The selection stays at the same change, or near its position.
    pub(crate) fn update(&mut self, recent: RecentChanges) {
        let selected_id = self.selected_entry().map(|entry| entry.change().id);
        (self.entries, self.older_counts) = (recent.entries, recent.older_counts);
        self.rebuild_list(selected_id);
    }

    /// Toggles between agents' changes and all changes.
    fn toggle_scope(&mut self) {
        let selected_id = self.selected_entry().map(|entry| entry.change().id);
        self.list_scope = self.list_scope.toggled();
        self.rebuild_list(selected_id);
    }

    fn rebuild_list(&mut self, selected_id: Option<ChangeId>) {
        self.change_list = ChangesPaneList::new(&self.entries, self.list_scope);
        let position = self
            .change_list
            .edits
            .iter()
            .position(|index| Some(self.entries[*index].change().id) == selected_id);
        self.selected_edit =
            position.unwrap_or(self.selected_edit).min(self.change_list.edits.len().saturating_sub(1));
        if position.is_none() {
            self.selected_hunk = 0;
            self.diff_viewport.reset();
        }
        // The change to be confirmed may be different now, or no longer visible.
        (self.rendered, self.reveals_hunk, self.confirmation) = (None, true, None);
    }

    /// Shows the result of an undo or redo until the next key.
    pub(crate) fn finish_action(&mut self, text: String) {
        self.is_busy = false;
        self.show_message(text);
    }

    /// Scrolls the diff, or the help, by some lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.help_viewport.as_mut().unwrap_or(&mut self.diff_viewport).scroll(lines);
    }

    fn show_message(&mut self, text: String) {
        self.message = Some(text);
        // The message takes rows from the diff.
        self.reveals_hunk = true;
    }

    /// Handles a key, and returns the requested action.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<ChangesAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if let Some(selection) = self.confirmation.take() {
            return self.confirm(key, selection);
        }
        if let Some(viewport) = &mut self.help_viewport {
            if !viewport.handle_key(key.code) {
                self.help_viewport = None;
            }
            return None;
        }
        if key.code == KeyCode::Char('r') && key.modifiers == KeyModifiers::CONTROL {
            return Some(ChangesAction::Refresh);
        }
        if !(key.modifiers - KeyModifiers::SHIFT).is_empty() {
            return None;
        }
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Some(ChangesAction::Close),
            KeyCode::F(5) => return Some(ChangesAction::Refresh),
            KeyCode::Char('?') | KeyCode::F(1) => self.help_viewport = Some(Viewport::default()),
            KeyCode::Char('u' | 'U' | 'T' | 'S' | 'r' | 'R') if self.is_busy => {
                self.show_message("wait: what was asked for before is still being done".to_owned());
            }
            KeyCode::Char('u') => {
                return self.hunk_selection().and_then(|selection| self.request_undo(selection));
            }
            KeyCode::Char('U') => {
                return self.file_selection().and_then(|selection| self.request_undo(selection));
            }
            KeyCode::Char('a') => self.toggle_scope(),
            KeyCode::Char('T') => return self.turn_selection().map(|selection| self.start_undo(selection)),
            KeyCode::Char('S') => {
                return self.session_selection().map(|selection| self.start_undo(selection));
            }
            KeyCode::Char('r') => return self.redo_selection().map(|selection| self.start_redo(selection)),
            KeyCode::Char('R') => {
                return self.redo_last_selection().map(|selection| self.start_redo(selection));
            }
            KeyCode::Char('v') => {
                self.layout = self.rendered.as_ref().map(|rendered| rendered.key.2.toggled())
            }
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Enter => {
                self.focus = match self.focus {
                    ChangesFocus::List => ChangesFocus::Diff,
                    ChangesFocus::Diff => ChangesFocus::List,
                };
            }
            KeyCode::Left | KeyCode::Char('h') => self.focus = ChangesFocus::List,
            KeyCode::Right | KeyCode::Char('l') => self.focus = ChangesFocus::Diff,
            KeyCode::Char('n') => self.select_hunk(self.selected_hunk + 1),
            KeyCode::Char('p') => self.select_hunk(self.selected_hunk.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') if self.focus == ChangesFocus::List => {
                self.select_edit(self.selected_edit + 1)
            }
            KeyCode::Up | KeyCode::Char('k') if self.focus == ChangesFocus::List => {
                self.select_edit(self.selected_edit.saturating_sub(1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.select_hunk(self.selected_hunk + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select_hunk(self.selected_hunk.saturating_sub(1)),
            KeyCode::Home if self.focus == ChangesFocus::List => self.select_edit(0),
            KeyCode::End if self.focus == ChangesFocus::List => self.select_edit(usize::MAX),
            code => {
                self.diff_viewport.handle_key(code);
            }
        }
        None
    }

    /// Undoes the selected change or a part of it; asks for confirmation first if it may be the user's own work.
    fn request_undo(&mut self, selection: ChangeSelection) -> Option<ChangesAction> {
        if self.selected_entry()?.is_possibly_users() {
            self.confirmation = Some(selection);
            self.reveals_hunk = true;
            return None;
        }
        Some(self.start_undo(selection))
    }

    /// Handles the answer to a confirmation: only `y` confirms.
    fn confirm(&mut self, key: KeyEvent, selection: ChangeSelection) -> Option<ChangesAction> {
        if key.code == KeyCode::Char('y') && key.modifiers.is_empty() && key.kind == KeyEventKind::Press {
            return Some(self.start_undo(selection));
        }
        self.show_message("not undone".to_owned());
        None
    }

    fn start_undo(&mut self, selection: ChangeSelection) -> ChangesAction {
        self.is_busy = true;
        self.show_message("undoing …".to_owned());
        ChangesAction::Undo(selection)
    }

    fn start_redo(&mut self, selection: ChangeSelection) -> ChangesAction {
        self.is_busy = true;
        self.show_message("redoing …".to_owned());
        ChangesAction::Redo(selection)
    }

    fn selected_entry(&self) -> Option<&ChangeEntry> {
        self.entries.get(*self.change_list.edits.get(self.selected_edit)?)
    }

    fn select_edit(&mut self, edit: usize) {
        let edit = edit.min(self.change_list.edits.len().saturating_sub(1));
        if edit != self.selected_edit {
            (self.selected_edit, self.selected_hunk) = (edit, 0);
            self.diff_viewport.reset();
        }
    }

    /// Returns how many hunks the selected change has, even if it has not been drawn since it was selected.
    fn hunk_count(&self) -> usize {
        let Some(entry) = self.selected_entry().filter(|entry| entry.has_texts()) else { return 0 };
        match &self.rendered {
            Some(rendered) if rendered.key.0 == entry.change().id => rendered.diff.hunks.len(),
            _ => entry.hunk_count(),
        }
    }

    fn select_hunk(&mut self, hunk: usize) {
        self.selected_hunk = hunk.min(self.hunk_count().saturating_sub(1));
        self.reveals_hunk = true;
    }

    fn hunk_selection(&self) -> Option<ChangeSelection> {
        let entry = self.selected_entry()?;
        // A change without hunks can only be undone whole: a file that is not text, or changed mode bits.
        let hunks = self.hunk_count().checked_sub(1).map(|last| vec![self.selected_hunk.min(last)]);
        let change = Some(Reversal { change: entry.change().id, hunks });
        Some(ChangeSelection { change, ..ChangeSelection::default() })
    }

    fn file_selection(&self) -> Option<ChangeSelection> {
        let change = self.selected_entry()?.change();
        let Some(session) = change.origin.session.clone() else {
            // Others' changes to the file are not selected.
            let change = Some(Reversal { change: change.id, hunks: None });
            return Some(ChangeSelection { change, ..ChangeSelection::default() });
        };
        let selection = ChangeSelection {
            path: Some(change.path.clone()),
            owner: ChangeOwner::Session(session),
            // Possible work of the user stays, unless it is the selected change itself.
            only_explained: !change.is_unattributed(),
            ..ChangeSelection::default()
        };
        Some(selection)
    }

    fn turn_selection(&mut self) -> Option<ChangeSelection> {
        let origin = &self.selected_entry()?.change().origin;
        let selection = origin.session.as_deref().zip(origin.turn).map(|(session, turn)| ChangeSelection {
            only_explained: true,
            ..ChangeSelection::turn(session, turn)
        });
        if selection.is_none() {
            self.show_message("this change belongs to no turn: u and U take back it alone".to_owned());
        }
        selection
    }

    fn session_selection(&mut self) -> Option<ChangeSelection> {
        let session = self.selected_entry()?.change().origin.session.clone();
        if session.is_none() {
            self.show_message("this change belongs to no session: u and U take back it alone".to_owned());
        }
        Some(ChangeSelection {
            owner: ChangeOwner::Session(session?),
            only_explained: true,
            ..ChangeSelection::default()
        })
    }

    /// Returns the undo that reverted the hunk under the cursor, to be undone itself.
    fn redo_selection(&mut self) -> Option<ChangeSelection> {
        let id = self.selected_entry()?.change().id;
        let undo = self
            .change_list
            .find_undo(id, Some(self.selected_hunk))
            .or_else(|| self.change_list.find_undo(id, None));
        if undo.is_none() {
            self.show_message("this is not undone".to_owned());
        }
        let change = Some(Reversal { change: undo?, hunks: None });
        Some(ChangeSelection { change, ..ChangeSelection::default() })
    }

    fn redo_last_selection(&self) -> Option<ChangeSelection> {
        let session = self.selected_entry()?.change().origin.session.clone();
        let owner = session.map_or(ChangeOwner::Anyone, ChangeOwner::Session);
        Some(ChangeSelection { owner, limit: Some(1), ..ChangeSelection::default() })
    }
}

#[cfg(test)]
mod tests;
