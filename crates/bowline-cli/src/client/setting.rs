//! Choosing the model and the mode of a session, in the ways that agents have for it.

use bowline_host::Session;
use bowline_state::accumulator::Snapshot;
use bowline_state::failure::quote;
use bowline_state::schema::v1::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelect, SessionConfigSelectOptions, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use bowline_wire::CallError;
use bowline_wire::methods::SetSessionModelRequest;

use crate::ending::Ending;

/// What is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Model,
    Mode,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Mode => "mode",
        }
    }

    fn is(self, option: &SessionConfigOption) -> bool {
        match &option.category {
            Some(SessionConfigOptionCategory::Model) => self == Self::Model,
            Some(SessionConfigOptionCategory::Mode) => self == Self::Mode,
            // Not every agent says what its options are.
            None => &*option.id.0 == self.word(),
            Some(_) => false,
        }
    }
}

/// Chooses a model, as the agent names it.
pub(crate) async fn model(session: &Session, wanted: &str) -> Result<(), Ending> {
    if by_option(session, What::Model, wanted).await? {
        return Ok(());
    }
    let request = SetSessionModelRequest { session_id: session.id().clone(), model_id: wanted.to_owned() };
    match session.agent().set_session_model(request).await {
        Ok(_) => Ok(()),
        Err(CallError::Refused(error)) if i32::from(error.code) == -32601 => {
            Err(Ending::Usage("the agent does not let its model be chosen: leave out --model".to_owned()))
        }
        Err(error) => Err(refused(What::Model, wanted, &error)),
    }
}

/// Chooses a mode, as the agent names it.
pub(crate) async fn mode(session: &Session, wanted: &str) -> Result<(), Ending> {
    if by_option(session, What::Mode, wanted).await? {
        return Ok(());
    }
    let snapshot = session.snapshot();
    let modes = snapshot.modes();
    if modes.is_empty() {
        return Err(Ending::Usage("the agent has no modes: leave out --mode".to_owned()));
    }
    let found = modes
        .iter()
        .find(|mode| &*mode.id.0 == wanted)
        .or_else(|| modes.iter().find(|mode| mode.name.eq_ignore_ascii_case(wanted)));
    let Some(found) = found else {
        return Err(unknown(What::Mode, wanted, modes.iter().map(|mode| mode.id.0.to_string())));
    };
    if snapshot.current_mode() == Some(&found.id) {
        return Ok(());
    }
    let request = SetSessionModeRequest::new(session.id().clone(), found.id.clone());
    match session.agent().set_session_mode(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(What::Mode, wanted, &error)),
    }
}

/// Chooses by an option of the session; says whether there is one for it.
async fn by_option(session: &Session, what: What, wanted: &str) -> Result<bool, Ending> {
    let snapshot: Snapshot = session.snapshot();
    let Some((option, select)) = snapshot.config_options().iter().find_map(|option| match &option.kind {
        SessionConfigKind::Select(select) if what.is(option) => Some((option, select)),
        _ => None,
    }) else {
        return Ok(false);
    };
    if &*select.current_value.0 == wanted {
        return Ok(true);
    }
    let values = values(select);
    let found = values
        .iter()
        .find(|(value, _)| value == wanted)
        .or_else(|| values.iter().find(|(_, name)| name.eq_ignore_ascii_case(wanted)));
    let Some((value, _)) = found else {
        return Err(unknown(what, wanted, values.into_iter().map(|(value, _)| value)));
    };
    let value = SessionConfigOptionValue::value_id(value.clone());
    let request = SetSessionConfigOptionRequest::new(session.id().clone(), option.id.clone(), value);
    match session.agent().set_session_config_option(request).await {
        Ok(_) => Ok(true),
        Err(error) => Err(refused(what, wanted, &error)),
    }
}

/// Returns the values of an option, each with its name.
fn values(select: &SessionConfigSelect) -> Vec<(String, String)> {
    let of = |option: &bowline_state::schema::v1::SessionConfigSelectOption| {
        (option.value.0.to_string(), option.name.clone())
    };
    match &select.options {
        SessionConfigSelectOptions::Ungrouped(options) => options.iter().map(of).collect(),
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| &group.options).map(of).collect()
        }
        // A shape of a later protocol: nothing can be chosen from it here.
        _ => Vec::new(),
    }
}

/// So many names are listed where one was wrong.
const MAX_LISTED: usize = 30;

fn unknown(what: What, wanted: &str, known: impl Iterator<Item = String>) -> Ending {
    let mut known: Vec<String> = known.map(|name| quote(&name)).collect();
    let more = known.len().saturating_sub(MAX_LISTED);
    known.truncate(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ending::Usage(format!(
        "the agent has no {} {}: it has {}{more}",
        what.word(),
        quote(wanted),
        known.join(", ")
    ))
}

fn refused(what: What, wanted: &str, error: &CallError) -> Ending {
    let why = anyhow::anyhow!("{}", quote(&error.to_string()));
    Ending::Failed(why.context(format!("the agent did not take the {} {}", what.word(), quote(wanted))))
}
