//! The client of a session: its name, and questions to its user.

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, EnumSchema,
    ServerRequest,
};
use rmcp::service::{ElicitationMode, Peer, PeerRequestOptions, RequestHandle, RoleServer};

/// The longest name of a client, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// The field of the form.
const DECISION_FIELD: &str = "decision";

const ALLOW_ONCE: &str = "allow once";
const ALLOW_SESSION: &str = "allow for this session";
const DENY: &str = "deny";

/// The client of a session.
#[derive(Debug, Clone)]
pub struct ClientPeer {
    name: String,
    peer: Peer<RoleServer>,
}

/// A user's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserDecision {
    /// Allowed once.
    AllowOnce,
    /// Allowed for the rest of the session.
    AllowSession,
    /// Denied.
    Deny,
}

impl ClientPeer {
    pub(crate) fn new(name: &str, peer: Peer<RoleServer>) -> Self {
        let name = bowline_text::display::escape_line(name, MAX_NAME_BYTES);
        Self { name, peer }
    }

    /// Returns the name that it gives itself, escaped for display.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it can ask its user a question.
    #[must_use]
    pub fn can_ask_user(&self) -> bool {
        self.peer.supported_elicitation_modes().contains(&ElicitationMode::Form)
    }

    /// Asks its user for permission. Returns `None` if no answer can be obtained.
    pub async fn ask_user(&self, message: String) -> Option<UserDecision> {
        if !self.can_ask_user() {
            return None;
        }
        let choices =
            EnumSchema::builder([ALLOW_ONCE, ALLOW_SESSION, DENY].map(str::to_owned).to_vec()).build();
        let requested_schema =
            ElicitationSchema::builder().required_enum_schema(DECISION_FIELD, choices).build().ok()?;
        let request = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(request));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let ClientResult::ElicitResult(answer) = OpenElicitation(Some(sent.ok()?)).wait_for_answer().await?
        else {
            return None;
        };
        match answer.action {
            ElicitationAction::Accept => {
                let chosen =
                    answer.content.as_ref().and_then(|content| content.get(DECISION_FIELD)?.as_str());
                Some(match chosen {
                    Some(ALLOW_ONCE) => UserDecision::AllowOnce,
                    Some(ALLOW_SESSION) => UserDecision::AllowSession,
                    // Anything other than a yes is a no.
                    _ => UserDecision::Deny,
                })
            }
            _ => Some(UserDecision::Deny),
        }
    }
}

/// An open question at the client. Dropping it before the answer arrives withdraws the question.
struct OpenElicitation(Option<RequestHandle<RoleServer>>);

impl OpenElicitation {
    async fn wait_for_answer(mut self) -> Option<ClientResult> {
        let answer = (&mut self.0.as_mut()?.rx).await;
        self.0 = None;
        answer.ok()?.ok()
    }
}

impl Drop for OpenElicitation {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // A client that is gone has no open question.
            runtime.spawn(async move {
                open.cancel(Some("the answer is no longer needed".to_owned())).await.ok()
            });
        }
    }
}
