//! Listing and searching for whoever has no other way to look around than to ask.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_state::audit::{Action, Decision, Subject};
use bowline_state::failure::{Failure, quote};
use bowline_state::grants::{Deed, Holder};
use bowline_state::operation::Kind;
use bowline_state::paths::Access;
use bowline_state::policy::Effect;
use bowline_state::question::{Item, Occasion};
use bowline_workspace::approvals::{Cleared, Request};
use bowline_workspace::error::FilesError;
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace as engine;

use super::files::{same, subject};
use super::{Asking, Operating, blocking, clear};
use crate::session::Held;

/// Lists a directory.
pub(crate) async fn list(
    held: Arc<Held>,
    asking: Asking,
    path: String,
    options: ListOptions,
) -> Result<Listing, Failure> {
    let title = format!("list {path}");
    let its = path.clone();
    let look = move |files: &engine::Session| files.list(&its, &options);
    looked(held, asking, path, title, look).await.map(|(listing, _)| listing)
}

/// Searches the files below a directory, or all. What rules say that may not be read, or not without a question, is left
/// out of what is found: whoever may look into a directory may not for that look into each of its files.
pub(crate) async fn search(
    held: Arc<Held>,
    asking: Asking,
    query: SearchQuery,
    below: Option<String>,
) -> Result<SearchResult, Failure> {
    let path = below.clone().unwrap_or_else(|| held.files.roots().cwd().to_owned());
    let title = format!("search in {path} for {}", quote(&query.pattern));
    let look = move |files: &engine::Session| files.search(&query, below.as_deref());
    let (mut found, cleared) = looked(held.clone(), asking, path, title, look).await?;
    let asked = cleared.is_bound();
    blocking(move || {
        let holder = held.holder(held.now());
        let mut readable: HashMap<String, bool> = HashMap::new();
        let mut left_out = 0;
        found.matches.retain(|hit| {
            let may = readable.entry(hit.path.clone()).or_insert_with(|| {
                let may = may_read(&held, &holder, &hit.path, asked);
                left_out += u64::from(!may);
                may
            });
            *may
        });
        found.skipped.secret += left_out;
        found
    })
    .await
    .map_err(Into::into)
}

fn may_read(held: &Held, holder: &Holder, path: &str, asked: bool) -> bool {
    let Ok(admitted) = held.files.admit(path, Access::Read) else { return false };
    match held.shared.approvals.judge(holder, &admitted.operation(Kind::Read)) {
        Ok(ruling) => ruling.effect == Effect::Allow || (asked && ruling.effect == Effect::Ask),
        Err(_) => false,
    }
}

/// Looks at a directory, as a read of it.
async fn looked<T: Send + 'static>(
    held: Arc<Held>,
    asking: Asking,
    path: String,
    title: String,
    look: impl FnOnce(&engine::Session) -> Result<T, FilesError> + Send + 'static,
) -> Result<(T, Cleared), Failure> {
    let Asking { agent, call, cancel, .. } = asking;
    let its = held.clone();
    let admitted = blocking(move || {
        let mut operating = Operating::new(its.clone(), Action::Read, call)
            .on(Subject::Path { asked: path.clone(), resolved: None });
        match its.files.admit(&path, Access::Read) {
            Ok(admitted) => {
                operating.entry().subject = subject(&admitted);
                Ok((operating, admitted))
            }
            Err(error) => Err(operating.fail(error.into())),
        }
    });
    let (mut operating, admitted) = admitted.await??;
    let request = Request {
        holder: operating.holder(),
        call: operating.entry().call.clone(),
        agent,
        occasion: Occasion::Act,
        title,
        items: vec![Item::plain(admitted.operation(Kind::Read))],
        warnings: Vec::new(),
        offers: Vec::new(),
        deeds: vec![Deed::Read { path: admitted.canonical().to_owned(), file: admitted.file_id() }],
    };
    let cleared = clear(&mut operating, &request, &cancel).await;
    blocking(move || {
        let cleared = cleared.and_then(|cleared| operating.wanted().map(|()| cleared));
        let cleared = cleared.map_err(|failure| operating.fail(failure))?;
        let files = operating.held.files.clone();
        let again = files.admit(admitted.asked(), Access::Read).is_ok_and(|again| same(&again, &admitted));
        if !again {
            let reason = format!("{} is another by now: ask again", quote(admitted.asked()));
            return Err(operating.fail(Failure::InvalidParams { reason }));
        }
        match look(&files) {
            Ok(found) => operating.record(Decision::Allowed).map(|()| (found, cleared)),
            Err(error) => Err(operating.fail(error.into())),
        }
    })
    .await?
}
