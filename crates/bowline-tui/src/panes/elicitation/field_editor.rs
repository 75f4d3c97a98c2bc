//! The editor of one form field.

use std::collections::BTreeSet;

use bowline_protocol::elicitation::{FieldInput, SelectOption, ValueBounds};
use bowline_protocol::schema::v1::ElicitationContentValue as Value;
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::view::widgets::cells::{self, Truncation};
use crate::view::widgets::line_editor::LineEditor;
use crate::view::widgets::theme;

/// The maximum number of options visible at once, around the cursor.
const MAX_VISIBLE_OPTIONS: usize = 7;

/// The value filled in so far.
#[derive(Debug)]
pub(super) enum FieldEditor {
    /// A text or a number, as typed. `is_touched` distinguishes an empty text from no value.
    Text { editor: LineEditor, is_touched: bool },
    /// Yes, no or no value.
    Flag(Option<bool>),
    /// Chosen options.
    Options(OptionMarks),
    /// A field that cannot be filled in.
    Unsupported,
}

/// The chosen options of a field.
#[derive(Debug)]
pub(super) struct OptionMarks {
    chosen: BTreeSet<usize>,
    cursor: usize,
    option_count: usize,
    // Whether at most one may be chosen.
    is_single: bool,
    // Distinguishes an empty choice from no value.
    is_touched: bool,
}

impl FieldEditor {
    pub(super) fn new(input: &FieldInput, default: Option<&Value>) -> Self {
        let find_option = |options: &[SelectOption], value: &String| {
            options.iter().position(|option| option.value == *value)
        };
        match (input, default) {
            (FieldInput::Text { .. } | FieldInput::Number { .. } | FieldInput::Integer { .. }, default) => {
                let text = match default {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Number(number)) => number.to_string(),
                    Some(Value::Integer(number)) => number.to_string(),
                    _ => String::new(),
                };
                Self::Text { editor: LineEditor::new(&text), is_touched: default.is_some() }
            }
            (FieldInput::Boolean { .. }, Some(Value::Boolean(flag))) => Self::Flag(Some(*flag)),
            (FieldInput::Boolean { .. }, _) => Self::Flag(None),
            (FieldInput::SingleSelect { options, .. }, default) => {
                let chosen = match default {
                    Some(Value::String(value)) => find_option(options, value),
                    _ => None,
                };
                let marks =
                    OptionMarks::new(chosen.into_iter().collect(), options.len(), true, default.is_some());
                Self::Options(marks)
            }
            (FieldInput::MultiSelect { options, .. }, default) => {
                let chosen = match default {
                    Some(Value::StringArray(values)) => {
                        values.iter().filter_map(|value| find_option(options, value)).collect()
                    }
                    _ => BTreeSet::new(),
                };
                Self::Options(OptionMarks::new(chosen, options.len(), false, default.is_some()))
            }
            (FieldInput::Unknown { .. }, _) => Self::Unsupported,
        }
    }

    pub(super) fn handle_key(&mut self, key: KeyEvent) {
        match self {
            Self::Text { editor, is_touched } => *is_touched |= editor.handle_key(key),
            Self::Flag(flag) => match key.code {
                KeyCode::Char('y') => *flag = Some(true),
                KeyCode::Char('n') => *flag = Some(false),
                KeyCode::Char(' ') => *flag = Some(*flag != Some(true)),
                KeyCode::Backspace | KeyCode::Delete => *flag = None,
                _ => {}
            },
            Self::Options(marks) => marks.handle_key(key.code),
            Self::Unsupported => {}
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        if let Self::Text { editor, is_touched } = self {
            editor.paste(text);
            *is_touched = true;
        }
    }

    /// Returns the value; `None` if the field was left open.
    ///
    /// # Errors
    /// Describes the expected value.
    pub(super) fn value(&self, input: &FieldInput) -> Result<Option<Value>, &'static str> {
        let value = match (self, input) {
            (Self::Text { editor, is_touched }, FieldInput::Text { .. }) => {
                is_touched.then(|| Value::String(editor.text().to_owned()))
            }
            (Self::Text { editor, .. }, FieldInput::Integer { .. }) => match editor.text().trim() {
                "" => None,
                text => Some(Value::Integer(text.parse().map_err(|_| "a whole number")?)),
            },
            (Self::Text { editor, .. }, _) => match editor.text().trim() {
                "" => None,
                text => Some(Value::Number(text.parse().map_err(|_| "a number")?)),
            },
            (Self::Flag(flag), _) => flag.map(Value::Boolean),
            (Self::Options(marks), FieldInput::SingleSelect { options, .. }) => {
                let chosen = marks.chosen.first().and_then(|index| options.get(*index));
                chosen.map(|option| Value::String(option.value.clone()))
            }
            (Self::Options(marks), FieldInput::MultiSelect { options, .. }) => {
                let chosen = marks.chosen.iter().filter_map(|index| options.get(*index));
                let values: Vec<String> = chosen.map(|option| option.value.clone()).collect();
                marks.is_touched.then_some(Value::StringArray(values))
            }
            (Self::Options(_) | Self::Unsupported, _) => None,
        };
        Ok(value)
    }

    /// Returns the row of the cursor.
    pub(super) fn cursor_row(&self) -> usize {
        match self {
            Self::Options(marks) => marks.cursor - marks.first_visible(),
            Self::Text { .. } | Self::Flag(_) | Self::Unsupported => 0,
        }
    }

    pub(super) fn render(&self, input: &FieldInput, width: u16, focused: bool) -> Vec<Line<'static>> {
        match self {
            Self::Text { editor, .. } => {
                let mut line = Line::from(Span::styled("> ", theme::secondary()));
                line.spans.extend(editor.render(width.saturating_sub(2), focused).spans);
                vec![line]
            }
            Self::Flag(flag) => {
                let mark = |is_set: bool| if is_set { "(•)" } else { "( )" };
                let text = format!("{} yes  {} no", mark(*flag == Some(true)), mark(*flag == Some(false)));
                let style = if focused { theme::selected() } else { Style::new() };
                vec![Line::styled(cells::truncate(&text, usize::from(width), Truncation::KeepStart), style)]
            }
            Self::Options(marks) => match input {
                FieldInput::SingleSelect { options, .. } | FieldInput::MultiSelect { options, .. } => {
                    marks.render(options, width, focused)
                }
                _ => Vec::new(),
            },
            Self::Unsupported => vec![Line::styled("cannot be filled in here", theme::secondary())],
        }
    }
}

