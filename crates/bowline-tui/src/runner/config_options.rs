//! Changes of a session's options and mode.

use bowline_protocol::schema::v1::{
    SessionConfigId, SessionConfigOptionValue, SessionModeId, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};

use super::{ANSWER_TIMEOUT, ActionRunner, ChatEvent, NoteLevel, describe_timeout};

impl ActionRunner {
    /// Sets an option of the session.
    pub(crate) fn set_option(&mut self, id: SessionConfigId, value: SessionConfigOptionValue) {
        let Some(session) = self.session() else { return };
        let mode = value.as_value_id().filter(|_| &*id.0 == "mode").map(|mode| mode.0.to_string());
        self.spawn(|context| async move {
            let request = SetSessionConfigOptionRequest::new(session.id().clone(), id, value);
            let set = session.agent().set_session_config_option(request);
            context.inbox.push(match tokio::time::timeout(ANSWER_TIMEOUT, set).await {
                Ok(Ok(response)) => {
                    if let Some(mode) = mode {
                        context.launcher.apply_own_mode(&mode);
                    }
                    ChatEvent::ConfigOptionsChanged(response.config_options)
                }
                Ok(Err(error)) => ChatEvent::Note(NoteLevel::Error, error.to_string()),
                Err(_) => {
                    ChatEvent::Note(NoteLevel::Error, describe_timeout("set the option", ANSWER_TIMEOUT))
                }
            });
        });
    }

    /// Sets the mode of the session.
    pub(crate) fn set_mode(&mut self, mode: SessionModeId) {
        let Some(session) = self.session() else { return };
        self.spawn(|context| async move {
            let request = SetSessionModeRequest::new(session.id().clone(), mode.clone());
            let set = session.agent().set_session_mode(request);
            context.inbox.push(match tokio::time::timeout(ANSWER_TIMEOUT, set).await {
                Ok(Ok(_)) => {
                    context.launcher.apply_own_mode(&mode.0);
                    ChatEvent::ModeChanged(mode)
                }
                Ok(Err(error)) => ChatEvent::Note(NoteLevel::Error, error.to_string()),
                Err(_) => ChatEvent::Note(NoteLevel::Error, describe_timeout("set the mode", ANSWER_TIMEOUT)),
            });
        });
    }
}
