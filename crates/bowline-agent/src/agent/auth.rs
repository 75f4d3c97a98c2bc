//! Logging in and out: which API keys exist, and whether they may be used.

use bowline_protocol::capabilities::ClientCapabilityGate;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{AuthMethod, AuthMethodAgent, AuthMethodId, AuthMethodTerminal};

use crate::model::provider::Provider;
use crate::session::AgentResources;

const API_KEY: &str = "api-key";
const LOGIN: &str = "login";
const OFFLINE: &str = "offline";

/// The advice to a user without an API key.
const KEY_HELP: &str = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY for the program that starts Bowline, or store a \
                   key with `bowline agent --login` in a terminal";

/// Returns the login methods that this client supports.
pub(super) fn auth_methods(gate: &ClientCapabilityGate) -> Vec<AuthMethod> {
    let key = AuthMethodAgent::new(API_KEY, "Use an API key")
        .description(format!("Uses the key that is there already. If there is none: {KEY_HELP}"));
    let offline = AuthMethodAgent::new(OFFLINE, "Work offline")
        .description("Uses the offline model: plain commands, no key, no network".to_owned());
    let login = AuthMethodTerminal::new(LOGIN, "Enter an API key")
        .description("Asks for a provider and its key in a terminal, and stores it for you alone".to_owned())
        .args(vec!["--login".to_owned()]);
    let login = AuthMethod::Terminal(login);
    let mut methods = vec![AuthMethod::Agent(key)];
    if gate.check_auth_methods(std::slice::from_ref(&login)).is_ok() {
        methods.push(login);
    }
    methods.push(AuthMethod::Agent(offline));
    methods
}

/// Logs in.
pub(super) async fn authenticate(resources: &AgentResources, method: &AuthMethodId) -> Result<(), RpcError> {
    match &*method.0 {
        API_KEY | LOGIN => {
            let keys = resources.keys.clone();
            let result = bowline_task::spawn_blocking(move || (keys.providers(), keys.problem())).await;
            let (providers, problem) =
                result.map_err(|error| RpcError::Internal { reason: error.to_string() })?;
            // Some editors always log in by key, even if the user chose a model that needs none.
            if providers.is_empty() && !has_keyless_model(resources.options.model.as_deref()) {
                let reason = problem
                    .map_or_else(|| format!("there is no key yet: {KEY_HELP}"), |error| error.to_string());
                return Err(RpcError::AuthRequired { reason: Some(reason) });
            }
            resources.set_signed_in(true);
            resources.prefer_offline(false);
            Ok(())
        }
        OFFLINE => {
            resources.prefer_offline(true);
            Ok(())
        }
        other => {
            let reason =
                format!("there is no way to log in called {other}: use {API_KEY}, {LOGIN} or {OFFLINE}");
            Err(RpcError::InvalidParams { reason })
        }
    }
}

/// Returns whether the user chose a model that needs no key.
fn has_keyless_model(model: Option<&str>) -> bool {
    let provider = |model: &str| model.split_once('/').and_then(|(provider, _)| Provider::from_id(provider));
    model.is_some_and(|model| provider(model).is_none_or(|provider| !provider.needs_key()))
}

/// Logs out: forgets stored keys, and ignores those of the environment until the next login.
pub(super) async fn logout(resources: &AgentResources) -> Result<(), RpcError> {
    resources.set_signed_in(false);
    let keys = resources.keys.clone();
    let forget =
        move || Provider::ALL.iter().try_for_each(|provider| keys.remove_stored_key(*provider).map(drop));
    let removed = bowline_task::spawn_blocking(forget).await;
    let removed = removed.map_err(|error| RpcError::Internal { reason: error.to_string() })?;
    removed.map_err(|error| RpcError::Internal { reason: error.to_string() })
}
