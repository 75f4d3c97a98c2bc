//! The text around the operations of a question, and the keys it takes.

use bowline_policy::question::{
    AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply, QuestionTrigger,
};
use bowline_text::display;
use ratatui::style::Style;
use ratatui::text::Line;

use super::{ApprovalPane, MAX_TEXT};
use crate::chat::widgets::{cells, theme};

/// The maximum length of a question's title in the conversation, in bytes.
const MAX_TITLE_BYTES: usize = 300;

impl ApprovalPane {
    /// Returns the note on a reply for the conversation: that something was rejected, and which rule applies from now
    /// on.
    pub(crate) fn describe_reply(&self, reply: &QuestionReply) -> Option<String> {
        let QuestionReply::Answered(QuestionAnswer {
            choice, lifetime: keep, reason, edited_text: text, ..
        }) = reply
        else {
            return None;
        };
        if text.is_some() && *keep == AnswerLifetime::Once {
            return Some(format!(
                "you changed “{}”",
                display::escape_line(&self.question.title, MAX_TITLE_BYTES)
            ));
        }
        let word = match choice {
            // The result is visible, and saved rules are reported when they are saved.
            AnswerChoice::Allow
                if matches!(
                    keep,
                    AnswerLifetime::Once | AnswerLifetime::Project | AnswerLifetime::Always
                ) =>
            {
                return None;
            }
            AnswerChoice::Allow => "allowed",
            AnswerChoice::Deny => "rejected",
        };
        let lasting = match keep {
            AnswerLifetime::Once | AnswerLifetime::Project | AnswerLifetime::Always => "",
            AnswerLifetime::Turn => ", for this turn",
            AnswerLifetime::Session => ", for this session",
        };
        let asked = display::escape_line(&self.question.title, MAX_TITLE_BYTES);
        let reason =
            reason.as_ref().map(|reason| format!(": {}", display::escape_line(reason, MAX_TITLE_BYTES)));
        Some(format!("you {word} “{asked}”{lasting}{}", reason.unwrap_or_default()))
    }
}

/// The full header above the operations, in rows.
pub(super) struct ApprovalHeader {
    pub(super) title: Vec<Line<'static>>,
    pub(super) dangers: Vec<Line<'static>>,
    pub(super) reason: Vec<Line<'static>>,
    pub(super) offers: Vec<Line<'static>>,
}

impl ApprovalHeader {
    pub(super) fn new(question: &Question, width: u16) -> Self {
        let agent =
            question.agent.as_deref().map_or("The agent".to_owned(), |agent| display::escape_line(agent, 80));
        let does = match question.trigger {
            QuestionTrigger::PermissionRequest => "asks",
            QuestionTrigger::UnrequestedOperation => "asks",
            QuestionTrigger::ChangedOperation => "asks again, as this is not what you approved",
        };
        let rows = |start: &str, text: &str, style: Style| {
            let text = format!("{start}{}", display::escape_line(text, MAX_TEXT));
            let rows = cells::wrap_prose(&text, usize::from(width)).into_iter();
            rows.map(|row| Line::styled(row, style)).collect::<Vec<_>>()
        };
        let dangers = question.dangers.iter();
        let choices = question.selectable_options().iter().zip(1..);
        Self {
            title: rows(&format!("{agent} {does}: "), &question.title, theme::title()),
            dangers: dangers.flat_map(|danger| rows("! ", &danger.text, theme::danger())).collect(),
            reason: rows("Asked because ", &question.reason, theme::secondary()),
            offers: choices
                .flat_map(|(offer, at)| rows(&format!("{at} "), &offer.label(), Style::new()))
                .collect(),
        }
    }

    pub(super) fn into_lines(self) -> Vec<Line<'static>> {
        [self.title, self.dangers, self.reason, self.offers].concat()
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
        lines.extend(cells::wrap_prose(&text, usize::from(width)).into_iter().map(Line::raw));
    }
    lines
}
