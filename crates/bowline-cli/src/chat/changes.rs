//! The pane of changes: what was changed here, and undo and redo by hunk.
//!
//! Agents' changes are listed; the others are behind a key. Of those any may be the user's own work, so that taking one back
//! has to be confirmed by name.

mod draw;
mod listed;
mod listing;

use bowline_state::changes::{Change, ChangeId, Reversal};
use bowline_state::diff::{Stat, hunks, stat};
use bowline_state::undo::{Selection, Who};
use bowline_workspace::workspace::Changed;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::diff::{Drawn, Layout};
use super::parts::view::View;
pub(crate) use listed::{Listed, Older, may_be_users, newest};
use listing::{Listing, Scope};

/// One change with its texts.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The change, as the workspace tells it. Undos and redos belong to a list too: what is taken back is told by them.
    pub(crate) changed: Changed,
    /// The text before; none if there was no file, or it is no text or not kept.
    pub(crate) before: Option<String>,
    /// The text after, likewise.
    pub(crate) after: Option<String>,
    /// What its turn was asked to do, if that is known.
    pub(crate) title: Option<String>,
}

impl Entry {
    fn change(&self) -> &Change {
        &self.changed.change
    }

    fn may_be_users(&self) -> bool {
        may_be_users(self.change())
    }

    fn texts(&self) -> [&str; 2] {
        [&self.before, &self.after].map(|text| text.as_deref().unwrap_or_default())
    }

    fn stat(&self) -> Stat {
        let [before, after] = self.texts();
        stat(before, after)
    }

    fn hunks(&self) -> usize {
        let [before, after] = self.texts();
        hunks(before, after).len()
    }

    /// Returns whether the texts are known where there was a file.
    fn is_text(&self) -> bool {
        let Change { before, after, .. } = self.change();
        (self.before.is_some() || before.is_none()) && (self.after.is_some() || after.is_none())
    }
}

/// What the person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// To leave the pane.
    Close,
    /// To take back changes. [`Changes::done`] tells what came of it.
    Undo(Selection),
    /// To have back what was taken back.
    Redo(Selection),
    /// To see what is there now.
    Refresh,
}

/// The changes, and where the person is in them.
#[derive(Debug)]
pub(crate) struct Changes {
    entries: Vec<Entry>,
    older: Older,
    scope: Scope,
    listing: Listing,
    // Which of the listing's edits, and which of its hunks.
    selected: usize,
    hunk: usize,
    focus: Focus,
    layout: Option<Layout>,
    list: View,
    view: View,
    message: Option<String>,
    // An undo that may take back the user's own work, until it is confirmed.
    confirmation: Option<Selection>,
    // Whether something is being taken back or done again.
    busy: bool,
    help: Option<View>,
    drawn: Option<Shown>,
    // Whether the hunk under the cursor should come into sight.
    follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Focus {
    List,
    Diff,
}

/// The diff of a change, and what it was drawn for.
#[derive(Debug)]
struct Shown {
    key: (ChangeId, u16, Layout),
    drawn: Drawn,
}

impl Changes {
    /// Returns the pane, at the newest change of an agent.
    pub(crate) fn new(listed: Listed) -> Self {
        let Listed { entries, older } = listed;
        let scope = Scope::Agents;
        let listing = Listing::of(&entries, scope);
        let selected = listing.newest(&entries);
        Self {
            entries,
            older,
            scope,
            listing,
            selected,
            hunk: 0,
            focus: Focus::List,
            layout: None,
            list: View::default(),
            view: View::default(),
            message: None,
            confirmation: None,
            busy: false,
            help: None,
            drawn: None,
            follow: false,
        }
    }

    /// Shows what is there now. The person stays at the same change, or near where it was.
    pub(crate) fn update(&mut self, listed: Listed) {
        let chosen = self.entry().map(|entry| entry.change().id);
        (self.entries, self.older) = (listed.entries, listed.older);
        self.list_again(chosen);
    }

    /// Lists agents' changes only, or all.
    fn toggle_scope(&mut self) {
        let chosen = self.entry().map(|entry| entry.change().id);
        self.scope = self.scope.other();
        self.list_again(chosen);
    }

