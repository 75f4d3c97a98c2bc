//! The words around the operations of a question, and the keys it takes.

use bowline_state::display;
use bowline_state::question::{Answer, Choice, Keep, Occasion, Question, Reply};
use ratatui::style::Style;
use ratatui::text::Line;

use super::{Approval, MAX_TEXT};
use crate::chat::parts::{cells, theme};

/// So much of what was asked stands in the conversation, in bytes.
const MAX_ASKED: usize = 300;

impl Approval {
    /// Returns what is to be remembered of an answer: that something was rejected, and what holds from now on.
    pub(crate) fn remembered(&self, reply: &Reply) -> Option<String> {
        let Reply::Answered(Answer { choice, keep, reason, text, .. }) = reply else { return None };
        if text.is_some() && *keep == Keep::Once {
            return Some(format!("you changed “{}”", display::line(&self.question.title, MAX_ASKED)));
        }
        let word = match choice {
            // What comes of it is seen, and a rule that is saved is told when it is.
            Choice::Allow if matches!(keep, Keep::Once | Keep::Project | Keep::Always) => return None,
            Choice::Allow => "allowed",
            Choice::Deny => "rejected",
        };
        let lasting = match keep {
            Keep::Once | Keep::Project | Keep::Always => "",
            Keep::Turn => ", for this turn",
            Keep::Session => ", for this session",
        };
        let asked = display::line(&self.question.title, MAX_ASKED);
        let reason = reason.as_ref().map(|reason| format!(": {}", display::line(reason, MAX_ASKED)));
        Some(format!("you {word} “{asked}”{lasting}{}", reason.unwrap_or_default()))
    }
}

/// What stands above all operations, whole, in rows.
pub(super) struct Words {
    pub(super) title: Vec<Line<'static>>,
    pub(super) dangers: Vec<Line<'static>>,
    pub(super) because: Vec<Line<'static>>,
    pub(super) offers: Vec<Line<'static>>,
}

impl Words {
    pub(super) fn of(question: &Question, width: u16) -> Self {
        let agent =
            question.agent.as_deref().map_or("The agent".to_owned(), |agent| display::line(agent, 80));
        let does = match question.occasion {
            Occasion::Request => "asks",
            Occasion::Act => "asks",
            Occasion::Changed => "asks again, as this is not what you approved",
        };
        let rows = |start: &str, text: &str, style: Style| {
            let text = format!("{start}{}", display::line(text, MAX_TEXT));
            let rows = cells::prose(&text, usize::from(width)).into_iter();
            rows.map(|row| Line::styled(row, style)).collect::<Vec<_>>()
        };
        let dangers = question.dangers.iter();
        let choices = question.choices().iter().zip(1..);
        Self {
            title: rows(&format!("{agent} {does}: "), &question.title, theme::title()),
            dangers: dangers.flat_map(|danger| rows("! ", &danger.text, theme::danger())).collect(),
            because: rows("Asked because ", &question.because, theme::aside()),
            offers: choices
                .flat_map(|(offer, at)| rows(&format!("{at} "), &offer.text(), Style::new()))
                .collect(),
        }
    }

    pub(super) fn all(self) -> Vec<Line<'static>> {
        [self.title, self.dangers, self.because, self.offers].concat()
    }
}

pub(super) fn help_lines(width: u16) -> Vec<Line<'static>> {
    const HELP: &[(&str, &str)] = &[
        ("y", "allow this once"),
        ("s", "allow for this session"),
        ("p", "allow in this project from now on"),
        ("n", "reject this once"),
        ("N", "reject in this project from now on"),
        ("r", "reject, and tell the agent why"),
        ("m", "choose what for and how long"),
        ("e", "edit the text before it is written"),
        ("x", "leave out the first hunk in sight"),
        ("z", "back to what the agent wants to write"),
        ("Tab, →", "the next operation"),
        ("⇧Tab, ←", "the one before"),
        ("↑ ↓ j k", "a line up, a line down"),
        ("PgUp PgDn Space", "a page up, a page down"),
        ("Home End", "the start, the end"),
        ("v", "unified or side by side"),
        ("f", "the whole screen, or a part of it"),
        ("w", "all words and warnings"),
        ("1 … 9", "one of the agent's own answers, if any"),
        ("Enter, Esc", "nothing: no answer is the default"),
        ("Ctrl-C", "cancel the turn"),
    ];
    let mut lines = vec![Line::styled("Keys", theme::title())];
    for (key, what) in HELP {
        let text = format!("{key:<16} {what}");
        lines.extend(cells::prose(&text, usize::from(width)).into_iter().map(Line::raw));
    }
    lines
}
