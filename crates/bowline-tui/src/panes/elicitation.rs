//! A form that an agent asks the user to fill in, or a page that it asks the user to visit.
//!
//! The address of a page is shown whole, and never opened from here. Nothing is sent by default: Enter only moves to
//! the next field, and no key that types text accepts anything.

mod field_editor;

use std::ops::Range;
use std::sync::Arc;

use bowline_protocol::elicitation::{ElicitationUrl, Form, FormContent, FormContentError, FormField};
use bowline_protocol::schema::v1::{
    CreateElicitationRequest, ElicitationAcceptAction, ElicitationAction, ElicitationMode,
};
use bowline_text::display;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use crate::view::widgets::viewport::Viewport;
use crate::view::widgets::{cells, draw_line, draw_lines, key_hints, rule_line, split_bottom, theme};
use crate::view::wrap::LineBreak;
use field_editor::FieldEditor;

/// The maximum length of one of the agent's texts that is shown, in bytes.
const MAX_TEXT: usize = 4096;

/// The maximum number of lines shown of the agent's message.
const MESSAGE_LINES: usize = 100;

/// With more rows than this, one row shows the scroll position.
const MIN_RULED_HEIGHT: u16 = 6;

/// An elicitation and the values filled in so far.
#[derive(Debug)]
pub(crate) struct ElicitationPane {
    agent: Option<String>,
    request: Arc<CreateElicitationRequest>,
    body: ElicitationBody,
    viewport: Viewport,
    // Why it cannot be sent.
    error: Option<String>,
    reveals_focus: bool,
}

#[derive(Debug)]
enum ElicitationBody {
    Form { form: Form, editors: Vec<FieldEditor>, focus: usize },
    Page(ElicitationUrl),
    // It cannot be shown, so it cannot be accepted.
    Unsupported(String),
}

impl ElicitationPane {
    /// Returns the form with its defaults filled in.
    pub(crate) fn new(agent: Option<String>, request: Arc<CreateElicitationRequest>) -> Self {
        let body = match &request.mode {
            ElicitationMode::Form(mode) => match Form::from_schema(&mode.requested_schema) {
                Ok(form) => {
                    let defaults = form.defaults();
                    let make_editor =
                        |field: &FormField| FieldEditor::new(&field.input, defaults.get(&field.name));
                    let editors = form.fields.iter().map(make_editor).collect();
                    ElicitationBody::Form { form, editors, focus: 0 }
                }
                Err(error) => ElicitationBody::Unsupported(error.to_string()),
            },
            ElicitationMode::Url(mode) => match ElicitationUrl::parse(&mode.url) {
                Ok(page) => ElicitationBody::Page(page),
                Err(error) => ElicitationBody::Unsupported(error.to_string()),
            },
            ElicitationMode::Other(mode) => {
                ElicitationBody::Unsupported(format!("this way of asking is not known here: {}", mode.mode))
            }
            _ => ElicitationBody::Unsupported("this way of asking is not known here".to_owned()),
        };
        Self { agent, request, body, viewport: Viewport::default(), error: None, reveals_focus: true }
    }