    fn list_again(&mut self, chosen: Option<ChangeId>) {
        self.listing = Listing::of(&self.entries, self.scope);
        let same = self.listing.edits.iter().position(|at| Some(self.entries[*at].change().id) == chosen);
        self.selected = same.unwrap_or(self.selected).min(self.listing.edits.len().saturating_sub(1));
        if same.is_none() {
            self.hunk = 0;
            self.view.reset();
        }
        // What is to be confirmed may have changed, or not be in sight any more.
        (self.drawn, self.follow, self.confirmation) = (None, true, None);
    }

    /// Tells what came of an undo or redo, until the next key.
    pub(crate) fn done(&mut self, text: String) {
        self.busy = false;
        self.say(text);
    }

    /// Scrolls the diff, or the help, by some lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.help.as_mut().unwrap_or(&mut self.view).scroll(lines);
    }

    fn say(&mut self, text: String) {
        self.message = Some(text);
        // What is said takes room from the diff.
        self.follow = true;
    }

    /// Takes in a key, and returns what the person wants.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Outcome> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if let Some(selection) = self.confirmation.take() {
            return self.confirm(key, selection);
        }
        if let Some(view) = &mut self.help {
            if !view.key(key.code) {
                self.help = None;
            }
            return None;
        }
        if key.code == KeyCode::Char('r') && key.modifiers == KeyModifiers::CONTROL {
            return Some(Outcome::Refresh);
        }
        if !(key.modifiers - KeyModifiers::SHIFT).is_empty() {
            return None;
        }
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Some(Outcome::Close),
            KeyCode::F(5) => return Some(Outcome::Refresh),
            KeyCode::Char('?') | KeyCode::F(1) => self.help = Some(View::default()),
            KeyCode::Char('u' | 'U' | 'T' | 'S' | 'r' | 'R') if self.busy => {
                self.say("wait: what was asked for before is still being done".to_owned());
            }
            KeyCode::Char('u') => return self.undo_hunk().and_then(|what| self.undo_entry(what)),
            KeyCode::Char('U') => return self.of_file().and_then(|what| self.undo_entry(what)),
            KeyCode::Char('a') => self.toggle_scope(),
            KeyCode::Char('T') => return self.of_turn().map(|what| self.undo(what)),
            KeyCode::Char('S') => return self.of_session().map(|what| self.undo(what)),
            KeyCode::Char('r') => return self.redo_here().map(|what| self.redo(what)),
            KeyCode::Char('R') => return self.redo_last().map(|what| self.redo(what)),
            KeyCode::Char('v') => self.layout = self.drawn.as_ref().map(|shown| shown.key.2.other()),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Enter => {
                self.focus = match self.focus {
                    Focus::List => Focus::Diff,
                    Focus::Diff => Focus::List,
                };
            }
            KeyCode::Left | KeyCode::Char('h') => self.focus = Focus::List,
            KeyCode::Right | KeyCode::Char('l') => self.focus = Focus::Diff,
            KeyCode::Char('n') => self.go_to_hunk(self.hunk + 1),
            KeyCode::Char('p') => self.go_to_hunk(self.hunk.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') if self.focus == Focus::List => self.select(self.selected + 1),
            KeyCode::Up | KeyCode::Char('k') if self.focus == Focus::List => {
                self.select(self.selected.saturating_sub(1));
            }
            KeyCode::Down | KeyCode::Char('j') => self.go_to_hunk(self.hunk + 1),
            KeyCode::Up | KeyCode::Char('k') => self.go_to_hunk(self.hunk.saturating_sub(1)),
            KeyCode::Home if self.focus == Focus::List => self.select(0),
            KeyCode::End if self.focus == Focus::List => self.select(usize::MAX),
            code => {
                self.view.key(code);
            }
        }
        None
    }

    /// Undoes the chosen change, or a part of it, once it is confirmed if it may be the user's own work.
    fn undo_entry(&mut self, selection: Selection) -> Option<Outcome> {
        if self.entry()?.may_be_users() {
            self.confirmation = Some(selection);
            self.follow = true;
            return None;
        }
        Some(self.undo(selection))
    }

    /// Takes the answer to a confirmation: only `y` is a yes.
    fn confirm(&mut self, key: KeyEvent, selection: Selection) -> Option<Outcome> {
        if key.code == KeyCode::Char('y') && key.modifiers.is_empty() && key.kind == KeyEventKind::Press {
            return Some(self.undo(selection));
        }
        self.say("not undone".to_owned());
        None
    }

    fn undo(&mut self, what: Selection) -> Outcome {
        self.busy = true;
        self.say("undoing …".to_owned());
        Outcome::Undo(what)
    }

    fn redo(&mut self, what: Selection) -> Outcome {
        self.busy = true;
        self.say("redoing …".to_owned());
        Outcome::Redo(what)
    }

    fn entry(&self) -> Option<&Entry> {
        self.entries.get(*self.listing.edits.get(self.selected)?)
    }

    fn select(&mut self, edit: usize) {
        let edit = edit.min(self.listing.edits.len().saturating_sub(1));
        if edit != self.selected {
            (self.selected, self.hunk) = (edit, 0);
            self.view.reset();
        }
    }

    /// Returns how many hunks the chosen change has, also if it was not drawn since it was chosen.
    fn hunks(&self) -> usize {
        let Some(entry) = self.entry().filter(|entry| entry.is_text()) else { return 0 };
        match &self.drawn {
            Some(shown) if shown.key.0 == entry.change().id => shown.drawn.hunks.len(),
            _ => entry.hunks(),
        }
    }

    fn go_to_hunk(&mut self, hunk: usize) {
        self.hunk = hunk.min(self.hunks().saturating_sub(1));
        self.follow = true;
    }

    fn undo_hunk(&self) -> Option<Selection> {
        let entry = self.entry()?;
        // What has no hunks can only be taken back whole: a file that is no text, or new bits.
        let hunks = self.hunks().checked_sub(1).map(|last| vec![self.hunk.min(last)]);
        let change = Some(Reversal { change: entry.change().id, hunks });
        Some(Selection { change, ..Selection::default() })
    }

    fn of_file(&self) -> Option<Selection> {
        let change = self.entry()?.change();
        let Some(session) = change.origin.session.clone() else {
            // What others changed in the file is not meant.
            let change = Some(Reversal { change: change.id, hunks: None });
            return Some(Selection { change, ..Selection::default() });
        };
        let selection = Selection {
            path: Some(change.path.clone()),
            who: Who::Session(session),
            // Unless it is such a change itself that is chosen, what may be the user's own work stays.
            explained: !change.is_unexplained(),
            ..Selection::default()
        };
        Some(selection)
    }

    fn of_turn(&mut self) -> Option<Selection> {
        let origin = &self.entry()?.change().origin;
        let selection = origin
            .session
            .as_deref()
            .zip(origin.turn)
            .map(|(session, turn)| Selection { explained: true, ..Selection::turn(session, turn) });
        if selection.is_none() {
            self.say("this change belongs to no turn: u and U take back it alone".to_owned());
        }
        selection
    }

    fn of_session(&mut self) -> Option<Selection> {
        let session = self.entry()?.change().origin.session.clone();
        if session.is_none() {
            self.say("this change belongs to no session: u and U take back it alone".to_owned());
        }
        Some(Selection { who: Who::Session(session?), explained: true, ..Selection::default() })
    }

    /// Returns the undo that took back the hunk under the cursor, to be taken back itself.
    fn redo_here(&mut self) -> Option<Selection> {
        let id = self.entry()?.change().id;
        let undo = self.listing.undo_of(id, Some(self.hunk)).or_else(|| self.listing.undo_of(id, None));
        if undo.is_none() {
            self.say("this is not undone".to_owned());
        }
        let change = Some(Reversal { change: undo?, hunks: None });
        Some(Selection { change, ..Selection::default() })
    }

    fn redo_last(&self) -> Option<Selection> {
        let session = self.entry()?.change().origin.session.clone();
        let who = session.map_or(Who::Anyone, Who::Session);
        Some(Selection { who, last: Some(1), ..Selection::default() })
    }
}

#[cfg(test)]
mod tests;
