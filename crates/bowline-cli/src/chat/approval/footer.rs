//! The footer of a question: the keys that answer it, or the answer being made.

use bowline_policy::question::AnswerChoice;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::scope_picker::ScopePicker;
use super::{ApprovalMode, ApprovalPane, MIN_LABEL_WIDTH};
use crate::chat::widgets::cells::{self, Truncation};
use crate::chat::widgets::{key_hint_rows, key_hints, theme};

impl ApprovalPane {
    /// Returns the footer: the keys, or the answer being made. `area` has the columns of the footer and the rows of the
    /// screen.
    pub(super) fn footer_lines(&mut self, area: Rect) -> Vec<Line<'static>> {
        // A user who makes a rule has to see its scope, even if nothing else fits.
        let half = if self.is_small { area.height } else { area.height * 2 / 3 };
        match &self.mode {
            ApprovalMode::ScopePicker(keeping) => keeping.render(area.width, half),
            ApprovalMode::Reason(entry) => {
                let mut lines = vec![
                    Line::styled("Reject. What should the agent know?", theme::title()),
                    entry.render(area.width, true),
                    key_hints(&[("Enter", "reject"), ("Esc", "back")], area.width),
                ];
                lines.drain(..lines.len().saturating_sub(usize::from(half).max(2)));
                lines
            }
            ApprovalMode::Review | ApprovalMode::Reader { .. } => {
                let mut lines = self.offer_lines(area);
                if let Some(what) = &self.unseen_warning {
                    let text = format!("! {what}: press the key again to allow it");
                    let text = cells::truncate(&text, usize::from(area.width), Truncation::KeepStart);
                    lines.push(Line::styled(text, theme::danger()));
                }
                let answers = self.answer_lines(area).into_iter();
                lines.extend(
                    answers.map(|line| if self.is_ready { line } else { line.style(theme::secondary()) }),
                );
                lines
            }
        }
    }

    /// Returns the agent's own answers, as many as fit.
    fn offer_lines(&mut self, area: Rect) -> Vec<Line<'static>> {
        let width = usize::from(area.width);
        let choices = self.question.selectable_options();
        let room = usize::from(area.height / 3).max(1);
        self.visible_offers = if choices.len() > room { room - 1 } else { choices.len() };
        let row = |text: String| {
            Line::raw(cells::truncate(&cells::escape_line(&text), width, Truncation::KeepStart))
        };
        let shown = choices.iter().zip(1..).take(self.visible_offers);
        let mut lines: Vec<Line<'static>> =
            shown.map(|(offer, number)| row(format!("{number} {}", offer.label()))).collect();
        if self.visible_offers < choices.len() {
            lines.push(row(format!("… {} answers to choose from: w", choices.len())));
        }
        lines
    }

    fn allow_label(&self, width: u16) -> String {
        match self.question.items.len() {
            _ if self.is_edited() && width < MIN_LABEL_WIDTH => "write yours".to_owned(),
            _ if self.is_edited() => "write your version".to_owned(),
            0 | 1 if width < MIN_LABEL_WIDTH => "allow".to_owned(),
            0 | 1 => "allow once".to_owned(),
            items if width < MIN_LABEL_WIDTH => format!("all {items}"),
            items => format!("allow all {items} once"),
        }
    }

    /// Returns the keys that answer, the scope of a lasting answer, and the keys that navigate.
    fn answer_lines(&self, area: Rect) -> Vec<Line<'static>> {
        let items = self.question.items.len();
        let selects = |what: String, choice| match self.question.default_option_number(choice) {
            Some(number) => format!("{what} ({number})"),
            None => what,
        };
        let allow = selects(self.allow_label(area.width), AnswerChoice::Allow);
        let reject = selects("reject".to_owned(), AnswerChoice::Deny);
        let held = ScopePicker::new(&self.question, AnswerChoice::Allow);
        let lasts = held.is_some();
        let answers = [
            ("y", allow.as_str(), true),
            ("s", "this session", lasts),
            ("p", "this project", lasts),
            ("n", reject.as_str(), true),
            ("N", "always reject", lasts),
        ];
        let hunk = self.visible_hunk().map(|(at, all)| format!("leave out hunk {} of {all}", at + 1));
        let change = self.question.items.get(self.selected).is_some_and(|item| item.change.is_some());
        let is_cut = self.is_full_screen || self.viewport.describe_position().is_some();
        let looks = [
            ("r", "reject, why…", true),
            ("m", "more…", lasts),
            ("e", "edit", self.editable_text().is_some()),
            ("x", hunk.as_deref().unwrap_or_default(), hunk.is_some()),
            ("z", "the agent's version", self.is_edited()),
            ("Tab", "next", items > 1),
            ("v", "split", change),
            ("f", if self.is_full_screen { "less" } else { "full" }, is_cut && !self.is_small),
            ("Ctrl-C", "cancel", true),
            ("?", "help", true),
        ];
        fn visible_keys<'a>(keys: &[(&'static str, &'a str, bool)]) -> Vec<(&'static str, &'a str)> {
            keys.iter().filter(|(_, _, shown)| *shown).map(|(key, what, _)| (*key, *what)).collect()
        }
        let (mut answers, looks) = (visible_keys(&answers), visible_keys(&looks));
        if self.is_small {
            // Only what fits is shown, with yes and no first.
            answers.sort_by_key(|(key, _)| !matches!(*key, "y" | "n"));
            return vec![key_hints(&[answers, looks].concat(), area.width)];
        }
        let all = key_hint_rows(&[answers.as_slice(), looks.as_slice()].concat(), area.width);
        if all.len() == 1 && !lasts {
            return all;
        }
        let mut lines = key_hint_rows(&answers, area.width);
        if let Some(held) = held {
            let text = format!("s, p and N hold for {}", held.scope_text());
            lines.push(Line::styled(
                cells::truncate(&text, usize::from(area.width), Truncation::KeepStart),
                theme::secondary(),
            ));
        }
        lines.push(key_hints(&looks, area.width));
        lines
    }
}
