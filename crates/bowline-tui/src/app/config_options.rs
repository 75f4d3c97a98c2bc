//! Pickers for models, modes, other session options and sessions.

use bowline_protocol::schema::v1::{
    SessionConfigId, SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigOptionValue, SessionConfigSelectOption, SessionConfigSelectOptions, SessionId, SessionInfo,
    SessionModeId,
};

use super::{App, OverlayPane};
use crate::event::ChatAction;
use crate::panes::picker::{Picker, PickerRow};

/// An item to choose.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfigChoice {
    /// A value of an option.
    Value(SessionConfigId, SessionConfigOptionValue),
    /// A mode, for agents that have no option for it.
    Mode(SessionModeId),
}

/// Which options a picker offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigCategory {
    Model,
    Mode,
    All,
}

impl App {
    /// Opens a picker for a category.
    pub(super) fn show_config_picker(&mut self, category: ConfigCategory) {
        let mut rows: Vec<(ConfigChoice, PickerRow)> = Vec::new();
        for option in &self.config_options {
            let is_offered = match category {
                ConfigCategory::All => true,
                ConfigCategory::Model => has_category(option, &SessionConfigOptionCategory::Model),
                ConfigCategory::Mode => has_category(option, &SessionConfigOptionCategory::Mode),
            };
            if is_offered {
                rows.extend(option_choices(option, category == ConfigCategory::All));
            }
        }
        if rows.is_empty() && category != ConfigCategory::Model {
            let modes = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.modes());
            rows.extend(modes.iter().map(|mode| {
                let row = PickerRow {
                    label: mode.name.clone(),
                    description: mode.description.clone().unwrap_or_default(),
                    is_current: self.mode.as_ref() == Some(&mode.id),
                };
                (ConfigChoice::Mode(mode.id.clone()), row)
            }));
        }
        let (title, empty_message) = match category {
            ConfigCategory::Model => ("Model", "this agent does not let its model be chosen here"),
            ConfigCategory::Mode => ("Mode", "this agent has no modes"),
            ConfigCategory::All => ("Options", "this agent has no options"),
        };
        if rows.is_empty() {
            self.show_flash(empty_message);
            return;
        }
        let (choices, rows) = rows.into_iter().unzip();
        self.pane = Some(OverlayPane::ConfigOptions(choices, Picker::new(title, rows)));
    }

    /// Shows the sessions that the agent listed, if the user still waits for them.
    pub(super) fn show_sessions(&mut self, result: Result<Vec<SessionInfo>, String>) {
        // The user has moved on.
        if !std::mem::take(&mut self.awaits_sessions) {
            return;
        }
        match result {
            Ok(sessions) => {
                self.flash = None;
                let picker = session_picker(&sessions, self.session.as_ref());
                self.pane = Some(OverlayPane::Sessions(sessions, picker));
            }
            Err(error) => self.show_flash(error),
        }
    }

    pub(super) fn apply_config_choice(&mut self, choice: ConfigChoice) -> Vec<ChatAction> {
        match choice {
            ConfigChoice::Value(id, value) => vec![ChatAction::SetOption(id, value)],
            ConfigChoice::Mode(mode) => vec![ChatAction::SetMode(mode)],
        }
    }

    /// Returns the actions that restore the mode and options after a restart of the agent.
    pub(super) fn restore_config(
        &self,
        mode: Option<SessionModeId>,
        options: &[SessionConfigOption],
    ) -> Vec<ChatAction> {
        let mut actions = Vec::new();
        for previous in options {
            let current = self.config_options.iter().find(|current| current.id == previous.id);
            let value = match (&previous.kind, current.map(|current| &current.kind)) {
                (SessionConfigKind::Select(previous), Some(SessionConfigKind::Select(current)))
                    if previous.current_value != current.current_value =>
                {
                    SessionConfigOptionValue::value_id(previous.current_value.clone())
                }
                (SessionConfigKind::Boolean(previous), Some(SessionConfigKind::Boolean(current)))
                    if previous.current_value != current.current_value =>
                {
                    SessionConfigOptionValue::boolean(previous.current_value)
                }
                _ => continue,
            };
            actions.push(ChatAction::SetOption(previous.id.clone(), value));
        }
        // If an agent has an option for its mode, restoring the option is enough.
        let has_option =
            options.iter().any(|option| has_category(option, &SessionConfigOptionCategory::Mode));
        let mode = mode.filter(|mode| !has_option && self.mode.as_ref() != Some(mode));
        actions.extend(mode.map(ChatAction::SetMode));
        actions
    }

    /// Returns the name of the model, if the agent reports it.
    pub(crate) fn model_name(&self) -> Option<String> {
        self.config_options
            .iter()
            .find(|option| has_category(option, &SessionConfigOptionCategory::Model))
            .and_then(current_value_name)
    }

    /// Returns whether Bowline's own agent uses its offline model, which understands plain commands only.
    pub(crate) fn is_offline(&self) -> bool {
        let model = self
            .config_options
            .iter()
            .find(|option| has_category(option, &SessionConfigOptionCategory::Model));
        model.is_some_and(|option| match &option.kind {
            SessionConfigKind::Select(select) => {
                &*select.current_value.0 == bowline_agent::model::offline::NAME
            }
            _ => false,
        })
    }

    /// Returns the name of the mode, if there is one.
    pub(crate) fn mode_name(&self) -> Option<String> {
        let option = self
            .config_options
            .iter()
            .find(|option| has_category(option, &SessionConfigOptionCategory::Mode));
        option.and_then(current_value_name).or_else(|| {
            let id = self.mode.as_ref()?;
            let modes = self.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.modes());
            let mode = modes.iter().find(|mode| mode.id == *id);
            Some(mode.map_or_else(|| id.0.to_string(), |mode| mode.name.clone()))
        })
    }
}

