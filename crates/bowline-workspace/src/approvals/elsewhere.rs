//! What is asked and answered elsewhere: judged here before, and remembered here after.

use bowline_state::grants::{Deed, Holder};

use super::{Approvals, Cleared, Refused, Request, decided};

impl Approvals {
    /// Says what the rules alone come to; none if they want a person to be asked, who is somebody else's to ask.
    pub async fn by_rules(&self, request: &Request) -> Option<Result<Cleared, Refused>> {
        match self.ruling_beside(request).await {
            Ok((ruling, _)) => decided(&ruling),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// Remembers that a person who was asked elsewhere has agreed to these deeds, each for once.
    pub fn grant(&self, holder: &Holder, call: Option<&str>, deeds: Vec<Deed>) {
        self.state().grants.give(holder, call, deeds);
    }
}
