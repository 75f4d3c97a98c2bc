//! What a client can choose in a session: mode, model, thinking; and the commands that there are.
//!
//! Config options are the one truth. Clients that only know modes, or the older call for models, are served from it, and
//! whichever way something is chosen, both are told.

use bowline_state::conversation::Thinking;
use bowline_state::failure::{Failure, quote};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate,
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectOption,
    SessionMode, SessionModeState, SessionUpdate, UnstructuredCommandInput,
};
use bowline_state::slash;

use crate::model::ModelInfo;

/// At most this many models are listed.
pub const MAX_MODELS: usize = 200;

/// An error names at most this many values.
const MAX_NAMED: usize = 20;

const MODE: &str = "mode";
const MODEL: &str = "model";
const THINKING: &str = "thought_level";

/// What is chosen in a session, and what there is to choose from.
#[derive(Debug, Clone, Copy)]
pub struct Choices<'a> {
    /// The mode.
    pub mode: Mode,
    /// The widest mode that can be chosen.
    pub widest: Mode,
    /// The model that answers. It need not be one of those listed.
    pub model: &'a ModelInfo,
    /// The models that can be chosen.
    pub models: &'a [ModelInfo],
    /// How much the model thinks.
    pub thinking: Thinking,
}

/// A choice that a client made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another mode.
    Mode(Mode),
    /// Another model, by name.
    Model(String),
    /// Another amount of thinking.
    Thinking(Thinking),
}

/// A choice that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("there is no option {}, there are: {valid}", quote(.id))]
    NoOption {
        /// The option that was named.
        id: String,
        /// Those there are.
        valid: String,
    },
    /// The option has no such value.
    #[error("{option} cannot be {}, only: {valid}", quote(.value))]
    NoValue {
        /// The option.
        option: &'static str,
        /// The value that was named.
        value: String,
        /// Those there are.
        valid: String,
    },
    /// The option is no boolean one, and the value is.
    #[error("{option} is chosen by the id of a value, not by true or false")]
    NotAnId {
        /// The option.
        option: &'static str,
    },
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Self::InvalidParams { reason: error.to_string() }
    }
}