/// Returns whether an option belongs to a category; an option without a category is matched by id.
fn has_category(option: &SessionConfigOption, category: &SessionConfigOptionCategory) -> bool {
    match &option.category {
        Some(actual) => actual == category,
        None => match category {
            SessionConfigOptionCategory::Model => &*option.id.0 == "model",
            SessionConfigOptionCategory::Mode => &*option.id.0 == "mode",
            _ => false,
        },
    }
}

fn flatten_options(options: &SessionConfigSelectOptions) -> Vec<(Option<&str>, &SessionConfigSelectOption)> {
    match options {
        SessionConfigSelectOptions::Ungrouped(options) => {
            options.iter().map(|option| (None, option)).collect()
        }
        SessionConfigSelectOptions::Grouped(groups) => groups
            .iter()
            .flat_map(|group| group.options.iter().map(|option| (Some(group.name.as_str()), option)))
            .collect(),
        // A kind of a later protocol version.
        _ => Vec::new(),
    }
}

fn current_value_name(option: &SessionConfigOption) -> Option<String> {
    match &option.kind {
        SessionConfigKind::Select(select) => {
            let options = flatten_options(&select.options);
            let current = options.iter().find(|(_, option)| option.value == select.current_value);
            Some(
                current.map_or_else(|| select.current_value.0.to_string(), |(_, option)| option.name.clone()),
            )
        }
        SessionConfigKind::Boolean(flag) => Some(if flag.current_value { "on" } else { "off" }.to_owned()),
        _ => None,
    }
}

fn option_choices(option: &SessionConfigOption, with_name: bool) -> Vec<(ConfigChoice, PickerRow)> {
    let prefix = if with_name { format!("{}: ", option.name) } else { String::new() };
    let row = |name: &str, description: String, is_current: bool, value: SessionConfigOptionValue| {
        let row = PickerRow { label: format!("{prefix}{name}"), description, is_current };
        (ConfigChoice::Value(option.id.clone(), value), row)
    };
    match &option.kind {
        SessionConfigKind::Select(select) => flatten_options(&select.options)
            .into_iter()
            .map(|(group, value)| {
                let description = [group, value.description.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(": ");
                let is_current = value.value == select.current_value;
                row(
                    &value.name,
                    description,
                    is_current,
                    SessionConfigOptionValue::value_id(value.value.clone()),
                )
            })
            .collect(),
        SessionConfigKind::Boolean(flag) => [true, false]
            .map(|value| {
                let description = option.description.clone().unwrap_or_default();
                let name = if value { "on" } else { "off" };
                row(name, description, flag.current_value == value, SessionConfigOptionValue::boolean(value))
            })
            .into(),
        _ => Vec::new(),
    }
}

/// Returns the session picker: a new session first, then the existing ones.
fn session_picker(sessions: &[SessionInfo], current: Option<&SessionId>) -> Picker {
    let new_session =
        PickerRow { label: "New session".to_owned(), description: String::new(), is_current: false };
    let row = |info: &SessionInfo| {
        let title = info.title.as_deref().filter(|title| !title.trim().is_empty());
        PickerRow {
            label: title.unwrap_or(&info.session_id.0).to_owned(),
            description: format!("{}  {}", info.updated_at.as_deref().unwrap_or_default(), info.session_id.0),
            is_current: Some(&info.session_id) == current,
        }
    };
    Picker::new("Sessions", std::iter::once(new_session).chain(sessions.iter().map(row)).collect())
}
