//! The config options of a session: mode, model, thinking; and its slash commands.
//!
//! Config options are the single source of truth. Clients that only support modes, or the older method for models, are
//! served from it, and each change is reported in both forms.

use bowline_conversation::conversation::ThinkingLevel;
use bowline_conversation::slash_command;
use bowline_policy::mode::AgentMode;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate,
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectOption,
    SessionMode, SessionModeState, SessionUpdate, UnstructuredCommandInput,
};
use bowline_text::display::quote;

use crate::model::ModelInfo;

/// The most models listed.
pub const MAX_LISTED_MODELS: usize = 200;

/// The most values named in an error.
const MAX_LISTED_VALUES: usize = 20;

const MODE_OPTION: &str = "mode";
const MODEL_OPTION: &str = "model";
const THINKING_OPTION: &str = "thought_level";

/// The current configuration of a session, and its choices.
#[derive(Debug, Clone, Copy)]
pub struct ConfigView<'a> {
    /// The mode.
    pub mode: AgentMode,
    /// The widest mode that can be chosen.
    pub widest_mode: AgentMode,
    /// The model in use. It need not be one of `models`.
    pub model: &'a ModelInfo,
    /// The models to choose from.
    pub models: &'a [ModelInfo],
    /// The thinking level.
    pub thinking: ThinkingLevel,
}

/// A change made by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// Another mode.
    Mode(AgentMode),
    /// Another model, by name.
    Model(String),
    /// Another thinking level.
    Thinking(ThinkingLevel),
}

/// A choice that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigOptionError {
    /// No such option exists.
    #[error("there is no option {}, there are: {valid}", quote(.id))]
    UnknownOption {
        /// The given option.
        id: String,
        /// The existing options.
        valid: String,
    },
    /// The option has no such value.
    #[error("{option} cannot be {}, only: {valid}", quote(.value))]
    UnknownValue {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// The possible values.
        valid: String,
    },
    /// The value is a boolean, but the option is not.
    #[error("{option} is chosen by the id of a value, not by true or false")]
    NotAnId {
        /// The option.
        option: &'static str,
    },
}

impl From<ConfigOptionError> for RpcError {
    fn from(error: ConfigOptionError) -> Self {
        Self::InvalidParams { reason: error.to_string() }
    }
}

