//! Models, modes and other options of a session, and its sessions, as lists to choose from.

use bowline_state::schema::v1::{
    SessionConfigId, SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigOptionValue, SessionConfigSelectOption, SessionConfigSelectOptions, SessionId, SessionInfo,
    SessionModeId,
};

use super::{App, Pane};
use crate::chat::event::Action;
use crate::chat::picker::{Picker, Row};

/// What can be chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    /// A value of an option.
    Value(SessionConfigId, SessionConfigOptionValue),
    /// A mode, of an agent that has no option for it.
    Mode(SessionModeId),
}

/// What is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Model,
    Mode,
    All,
}

impl App {
    /// Shows what can be chosen.
    pub(super) fn choose(&mut self, which: Which) {
        let mut rows: Vec<(Setting, Row)> = Vec::new();
        for option in &self.options {
            let wanted = match which {
                Which::All => true,
                Which::Model => is_of(option, &SessionConfigOptionCategory::Model),
                Which::Mode => is_of(option, &SessionConfigOptionCategory::Mode),
            };
            if wanted {
                rows.extend(values(option, which == Which::All));
            }
        }
        if rows.is_empty() && which != Which::Model {
            let modes = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.modes());
            rows.extend(modes.iter().map(|mode| {
                let row = Row {
                    label: mode.name.clone(),
                    about: mode.description.clone().unwrap_or_default(),
                    current: self.mode.as_ref() == Some(&mode.id),
                };
                (Setting::Mode(mode.id.clone()), row)
            }));
        }
        let (title, nothing) = match which {
            Which::Model => ("Model", "this agent does not let its model be chosen here"),
            Which::Mode => ("Mode", "this agent has no modes"),
            Which::All => ("Options", "this agent has no options"),
        };
        if rows.is_empty() {
            self.flash(nothing);
            return;
        }
        let (settings, rows) = rows.into_iter().unzip();
        self.pane = Some(Pane::Settings(settings, Picker::new(title, rows)));
    }

    /// Shows the sessions that the agent told of, if they are still waited for.
    pub(super) fn show_sessions(&mut self, found: Result<Vec<SessionInfo>, String>) {
        // Who does not wait for them any more does something else.
        if !std::mem::take(&mut self.wants_sessions) {
            return;
        }
        match found {
            Ok(sessions) => {
                self.flash = None;
                let picker = sessions_of(&sessions, self.session.as_ref());
                self.pane = Some(Pane::Sessions(sessions, picker));
            }
            Err(why) => self.flash(why),
        }
    }

    pub(super) fn set(&mut self, setting: Setting) -> Vec<Action> {
        match setting {
            Setting::Value(id, value) => vec![Action::SetOption(id, value)],
            Setting::Mode(mode) => vec![Action::SetMode(mode)],
        }
    }

    /// Returns what it takes to have mode and options as they were before the agent was started again.
    pub(super) fn restore(
        &self,
        mode: Option<SessionModeId>,
        options: &[SessionConfigOption],
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for before in options {
            let now = self.options.iter().find(|now| now.id == before.id);
            let value = match (&before.kind, now.map(|now| &now.kind)) {
                (SessionConfigKind::Select(before), Some(SessionConfigKind::Select(now)))
                    if before.current_value != now.current_value =>
                {
                    SessionConfigOptionValue::value_id(before.current_value.clone())
                }
                (SessionConfigKind::Boolean(before), Some(SessionConfigKind::Boolean(now)))
                    if before.current_value != now.current_value =>
                {
                    SessionConfigOptionValue::boolean(before.current_value)
                }
                _ => continue,
            };
            actions.push(Action::SetOption(before.id.clone(), value));
        }
        // An agent that has an option for its mode has said all by that.
        let has_option = options.iter().any(|option| is_of(option, &SessionConfigOptionCategory::Mode));
        let mode = mode.filter(|mode| !has_option && self.mode.as_ref() != Some(mode));
        actions.extend(mode.map(Action::SetMode));
        actions
    }

    /// Returns what the model is called, if the agent tells.
    pub(crate) fn model_name(&self) -> Option<String> {
        self.options
            .iter()
            .find(|option| is_of(option, &SessionConfigOptionCategory::Model))
            .and_then(current)
    }

    /// Says whether Bowline's own agent answers by its offline model, which takes plain commands only.
    pub(crate) fn is_offline(&self) -> bool {
        let model = self.options.iter().find(|option| is_of(option, &SessionConfigOptionCategory::Model));
        model.is_some_and(|option| match &option.kind {
            SessionConfigKind::Select(select) => {
                &*select.current_value.0 == bowline_agent::model::offline::NAME
            }
            _ => false,
        })
    }

    /// Returns what the mode is called, if there is one.
    pub(crate) fn mode_name(&self) -> Option<String> {
        let option = self.options.iter().find(|option| is_of(option, &SessionConfigOptionCategory::Mode));
        option.and_then(current).or_else(|| {
            let id = self.mode.as_ref()?;
            let modes = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.modes());
            let known = modes.iter().find(|mode| mode.id == *id);
            Some(known.map_or_else(|| id.0.to_string(), |mode| mode.name.clone()))
        })
    }
}

