//! The client of a session: who it is, and asking its user.

use rmcp::model::{ElicitRequestParams, ElicitationAction, ElicitationSchema, EnumSchema};
use rmcp::service::{ElicitationMode, Peer, RoleServer};

/// The longest name of a client, in bytes.
const MAX_NAME: usize = 100;

/// The field of the form.
const FIELD: &str = "decision";

const ONCE: &str = "allow once";
const SESSION: &str = "allow for this session";
const DENY: &str = "deny";

/// The client of a session.
#[derive(Debug, Clone)]
pub struct Client {
    name: String,
    peer: Peer<RoleServer>,
}

/// What a person decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may be done this once.
    Once,
    /// It may be done as long as the session lasts.
    Session,
    /// It may not be done.
    Deny,
}

impl Client {
    pub(crate) fn new(name: &str, peer: Peer<RoleServer>) -> Self {
        let name = bowline_state::display::line(name, MAX_NAME);
        Self { name, peer }
    }

    /// Returns how it calls itself, safe to be shown.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says whether it can put a question to its user.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.peer.supported_elicitation_modes().contains(&ElicitationMode::Form)
    }

    /// Puts a question to its user: may this be done? Nothing if there is no answer to be had.
    pub async fn ask(&self, message: String) -> Option<Decision> {
        if !self.can_ask() {
            return None;
        }
        let choices = EnumSchema::builder([ONCE, SESSION, DENY].map(str::to_owned).to_vec()).build();
        let requested_schema =
            ElicitationSchema::builder().required_enum_schema(FIELD, choices).build().ok()?;
        let request = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let answer = self.peer.create_elicitation(request).await.ok()?;
        match answer.action {
            ElicitationAction::Accept => {
                let chosen = answer.content.as_ref().and_then(|content| content.get(FIELD)?.as_str());
                Some(match chosen {
                    Some(ONCE) => Decision::Once,
                    Some(SESSION) => Decision::Session,
                    // Whatever is no yes is a no.
                    _ => Decision::Deny,
                })
            }
            _ => Some(Decision::Deny),
        }
    }
}
