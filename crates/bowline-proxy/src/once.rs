//! One question for one edit: what an agent asks before it calls a tool of the server that it was given is answered here
//! where the tool asks itself, and with more to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_mcp::server::Offer;
use bowline_state::relay::ToolCallSeen;
use bowline_state::relay::own_tools::{self, Care, OwnTools, Rules};
use bowline_state::schema::v1::{
    Meta, RequestPermissionOutcome, RequestPermissionResponse, SelectedPermissionOutcome,
};
use serde_json::json;

use crate::beside::ruling::answered;
use crate::between::Deed;

/// What is known of the tools of one session's server.
pub(crate) struct Once {
    tools: OwnTools,
    met: Met,
}

/// Whether the agent has said hello to the server. Only then is it sure that the agent means this one by its name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Met(Arc<AtomicBool>);

impl Met {
    pub(crate) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Once {
    /// Returns the tools that are offered by a server, by the name that the agent was told.
    pub(crate) fn new(name: &str, offer: Offer, met: Met) -> Self {
        Self { tools: OwnTools::new(name.to_owned(), offer.tools()), met }
    }

    /// Takes in what the agent tells of a call.
    pub(crate) fn told(&mut self, seen: &ToolCallSeen, line: &[u8]) {
        self.tools.told(seen, line);
    }

    /// Returns the answer to a permission request, if it is given here.
    pub(crate) fn answer(&self, line: &[u8], rules: Rules) -> Option<Deed> {
        if !self.met.0.load(Ordering::Relaxed) {
            return None;
        }
        let own_tools::Once { tool, care, option } = self.tools.answer(line, rules)?;
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option));
        let does = if care == Care::Looks { "only looks" } else { "asks by itself" };
        let reason = format!("{tool}, a tool of the proxy, {does}");
        let mut meta = Meta::new();
        meta.insert("bowline".to_owned(), json!({ "reason": reason }));
        Some(answered(RequestPermissionResponse::new(outcome).meta(meta)))
    }
}