/// Says whether an option is of a category; agents that name none call it by its id.
fn is_of(option: &SessionConfigOption, category: &SessionConfigOptionCategory) -> bool {
    match &option.category {
        Some(its) => its == category,
        None => match category {
            SessionConfigOptionCategory::Model => &*option.id.0 == "model",
            SessionConfigOptionCategory::Mode => &*option.id.0 == "mode",
            _ => false,
        },
    }
}

fn flat(options: &SessionConfigSelectOptions) -> Vec<(Option<&str>, &SessionConfigSelectOption)> {
    match options {
        SessionConfigSelectOptions::Ungrouped(options) => {
            options.iter().map(|option| (None, option)).collect()
        }
        SessionConfigSelectOptions::Grouped(groups) => groups
            .iter()
            .flat_map(|group| group.options.iter().map(|option| (Some(group.name.as_str()), option)))
            .collect(),
        // A form of a later protocol.
        _ => Vec::new(),
    }
}

fn current(option: &SessionConfigOption) -> Option<String> {
    match &option.kind {
        SessionConfigKind::Select(select) => {
            let options = flat(&select.options);
            let known = options.iter().find(|(_, option)| option.value == select.current_value);
            Some(known.map_or_else(|| select.current_value.0.to_string(), |(_, option)| option.name.clone()))
        }
        SessionConfigKind::Boolean(flag) => Some(if flag.current_value { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

fn values(option: &SessionConfigOption, named: bool) -> Vec<(Setting, Row)> {
    let prefix = if named { format!("{}: ", option.name) } else { String::new() };
    let row = |name: &str, about: String, current: bool, value: SessionConfigOptionValue| {
        let row = Row { label: format!("{prefix}{name}"), about, current };
        (Setting::Value(option.id.clone(), value), row)
    };
    match &option.kind {
        SessionConfigKind::Select(select) => flat(&select.options)
            .into_iter()
            .map(|(group, value)| {
                let about = [group, value.description.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(": ");
                let is_current = value.value == select.current_value;
                row(&value.name, about, is_current, SessionConfigOptionValue::value_id(value.value.clone()))
            })
            .collect(),
        SessionConfigKind::Boolean(flag) => [true, false]
            .map(|value| {
                let about = option.description.clone().unwrap_or_default();
                let name = if value { "on" } else { "off" };
                row(name, about, flag.current_value == value, SessionConfigOptionValue::boolean(value))
            })
            .into(),
        _ => Vec::new(),
    }
}

/// Returns the list of sessions: a new one first, then those there are.
fn sessions_of(sessions: &[SessionInfo], open: Option<&SessionId>) -> Picker {
    let new = Row { label: "New session".to_owned(), about: String::new(), current: false };
    let row = |info: &SessionInfo| {
        let title = info.title.as_deref().filter(|title| !title.trim().is_empty());
        Row {
            label: title.unwrap_or(&info.session_id.0).to_owned(),
            about: format!("{}  {}", info.updated_at.as_deref().unwrap_or_default(), info.session_id.0),
            current: Some(&info.session_id) == open,
        }
    };
    Picker::new("Sessions", std::iter::once(new).chain(sessions.iter().map(row)).collect())
}
