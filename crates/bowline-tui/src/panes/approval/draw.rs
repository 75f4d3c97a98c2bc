//! The approval pane on the screen: the header, the operations with the details of the selected one, and the footer.

use bowline_policy::operation::OperationTarget;
use bowline_policy::question::{AnswerChoice, Question, QuestionItem, QuestionTrigger};
use bowline_text::diff::{DiffStat, compute_stat};
use bowline_text::display;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::scope_picker::ScopePicker;
use super::{ApprovalMode, ApprovalPane, RenderedItem, detail};
use crate::view::diff::DiffLayout;
use crate::view::widgets::cells::{self, Truncation};
use crate::view::widgets::{
    draw_line, draw_lines, key_help, key_hint_rows, key_hints, rule_line, split_bottom, split_left,
    split_top, theme,
};

/// The maximum length of a title or a reason that is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// The maximum number of header rows for the agent's own words, so that they cannot push the warnings out of sight.
const TITLE_ROWS: usize = 2;

/// The minimum screen width for showing the list of operations beside the selected one, and the width of that list.
const SIDE_LIST: (u16, u16) = (110, 38);

/// With fewer rows than this, the parts are shown one at a time.
const SMALL_HEIGHT: u16 = 12;

/// With fewer rows than this, the screen is not shared with the conversation.
const MIN_SHARED_HEIGHT: u16 = 18;

/// The minimum number of rows left for the conversation.
const CONVERSATION_ROWS: u16 = 6;

/// With fewer columns than this, labels are shortened.
const MIN_LABEL_WIDTH: u16 = 26;

/// The minimum number of operations listed at once, where there is room for everything else.
const MIN_LISTED_ITEMS: usize = 7;

impl ApprovalPane {
    /// Returns how many rows of the screen the pane takes: as many as it needs, if that leaves some for the
    /// conversation.
    pub(crate) fn needed_rows(&mut self, screen: Rect) -> u16 {
        if self.is_full_screen
            || screen.height < MIN_SHARED_HEIGHT
            || matches!(self.mode, ApprovalMode::Reader { .. })
        {
            return screen.height;
        }
        self.is_small = false;
        let ApprovalHeader { title, dangers, reason, .. } = ApprovalHeader::new(&self.question, screen.width);
        let header_rows = title.len().min(TITLE_ROWS + 1) + dangers.len() + reason.len();
        let needed = header_rows + self.body_rows(screen.width) + self.footer_lines(screen).len();
        u16::try_from(needed).unwrap_or(u16::MAX).min(screen.height - CONVERSATION_ROWS)
    }

