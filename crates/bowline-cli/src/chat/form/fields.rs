//! What a person has filled into one field of a form.

use std::collections::BTreeSet;

use bowline_state::elicitation::{Bounds, Choice, Input};
use bowline_state::schema::v1::ElicitationContentValue as Value;
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::chat::parts::cells::{self, Stays};
use crate::chat::parts::entry::Entry;
use crate::chat::parts::theme;

/// So many options are in sight at once, around the cursor.
const OPTIONS: usize = 7;

/// What was filled in so far.
#[derive(Debug)]
pub(super) enum Filled {
    /// A text or a number, as it is typed. Whether it was touched tells an empty text from none.
    Typed { entry: Entry, touched: bool },
    /// Yes, no or nothing.
    Flag(Option<bool>),
    /// Some of the options.
    Chosen(Marks),
    /// Nothing can be filled in.
    Closed,
}

/// Which of some options are chosen.
#[derive(Debug)]
pub(super) struct Marks {
    chosen: BTreeSet<usize>,
    cursor: usize,
    options: usize,
    // Whether there is at most one.
    one: bool,
    // Tells none of them from nothing.
    touched: bool,
}

impl Filled {
    pub(super) fn new(input: &Input, default: Option<&Value>) -> Self {
        let place =
            |options: &[Choice], value: &String| options.iter().position(|option| option.value == *value);
        match (input, default) {
            (Input::Text { .. } | Input::Number { .. } | Input::Integer { .. }, default) => {
                let text = match default {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Number(number)) => number.to_string(),
                    Some(Value::Integer(number)) => number.to_string(),
                    _ => String::new(),
                };
                Self::Typed { entry: Entry::new(&text), touched: default.is_some() }
            }
            (Input::Flag { .. }, Some(Value::Boolean(flag))) => Self::Flag(Some(*flag)),
            (Input::Flag { .. }, _) => Self::Flag(None),
            (Input::One { options, .. }, default) => {
                let chosen = match default {
                    Some(Value::String(value)) => place(options, value),
                    _ => None,
                };
                let marks = Marks::new(chosen.into_iter().collect(), options.len(), true, default.is_some());
                Self::Chosen(marks)
            }
            (Input::Some { options, .. }, default) => {
                let chosen = match default {
                    Some(Value::StringArray(values)) => {
                        values.iter().filter_map(|value| place(options, value)).collect()
                    }
                    _ => BTreeSet::new(),
                };
                Self::Chosen(Marks::new(chosen, options.len(), false, default.is_some()))
            }
            (Input::Unknown { .. }, _) => Self::Closed,
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) {
        match self {
            Self::Typed { entry, touched } => *touched |= entry.key(key),
            Self::Flag(flag) => match key.code {
                KeyCode::Char('y') => *flag = Some(true),
                KeyCode::Char('n') => *flag = Some(false),
                KeyCode::Char(' ') => *flag = Some(*flag != Some(true)),
                KeyCode::Backspace | KeyCode::Delete => *flag = None,
                _ => {}
            },
            Self::Chosen(marks) => marks.key(key.code),
            Self::Closed => {}
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        if let Self::Typed { entry, touched } = self {
            entry.paste(text);
            *touched = true;
        }
    }

    /// Returns what it comes to; nothing if it was left open.
    ///
    /// # Errors
    /// Returns what it should have been.
    pub(super) fn value(&self, input: &Input) -> Result<Option<Value>, &'static str> {
        let value = match (self, input) {
            (Self::Typed { entry, touched }, Input::Text { .. }) => {
                touched.then(|| Value::String(entry.text().to_owned()))
            }
            (Self::Typed { entry, .. }, Input::Integer { .. }) => match entry.text().trim() {
                "" => None,
                text => Some(Value::Integer(text.parse().map_err(|_| "a whole number")?)),
            },
            (Self::Typed { entry, .. }, _) => match entry.text().trim() {
                "" => None,
                text => Some(Value::Number(text.parse().map_err(|_| "a number")?)),
            },
            (Self::Flag(flag), _) => flag.map(Value::Boolean),
            (Self::Chosen(marks), Input::One { options, .. }) => {
                let place = marks.chosen.first().and_then(|place| options.get(*place));
                place.map(|option| Value::String(option.value.clone()))
            }
            (Self::Chosen(marks), Input::Some { options, .. }) => {
                let values = marks.chosen.iter().filter_map(|place| options.get(*place));
                let values: Vec<String> = values.map(|option| option.value.clone()).collect();
                marks.touched.then_some(Value::StringArray(values))
            }
            (Self::Chosen(_) | Self::Closed, _) => None,
        };
        Ok(value)
    }

