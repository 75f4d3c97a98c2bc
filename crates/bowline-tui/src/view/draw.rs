//! Drawing of a conversation.

mod status;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::widgets::{draw_line, rule_line, split_bottom, split_top, theme};
use super::wrap::{LineBreak, escape_line, truncate_end, wrap_spans};
use crate::app::{AgentStatus, App, KEY_HELP, KeyFocus, OverlayPane};

/// The minimum size of the screen.
const MIN_SIZE: (u16, u16) = (20, 6);

/// The maximum number of rows of the input.
const MAX_INPUT_ROWS: u16 = 8;

/// The maximum number of visible completion items.
const MAX_COMPLETION_ROWS: usize = 8;

/// The maximum number of visible queued prompts.
const MAX_QUEUED_ROWS: usize = 3;

/// The number of columns for the hint beside the search text.
const SEARCH_HINT_WIDTH: u16 = 44;

/// The maximum number of visible lines of the full plan.
const MAX_PLAN_ROWS: usize = 8;

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    /// Colours are used.
    On,
    /// No colours: bold, dim and reversed text only.
    Off,
}

/// Draws a conversation.
pub(crate) fn draw(app: &mut App, frame: &mut Frame<'_>, colours: Colours) {
    let area = frame.area();
    let fits = area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1;
    app.record_drawn(fits);
    if !fits {
        let text = format!("too small: {}x{} needed", MIN_SIZE.0, MIN_SIZE.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let waiting = app.pending_approvals.len().saturating_sub(1);
    let question_rows = app.pending_approvals.front_mut().map(|pending| pending.approval.needed_rows(area));
    if let Some(rows) = question_rows {
        let (above, below) = split_bottom(area, usize::from(rows));
        if !above.is_empty() {
            draw_above_approval(app, frame, above);
        }
        if let Some(pending) = app.pending_approvals.front_mut() {
            pending.approval.draw(frame, below, waiting);
        }
    } else if let Some((_, form)) = app.elicitations.front_mut() {
        form.draw(frame, area);
    } else if let Some(OverlayPane::Changes(changes)) = &mut app.pane {
        changes.draw(frame, area);
    } else {
        draw_conversation(app, frame, area);
        match &app.pane {
            Some(OverlayPane::Help(first_line)) => draw_help(frame, area, *first_line),
            Some(OverlayPane::Sessions(_, picker) | OverlayPane::ConfigOptions(_, picker)) => {
                picker.draw(frame, area)
            }
            Some(OverlayPane::Changes(_)) | None => {
                if let AgentStatus::Exited(output) = &app.status {
                    draw_agent_exit(app, frame, area, output);
                }
            }
        }
    }
    if colours == Colours::Off {
        theme::strip_colour(frame.buffer_mut());
    }
}

fn draw_conversation(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let rows =
        app.input.row_count(width.saturating_sub(2), usize::from(MAX_INPUT_ROWS.min(area.height / 3).max(1)));
    let plan = status::plan_lines(app, width, if area.height < 16 { 1 } else { MAX_PLAN_ROWS });
    let queued = app.queued_prompts.len().min(MAX_QUEUED_ROWS);
    let height = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(0));
    let [top, messages, plan_area, queue, separator, input, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        height(plan.len()),
        height(queued),
        Constraint::Length(1),
        height(rows),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(status::title_line(app, width)), top);
    draw_messages(app, frame, messages);
    frame.render_widget(Paragraph::new(plan), plan_area);
    let row = |(index, text): (usize, &String)| {
        let more = match app.queued_prompts.len().saturating_sub(MAX_QUEUED_ROWS) {
            more if more > 0 && index + 1 == MAX_QUEUED_ROWS => format!("  (and {more} more)"),
            _ => String::new(),
        };
        let text =
            truncate_end(&format!("next: {}", text.replace('\n', " ")), width.saturating_sub(more.len()));
        Line::styled(text + &more, theme::secondary())
    };
    let rows: Vec<Line<'static>> = app.queued_prompts.iter().enumerate().take(queued).map(row).collect();
    frame.render_widget(Paragraph::new(rows), queue);
    let scroll_hint =
        if app.conversation.is_following() { String::new() } else { " more below: Ctrl-End ".to_owned() };
    let rule = Block::new()
        .borders(Borders::TOP)
        .border_style(theme::secondary())
        .title(Span::styled(scroll_hint, theme::secondary()));
    frame.render_widget(rule, separator);
    draw_input(app, frame, input);
    let status = match &app.search_input {
        Some(search) if app.flash_text().is_none() => {
            let mut line = Line::from(vec![Span::styled(" find ", theme::title())]);
            line.spans.extend(search.render(bottom.width.saturating_sub(SEARCH_HINT_WIDTH), true).spans);
            line.push_span(Span::styled("  Enter older · Down newer · Esc ends", theme::secondary()));
            line
        }
        _ => status::status_line(app, width),
    };
    frame.render_widget(Paragraph::new(status), bottom);
    draw_completion(app, frame, separator);
}

/// Draws the messages.
fn draw_messages(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    if app.conversation.is_empty() {
        frame.render_widget(Paragraph::new(greeting_lines(app, area)), area);
        return;
    }
    let (lines, selected) = app.conversation.visible_lines(usize::from(area.width), usize::from(area.height));
    frame.render_widget(Paragraph::new(lines), area);
    if let Some(row) = selected.and_then(|row| u16::try_from(row).ok()) {
        let row = Rect { y: area.y + row, height: 1, ..area };
        frame.buffer_mut().set_style(row, Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Draws the prompt input.
fn draw_input(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let [mark, text] = Layout::horizontal([Constraint::Length(2), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(Span::styled("❯ ", Style::new().fg(Color::Green))), mark);
    app.input.set_focused(app.focus == KeyFocus::Input);
    frame.render_widget(app.input.text_area(), text);
}

/// Draws the conversation above a question: its end, and the prompt that was being written when the question came.
fn draw_above_approval(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let (top, rest) = split_top(area, 1);
    frame.render_widget(Paragraph::new(status::title_line(app, usize::from(area.width))), top);
    let (rest, rule) = split_bottom(rest, 1);
    let (messages, input) = split_bottom(rest, usize::from(!app.input.is_empty()));
    draw_messages(app, frame, messages);
    if !input.is_empty() {
        draw_input(app, frame, input);
    }
    draw_line(frame, rule, &rule_line("", "", rule.width).style(theme::approval_rule()));
}

fn greeting_lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let text = match &app.status {
        AgentStatus::Opening(description) => format!("{description} …"),
        AgentStatus::Ready => format!(
            "{} is ready in {}. {} F2 shows what it changed and takes it back.",
            app.agent,
            app.cwd,
            status::describe_permissions(app.permissions)
        ),
        AgentStatus::Exited(_) => String::new(),
    };
    let mut lines = vec![Line::default()];
    lines.extend(wrap_spans(
        &[Span::styled(escape_line(&text), theme::secondary())],
        width,
        LineBreak::Words,
        &[],
        &[],
    ));
    if app.status == AgentStatus::Ready {
        lines.push(Line::default());
        lines.extend(example_lines(app.is_offline(), width));
    }
    lines
}

/// Returns example prompts, for a user who has not sent one yet.
fn example_lines(offline: bool, width: usize) -> Vec<Line<'static>> {
    let (intro, examples, note) = match offline {
        true => (
            "The offline model does plain commands, one a line. For example:",
            ["list", "read @README.md", "replace \"old\" with \"new\" in notes.txt"],
            "`help` shows them all. F4 chooses another model; one with a key takes any prompt.",
        ),
        false => (
            "For example:",
            [
                "What does this project do?",
                "Explain @README.md in three sentences",
                "Run the tests and fix what fails",
            ],
            "",
        ),
    };
    let wrap_text = |text: &'static str| {
        wrap_spans(&[Span::styled(text, theme::secondary())], width, LineBreak::Words, &[], &[])
    };
    let mut lines = wrap_text(intro);
    let example_line =
        |text| Line::from(vec![Span::raw("  ❯ "), Span::styled(text, Style::new().fg(Color::Cyan))]);
    lines.extend(examples.into_iter().map(example_line));
    lines.extend(wrap_text(note));
    lines.extend(wrap_text("/undo takes back what the last turn changed."));
    lines
}

/// Draws the completion list right above the input.
fn draw_completion(app: &App, frame: &mut Frame<'_>, separator: Rect) {
    let Some(completion) = &app.completion else { return };
    let rows =
        completion.items.len().min(MAX_COMPLETION_ROWS).min(usize::from(separator.y.saturating_sub(1)));
    let height = u16::try_from(rows).unwrap_or(0);
    let popup = Rect { y: separator.y - height, height, ..separator };
    frame.render_widget(Clear, popup);
    let width = usize::from(popup.width);
    let first = (completion.selected + 1).saturating_sub(rows);
    let visible = completion.items.iter().enumerate().skip(first).take(rows);
    let lines = visible.map(|(index, item)| {
        let text = truncate_end(&format!(" {} ", item.text.trim_end()), width);
        let room = width.saturating_sub(Span::raw(text.as_str()).width() + 1);
        let description = format!(" {}", truncate_end(&item.description.replace('\n', " "), room));
        let padding = room.saturating_sub(Span::raw(description.as_str()).width().saturating_sub(1));
        // The row is only reversed: a colour or dim text would be hard to read.
        let line = Line::from(vec![
            Span::styled(text, theme::title()),
            Span::raw(description),
            Span::raw(" ".repeat(padding)),
        ]);
        if index == completion.selected { line.style(theme::selected()) } else { line }
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), popup);
}

/// Draws a centred window frame and returns the area inside it.
fn draw_window(frame: &mut Frame<'_>, area: Rect, rows: usize, title: &str, hints: &str) -> Rect {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let width = area.width.saturating_sub(2).min(90);
    let x = area.x + (area.width - width) / 2;
    let window = Rect { x, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, window);
    let block = Block::bordered()
        .title(Span::styled(format!(" {title} "), Style::new().add_modifier(Modifier::BOLD)))
        .title_bottom(format!(" {hints} "))
        .border_style(theme::window());
    let inner = block.inner(window);
    frame.render_widget(block, window);
    inner
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, first_line: usize) {
    let inner = draw_window(frame, area, KEY_HELP.len(), "Keys", "Up, Down move · any other key closes");
    let max_first_line = KEY_HELP.len().saturating_sub(usize::from(inner.height));
    let column = KEY_HELP.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0) + 2;
    let lines = KEY_HELP.iter().skip(first_line.min(max_first_line)).map(|(key, description)| {
        let padding = column.saturating_sub(key.chars().count());
        Line::from(vec![
            Span::styled(format!("{key}{}", " ".repeat(padding)), theme::title()),
            Span::raw(*description),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
}

/// Draws the exit window of the agent: the first line of its last output, the end of it, and the keys.
fn draw_agent_exit(app: &App, frame: &mut Frame<'_>, area: Rect, output: &str) {
    // The prompt being written stays visible.
    let area = Rect { height: area.height.saturating_sub(MAX_INPUT_ROWS.min(area.height / 3)), ..area };
    let width = usize::from(area.width.saturating_sub(4).min(88));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let keys = match app.input.is_empty() {
        true => "r start it again and go on · n start it with a new session · q quit",
        false => "Ctrl-R start it again and go on · Ctrl-N start it with a new session · Ctrl-C twice quit",
    };
    let keys = wrap_spans(&[Span::styled(keys, bold)], width, LineBreak::Words, &[], &[]);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for line in output.trim_end().lines() {
        lines.extend(wrap_spans(&[Span::raw(escape_line(line))], width, LineBreak::Words, &[], &[]));
    }
    let room = usize::from(area.height).saturating_sub(keys.len() + 3).max(1);
    if lines.len() > room {
        // The reason for the exit comes first.
        let hidden = lines.len() + 1 - room;
        let mark =
            Line::styled(format!("… {hidden} lines are above, in the conversation"), theme::secondary());
        let first = usize::from(room > 2);
        lines.splice(first..(first + hidden).min(lines.len()), (room > 1).then_some(mark));
    }
    if lines.len() + keys.len() + 2 < usize::from(area.height) {
        lines.push(Line::default());
    }
    lines.extend(keys);
    let title = match app.session() {
        Some(_) => "The agent is gone",
        None => "No session could be opened",
    };
    let inner = draw_window(frame, area, lines.len(), title, "what was said is still here: PgUp, PgDn");
    frame.render_widget(Paragraph::new(lines), inner);
}

#[cfg(test)]
mod tests;