    /// Draws the pane over the area. `waiting` is the number of questions behind it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        let screen = frame.area();
        self.is_small = screen.height < SMALL_HEIGHT;
        if let ApprovalMode::Reader { is_help, viewport } = &mut self.mode {
            let lines = if *is_help {
                help_lines(area.width)
            } else {
                ApprovalHeader::new(&self.question, area.width).into_lines()
            };
            let (body, last) = split_bottom(area, 1);
            viewport.draw(frame, body, &lines);
            let position =
                viewport.describe_position().map_or_else(String::new, |position| format!(" {position} ·"));
            draw_line(
                frame,
                last,
                &Line::styled(format!("{position} any other key: back"), theme::secondary()),
            );
            return;
        }
        let footer = self.footer_lines(Rect { height: screen.height, ..area });
        let (rest, bottom) = split_bottom(area, footer.len());
        let header = self.header_lines(rest);
        let (top, body) = split_top(rest, header.len());
        draw_lines(frame, top, &header);
        draw_lines(frame, bottom, &footer);
        self.draw_body(frame, body, waiting);
    }

    /// Returns the header: the agent's words, the dangers, the reason for asking. It is cut to leave room for the rest,
    /// and says what is missing.
    fn header_lines(&mut self, area: Rect) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let body = self.body_rows(area.width).min(height / 2).min(8);
        let room = height.saturating_sub(body).max(1);
        let note = |text: String, style: Style| {
            Line::styled(cells::truncate(&text, width, Truncation::KeepStart), style)
        };
        let ApprovalHeader { mut title, dangers, reason, .. } =
            ApprovalHeader::new(&self.question, area.width);
        if title.len() > TITLE_ROWS {
            let text = format!("… {} more lines of its words: w shows all", title.len() - TITLE_ROWS);
            title.splice(TITLE_ROWS.., [note(text, theme::secondary())]);
        }
        let (dangers_start, dangers_end) = (title.len(), title.len() + dangers.len());
        let mut lines = [title, dangers, reason].concat();
        self.hidden_warning_rows = 0;
        if lines.len() > room {
            let hidden = lines.split_off(room - 1).len();
            self.hidden_warning_rows = dangers_end.saturating_sub(lines.len().max(dangers_start));
            let hidden_dangers = self.hidden_warning_rows;
            lines.push(match hidden_dangers {
                0 => note(format!("… {hidden} more: w"), theme::secondary()),
                _ => note(format!("! more warnings: w ({hidden_dangers} lines)"), theme::danger()),
            });
        }
        lines
    }

    /// Returns how many rows the operations need at a width.
    fn body_rows(&mut self, width: u16) -> usize {
        let items = self.question.items.len();
        let is_beside = width >= SIDE_LIST.0;
        let list_rows = items.min(MIN_LISTED_ITEMS) + 1;
        let (width, list) = match items {
            0 => return 0,
            1 => (width, 0),
            _ if self.is_small => (width, 0),
            _ if is_beside => (split_left(Rect { width, ..Rect::default() }, SIDE_LIST.1).1.width, 0),
            // The list takes a third of the rows for operations.
            _ => (width, list_rows),
        };
        let lines = self.layout_item(width).len() + 1;
        if is_beside && items > 1 { lines.max(list_rows) } else { lines.max(list * 2) + list }
    }

    /// Lays out the selected operation, unless it is laid out for this width.
    fn layout_item(&mut self, width: u16) -> &[Line<'static>] {
        let layout = self.layout.unwrap_or_else(|| DiffLayout::for_width(width));
        let key = (self.selected, width, layout);
        if self.rendered.as_ref().is_none_or(|rendered| rendered.key != key) {
            self.seen_rows = 0;
            let difference = self.differences.get(self.selected).and_then(Option::as_ref);
            let mut lines = difference
                .map_or_else(Vec::new, |difference| detail::difference_lines(difference, width, layout));
            let (operation_lines, mut hunks) =
                detail::render_operation(&self.question.items[self.selected], width, layout);
            hunks.iter_mut().for_each(|rows| *rows = rows.start + lines.len()..rows.end + lines.len());
            lines.extend(operation_lines);
            self.rendered = Some(RenderedItem { key, lines, hunks });
        }
        self.rendered.as_ref().map_or(&[], |rendered| &rendered.lines)
    }

    fn draw_body(&mut self, frame: &mut Frame<'_>, area: Rect, waiting: usize) {
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
        let lines = self.rendered.as_ref().map_or(&[][..], |rendered| &rendered.lines);
        self.viewport.draw(frame, rest, lines);
        // Rows that were jumped over were not visible.
        if self.viewport.top() <= self.seen_rows {
            self.seen_rows = self.seen_rows.max(self.viewport.end());
        }
        self.seen_items[self.selected] |= self.seen_rows >= lines.len();
        self.draw_list(frame, list);
        let others = match waiting {
            0 => None,
            1 => Some("1 more question".to_owned()),
            count => Some(format!("{count} more questions")),
        };
        let number = (items > 1).then(|| format!("{} of {items}", self.selected + 1));
        // A user who is typing has not seen it yet.
        let pause = (!self.is_ready).then(|| "a moment".to_owned());
        let label: Vec<String> = number.into_iter().chain(others).chain(pause).collect();
        let label = if label.is_empty() { String::new() } else { format!(" {} ", label.join(" · ")) };
        let position =
            self.viewport.describe_position().map_or_else(String::new, |text| format!(" lines {text} "));
        draw_line(frame, rule, &rule_line(&label, &position, rule.width));
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let width = usize::from(area.width);
        let (rule, rows) = split_top(area, 1);
        let items = self.question.items.len();
        let seen = self.seen_items.iter().filter(|is_seen| **is_seen).count();
        let title = format!(" {items} operations, {seen} looked at ");
        draw_line(frame, rule, &rule_line(&title, "", rule.width));
        let height = usize::from(rows.height);
        let top = (self.selected + 1).saturating_sub(height.max(1));
        for (y, index) in (rows.y..rows.bottom()).zip(top..items) {
            let item = &self.question.items[index];
            let stat = match (&item.change, self.stats[index]) {
                (None, _) => None,
                (Some(_), Some(stat)) => Some(stat),
                (Some(change), None) => {
                    let before = change.before.as_ref().map_or("", |before| before.as_str());
                    Some(*self.stats[index].insert(compute_stat(before, &change.after)))
                }
            };
            let style = if index == self.selected { theme::selected() } else { Style::new() };
            let row = Rect { y, height: 1, ..rows };
            draw_line(frame, row, &item_line(item, stat, style, width));
        }
    }

    /// Returns the footer: the keys, or the answer being made. `area` has the columns of the footer and the rows of the
    /// screen.
    fn footer_lines(&mut self, area: Rect) -> Vec<Line<'static>> {
        // A user who makes a rule has to see its scope, even if nothing else fits.
        let max_rows = if self.is_small { area.height } else { area.height * 2 / 3 };
        match &self.mode {
            ApprovalMode::ScopePicker(picker) => picker.render(area.width, max_rows),
            ApprovalMode::Reason(editor) => {
                let mut lines = vec![
                    Line::styled("Reject. What should the agent know?", theme::title()),
                    editor.render(area.width, true),
                    key_hints(&[("Enter", "reject"), ("Esc", "back")], area.width),
                ];
                lines.drain(..lines.len().saturating_sub(usize::from(max_rows).max(2)));
                lines
            }
            ApprovalMode::Review | ApprovalMode::Reader { .. } => {
                let mut lines = self.offer_lines(area);
                if let Some(warning) = &self.unseen_warning {
                    let text = format!("! {warning}: press the key again to allow it");
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
        let options = self.question.selectable_options();
        let room = usize::from(area.height / 3).max(1);
        self.visible_offers = if options.len() > room { room - 1 } else { options.len() };
        let row = |text: String| {
            Line::raw(cells::truncate(&cells::escape_line(&text), width, Truncation::KeepStart))
        };
        let visible = options.iter().zip(1..).take(self.visible_offers);
        let mut lines: Vec<Line<'static>> =
            visible.map(|(option, number)| row(format!("{number} {}", option.label()))).collect();
        if self.visible_offers < options.len() {
            lines.push(row(format!("… {} answers to choose from: w", options.len())));
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
        let numbered_label = |label: String, choice| match self.question.default_option_number(choice) {
            Some(number) => format!("{label} ({number})"),
            None => label,
        };
        let allow = numbered_label(self.allow_label(area.width), AnswerChoice::Allow);
        let reject = numbered_label("reject".to_owned(), AnswerChoice::Deny);
        let picker = ScopePicker::new(&self.question, AnswerChoice::Allow);
        let can_last = picker.is_some();
        let answers = [
            ("y", allow.as_str(), true),
            ("s", "this session", can_last),
            ("p", "this project", can_last),
            ("n", reject.as_str(), true),
            ("N", "always reject", can_last),
        ];
        let hunk =
            self.visible_hunk().map(|(index, count)| format!("leave out hunk {} of {count}", index + 1));
        let has_change = self.question.items.get(self.selected).is_some_and(|item| item.change.is_some());
        let is_cut = self.is_full_screen || self.viewport.describe_position().is_some();
        let navigation = [
            ("r", "reject, why…", true),
            ("m", "more…", can_last),
            ("e", "edit", self.editable_text().is_some()),
            ("x", hunk.as_deref().unwrap_or_default(), hunk.is_some()),
            ("z", "the agent's version", self.is_edited()),
            ("Tab", "next", items > 1),
            ("v", "split", has_change),
            ("f", if self.is_full_screen { "less" } else { "full" }, is_cut && !self.is_small),
            ("Ctrl-C", "cancel", true),
            ("?", "help", true),
        ];
        fn visible_keys<'a>(keys: &[(&'static str, &'a str, bool)]) -> Vec<(&'static str, &'a str)> {
            keys.iter()
                .filter(|(_, _, is_visible)| *is_visible)
                .map(|(key, label, _)| (*key, *label))
                .collect()
        }
        let (mut answers, navigation) = (visible_keys(&answers), visible_keys(&navigation));
        if self.is_small {
            // Only what fits is shown, with yes and no first.
            answers.sort_by_key(|(key, _)| !matches!(*key, "y" | "n"));
            return vec![key_hints(&[answers, navigation].concat(), area.width)];
        }
        let rows = key_hint_rows(&[answers.as_slice(), navigation.as_slice()].concat(), area.width);
        if rows.len() == 1 && !can_last {
            return rows;
        }
        let mut lines = key_hint_rows(&answers, area.width);
        if let Some(picker) = picker {
            let text = format!("s, p and N hold for {}", picker.scope_text());
            lines.push(Line::styled(
                cells::truncate(&text, usize::from(area.width), Truncation::KeepStart),
                theme::secondary(),
            ));
        }
        lines.push(key_hints(&navigation, area.width));
        lines
    }
}

/// The full header above the operations, in rows.
struct ApprovalHeader {
    title: Vec<Line<'static>>,
    dangers: Vec<Line<'static>>,
    reason: Vec<Line<'static>>,
    offers: Vec<Line<'static>>,
}

impl ApprovalHeader {
    fn new(question: &Question, width: u16) -> Self {
        let agent =
            question.agent.as_deref().map_or("The agent".to_owned(), |agent| display::escape_line(agent, 80));
        let verb = match question.trigger {
            QuestionTrigger::PermissionRequest => "asks",
            QuestionTrigger::UnrequestedOperation => "asks",
            QuestionTrigger::ChangedOperation => "asks again, as this is not what you approved",
        };
        let rows = |prefix: &str, text: &str, style: Style| {
            let text = format!("{prefix}{}", display::escape_line(text, MAX_TEXT));
            let rows = cells::wrap_prose(&text, usize::from(width)).into_iter();
            rows.map(|row| Line::styled(row, style)).collect::<Vec<_>>()
        };
        let dangers = question.dangers.iter();
        let options = question.selectable_options().iter().zip(1..);
        Self {
            title: rows(&format!("{agent} {verb}: "), &question.title, theme::title()),
            dangers: dangers.flat_map(|danger| rows("! ", &danger.text, theme::danger())).collect(),
            reason: rows("Asked because ", &question.reason, theme::secondary()),
            offers: options
                .flat_map(|(option, number)| rows(&format!("{number} "), &option.label(), Style::new()))
                .collect(),
        }
    }

    fn into_lines(self) -> Vec<Line<'static>> {
        [self.title, self.dangers, self.reason, self.offers].concat()
    }
}

fn help_lines(width: u16) -> Vec<Line<'static>> {
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
    key_help(HELP, width)
}

/// Returns a row of the list: kind, target, number of lines.
fn item_line(item: &QuestionItem, stat: Option<DiffStat>, style: Style, width: usize) -> Line<'static> {
    let kind = item.operation.kind.as_str();
    let (name, truncation) = match &item.operation.target {
        OperationTarget::File { requested, .. } | OperationTarget::OutsideRoots { requested } => {
            (display::escape_line(requested, MAX_TEXT), Truncation::KeepEnd)
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
    let name = cells::truncate(&cells::escape_line(&name), width.saturating_sub(used), truncation);
    let padding = " ".repeat(width.saturating_sub(used + cells::text_width(&name)));
    let mut line = Line::styled(format!("{kind} {name}{padding}"), style);
    if let Some([added, removed]) = counts {
        line.push_span(Span::styled(added, theme::added()));
        line.push_span(Span::styled(removed, theme::removed()));
    }
    line
}