impl Choices<'_> {
    /// Returns the config options, the most important first, each with what is chosen.
    #[must_use]
    pub fn config_options(&self) -> Vec<SessionConfigOption> {
        let modes = self.offered().map(|mode| {
            SessionConfigSelectOption::new(mode.id(), mode.name()).description(mode.description().to_owned())
        });
        let mode = SessionConfigOption::select(MODE, "Mode", self.mode.id(), modes.collect::<Vec<_>>())
            .description("What the agent does without asking".to_owned())
            .category(SessionConfigOptionCategory::Mode);
        let models = self
            .models()
            .map(|model| SessionConfigSelectOption::new(model.name.clone(), model.title.clone()));
        let model =
            SessionConfigOption::select(MODEL, "Model", self.model.name.clone(), models.collect::<Vec<_>>())
                .description("Which model answers".to_owned())
                .category(SessionConfigOptionCategory::Model);
        let mut options = vec![mode, model];
        if self.model.thinking {
            let levels = LEVELS.map(|(_, id, name)| SessionConfigSelectOption::new(id, name));
            let thinking =
                SessionConfigOption::select(THINKING, "Thinking", level(self.thinking), levels.to_vec())
                    .description("How much the model thinks before it answers".to_owned())
                    .category(SessionConfigOptionCategory::ThoughtLevel);
            options.push(thinking);
        }
        options
    }

    /// Returns the modes, for clients that do not know config options.
    #[must_use]
    pub fn modes(&self) -> SessionModeState {
        let modes = self
            .offered()
            .map(|mode| SessionMode::new(mode.id(), mode.name()).description(mode.description().to_owned()));
        SessionModeState::new(self.mode.id(), modes.collect())
    }

    /// Returns the modes that can be chosen.
    pub(crate) fn offered(&self) -> impl Iterator<Item = Mode> + use<> {
        let widest = self.widest;
        Mode::ALL.into_iter().filter(move |mode| *mode <= widest)
    }

    /// Reads what `session/set_config_option` chooses.
    ///
    /// # Errors
    /// Names what there is to choose from.
    pub fn choose(&self, id: &str, value: &SessionConfigOptionValue) -> Result<Change, OptionError> {
        let option = match id {
            MODE => MODE,
            MODEL => MODEL,
            THINKING if self.model.thinking => THINKING,
            _ => {
                let options = self.config_options();
                let valid = named(options.iter().map(|option| &*option.id.0));
                return Err(OptionError::NoOption { id: id.to_owned(), valid });
            }
        };
        let value = value.as_value_id().ok_or(OptionError::NotAnId { option })?;
        match option {
            MODE => self.choose_mode(&value.0),
            MODEL => self.choose_model(&value.0),
            _ => Self::choose_thinking(&value.0),
        }
    }

    /// Reads what `session/set_mode` or `/mode` chooses.
    ///
    /// # Errors
    /// Names the modes.
    pub fn choose_mode(&self, id: &str) -> Result<Change, OptionError> {
        let valid = || named(self.offered().map(Mode::id));
        let no_value = || OptionError::NoValue { option: MODE, value: id.to_owned(), valid: valid() };
        self.offered().find(|mode| mode.id() == id).map(Change::Mode).ok_or_else(no_value)
    }

    /// Reads what `session/set_model` or `/model` chooses.
    ///
    /// # Errors
    /// Names the models.
    pub fn choose_model(&self, name: &str) -> Result<Change, OptionError> {
        let mut models = self.models();
        if models.any(|model| model.name == name) {
            return Ok(Change::Model(name.to_owned()));
        }
        let valid = named(self.models().map(|model| model.name.as_str()));
        Err(OptionError::NoValue { option: MODEL, value: name.to_owned(), valid })
    }

    /// Returns what the client is told after a change: all options, and the mode once more if it is that.
    #[must_use]
    pub fn updates(&self, change: &Change) -> Vec<SessionUpdate> {
        let options = SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.config_options()));
        match change {
            Change::Mode(mode) => {
                vec![SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.id())), options]
            }
            Change::Model(_) | Change::Thinking(_) => vec![options],
        }
    }

    fn choose_thinking(id: &str) -> Result<Change, OptionError> {
        let found = LEVELS.into_iter().find(|(_, level, _)| *level == id);
        let valid = || named(LEVELS.into_iter().map(|(_, id, _)| id));
        found.map(|(thinking, ..)| Change::Thinking(thinking)).ok_or_else(|| OptionError::NoValue {
            option: THINKING,
            value: id.to_owned(),
            valid: valid(),
        })
    }

    /// Returns the models that can be chosen, with the one that is.
    fn models(&self) -> impl Iterator<Item = &ModelInfo> {
        let known = self.models.iter().take(MAX_MODELS).any(|model| model.name == self.model.name);
        // The one that answers is among those listed, however many there are.
        let (first, room) = if known { (None, MAX_MODELS) } else { (Some(self.model), MAX_MODELS - 1) };
        first.into_iter().chain(self.models.iter().take(room))
    }
}

/// Returns the commands that a session offers.
#[must_use]
pub fn commands(can_undo: bool) -> AvailableCommandsUpdate {
    let command = |entry: &slash::Entry| {
        let input =
            entry.hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(entry.name, entry.description).input(input)
    };
    AvailableCommandsUpdate::new(slash::offered(can_undo).map(command).collect())
}

const LEVELS: [(Thinking, &str, &str); 5] = [
    (Thinking::Default, "default", "Default"),
    (Thinking::Off, "off", "Off"),
    (Thinking::Low, "low", "Low"),
    (Thinking::Medium, "medium", "Medium"),
    (Thinking::High, "high", "High"),
];

fn level(thinking: Thinking) -> &'static str {
    match thinking {
        Thinking::Default => "default",
        Thinking::Off => "off",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
    }
}

fn named<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut values: Vec<&str> = values.take(MAX_NAMED + 1).collect();
    let more = values.len() > MAX_NAMED;
    values.truncate(MAX_NAMED);
    format!("{}{}", values.join(", "), if more { " and more" } else { "" })
}

#[cfg(test)]
mod tests;
