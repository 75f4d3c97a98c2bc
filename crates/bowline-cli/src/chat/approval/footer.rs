//! What stands below the operations of a question: the keys that answer it, or what is being answered.

use bowline_state::question::Choice;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::choice::Keeping;
use super::{Approval, LEAST_WORDS, Mode};
use crate::chat::parts::cells::{self, Stays};
use crate::chat::parts::{key_rows, keys, theme};

impl Approval {
    /// Returns what stands below: the keys, or what is being answered.
    /// `area` has the columns of the place for it, and the rows of the screen.
    pub(super) fn footer(&mut self, area: Rect) -> Vec<Line<'static>> {
        // A user who makes a rule has to see what for, if only that.
        let half = if self.small { area.height } else { area.height * 2 / 3 };
        match &self.mode {
            Mode::Keeping(keeping) => keeping.lines(area.width, half),
            Mode::Reason(entry) => {
                let mut lines = vec![
                    Line::styled("Reject. What should the agent know?", theme::title()),
                    entry.line(area.width, true),
                    keys(&[("Enter", "reject"), ("Esc", "back")], area.width),
                ];
                lines.drain(..lines.len().saturating_sub(usize::from(half).max(2)));
                lines
            }
            Mode::Looking | Mode::Reading { .. } => {
                let mut lines = self.offers(area);
                if let Some(what) = &self.warned {
                    let text = format!("! {what}: press the key again to allow it");
                    let text = cells::fit(&text, usize::from(area.width), Stays::Start);
                    lines.push(Line::styled(text, theme::danger()));
                }
                let answers = self.answers(area).into_iter();
                lines.extend(answers.map(|line| if self.armed { line } else { line.style(theme::aside()) }));
                lines
            }
        }
    }

    /// Returns the agent's own answers, as many as there is room for.
    fn offers(&mut self, area: Rect) -> Vec<Line<'static>> {
        let width = usize::from(area.width);
        let choices = self.question.choices();
        let room = usize::from(area.height / 3).max(1);
        self.offered = if choices.len() > room { room - 1 } else { choices.len() };
        let row = |text: String| Line::raw(cells::fit(&cells::visible(&text), width, Stays::Start));
        let shown = choices.iter().zip(1..).take(self.offered);
        let mut lines: Vec<Line<'static>> =
            shown.map(|(offer, number)| row(format!("{number} {}", offer.text()))).collect();
        if self.offered < choices.len() {
            lines.push(row(format!("… {} answers to choose from: w", choices.len())));
        }
        lines
    }

    fn allow(&self, width: u16) -> String {
        match self.question.items.len() {
            _ if self.is_edited() && width < LEAST_WORDS => "write yours".to_owned(),
            _ if self.is_edited() => "write your version".to_owned(),
            0 | 1 if width < LEAST_WORDS => "allow".to_owned(),
            0 | 1 => "allow once".to_owned(),
            items if width < LEAST_WORDS => format!("all {items}"),
            items => format!("allow all {items} once"),
        }
    }

    /// Returns the keys that answer, what an answer that lasts holds for, and the keys that look.
    fn answers(&self, area: Rect) -> Vec<Line<'static>> {
        let items = self.question.items.len();
        let selects = |what: String, choice| match self.question.default_number(choice) {
            Some(number) => format!("{what} ({number})"),
            None => what,
        };
        let allow = selects(self.allow(area.width), Choice::Allow);
        let reject = selects("reject".to_owned(), Choice::Deny);
        let held = Keeping::new(&self.question, Choice::Allow);
        let lasts = held.is_some();
        let answers = [
            ("y", allow.as_str(), true),
            ("s", "this session", lasts),
            ("p", "this project", lasts),
            ("n", reject.as_str(), true),
            ("N", "always reject", lasts),
        ];
        let hunk = self.hunk_in_sight().map(|(at, all)| format!("leave out hunk {} of {all}", at + 1));
        let change = self.question.items.get(self.selected).is_some_and(|item| item.change.is_some());
        let is_cut = self.whole || self.view.position().is_some();
        let looks = [
            ("r", "reject, why…", true),
            ("m", "more…", lasts),
            ("e", "edit", self.editable().is_some()),
            ("x", hunk.as_deref().unwrap_or_default(), hunk.is_some()),
            ("z", "the agent's version", self.is_edited()),
            ("Tab", "next", items > 1),
            ("v", "split", change),
            ("f", if self.whole { "less" } else { "full" }, is_cut && !self.small),
            ("Ctrl-C", "cancel", true),
            ("?", "help", true),
        ];
        fn of<'a>(keys: &[(&'static str, &'a str, bool)]) -> Vec<(&'static str, &'a str)> {
            keys.iter().filter(|(_, _, shown)| *shown).map(|(key, what, _)| (*key, *what)).collect()
        }
        let (mut answers, looks) = (of(&answers), of(&looks));
        if self.small {
            // What fits is shown, and a yes and a no before all else.
            answers.sort_by_key(|(key, _)| !matches!(*key, "y" | "n"));
            return vec![keys(&[answers, looks].concat(), area.width)];
        }
        let all = key_rows(&[answers.as_slice(), looks.as_slice()].concat(), area.width);
        if all.len() == 1 && !lasts {
            return all;
        }
        let mut lines = key_rows(&answers, area.width);
        if let Some(held) = held {
            let text = format!("s, p and N hold for {}", held.scope_text());
            lines
                .push(Line::styled(cells::fit(&text, usize::from(area.width), Stays::Start), theme::aside()));
        }
        lines.push(keys(&looks, area.width));
        lines
    }
}
