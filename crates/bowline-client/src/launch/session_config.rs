//! Setting the model and the mode of a session, in the ways that agents support.

use bowline_host::HostSession;
use bowline_protocol::accumulator::SessionSnapshot;
use bowline_protocol::schema::v1::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelect, SessionConfigSelectOptions, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use bowline_text::display::quote;
use bowline_wire::CallError;
use bowline_wire::message::methods::SetSessionModelRequest;

use crate::error::CliError;

/// The setting to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigTarget {
    Model,
    Mode,
}

impl ConfigTarget {
    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Mode => "mode",
        }
    }

    fn matches(self, option: &SessionConfigOption) -> bool {
        match &option.category {
            Some(SessionConfigOptionCategory::Model) => self == Self::Model,
            Some(SessionConfigOptionCategory::Mode) => self == Self::Mode,
            // Not every agent gives its options a category.
            None => &*option.id.0 == self.name(),
            Some(_) => false,
        }
    }
}

/// Sets the model, as the agent names it.
pub(crate) async fn set_model(session: &HostSession, model: &str) -> Result<(), CliError> {
    if set_config_option(session, ConfigTarget::Model, model).await? {
        return Ok(());
    }
    let request = SetSessionModelRequest { session_id: session.id().clone(), model_id: model.to_owned() };
    match session.agent().set_session_model(request).await {
        Ok(_) => Ok(()),
        Err(CallError::ErrorResponse(error)) if i32::from(error.code) == -32601 => {
            Err(CliError::Usage("the agent does not let its model be chosen: leave out --model".to_owned()))
        }
        Err(error) => Err(value_refused(ConfigTarget::Model, model, &error)),
    }
}

/// Sets the mode, as the agent names it.
pub(crate) async fn set_mode(session: &HostSession, requested: &str) -> Result<(), CliError> {
    if set_config_option(session, ConfigTarget::Mode, requested).await? {
        return Ok(());
    }
    let snapshot = session.snapshot();
    let modes = snapshot.modes();
    if modes.is_empty() {
        return Err(CliError::Usage("the agent has no modes: leave out --mode".to_owned()));
    }
    let mode = modes
        .iter()
        .find(|mode| &*mode.id.0 == requested)
        .or_else(|| modes.iter().find(|mode| mode.name.eq_ignore_ascii_case(requested)));
    let Some(mode) = mode else {
        return Err(unknown_value(
            ConfigTarget::Mode,
            requested,
            modes.iter().map(|mode| mode.id.0.to_string()),
        ));
    };
    if snapshot.current_mode() == Some(&mode.id) {
        return Ok(());
    }
    let request = SetSessionModeRequest::new(session.id().clone(), mode.id.clone());
    match session.agent().set_session_mode(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(value_refused(ConfigTarget::Mode, requested, &error)),
    }
}

/// Sets an option of the session; returns whether there is one for the target.
async fn set_config_option(
    session: &HostSession,
    target: ConfigTarget,
    requested: &str,
) -> Result<bool, CliError> {
    let snapshot: SessionSnapshot = session.snapshot();
    let Some((option, select)) = snapshot.config_options().iter().find_map(|option| match &option.kind {
        SessionConfigKind::Select(select) if target.matches(option) => Some((option, select)),
        _ => None,
    }) else {
        return Ok(false);
    };
    if &*select.current_value.0 == requested {
        return Ok(true);
    }
    let values = select_values(select);
    let found = values
        .iter()
        .find(|(value, _)| value == requested)
        .or_else(|| values.iter().find(|(_, name)| name.eq_ignore_ascii_case(requested)));
    let Some((value, _)) = found else {
        return Err(unknown_value(target, requested, values.into_iter().map(|(value, _)| value)));
    };
    let value = SessionConfigOptionValue::value_id(value.clone());
    let request = SetSessionConfigOptionRequest::new(session.id().clone(), option.id.clone(), value);
    match session.agent().set_session_config_option(request).await {
        Ok(_) => Ok(true),
        Err(error) => Err(value_refused(target, requested, &error)),
    }
}

/// Returns the values of an option, each with its name.
fn select_values(select: &SessionConfigSelect) -> Vec<(String, String)> {
    let to_pair = |option: &bowline_protocol::schema::v1::SessionConfigSelectOption| {
        (option.value.0.to_string(), option.name.clone())
    };
    match &select.options {
        SessionConfigSelectOptions::Ungrouped(options) => options.iter().map(to_pair).collect(),
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| &group.options).map(to_pair).collect()
        }
        // A shape of a later protocol version: nothing can be chosen from it here.
        _ => Vec::new(),
    }
}

/// The maximum number of valid names listed for an invalid one.
const MAX_LISTED: usize = 30;

fn unknown_value(target: ConfigTarget, requested: &str, known: impl Iterator<Item = String>) -> CliError {
    let mut known: Vec<String> = known.map(|name| quote(&name)).collect();
    let more = known.len().saturating_sub(MAX_LISTED);
    known.truncate(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    CliError::Usage(format!(
        "the agent has no {} {}: it has {}{more}",
        target.name(),
        quote(requested),
        known.join(", ")
    ))
}

fn value_refused(target: ConfigTarget, requested: &str, error: &CallError) -> CliError {
    let reason = anyhow::anyhow!("{}", quote(&error.to_string()));
    CliError::Failed(reason.context(format!(
        "the agent did not take the {} {}",
        target.name(),
        quote(requested)
    )))
}