impl ConfigView<'_> {
    /// Returns the config options, most important first, each with its current value.
    #[must_use]
    pub fn config_options(&self) -> Vec<SessionConfigOption> {
        let modes = self.offered_modes().map(|mode| {
            SessionConfigSelectOption::new(mode.id(), mode.name()).description(mode.description().to_owned())
        });
        let mode =
            SessionConfigOption::select(MODE_OPTION, "Mode", self.mode.id(), modes.collect::<Vec<_>>())
                .description("What the agent does without asking".to_owned())
                .category(SessionConfigOptionCategory::Mode);
        let models = self
            .listed_models()
            .map(|model| SessionConfigSelectOption::new(model.name.clone(), model.title.clone()));
        let model = SessionConfigOption::select(
            MODEL_OPTION,
            "Model",
            self.model.name.clone(),
            models.collect::<Vec<_>>(),
        )
        .description("Which model answers".to_owned())
        .category(SessionConfigOptionCategory::Model);
        let mut options = vec![mode, model];
        if self.model.supports_thinking {
            let levels = THINKING_LEVELS.map(|(_, id, name)| SessionConfigSelectOption::new(id, name));
            let thinking = SessionConfigOption::select(
                THINKING_OPTION,
                "Thinking",
                thinking_id(self.thinking),
                levels.to_vec(),
            )
            .description("How much the model thinks before it answers".to_owned())
            .category(SessionConfigOptionCategory::ThoughtLevel);
            options.push(thinking);
        }
        options
    }

    /// Returns the modes, for clients without support for config options.
    #[must_use]
    pub fn mode_state(&self) -> SessionModeState {
        let modes = self
            .offered_modes()
            .map(|mode| SessionMode::new(mode.id(), mode.name()).description(mode.description().to_owned()));
        SessionModeState::new(self.mode.id(), modes.collect())
    }

    /// Returns the modes that can be chosen.
    pub(crate) fn offered_modes(&self) -> impl Iterator<Item = AgentMode> + use<> {
        let widest = self.widest_mode;
        AgentMode::ALL.into_iter().filter(move |mode| *mode <= widest)
    }

    /// Parses the choice of `session/set_config_option`.
    ///
    /// # Errors
    /// Fails if it is not possible, and names the choices.
    pub fn parse_option(
        &self,
        id: &str,
        value: &SessionConfigOptionValue,
    ) -> Result<ConfigChange, ConfigOptionError> {
        let option = match id {
            MODE_OPTION => MODE_OPTION,
            MODEL_OPTION => MODEL_OPTION,
            THINKING_OPTION if self.model.supports_thinking => THINKING_OPTION,
            _ => {
                let options = self.config_options();
                let valid = join_limited(options.iter().map(|option| &*option.id.0));
                return Err(ConfigOptionError::UnknownOption { id: id.to_owned(), valid });
            }
        };
        let value = value.as_value_id().ok_or(ConfigOptionError::NotAnId { option })?;
        match option {
            MODE_OPTION => self.parse_mode(&value.0),
            MODEL_OPTION => self.parse_model(&value.0),
            _ => Self::parse_thinking(&value.0),
        }
    }

    /// Parses the choice of `session/set_mode` or `/mode`.
    ///
    /// # Errors
    /// Fails for any other mode, and names the modes.
    pub fn parse_mode(&self, id: &str) -> Result<ConfigChange, ConfigOptionError> {
        let valid = || join_limited(self.offered_modes().map(AgentMode::id));
        let no_value =
            || ConfigOptionError::UnknownValue { option: MODE_OPTION, value: id.to_owned(), valid: valid() };
        self.offered_modes().find(|mode| mode.id() == id).map(ConfigChange::Mode).ok_or_else(no_value)
    }

    /// Parses the choice of `session/set_model` or `/model`.
    ///
    /// # Errors
    /// Fails for any other model, and names the models.
    pub fn parse_model(&self, name: &str) -> Result<ConfigChange, ConfigOptionError> {
        let mut models = self.listed_models();
        if models.any(|model| model.name == name) {
            return Ok(ConfigChange::Model(name.to_owned()));
        }
        let valid = join_limited(self.listed_models().map(|model| model.name.as_str()));
        Err(ConfigOptionError::UnknownValue { option: MODEL_OPTION, value: name.to_owned(), valid })
    }

    /// Returns the updates for the client after a change: all options, and for a change of the mode also that.
    #[must_use]
    pub fn updates_for(&self, change: &ConfigChange) -> Vec<SessionUpdate> {
        let options = SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.config_options()));
        match change {
            ConfigChange::Mode(mode) => {
                vec![SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.id())), options]
            }
            ConfigChange::Model(_) | ConfigChange::Thinking(_) => vec![options],
        }
    }

    fn parse_thinking(id: &str) -> Result<ConfigChange, ConfigOptionError> {
        let found = THINKING_LEVELS.into_iter().find(|(_, level, _)| *level == id);
        let valid = || join_limited(THINKING_LEVELS.into_iter().map(|(_, id, _)| id));
        found.map(|(thinking, ..)| ConfigChange::Thinking(thinking)).ok_or_else(|| {
            ConfigOptionError::UnknownValue { option: THINKING_OPTION, value: id.to_owned(), valid: valid() }
        })
    }

    /// Returns the models to choose from, including the current one.
    fn listed_models(&self) -> impl Iterator<Item = &ModelInfo> {
        let is_listed = self.models.iter().take(MAX_LISTED_MODELS).any(|model| model.name == self.model.name);
        // The current model is always listed, regardless of the limit.
        let (first, limit) =
            if is_listed { (None, MAX_LISTED_MODELS) } else { (Some(self.model), MAX_LISTED_MODELS - 1) };
        first.into_iter().chain(self.models.iter().take(limit))
    }
}

/// Returns the commands that a session offers.
#[must_use]
pub fn available_commands(can_undo: bool) -> AvailableCommandsUpdate {
    let command = |entry: &slash_command::SlashCommandInfo| {
        let input =
            entry.hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(entry.name, entry.description).input(input)
    };
    AvailableCommandsUpdate::new(slash_command::available_commands(can_undo).map(command).collect())
}

const THINKING_LEVELS: [(ThinkingLevel, &str, &str); 5] = [
    (ThinkingLevel::Default, "default", "Default"),
    (ThinkingLevel::Off, "off", "Off"),
    (ThinkingLevel::Low, "low", "Low"),
    (ThinkingLevel::Medium, "medium", "Medium"),
    (ThinkingLevel::High, "high", "High"),
];

fn thinking_id(thinking: ThinkingLevel) -> &'static str {
    match thinking {
        ThinkingLevel::Default => "default",
        ThinkingLevel::Off => "off",
        ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
    }
}

fn join_limited<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut values: Vec<&str> = values.take(MAX_LISTED_VALUES + 1).collect();
    let has_more = values.len() > MAX_LISTED_VALUES;
    values.truncate(MAX_LISTED_VALUES);
    format!("{}{}", values.join(", "), if has_more { " and more" } else { "" })
}

#[cfg(test)]
mod tests;
