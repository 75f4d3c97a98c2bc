//! The client of a session: who it is, and asking its user.

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, EnumSchema,
    ServerRequest,
};
use rmcp::service::{ElicitationMode, Peer, PeerRequestOptions, RequestHandle, RoleServer};

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
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(request));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let ClientResult::ElicitResult(answer) = Open(Some(sent.ok()?)).answer().await? else { return None };
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

/// A question that is open at the client. If nobody waits for the answer any more, the client is told to take it back.
struct Open(Option<RequestHandle<RoleServer>>);

impl Open {
    async fn answer(mut self) -> Option<ClientResult> {
        let answer = (&mut self.0.as_mut()?.rx).await;
        self.0 = None;
        answer.ok()?.ok()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // A client that is gone has no question open.
            runtime
                .spawn(async move { open.cancel(Some("nobody waits for the answer".to_owned())).await.ok() });
        }
    }
}
