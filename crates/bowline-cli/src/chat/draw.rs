//! A conversation, drawn.

mod status;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::app::{App, Focus, HELP, Pane, Stage};
use super::parts::{put, ruled, split_bottom, split_top, theme};
use super::wrap::{Break, cut, safe, wrap};

/// On less than this nothing can be shown.
const SMALLEST: (u16, u16) = (20, 6);

/// The input grows up to so many rows.
const MAX_INPUT_ROWS: u16 = 8;

/// So many offers of a completion are in sight.
const MAX_OFFERS: usize = 8;

/// So many of the prompts that wait are in sight.
const MAX_QUEUED_ROWS: usize = 3;

/// So many columns are for what is said beside a text that is looked for.
const FIND_HINTS: u16 = 44;

/// So many lines of the whole plan are in sight.
const MAX_PLAN: usize = 8;

/// Whether colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    /// As things are.
    On,
    /// None: bold, faint and reversed have to do.
    Off,
}

/// Draws a conversation.
pub(crate) fn draw(app: &mut App, frame: &mut Frame<'_>, colours: Colours) {
    let area = frame.area();
    let fits = area.width >= SMALLEST.0 && area.height >= SMALLEST.1;
    app.was_drawn(fits);
    if !fits {
        let text = format!("too small: {}x{} needed", SMALLEST.0, SMALLEST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let waiting = app.questions.len().saturating_sub(1);
    let question_rows = app.questions.front_mut().map(|asked| asked.approval.rows(area));
    if let Some(rows) = question_rows {
        let (above, below) = split_bottom(area, usize::from(rows));
        if !above.is_empty() {
            beside_question(app, frame, above);
        }
        if let Some(asked) = app.questions.front_mut() {
            asked.approval.draw(frame, below, waiting);
        }
    } else if let Some((_, form)) = app.forms.front_mut() {
        form.draw(frame, area);
    } else if let Some(Pane::Changes(changes)) = &mut app.pane {
        changes.draw(frame, area);
    } else {
        conversation(app, frame, area);
        match &app.pane {
            Some(Pane::Help(from)) => help(frame, area, *from),
            Some(Pane::Sessions(_, picker) | Pane::Settings(_, picker)) => picker.draw(frame, area),
            Some(Pane::Changes(_)) | None => {
                if let Stage::Dead(words) = &app.stage {
                    dead(app, frame, area, words);
                }
            }
        }
    }
    if colours == Colours::Off {
        theme::without_colour(frame.buffer_mut());
    }
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn conversation(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let rows =
        app.input.rows(width.saturating_sub(2), usize::from(MAX_INPUT_ROWS.min(area.height / 3).max(1)));
    let plan = status::plan(app, width, if area.height < 16 { 1 } else { MAX_PLAN });
    let queued = app.queued.len().min(MAX_QUEUED_ROWS);
    let height = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(0));
    let [top, talk, steps, waiting, line, input, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        height(plan.len()),
        height(queued),
        Constraint::Length(1),
        height(rows),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(status::head(app, width)), top);
    messages(app, frame, talk);
    frame.render_widget(Paragraph::new(plan), steps);
    let row = |(at, text): (usize, &String)| {
        let more = match app.queued.len().saturating_sub(MAX_QUEUED_ROWS) {
            more if more > 0 && at + 1 == MAX_QUEUED_ROWS => format!("  (and {more} more)"),
            _ => String::new(),
        };
        let text = cut(&format!("next: {}", text.replace('\n', " ")), width.saturating_sub(more.len()));
        Line::styled(text + &more, faint())
    };
    let rows: Vec<Line<'static>> = app.queued.iter().enumerate().take(queued).map(row).collect();
    frame.render_widget(Paragraph::new(rows), waiting);
    let below = if app.conversation.follows() { String::new() } else { " more below: Ctrl-End ".to_owned() };
    let rule = Block::new().borders(Borders::TOP).border_style(faint()).title(Span::styled(below, faint()));
    frame.render_widget(rule, line);
    written(app, frame, input);
    let status = match &app.search {
        Some(search) if app.flashing().is_none() => {
            let mut line = Line::from(vec![Span::styled(" find ", theme::title())]);
            line.spans.extend(search.line(bottom.width.saturating_sub(FIND_HINTS), true).spans);
            line.push_span(Span::styled("  Enter older · Down newer · Esc ends", faint()));
            line
        }
        _ => status::line(app, width),
    };
    frame.render_widget(Paragraph::new(status), bottom);
    completion(app, frame, line);
}

/// Draws what was said and done.
fn messages(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    if app.conversation.is_empty() {
        frame.render_widget(Paragraph::new(greeting(app, area)), area);
        return;
    }
    let (lines, selected) = app.conversation.visible(usize::from(area.width), usize::from(area.height));
    frame.render_widget(Paragraph::new(lines), area);
    if let Some(row) = selected.and_then(|row| u16::try_from(row).ok()) {
        let row = Rect { y: area.y + row, height: 1, ..area };
        frame.buffer_mut().set_style(row, Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Draws what is being written.
fn written(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let [mark, text] = Layout::horizontal([Constraint::Length(2), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(Span::styled("❯ ", Style::new().fg(Color::Green))), mark);
    app.input.focus(app.focus == Focus::Input);
    frame.render_widget(app.input.area(), text);
}

/// Draws the conversation above a question: its end, and what was being written when the question came.
fn beside_question(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let (top, rest) = split_top(area, 1);
    frame.render_widget(Paragraph::new(status::head(app, usize::from(area.width))), top);
    let (rest, rule) = split_bottom(rest, 1);
    let (talk, input) = split_bottom(rest, usize::from(!app.input.is_empty()));
    messages(app, frame, talk);
    if !input.is_empty() {
        written(app, frame, input);
    }
    put(frame, rule, &ruled("", "", rule.width).style(theme::question()));
}

fn greeting(app: &App, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let text = match &app.stage {
        Stage::Opening(what) => format!("{what} …"),
        Stage::Ready => format!(
            "{} is ready in {}. {} F2 shows what it changed and takes it back.",
            app.agent,
            app.cwd,
            status::allowed_in_words(app.allowed)
        ),
        Stage::Dead(_) => String::new(),
    };
    let mut lines = vec![Line::default()];
    lines.extend(wrap(&[Span::styled(safe(&text), faint())], width, Break::Words, &[], &[]));
    if app.stage == Stage::Ready {
        lines.push(Line::default());
        lines.extend(examples(app.is_offline(), width));
    }
    lines
}

/// Returns what could be said, for a user who has not said anything yet.
fn examples(offline: bool, width: usize) -> Vec<Line<'static>> {
    let (head, examples, rest) = match offline {
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
    let words = |text: &'static str| wrap(&[Span::styled(text, faint())], width, Break::Words, &[], &[]);
    let mut lines = words(head);
    let shown = |text| Line::from(vec![Span::raw("  ❯ "), Span::styled(text, Style::new().fg(Color::Cyan))]);
    lines.extend(examples.into_iter().map(shown));
    lines.extend(words(rest));
    lines.extend(words("/undo takes back what the last turn changed."));
    lines
}

/// Draws what could be completed to, right above the input.
fn completion(app: &App, frame: &mut Frame<'_>, line: Rect) {
    let Some(completion) = &app.completion else { return };
    let rows = completion.offers.len().min(MAX_OFFERS).min(usize::from(line.y.saturating_sub(1)));
    let height = u16::try_from(rows).unwrap_or(0);
    let place = Rect { y: line.y - height, height, ..line };
    frame.render_widget(Clear, place);
    let width = usize::from(place.width);
    let from = (completion.selected + 1).saturating_sub(rows);
    let shown = completion.offers.iter().enumerate().skip(from).take(rows);
    let lines = shown.map(|(at, offer)| {
        let text = cut(&format!(" {} ", offer.text.trim_end()), width);
        let room = width.saturating_sub(Span::raw(text.as_str()).width() + 1);
        let about = format!(" {}", cut(&offer.about.replace('\n', " "), room));
        let blank = room.saturating_sub(Span::raw(about.as_str()).width().saturating_sub(1));
        // The whole row is reversed, and nothing else of it: a colour or a faint word would be hard to read then.
        let line = Line::from(vec![
            Span::styled(text, theme::title()),
            Span::raw(about),
            Span::raw(" ".repeat(blank)),
        ]);
        if at == completion.selected { line.style(theme::chosen()) } else { line }
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), place);
}

/// Returns a place in the middle, and draws its frame.
fn window(frame: &mut Frame<'_>, area: Rect, rows: usize, title: &str, hints: &str) -> Rect {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let width = area.width.saturating_sub(2).min(90);
    let x = area.x + (area.width - width) / 2;
    let place = Rect { x, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered()
        .title(Span::styled(format!(" {title} "), Style::new().add_modifier(Modifier::BOLD)))
        .title_bottom(format!(" {hints} "))
        .border_style(theme::frame());
    let inside = block.inner(place);
    frame.render_widget(block, place);
    inside
}

fn help(frame: &mut Frame<'_>, area: Rect, from: usize) {
    let inside = window(frame, area, HELP.len(), "Keys", "Up, Down move · any other key closes");
    let most = HELP.len().saturating_sub(usize::from(inside.height));
    let column = HELP.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0) + 2;
    let lines = HELP.iter().skip(from.min(most)).map(|(key, what)| {
        let padding = column.saturating_sub(key.chars().count());
        Line::from(vec![
            Span::styled(format!("{key}{}", " ".repeat(padding)), theme::title()),
            Span::raw(*what),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// Draws that the agent is gone: the first of what it said, the end of it, and the keys.
fn dead(app: &App, frame: &mut Frame<'_>, area: Rect, words: &str) {
    // What is being written stays in sight.
    let area = Rect { height: area.height.saturating_sub(MAX_INPUT_ROWS.min(area.height / 3)), ..area };
    let width = usize::from(area.width.saturating_sub(4).min(88));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let keys = match app.input.is_empty() {
        true => "r start it again and go on · n start it with a new session · q quit",
        false => "Ctrl-R start it again and go on · Ctrl-N start it with a new session · Ctrl-C twice quit",
    };
    let keys = wrap(&[Span::styled(keys, bold)], width, Break::Words, &[], &[]);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for line in words.trim_end().lines() {
        lines.extend(wrap(&[Span::raw(safe(line))], width, Break::Words, &[], &[]));
    }
    let room = usize::from(area.height).saturating_sub(keys.len() + 3).max(1);
    if lines.len() > room {
        // Why it ended stands first.
        let hidden = lines.len() + 1 - room;
        let mark = Line::styled(format!("… {hidden} lines are above, in the conversation"), faint());
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
    let inside = window(frame, area, lines.len(), title, "what was said is still here: PgUp, PgDn");
    frame.render_widget(Paragraph::new(lines), inside);
}

#[cfg(test)]
mod tests;
