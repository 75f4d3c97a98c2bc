//! Changing what a session works with: its options and its mode.

use bowline_state::schema::v1::{
    SessionConfigId, SessionConfigOptionValue, SessionModeId, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};

use super::{ANSWER, Event, Runner, Tone, silent};

impl Runner {
    /// Sets an option of the session.
    pub(crate) fn set_option(&mut self, id: SessionConfigId, value: SessionConfigOptionValue) {
        let Some(session) = self.session() else { return };
        let mode = value.as_value_id().filter(|_| &*id.0 == "mode").map(|mode| mode.0.to_string());
        self.spawn(|hands| async move {
            let request = SetSessionConfigOptionRequest::new(session.id().clone(), id, value);
            let set = session.agent().set_session_config_option(request);
            hands.inbox.push(match tokio::time::timeout(ANSWER, set).await {
                Ok(Ok(answer)) => {
                    if let Some(mode) = mode {
                        hands.launch.set_level(&mode);
                    }
                    Event::Options(answer.config_options)
                }
                Ok(Err(error)) => Event::Remark(Tone::Error, error.to_string()),
                Err(_) => Event::Remark(Tone::Error, silent("set the option", ANSWER)),
            });
        });
    }

    /// Sets the mode of the session.
    pub(crate) fn set_mode(&mut self, mode: SessionModeId) {
        let Some(session) = self.session() else { return };
        self.spawn(|hands| async move {
            let request = SetSessionModeRequest::new(session.id().clone(), mode.clone());
            let set = session.agent().set_session_mode(request);
            hands.inbox.push(match tokio::time::timeout(ANSWER, set).await {
                Ok(Ok(_)) => {
                    hands.launch.set_level(&mode.0);
                    Event::Mode(mode)
                }
                Ok(Err(error)) => Event::Remark(Tone::Error, error.to_string()),
                Err(_) => Event::Remark(Tone::Error, silent("set the mode", ANSWER)),
            });
        });
    }
}
