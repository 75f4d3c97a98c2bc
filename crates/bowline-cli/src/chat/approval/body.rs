//! The operations of a question: the list of them, and all there is to see of the chosen one.

use bowline_state::diff::{Stat, stat};
use bowline_state::display;
use bowline_state::operation::Target;
use bowline_state::question::Item;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Approval, Drawn, LIST_BESIDE, MAX_TEXT, detail};
use crate::chat::diff::Layout;
use crate::chat::parts::cells::{self, Stays};
use crate::chat::parts::{put, ruled, split_left, split_top, theme};

/// So many operations are listed at once at least, where there is room for all else.
const LISTED: usize = 7;

impl Approval {
    /// Returns how many rows the operations need in so many columns.
    pub(super) fn body_rows(&mut self, width: u16) -> usize {
        let items = self.question.items.len();
        let is_beside = width >= LIST_BESIDE.0;
        let listed = items.min(LISTED) + 1;
        let (width, list) = match items {
            0 => return 0,
            1 => (width, 0),
            _ if self.small => (width, 0),
            _ if is_beside => (split_left(Rect { width, ..Rect::default() }, LIST_BESIDE.1).1.width, 0),
            // A third of all that there is for them.
            _ => (width, listed),
        };
        let lines = self.lay(width).len() + 1;
        if is_beside && items > 1 { lines.max(listed) } else { lines.max(list * 2) + list }
    }

    /// Lays out the chosen operation, if that has not been done for so many columns.
    fn lay(&mut self, width: u16) -> &[Line<'static>] {
        let layout = self.layout.unwrap_or_else(|| Layout::for_width(width));
        let key = (self.selected, width, layout);
        if self.drawn.as_ref().is_none_or(|drawn| drawn.key != key) {
            self.covered = 0;
            let difference = self.differences.get(self.selected).and_then(Option::as_ref);
            let mut lines =
                difference.map_or_else(Vec::new, |it| detail::difference_lines(it, width, layout));
            let (own, mut hunks) = detail::lines(&self.question.items[self.selected], width, layout);
            hunks.iter_mut().for_each(|rows| *rows = rows.start + lines.len()..rows.end + lines.len());
            lines.extend(own);
            self.drawn = Some(Drawn { key, lines, hunks });
        }
        self.drawn.as_ref().map_or(&[], |drawn| &drawn.lines)
    }

    pub(super) fn body(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let items = self.question.items.len();
        if area.is_empty() || items == 0 {
            return;
        }
        let (list, rest) = match area.width >= LIST_BESIDE.0 {
            _ if items == 1 || self.small => (Rect::default(), area),
            true => split_left(area, LIST_BESIDE.1),
            false => split_top(area, (items + 1).min(usize::from(area.height / 3).max(2))),
        };
        let (rule, rest) = split_top(rest, 1);
        self.lay(rest.width);
        let lines = self.drawn.as_ref().map_or(&[][..], |drawn| &drawn.lines);
        self.view.draw(frame, rest, lines);
        // What was jumped over was not in sight.
        if self.view.top() <= self.covered {
            self.covered = self.covered.max(self.view.end());
        }
        self.looked_at[self.selected] |= self.covered >= lines.len();
        self.list(frame, list);
        let more = match waiting {
            0 => None,
            1 => Some("1 more question".to_owned()),
            several => Some(format!("{several} more questions")),
        };
        let number = (items > 1).then(|| format!("{} of {items}", self.selected + 1));
        // A user who types has not seen it yet.
        let pause = (!self.armed).then(|| "a moment".to_owned());
        let place: Vec<String> = number.into_iter().chain(more).chain(pause).collect();
        let place = if place.is_empty() { String::new() } else { format!(" {} ", place.join(" · ")) };
        let position = self.view.position().map_or_else(String::new, |text| format!(" lines {text} "));
        put(frame, rule, &ruled(&place, &position, rule.width));
    }

    fn list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let width = usize::from(area.width);
        let (rule, rows) = split_top(area, 1);
        let items = self.question.items.len();
        let looked_at = self.looked_at.iter().filter(|looked_at| **looked_at).count();
        let place = format!(" {items} operations, {looked_at} looked at ");
        put(frame, rule, &ruled(&place, "", rule.width));
        let height = usize::from(rows.height);
        let top = (self.selected + 1).saturating_sub(height.max(1));
        for (y, at) in (rows.y..rows.bottom()).zip(top..items) {
            let item = &self.question.items[at];
            let stat = match (&item.change, self.stats[at]) {
                (None, _) => None,
                (Some(_), Some(stat)) => Some(stat),
                (Some(change), None) => {
                    let before = change.before.as_ref().map_or("", |before| before.as_str());
                    Some(*self.stats[at].insert(stat(before, &change.after)))
                }
            };
            let style = if at == self.selected { theme::chosen() } else { Style::new() };
            let row = Rect { y, height: 1, ..rows };
            put(frame, row, &entry(item, stat, style, width));
        }
    }
}

/// Returns a row of the list: kind, target, how many lines.
fn entry(item: &Item, stat: Option<Stat>, style: Style, width: usize) -> Line<'static> {
    let kind = item.operation.kind.word();
    let (name, stays) = match &item.operation.target {
        Target::File { asked, .. } | Target::Elsewhere { asked } => {
            (display::line(asked, MAX_TEXT), Stays::End)
        }
        Target::Command(command) => {
            (display::line(&display::invocation(&command.invocation), MAX_TEXT), Stays::Start)
        }
        Target::Url(text) | Target::Described(text) => (display::line(text, MAX_TEXT), Stays::Start),
    };
    let counts = stat.map(|stat| [format!(" +{}", stat.added), format!(" −{}", stat.removed)]);
    let used = counts.iter().flatten().map(|text| cells::width(text)).sum::<usize>() + kind.len() + 1;
    let name = cells::fit(&cells::visible(&name), width.saturating_sub(used), stays);
    let blank = " ".repeat(width.saturating_sub(used + cells::width(&name)));
    let mut line = Line::styled(format!("{kind} {name}{blank}"), style);
    if let Some([added, removed]) = counts {
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
    }
    line
}
