//! A form that an agent wants filled in.
//!
//! Or a page that it wants visited: its address is shown whole, and never opened from here. Nothing is sent by default:
//! Enter only goes to the next field, and no key that is part of a text agrees to anything.

mod fields;

use std::ops::Range;
use std::sync::Arc;

use bowline_state::display;
use bowline_state::elicitation::{Content, Fault, Field, Form, Page};
use bowline_state::schema::v1::{
    CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction, ElicitationMode,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::parts::view::View;
use super::parts::{cells, keys, put, put_all, ruled, split_bottom, theme};
use fields::Filled;

/// As much of one of the agent's texts is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// So many lines of the agent's message are shown.
const MESSAGE_LINES: usize = 100;

/// With more rows than this there is one to say what part is in sight.
const RULED: u16 = 6;

/// What an agent wants to know, as a person fills it in.
#[derive(Debug)]
pub(crate) struct FormView {
    agent: Option<String>,
    request: Arc<CreateElicitationRequest>,
    asked: Asked,
    view: View,
    // What keeps it from being sent.
    fault: Option<String>,
    follow: bool,
}

#[derive(Debug)]
enum Asked {
    Form { form: Form, filled: Vec<Filled>, focus: usize },
    Page(Page),
    // It cannot be shown, so it cannot be agreed to.
    Nothing(String),
}

impl FormView {
    /// Returns the form with its defaults filled in.
    pub(crate) fn new(agent: Option<String>, request: Arc<CreateElicitationRequest>) -> Self {
        let asked = match &request.mode {
            ElicitationMode::Form(mode) => match Form::read(&mode.requested_schema) {
                Ok(form) => {
                    let defaults = form.defaults();
                    let fill = |field: &Field| Filled::new(&field.input, defaults.get(&field.name));
                    let filled = form.fields.iter().map(fill).collect();
                    Asked::Form { form, filled, focus: 0 }
                }
                Err(fault) => Asked::Nothing(fault.to_string()),
            },
            ElicitationMode::Url(mode) => match Page::read(&mode.url) {
                Ok(page) => Asked::Page(page),
                Err(fault) => Asked::Nothing(fault.to_string()),
            },
            ElicitationMode::Other(other) => {
                Asked::Nothing(format!("this way of asking is not known here: {}", other.mode))
            }
            _ => Asked::Nothing("this way of asking is not known here".to_owned()),
        };
        Self { agent, request, asked, view: View::default(), fault: None, follow: true }
    }

    /// Takes in a key, and returns the answer if it was one.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<ElicitationAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers == KeyModifiers::CONTROL;
        match (&mut self.asked, key.code) {
            (_, KeyCode::Esc) => return Some(ElicitationAction::Cancel),
            (_, KeyCode::Char('d')) if control => return Some(ElicitationAction::Decline),
            (_, KeyCode::PageUp | KeyCode::PageDown) => {
                self.view.key(key.code);
            }
            (Asked::Form { .. }, KeyCode::Char('s')) if control => return self.send(),
            (Asked::Page(_), KeyCode::Char('s')) if control => {
                return Some(ElicitationAction::Accept(ElicitationAcceptAction::new()));
            }
            (Asked::Form { filled, focus, .. }, code) => {
                self.follow = true;
                self.fault = None;
                let last = filled.len().saturating_sub(1);
                match code {
                    KeyCode::Tab | KeyCode::Down | KeyCode::Enter => *focus = (*focus + 1).min(last),
                    KeyCode::BackTab | KeyCode::Up => *focus = focus.saturating_sub(1),
                    _ => {
                        if let Some(filled) = filled.get_mut(*focus) {
                            filled.key(key);
                        }
                    }
                }
            }
            (Asked::Page(_) | Asked::Nothing(_), code) => {
                self.view.key(code);
            }
        }
        None
    }

    /// Takes in pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Asked::Form { filled, focus, .. } = &mut self.asked
            && let Some(filled) = filled.get_mut(*focus)
        {
            filled.paste(text);
        }
    }

    /// Returns the answer if what was filled in may be sent; else says what is wrong and goes there.
    fn send(&mut self) -> Option<ElicitationAction> {
        let Asked::Form { form, filled, focus } = &mut self.asked else { return None };
        let mut content = Content::new();
        for (at, (field, filled)) in form.fields.iter().zip(filled.iter()).enumerate() {
            match filled.value(&field.input) {
                Ok(value) => content.extend(value.map(|value| (field.name.clone(), value))),
                Err(wanted) => {
                    self.fault = Some(format!("{} is not {wanted}", field.name));
                    (*focus, self.follow) = (at, true);
                    return None;
                }
            }
        }
        let Some(fault) = form.check(&content).into_iter().next() else {
            return Some(ElicitationAction::Accept(ElicitationAcceptAction::new().content(content)));
        };
        self.fault = Some(fault.to_string());
        if let Some(at) = form.fields.iter().position(|field| is_about(&fault, &field.name)) {
            (*focus, self.follow) = (at, true);
        }
        None
    }

    /// Draws all of it, over whatever is there.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        let width = usize::from(area.width);
        let mut footer: Vec<Line<'static>> = Vec::new();
        if let Some(fault) = &self.fault {
            let rows = cells::prose(&format!("! {fault}"), width).into_iter().take(2);
            footer.extend(rows.map(|row| Line::styled(row, theme::danger())));
        }
        footer.push(match &self.asked {
            Asked::Form { .. } => {
                let shown = [
                    ("^S", "send"),
                    ("^D", "decline"),
                    ("Tab", "next field"),
                    ("Space", "mark"),
                    ("Esc", "cancel"),
                ];
                keys(&shown, area.width)
            }
            Asked::Page(_) => {
                keys(&[("^S", "I agree to open it"), ("^D", "decline"), ("Esc", "cancel")], area.width)
            }
            Asked::Nothing(_) => keys(&[("^D", "decline"), ("Esc", "cancel")], area.width),
        });
        footer.drain(..footer.len().saturating_sub(usize::from(area.height)));
        let (body, bottom) = split_bottom(area, footer.len());
        put_all(frame, bottom, &footer);
        let (body, rule) = split_bottom(body, usize::from(body.height > RULED));
        let (lines, focused, cursor) = self.lines(body.width);
        self.view.fit(body.height, lines.len());
        if std::mem::take(&mut self.follow) {
            self.view.reveal(focused);
            // If there is no room for all of the field, then for where something is filled in.
            self.view.reveal(cursor..cursor + 1);
        }
        self.view.draw(frame, body, &lines);
        if let Some(position) = self.view.position() {
            put(frame, rule, &ruled(&format!(" lines {position}: PgUp PgDn "), "", rule.width));
        }
    }

    /// Returns all lines, which of them are those of the field that is filled in, and which one has the cursor.
    fn lines(&self, width: u16) -> (Vec<Line<'static>>, Range<usize>, usize) {
        let cells = usize::from(width);
        let rows = |text: &str, style: Style| {
            let text = display::line(text, MAX_TEXT);
            cells::prose(&text, cells)
                .into_iter()
                .map(move |row| Line::styled(row, style))
                .collect::<Vec<_>>()
        };
        let agent = self.agent.as_deref().map_or("The agent".to_owned(), |agent| display::line(agent, 80));
        let does = match &self.asked {
            Asked::Form { .. } => "wants to know",
            Asked::Page(_) => "wants you to visit a page",
            Asked::Nothing(_) => "asks for something that cannot be shown",
        };
        let mut lines = rows(&format!("{agent} {does}:"), theme::title());
        for line in self.request.message.split('\n').take(MESSAGE_LINES) {
            lines.extend(rows(line, Style::new()));
        }
        if self.request.message.split('\n').count() > MESSAGE_LINES {
            lines.extend(rows("! the message is longer than what is shown", theme::danger()));
        }
        lines.push(Line::default());
        let (mut focused, mut cursor) = (0..0, 0);
        match &self.asked {
            Asked::Nothing(fault) => lines.extend(rows(&format!("! {fault}"), theme::danger())),
            Asked::Page(page) => {
                for suspicion in page.suspicions() {
                    lines.extend(rows(&format!("! {suspicion}"), theme::danger()));
                }
                let [_, host, _] = page.parts();
                lines.extend(rows(&format!("It leads to {host}"), theme::title()));
                let whole = cells::visible(&page.parts().concat());
                let wrapped = cells::wrap(&whole, cells.max(2), cells::Break::Anywhere).into_iter();
                lines.extend(wrapped.map(|row| Line::raw(whole[row].to_owned())));
                lines.extend(rows(
                    "It is not opened for you: copy it into a browser if you trust it.",
                    theme::aside(),
                ));
            }
            Asked::Form { form, filled, focus } => {
                lines.extend(form.title.iter().flat_map(|title| rows(title, theme::title())));
                lines.extend(form.description.iter().flat_map(|text| rows(text, Style::new())));
                for (at, (field, filled)) in form.fields.iter().zip(filled).enumerate() {
                    let start = lines.len();
                    let name = field.title.as_ref().unwrap_or(&field.name);
                    let required = if field.required { " (required)" } else { "" };
                    let style = if at == *focus { theme::key() } else { theme::title() };
                    lines.extend(rows(&format!("{name}{required}"), style));
                    lines.extend(field.description.iter().flat_map(|text| rows(text, theme::aside())));
                    lines.extend(rows(&fields::hint(&field.input), theme::aside()));
                    if at == *focus {
                        cursor = lines.len() + filled.row();
                    }
                    for line in filled.lines(&field.input, width.saturating_sub(2), at == *focus) {
                        let mut row = Line::from(Span::raw("  ")).style(line.style);
                        row.spans.extend(line.spans);
                        lines.push(row);
                    }
                    if at == *focus {
                        focused = start..lines.len();
                    }
                }
            }
        }
        (lines, focused, cursor)
    }
}

fn is_about(fault: &Fault, field: &str) -> bool {
    match fault {
        Fault::Missing(name) | Fault::NotAskedFor(name) | Fault::NoOption(name) | Fault::Twice(name) => {
            name == field
        }
        Fault::Kind { name, .. } | Fault::Bound { name, .. } => name == field,
    }
}

#[cfg(test)]
mod tests;