impl OptionMarks {
    fn new(chosen: BTreeSet<usize>, option_count: usize, is_single: bool, is_touched: bool) -> Self {
        let cursor = chosen.first().copied().unwrap_or(0);
        Self { chosen, cursor, option_count, is_single, is_touched }
    }

    fn handle_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Left | KeyCode::Char('k') => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right | KeyCode::Char('j') => {
                self.cursor = (self.cursor + 1).min(self.option_count.saturating_sub(1));
            }
            KeyCode::Char(' ') if self.cursor < self.option_count => {
                let was_chosen = self.chosen.remove(&self.cursor);
                if self.is_single {
                    self.chosen.clear();
                }
                if !was_chosen {
                    self.chosen.insert(self.cursor);
                }
                self.is_touched = true;
            }
            KeyCode::Backspace | KeyCode::Delete => {
                self.chosen.clear();
                self.is_touched = false;
            }
            _ => {}
        }
    }

    fn first_visible(&self) -> usize {
        self.cursor
            .saturating_sub(MAX_VISIBLE_OPTIONS / 2)
            .min(self.option_count.saturating_sub(MAX_VISIBLE_OPTIONS))
    }

    fn render(&self, options: &[SelectOption], width: u16, focused: bool) -> Vec<Line<'static>> {
        let width = usize::from(width);
        let mut lines: Vec<Line<'static>> = Vec::new();
        for (index, option) in options.iter().enumerate().skip(self.first_visible()).take(MAX_VISIBLE_OPTIONS)
        {
            let mark = match (self.is_single, self.chosen.contains(&index)) {
                (true, true) => "(•)",
                (true, false) => "( )",
                (false, true) => "[x]",
                (false, false) => "[ ]",
            };
            let description = option.description.iter().map(|text| format!(": {text}")).collect::<String>();
            let text = cells::escape_line(&format!("{mark} {}{description}", option.title));
            let style = if focused && index == self.cursor { theme::selected() } else { Style::new() };
            lines.push(Line::styled(cells::truncate(&text, width, Truncation::KeepStart), style));
        }
        if options.len() > MAX_VISIBLE_OPTIONS {
            let text = format!("{} of {} options", self.cursor + 1, options.len());
            lines
                .push(Line::styled(cells::truncate(&text, width, Truncation::KeepStart), theme::secondary()));
        }
        lines
    }
}

/// Describes the accepted values.
pub(super) fn describe_input(input: &FieldInput) -> String {
    fn bounds<T: ToString>(bounds: &ValueBounds<T>, unit: &str) -> String {
        match (&bounds.min, &bounds.max) {
            (None, None) => String::new(),
            (Some(min), None) => format!(", at least {}{unit}", min.to_string()),
            (None, Some(max)) => format!(", at most {}{unit}", max.to_string()),
            (Some(min), Some(max)) => format!(", {} to {}{unit}", min.to_string(), max.to_string()),
        }
    }
    match input {
        FieldInput::Text { length, pattern, format, .. } => {
            let format = format.map_or_else(String::new, |format| format!(", {format:?}").to_lowercase());
            let pattern = pattern.iter().map(|pattern| format!(", like {pattern}")).collect::<String>();
            format!("text{format}{}{pattern}", bounds(length, " characters"))
        }
        FieldInput::SingleSelect { .. } => "one of these: ← → to move, Space to choose".to_owned(),
        FieldInput::MultiSelect { count, .. } => {
            format!("some of these{}: ← → to move, Space to mark", bounds(count, ""))
        }
        FieldInput::Number { range, .. } => format!("number{}", bounds(range, "")),
        FieldInput::Integer { range, .. } => format!("whole number{}", bounds(range, "")),
        FieldInput::Boolean { .. } => "y, n, or Space".to_owned(),
        FieldInput::Unknown { kind } => format!("a kind of field that is not known here: {kind}"),
    }
}
