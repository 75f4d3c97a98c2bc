//! The lifetime and scope of an answer.

use bowline_policy::policy::RuleSuggestion;
use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
use crossterm::event::KeyCode;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::view::widgets::{cells, key_hint_rows, theme};

/// With fewer columns than this, labels are shortened.
const NARROW_WIDTH: usize = 40;

/// The choice of a lasting answer's scope. Nothing is an answer until the user chooses a lifetime.
#[derive(Debug)]
pub(super) struct ScopePicker {
    choice: AnswerChoice,
    scopes: Vec<(RuleSuggestion, bool)>,
    // For one operation the suggestions are alternatives; for several, each operation has its own.
    is_single_choice: bool,
    cursor: usize,
    // Whether there is a turn that the answer could last for.
    has_turn: bool,
    // The number of operations that no rule can cover.
    uncovered_count: usize,
}

/// The result of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScopePickerOutcome {
    /// No answer yet.
    Pending,
    /// The user cancelled.
    Cancelled,
    /// The answer.
    Reply(QuestionReply),
}

impl ScopePicker {
    /// Returns the picker; `None` if no rule can cover the question.
    pub(super) fn new(question: &Question, choice: AnswerChoice) -> Option<Self> {
        let is_single_choice = question.items.len() == 1;
        let mut scopes: Vec<(RuleSuggestion, bool)> = Vec::new();
        for suggestion in &question.suggestions {
            if !scopes.iter().any(|(known, _)| known == suggestion) {
                let is_chosen = !is_single_choice || scopes.is_empty();
                scopes.push((suggestion.clone(), is_chosen));
            }
        }
        let uncovered_count = question.items.len().saturating_sub(question.suggestions.len());
        let has_turn = question.holder.turn.is_some();
        (!scopes.is_empty()).then_some(Self {
            choice,
            scopes,
            is_single_choice,
            cursor: 0,
            has_turn,
            uncovered_count,
        })
    }

    pub(super) fn handle_key(&mut self, code: KeyCode) -> ScopePickerOutcome {
        let lifetime = match code {
            KeyCode::Esc => return ScopePickerOutcome::Cancelled,
            KeyCode::Up | KeyCode::Char('k') => return self.move_cursor(self.cursor.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Tab => return self.move_cursor(self.cursor + 1),
            KeyCode::Char(' ') => {
                self.toggle_mark();
                return ScopePickerOutcome::Pending;
            }
            KeyCode::Char('x') => {
                self.choice = match self.choice {
                    AnswerChoice::Allow => AnswerChoice::Deny,
                    AnswerChoice::Deny => AnswerChoice::Allow,
                };
                return ScopePickerOutcome::Pending;
            }
            KeyCode::Char('t') if self.has_turn => AnswerLifetime::Turn,
            KeyCode::Char('s') => AnswerLifetime::Session,
            KeyCode::Char('p') => AnswerLifetime::Project,
            KeyCode::Char('E') => AnswerLifetime::Always,
            _ => return ScopePickerOutcome::Pending,
        };
        self.to_reply(lifetime).map_or(ScopePickerOutcome::Pending, ScopePickerOutcome::Reply)
    }

    /// Returns the reply with this lifetime for the chosen scopes; `None` if no scope is chosen.
    pub(super) fn to_reply(&self, lifetime: AnswerLifetime) -> Option<QuestionReply> {
        let scope: Vec<RuleSuggestion> = self.selected_scopes().cloned().collect();
        let answer = QuestionAnswer { scope, ..QuestionAnswer::new(self.choice, lifetime) };
        (!answer.scope.is_empty()).then_some(QuestionReply::Answered(answer))
    }

    /// Describes the chosen scopes.
    pub(super) fn scope_text(&self) -> String {
        let texts: Vec<String> =
            self.selected_scopes().map(|scope| cells::escape_line(&scope.description)).collect();
        texts.join(", ")
    }

    fn selected_scopes(&self) -> impl Iterator<Item = &RuleSuggestion> {
        self.scopes.iter().filter(|(_, is_chosen)| *is_chosen).map(|(scope, _)| scope)
    }

    /// Returns whether a key answers.
    pub(super) fn is_answer_key(&self, code: KeyCode) -> bool {
        matches!(code, KeyCode::Char('t' | 's' | 'p' | 'E'))
    }

    fn move_cursor(&mut self, index: usize) -> ScopePickerOutcome {
        self.cursor = index.min(self.scopes.len().saturating_sub(1));
        if self.is_single_choice {
            self.toggle_mark();
        }
        ScopePickerOutcome::Pending
    }

    fn toggle_mark(&mut self) {
        for (index, (_, is_chosen)) in self.scopes.iter_mut().enumerate() {
            *is_chosen = match (self.is_single_choice, index == self.cursor) {
                (true, is_cursor) => is_cursor,
                (false, true) => !*is_chosen,
                (false, false) => *is_chosen,
            };
        }
    }

    /// Renders the picker in at most `height` rows: at least the scope under the cursor and the keys.
    pub(super) fn render(&self, width: u16, height: u16) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(width), usize::from(height));
        let verb = match self.choice {
            AnswerChoice::Allow => "Allow",
            AnswerChoice::Deny => "Reject",
        };
        let mut keys = self.key_lines(verb, width);
        let mut head = vec![Line::styled(format!("{verb} without asking again:"), theme::title())];
        if self.uncovered_count > 0 {
            let text = format!("! {} of the operations will be asked about again", self.uncovered_count);
            head.push(Line::styled(text, theme::danger()));
        }
        keys.truncate(height.saturating_sub(1));
        head.truncate(height.saturating_sub(keys.len() + self.scopes.len()));
        let room = height.saturating_sub(keys.len() + head.len());
        let top = (self.cursor + 1).saturating_sub(room.max(1));
        let scopes =
            self.scopes.iter().enumerate().skip(top).take(room).map(|(index, (scope, is_chosen))| {
                let mark = match (self.is_single_choice, is_chosen) {
                    (true, true) => "(•)",
                    (true, false) => "( )",
                    (false, true) => "[x]",
                    (false, false) => "[ ]",
                };
                let text = format!("{mark} {}", cells::escape_line(&scope.description));
                let style = if index == self.cursor { theme::selected() } else { Style::new() };
                Line::styled(cells::truncate(&text, width, cells::Truncation::KeepStart), style)
            });
        head.into_iter().chain(scopes).chain(keys).collect()
    }

    fn key_lines(&self, verb: &str, width: usize) -> Vec<Line<'static>> {
        let [turn, session, project, everywhere] = match width < NARROW_WIDTH {
            true => ["turn", "session", "this project", "every project"],
            false => ["this turn", "this session", "always in this project", "always in every project"],
        };
        let mut keys = vec![("s", session), ("p", project), ("E", everywhere), ("↑↓", "what for")];
        if self.has_turn {
            keys.insert(0, ("t", turn));
        }
        keys.push(match self.choice {
            AnswerChoice::Allow => ("x", "reject instead"),
            AnswerChoice::Deny => ("x", "allow instead"),
        });
        if !self.is_single_choice {
            keys.push(("Space", "mark"));
        }
        keys.push(("Esc", "back"));
        let mut rows = vec![Line::styled(format!("{verb} for how long?"), theme::title())];
        rows.extend(key_hint_rows(&keys, u16::try_from(width).unwrap_or(u16::MAX)));
        rows
    }
}