    /// Returns which of its lines has the cursor.
    pub(super) fn row(&self) -> usize {
        match self {
            Self::Chosen(marks) => marks.cursor - marks.top(),
            Self::Typed { .. } | Self::Flag(_) | Self::Closed => 0,
        }
    }

    pub(super) fn lines(&self, input: &Input, width: u16, focused: bool) -> Vec<Line<'static>> {
        match self {
            Self::Typed { entry, .. } => {
                let mut line = Line::from(Span::styled("> ", theme::aside()));
                line.spans.extend(entry.line(width.saturating_sub(2), focused).spans);
                vec![line]
            }
            Self::Flag(flag) => {
                let mark = |is_set: bool| if is_set { "(•)" } else { "( )" };
                let text = format!("{} yes  {} no", mark(*flag == Some(true)), mark(*flag == Some(false)));
                let style = if focused { theme::chosen() } else { Style::new() };
                vec![Line::styled(cells::fit(&text, usize::from(width), Stays::Start), style)]
            }
            Self::Chosen(marks) => match input {
                Input::One { options, .. } | Input::Some { options, .. } => {
                    marks.lines(options, width, focused)
                }
                _ => Vec::new(),
            },
            Self::Closed => vec![Line::styled("cannot be filled in here", theme::aside())],
        }
    }
}

impl Marks {
    fn new(chosen: BTreeSet<usize>, options: usize, one: bool, touched: bool) -> Self {
        let cursor = chosen.first().copied().unwrap_or(0);
        Self { chosen, cursor, options, one, touched }
    }

    fn key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Left | KeyCode::Char('k') => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right | KeyCode::Char('j') => {
                self.cursor = (self.cursor + 1).min(self.options.saturating_sub(1));
            }
            KeyCode::Char(' ') if self.cursor < self.options => {
                let was = self.chosen.remove(&self.cursor);
                if self.one {
                    self.chosen.clear();
                }
                if !was {
                    self.chosen.insert(self.cursor);
                }
                self.touched = true;
            }
            KeyCode::Backspace | KeyCode::Delete => {
                self.chosen.clear();
                self.touched = false;
            }
            _ => {}
        }
    }

    fn top(&self) -> usize {
        self.cursor.saturating_sub(OPTIONS / 2).min(self.options.saturating_sub(OPTIONS))
    }

    fn lines(&self, options: &[Choice], width: u16, focused: bool) -> Vec<Line<'static>> {
        let width = usize::from(width);
        let mut lines: Vec<Line<'static>> = Vec::new();
        for (at, option) in options.iter().enumerate().skip(self.top()).take(OPTIONS) {
            let mark = match (self.one, self.chosen.contains(&at)) {
                (true, true) => "(•)",
                (true, false) => "( )",
                (false, true) => "[x]",
                (false, false) => "[ ]",
            };
            let about = option.description.iter().map(|text| format!(": {text}")).collect::<String>();
            let text = cells::visible(&format!("{mark} {}{about}", option.title));
            let style = if focused && at == self.cursor { theme::chosen() } else { Style::new() };
            lines.push(Line::styled(cells::fit(&text, width, Stays::Start), style));
        }
        if options.len() > OPTIONS {
            let text = format!("{} of {} options", self.cursor + 1, options.len());
            lines.push(Line::styled(cells::fit(&text, width, Stays::Start), theme::aside()));
        }
        lines
    }
}

/// Returns what can be filled in, in words.
pub(super) fn hint(input: &Input) -> String {
    fn bounds<T: ToString>(bounds: &Bounds<T>, of: &str) -> String {
        match (&bounds.least, &bounds.most) {
            (None, None) => String::new(),
            (Some(least), None) => format!(", at least {}{of}", least.to_string()),
            (None, Some(most)) => format!(", at most {}{of}", most.to_string()),
            (Some(least), Some(most)) => format!(", {} to {}{of}", least.to_string(), most.to_string()),
        }
    }
    match input {
        Input::Text { length, pattern, format, .. } => {
            let format = format.map_or_else(String::new, |format| format!(", {format:?}").to_lowercase());
            let pattern = pattern.iter().map(|pattern| format!(", like {pattern}")).collect::<String>();
            format!("text{format}{}{pattern}", bounds(length, " characters"))
        }
        Input::One { .. } => "one of these: ← → to move, Space to choose".to_owned(),
        Input::Some { count, .. } => {
            format!("some of these{}: ← → to move, Space to mark", bounds(count, ""))
        }
        Input::Number { range, .. } => format!("number{}", bounds(range, "")),
        Input::Integer { range, .. } => format!("whole number{}", bounds(range, "")),
        Input::Flag { .. } => "y, n, or Space".to_owned(),
        Input::Unknown { kind } => format!("a kind of field that is not known here: {kind}"),
    }
}
