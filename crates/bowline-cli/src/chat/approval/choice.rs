//! How long an answer holds, and for what else.

use bowline_state::policy::Suggestion;
use bowline_state::question::{Answer, Choice, Keep, Question, Reply};
use crossterm::event::KeyCode;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::chat::parts::{cells, key_rows, theme};

/// With fewer columns than this there are fewer words.
const NARROW: usize = 40;

/// What an answer holds for that lasts, to be chosen. Nothing of it is an answer until how long was said.
#[derive(Debug)]
pub(super) struct Keeping {
    choice: Choice,
    scopes: Vec<(Suggestion, bool)>,
    // Of one operation the suggestions are alternatives; of several each has its own.
    is_one: bool,
    cursor: usize,
    // Whether there is a turn that it could hold for.
    in_turn: bool,
    // How many operations no rule can be made for.
    uncovered: usize,
}

/// What a key did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// Nothing, or something that is seen.
    Open,
    /// There is to be no such answer.
    Back,
    /// This is the answer.
    Reply(Reply),
}

impl Keeping {
    /// Returns the choice; nothing if no rule can be made of the question.
    pub(super) fn new(question: &Question, choice: Choice) -> Option<Self> {
        let is_one = question.items.len() == 1;
        let mut scopes: Vec<(Suggestion, bool)> = Vec::new();
        for suggestion in &question.suggestions {
            if !scopes.iter().any(|(known, _)| known == suggestion) {
                let is_chosen = !is_one || scopes.is_empty();
                scopes.push((suggestion.clone(), is_chosen));
            }
        }
        let uncovered = question.items.len().saturating_sub(question.suggestions.len());
        let in_turn = question.holder.turn.is_some();
        (!scopes.is_empty()).then_some(Self { choice, scopes, is_one, cursor: 0, in_turn, uncovered })
    }

    pub(super) fn key(&mut self, code: KeyCode) -> Chosen {
        let keep = match code {
            KeyCode::Esc => return Chosen::Back,
            KeyCode::Up | KeyCode::Char('k') => return self.go(self.cursor.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Tab => return self.go(self.cursor + 1),
            KeyCode::Char(' ') => {
                self.mark();
                return Chosen::Open;
            }
            KeyCode::Char('x') => {
                self.choice = match self.choice {
                    Choice::Allow => Choice::Deny,
                    Choice::Deny => Choice::Allow,
                };
                return Chosen::Open;
            }
            KeyCode::Char('t') if self.in_turn => Keep::Turn,
            KeyCode::Char('s') => Keep::Session,
            KeyCode::Char('p') => Keep::Project,
            KeyCode::Char('E') => Keep::Always,
            _ => return Chosen::Open,
        };
        self.reply(keep).map_or(Chosen::Open, Chosen::Reply)
    }

    /// Returns the answer that holds so long for what is chosen; none if nothing is.
    pub(super) fn reply(&self, keep: Keep) -> Option<Reply> {
        let scope: Vec<Suggestion> = self.chosen().cloned().collect();
        let answer = Answer { choice: self.choice, keep, scope, reason: None, option: None, text: None };
        (!answer.scope.is_empty()).then_some(Reply::Answered(answer))
    }

    /// Returns what is chosen, in words.
    pub(super) fn scope_text(&self) -> String {
        let texts: Vec<String> = self.chosen().map(|scope| cells::visible(&scope.text)).collect();
        texts.join(", ")
    }

    fn chosen(&self) -> impl Iterator<Item = &Suggestion> {
        self.scopes.iter().filter(|(_, chosen)| *chosen).map(|(scope, _)| scope)
    }

    /// Says whether a key answers.
    pub(super) fn answers(&self, code: KeyCode) -> bool {
        matches!(code, KeyCode::Char('t' | 's' | 'p' | 'E'))
    }

    fn go(&mut self, to: usize) -> Chosen {
        self.cursor = to.min(self.scopes.len().saturating_sub(1));
        if self.is_one {
            self.mark();
        }
        Chosen::Open
    }

    fn mark(&mut self) {
        for (at, (_, chosen)) in self.scopes.iter_mut().enumerate() {
            *chosen = match (self.is_one, at == self.cursor) {
                (true, here) => here,
                (false, true) => !*chosen,
                (false, false) => *chosen,
            };
        }
    }

    /// Returns it as at most `height` rows: at least one of the scopes, the one under the cursor, and what to press.
    pub(super) fn lines(&self, width: u16, height: u16) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(width), usize::from(height));
        let verb = match self.choice {
            Choice::Allow => "Allow",
            Choice::Deny => "Reject",
        };
        let mut keys = self.keys(verb, width);
        let mut head = vec![Line::styled(format!("{verb} without asking again:"), theme::title())];
        if self.uncovered > 0 {
            let text = format!("! {} of the operations will be asked about again", self.uncovered);
            head.push(Line::styled(text, theme::danger()));
        }
        keys.truncate(height.saturating_sub(1));
        head.truncate(height.saturating_sub(keys.len() + self.scopes.len()));
        let room = height.saturating_sub(keys.len() + head.len());
        let top = (self.cursor + 1).saturating_sub(room.max(1));
        let scopes = self.scopes.iter().enumerate().skip(top).take(room).map(|(at, (scope, chosen))| {
            let mark = match (self.is_one, chosen) {
                (true, true) => "(•)",
                (true, false) => "( )",
                (false, true) => "[x]",
                (false, false) => "[ ]",
            };
            let text = format!("{mark} {}", cells::visible(&scope.text));
            let style = if at == self.cursor { theme::chosen() } else { Style::new() };
            Line::styled(cells::fit(&text, width, cells::Stays::Start), style)
        });
        head.into_iter().chain(scopes).chain(keys).collect()
    }

    fn keys(&self, verb: &str, width: usize) -> Vec<Line<'static>> {
        let [turn, session, project, everywhere] = match width < NARROW {
            true => ["turn", "session", "this project", "every project"],
            false => ["this turn", "this session", "always in this project", "always in every project"],
        };
        let mut keys = vec![("s", session), ("p", project), ("E", everywhere), ("↑↓", "what for")];
        if self.in_turn {
            keys.insert(0, ("t", turn));
        }
        keys.push(match self.choice {
            Choice::Allow => ("x", "reject instead"),
            Choice::Deny => ("x", "allow instead"),
        });
        if !self.is_one {
            keys.push(("Space", "mark"));
        }
        keys.push(("Esc", "back"));
        let mut rows = vec![Line::styled(format!("{verb} for how long?"), theme::title())];
        rows.extend(key_rows(&keys, u16::try_from(width).unwrap_or(u16::MAX)));
        rows
    }
}