    /// Handles a key, and returns the reply if it was an answer.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<ElicitationAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers == KeyModifiers::CONTROL;
        match (&mut self.body, key.code) {
            (_, KeyCode::Esc) => return Some(ElicitationAction::Cancel),
            (_, KeyCode::Char('d')) if control => return Some(ElicitationAction::Decline),
            (_, KeyCode::PageUp | KeyCode::PageDown) => {
                self.viewport.handle_key(key.code);
            }
            (ElicitationBody::Form { .. }, KeyCode::Char('s')) if control => return self.submit(),
            (ElicitationBody::Page(_), KeyCode::Char('s')) if control => {
                return Some(ElicitationAction::Accept(ElicitationAcceptAction::new()));
            }
            (ElicitationBody::Form { editors, focus, .. }, code) => {
                self.reveals_focus = true;
                self.error = None;
                let last = editors.len().saturating_sub(1);
                match code {
                    KeyCode::Tab | KeyCode::Down | KeyCode::Enter => *focus = (*focus + 1).min(last),
                    KeyCode::BackTab | KeyCode::Up => *focus = focus.saturating_sub(1),
                    _ => {
                        if let Some(editor) = editors.get_mut(*focus) {
                            editor.handle_key(key);
                        }
                    }
                }
            }
            (ElicitationBody::Page(_) | ElicitationBody::Unsupported(_), code) => {
                self.viewport.handle_key(code);
            }
        }
        None
    }

    /// Handles pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        if let ElicitationBody::Form { editors, focus, .. } = &mut self.body
            && let Some(editor) = editors.get_mut(*focus)
        {
            editor.paste(text);
        }
    }

    /// Returns the reply if all values are valid; otherwise shows the error and moves to its field.
    fn submit(&mut self) -> Option<ElicitationAction> {
        let ElicitationBody::Form { form, editors, focus } = &mut self.body else { return None };
        let mut content = FormContent::new();
        for (index, (field, editor)) in form.fields.iter().zip(editors.iter()).enumerate() {
            match editor.value(&field.input) {
                Ok(value) => content.extend(value.map(|value| (field.name.clone(), value))),
                Err(expected) => {
                    self.error = Some(format!("{} is not {expected}", field.name));
                    (*focus, self.reveals_focus) = (index, true);
                    return None;
                }
            }
        }
        let Some(error) = form.check(&content).into_iter().next() else {
            return Some(ElicitationAction::Accept(ElicitationAcceptAction::new().content(content)));
        };
        self.error = Some(error.to_string());
        if let Some(index) = form.fields.iter().position(|field| concerns_field(&error, &field.name)) {
            (*focus, self.reveals_focus) = (index, true);
        }
        None
    }

    /// Draws the form over the area.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let area = area.intersection(frame.area());
        if area.is_empty() {
            return;
        }
        frame.render_widget(Clear, area);
        let width = usize::from(area.width);
        let mut footer: Vec<Line<'static>> = Vec::new();
        if let Some(error) = &self.error {
            let rows = cells::wrap_prose(&format!("! {error}"), width).into_iter().take(2);
            footer.extend(rows.map(|row| Line::styled(row, theme::danger())));
        }
        footer.push(match &self.body {
            ElicitationBody::Form { .. } => {
                let hints = [
                    ("^S", "send"),
                    ("^D", "decline"),
                    ("Tab", "next field"),
                    ("Space", "mark"),
                    ("Esc", "cancel"),
                ];
                key_hints(&hints, area.width)
            }
            ElicitationBody::Page(_) => {
                key_hints(&[("^S", "I agree to open it"), ("^D", "decline"), ("Esc", "cancel")], area.width)
            }
            ElicitationBody::Unsupported(_) => key_hints(&[("^D", "decline"), ("Esc", "cancel")], area.width),
        });
        footer.drain(..footer.len().saturating_sub(usize::from(area.height)));
        let (body, bottom) = split_bottom(area, footer.len());
        draw_lines(frame, bottom, &footer);
        let (body, rule) = split_bottom(body, usize::from(body.height > MIN_RULED_HEIGHT));
        let (lines, focused, cursor) = self.render_lines(body.width);
        self.viewport.set_size(body.height, lines.len());
        if std::mem::take(&mut self.reveals_focus) {
            self.viewport.reveal(focused);
            // If the field does not fit, at least the row of the cursor is visible.
            self.viewport.reveal(cursor..cursor + 1);
        }
        self.viewport.draw(frame, body, &lines);
        if let Some(position) = self.viewport.describe_position() {
            draw_line(frame, rule, &rule_line(&format!(" lines {position}: PgUp PgDn "), "", rule.width));
        }
    }

    /// Returns all lines, the range of the active field's lines, and the line of the cursor.
    fn render_lines(&self, width: u16) -> (Vec<Line<'static>>, Range<usize>, usize) {
        let columns = usize::from(width);
        let rows = |text: &str, style: Style| {
            let text = display::escape_line(text, MAX_TEXT);
            cells::wrap_prose(&text, columns)
                .into_iter()
                .map(move |row| Line::styled(row, style))
                .collect::<Vec<_>>()
        };
        let agent =
            self.agent.as_deref().map_or("The agent".to_owned(), |agent| display::escape_line(agent, 80));
        let verb = match &self.body {
            ElicitationBody::Form { .. } => "wants to know",
            ElicitationBody::Page(_) => "wants you to visit a page",
            ElicitationBody::Unsupported(_) => "asks for something that cannot be shown",
        };
        let mut lines = rows(&format!("{agent} {verb}:"), theme::title());
        for line in self.request.message.split('\n').take(MESSAGE_LINES) {
            lines.extend(rows(line, Style::new()));
        }
        if self.request.message.split('\n').count() > MESSAGE_LINES {
            lines.extend(rows("! the message is longer than what is shown", theme::danger()));
        }
        lines.push(Line::default());
        let (mut focused, mut cursor) = (0..0, 0);
        match &self.body {
            ElicitationBody::Unsupported(error) => lines.extend(rows(&format!("! {error}"), theme::danger())),
            ElicitationBody::Page(page) => {
                for suspicion in page.suspicions() {
                    lines.extend(rows(&format!("! {suspicion}"), theme::danger()));
                }
                let [_, host, _] = page.display_parts();
                lines.extend(rows(&format!("It leads to {host}"), theme::title()));
                let url = cells::escape_line(&page.display_parts().concat());
                let wrapped = cells::wrap_ranges(&url, columns.max(2), LineBreak::Anywhere).into_iter();
                lines.extend(wrapped.map(|row| Line::raw(url[row].to_owned())));
                lines.extend(rows(
                    "It is not opened for you: copy it into a browser if you trust it.",
                    theme::secondary(),
                ));
            }
            ElicitationBody::Form { form, editors, focus } => {
                lines.extend(form.title.iter().flat_map(|title| rows(title, theme::title())));
                lines.extend(form.description.iter().flat_map(|text| rows(text, Style::new())));
                for (index, (field, editor)) in form.fields.iter().zip(editors).enumerate() {
                    let start = lines.len();
                    let name = field.title.as_ref().unwrap_or(&field.name);
                    let required = if field.required { " (required)" } else { "" };
                    let style = if index == *focus { theme::key() } else { theme::title() };
                    lines.extend(rows(&format!("{name}{required}"), style));
                    lines.extend(field.description.iter().flat_map(|text| rows(text, theme::secondary())));
                    lines.extend(rows(&field_editor::describe_input(&field.input), theme::secondary()));
                    if index == *focus {
                        cursor = lines.len() + editor.cursor_row();
                    }
                    for line in editor.render(&field.input, width.saturating_sub(2), index == *focus) {
                        let mut row = Line::from(Span::raw("  ")).style(line.style);
                        row.spans.extend(line.spans);
                        lines.push(row);
                    }
                    if index == *focus {
                        focused = start..lines.len();
                    }
                }
            }
        }
        (lines, focused, cursor)
    }
}

fn concerns_field(error: &FormContentError, field: &str) -> bool {
    match error {
        FormContentError::Missing(name)
        | FormContentError::UnknownField(name)
        | FormContentError::UnknownOption(name)
        | FormContentError::DuplicateOption(name) => name == field,
        FormContentError::WrongType { name, .. } | FormContentError::OutOfBounds { name, .. } => {
            name == field
        }
    }
}

#[cfg(test)]
mod tests;
