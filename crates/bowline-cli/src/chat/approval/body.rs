//! The operations of a question: their list, and the details of the selected one.

use bowline_policy::operation::OperationTarget;
use bowline_policy::question::QuestionItem;
use bowline_text::diff::{DiffStat, compute_stat};
use bowline_text::display;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{ApprovalPane, MAX_TEXT, RenderedItem, SIDE_LIST, detail};
use crate::chat::diff::DiffLayout;
use crate::chat::widgets::cells::{self, Truncation};
use crate::chat::widgets::{draw_line, rule_line, split_left, split_top, theme};

/// The minimum number of operations listed at once, where there is room for everything else.
const MIN_LISTED_ITEMS: usize = 7;

impl ApprovalPane {
    /// Returns how many rows the operations need at a width.
    pub(super) fn body_rows(&mut self, width: u16) -> usize {
        let items = self.question.items.len();
        let is_beside = width >= SIDE_LIST.0;
        let listed = items.min(MIN_LISTED_ITEMS) + 1;
        let (width, list) = match items {
            0 => return 0,
            1 => (width, 0),
            _ if self.is_small => (width, 0),
            _ if is_beside => (split_left(Rect { width, ..Rect::default() }, SIDE_LIST.1).1.width, 0),
            // The list takes a third of the rows for operations.
            _ => (width, listed),
        };
        let lines = self.layout_item(width).len() + 1;
        if is_beside && items > 1 { lines.max(listed) } else { lines.max(list * 2) + list }
    }

    /// Lays out the selected operation, unless it is laid out for this width.
    fn layout_item(&mut self, width: u16) -> &[Line<'static>] {
        let layout = self.layout.unwrap_or_else(|| DiffLayout::for_width(width));
        let key = (self.selected, width, layout);
        if self.rendered.as_ref().is_none_or(|drawn| drawn.key != key) {
            self.seen_rows = 0;
            let difference = self.differences.get(self.selected).and_then(Option::as_ref);
            let mut lines =
                difference.map_or_else(Vec::new, |it| detail::difference_lines(it, width, layout));
            let (own, mut hunks) =
                detail::render_operation(&self.question.items[self.selected], width, layout);
            hunks.iter_mut().for_each(|rows| *rows = rows.start + lines.len()..rows.end + lines.len());
            lines.extend(own);
            self.rendered = Some(RenderedItem { key, lines, hunks });
        }
        self.rendered.as_ref().map_or(&[], |drawn| &drawn.lines)
    }

    pub(super) fn draw_body(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let items = self.question.items.len();
        if area.is_empty() || items == 0 {
            return;
        }
        let (list, rest) = match area.width >= SIDE_LIST.0 {
            _ if items == 1 || self.is_small => (Rect::default(), area),
            true => split_left(area, SIDE_LIST.1),
            false => split_top(area, (items + 1).min(usize::from(area.height / 3).max(2))),
        };
        let (rule, rest) = split_top(rest, 1);
        self.layout_item(rest.width);
        let lines = self.rendered.as_ref().map_or(&[][..], |drawn| &drawn.lines);
        self.viewport.draw(frame, rest, lines);
        // Rows that were jumped over were not visible.
        if self.viewport.top() <= self.seen_rows {
            self.seen_rows = self.seen_rows.max(self.viewport.end());
        }
        self.seen_items[self.selected] |= self.seen_rows >= lines.len();
        self.draw_list(frame, list);
        let more = match waiting {
            0 => None,
            1 => Some("1 more question".to_owned()),
            several => Some(format!("{several} more questions")),
        };
        let number = (items > 1).then(|| format!("{} of {items}", self.selected + 1));
        // A user who is typing has not seen it yet.
        let pause = (!self.is_ready).then(|| "a moment".to_owned());
        let place: Vec<String> = number.into_iter().chain(more).chain(pause).collect();
        let place = if place.is_empty() { String::new() } else { format!(" {} ", place.join(" · ")) };
        let position =
            self.viewport.describe_position().map_or_else(String::new, |text| format!(" lines {text} "));
        draw_line(frame, rule, &rule_line(&place, &position, rule.width));
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let width = usize::from(area.width);
        let (rule, rows) = split_top(area, 1);
        let items = self.question.items.len();
        let looked_at = self.seen_items.iter().filter(|looked_at| **looked_at).count();
        let place = format!(" {items} operations, {looked_at} looked at ");
        draw_line(frame, rule, &rule_line(&place, "", rule.width));
        let height = usize::from(rows.height);
        let top = (self.selected + 1).saturating_sub(height.max(1));
        for (y, at) in (rows.y..rows.bottom()).zip(top..items) {
            let item = &self.question.items[at];
            let stat = match (&item.change, self.stats[at]) {
                (None, _) => None,
                (Some(_), Some(stat)) => Some(stat),
                (Some(change), None) => {
                    let before = change.before.as_ref().map_or("", |before| before.as_str());
                    Some(*self.stats[at].insert(compute_stat(before, &change.after)))
                }
            };
            let style = if at == self.selected { theme::selected() } else { Style::new() };
            let row = Rect { y, height: 1, ..rows };
            draw_line(frame, row, &item_line(item, stat, style, width));
        }
    }
}

/// Returns a row of the list: kind, target, number of lines.
fn item_line(item: &QuestionItem, stat: Option<DiffStat>, style: Style, width: usize) -> Line<'static> {
    let kind = item.operation.kind.as_str();
    let (name, stays) = match &item.operation.target {
        OperationTarget::File { requested: asked, .. }
        | OperationTarget::OutsideRoots { requested: asked } => {
            (display::escape_line(asked, MAX_TEXT), Truncation::KeepEnd)
        }
        OperationTarget::Command(command) => (
            display::escape_line(
                &bowline_protocol::terminal::format_invocation(&command.invocation),
                MAX_TEXT,
            ),
            Truncation::KeepStart,
        ),
        OperationTarget::Url(text) | OperationTarget::Described(text) => {
            (display::escape_line(text, MAX_TEXT), Truncation::KeepStart)
        }
    };
    let counts = stat.map(|stat| [format!(" +{}", stat.added), format!(" −{}", stat.removed)]);
    let used = counts.iter().flatten().map(|text| cells::text_width(text)).sum::<usize>() + kind.len() + 1;
    let name = cells::truncate(&cells::escape_line(&name), width.saturating_sub(used), stays);
    let blank = " ".repeat(width.saturating_sub(used + cells::text_width(&name)));
    let mut line = Line::styled(format!("{kind} {name}{blank}"), style);
    if let Some([added, removed]) = counts {
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
    }
    line
}
