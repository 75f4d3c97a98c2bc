//! Answering an agent that asks for permission.

use std::sync::Arc;

use bowline_state::accumulator::ToolCallView;
use bowline_state::audit::{Action, Decision as Recorded, Subject};
use bowline_state::claims::{Claim, NewText, claims};
use bowline_state::failure::Failure;
use bowline_state::grants::Deed;
use bowline_state::operation::{Invocation, Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_state::permission::{Decision, Lifetime, answer};
use bowline_state::policy::canonical;
use bowline_state::question::{Item, Occasion, Shown};
use bowline_state::schema::v1::{
    Meta, PermissionOption, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
};
use bowline_wire::ClientContext;
use bowline_workspace::approvals::{Cleared, Request};
use bowline_workspace::terminals::looked_at;

use super::files::{deed, written_item};
use super::{Operating, blocking, clear};
use crate::session::Held;

/// The texts of one question have at most so many bytes; files beyond that are named, and asked about when they are written.
const MAX_TEXTS: usize = 32 << 20;

/// Serves `session/request_permission`.
pub(crate) async fn request(
    held: Arc<Held>,
    agent: Option<String>,
    request: RequestPermissionRequest,
    cx: ClientContext,
) -> Result<RequestPermissionResponse, Failure> {
    let id = &request.tool_call.tool_call_id;
    let call = ToolCallView::described(held.snapshot().tool_call(id), &request.tool_call);
    let call_id = id.0.to_string();
    held.shared.approvals.supersede(held.name(), &call_id);
    let mut operating = Operating::new(held.clone(), Action::Permission, Some(call_id.clone()))
        .on(Subject::Text(call.title.to_string()));
    let its = held.clone();
    let title = if call.title.is_empty() { "a tool call".to_owned() } else { call.title.to_string() };
    let place = held
        .shared
        .describing
        .acquire()
        .await
        .map_err(|closed| Failure::Internal { reason: closed.to_string() })?;
    let (items, deeds) = blocking(move || describe(&its, &call)).await?;
    drop(place);
    if let [item] = items.as_slice() {
        operating.entry().subject = Subject::from(&item.operation.target);
    }
    let superseded = call_id.clone();
    let asked = Request {
        holder: operating.holder(),
        call: Some(call_id),
        agent,
        occasion: Occasion::Request,
        title,
        items,
        warnings: only_always(&request.options),
        deeds,
    };
    let cleared = clear(&mut operating, &asked, &cx).await;
    let cancelled_here = cx.cancel().is_fired();
    blocking(move || {
        let (outcome, recorded) = match &cleared {
            Ok(cleared) => match allowed(&request.options, cleared) {
                Some(outcome) => (outcome, Recorded::Allowed),
                None => {
                    // What the agent is told was denied is no approval.
                    operating.held.shared.approvals.supersede(operating.held.name(), &superseded);
                    operating.entry().reason = Some("the agent offers no option that says so".to_owned());
                    (denied(&request.options), Recorded::Denied)
                }
            },
            // The request itself was taken back: its answer is an error, as for every other request.
            Err(Failure::Cancelled) if cancelled_here => return Err(operating.fail(Failure::Cancelled)),
            Err(Failure::Cancelled) => (RequestPermissionOutcome::Cancelled, Recorded::Cancelled),
            Err(busy @ Failure::Busy { .. }) => return Err(operating.fail(busy.clone())),
            Err(failure) => {
                operating.entry().reason = Some(failure.to_string());
                (denied(&request.options), Recorded::Denied)
            }
        };
        operating.record(recorded)?;
        let response = RequestPermissionResponse::new(outcome);
        Ok(match cleared {
            Err(Failure::Denied { why }) => response.meta(why_not(why)),
            _ => response,
        })
    })
    .await?
}

/// Returns the outcome that allows it and nothing more. What holds for longer is remembered here, not by the agent: its
/// idea of always may be wider. A person who was told that there is only always has said yes to that.
fn allowed(options: &[PermissionOption], cleared: &Cleared) -> Option<RequestPermissionOutcome> {
    let once = answer(options, Decision::Allow(Lifetime::Once)).ok();
    let always = || answer(options, Decision::Allow(Lifetime::Always)).ok();
    once.or_else(|| matches!(cleared, Cleared::Person(_)).then(always).flatten())
}

/// Warns of an agent that wants to be allowed for always, or not at all.
fn only_always(options: &[PermissionOption]) -> Vec<String> {
    let offers = |lifetime| answer(options, Decision::Allow(lifetime)).is_ok();
    if offers(Lifetime::Once) || !offers(Lifetime::Always) {
        return Vec::new();
    }
    vec!["the agent takes a yes for always: it offers nothing less".to_owned()]
}

fn denied(options: &[PermissionOption]) -> RequestPermissionOutcome {
    answer(options, Decision::Deny(Lifetime::Once)).unwrap_or(RequestPermissionOutcome::Cancelled)
}

/// Returns why it was denied, for agents that look: the protocol has no place for it.
fn why_not(why: String) -> Meta {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), serde_json::json!({ "reason": why }));
    meta
}

/// Returns what a tool call would do, as far as it says, for rules and a person; and for what of it an approval can be kept
/// until it is done. Waits for the disk.
fn describe(held: &Held, call: &ToolCallView) -> (Vec<Item>, Vec<Deed>) {
    let mut items = Vec::new();
    let mut deeds = Vec::new();
    let mut room = MAX_TEXTS;
    for claim in claims(call) {
        match claim {
            Claim::Read { path } => {
                let (item, deed) = on_file(held, Kind::Read, path);
                items.push(item);
                deeds.extend(deed);
            }
            Claim::Delete { path } => {
                let (item, deed) = on_file(held, Kind::Delete, path);
                items.push(item);
                deeds.extend(deed);
            }
            Claim::Write { path, text } => {
                let (item, deed) = write(held, path, text, &mut room);
                items.push(item);
                deeds.extend(deed);
            }
            Claim::Run { invocation, cwd } => {
                let (item, deed) = run(held, invocation, cwd);
                items.push(item);
                deeds.push(deed);
            }
            Claim::Fetch { url } => {
                items.push(Item::plain(Operation { kind: Kind::Fetch, target: Target::Url(url) }));
            }
            Claim::Described { kind, title } => {
                items.push(Item::plain(Operation { kind, target: Target::Described(title) }));
            }
        }
    }
    (items, deeds)
}

fn access(kind: Kind) -> Access {
    if kind == Kind::Read { Access::Read } else { Access::Write }
}

fn on_file(held: &Held, kind: Kind, path: String) -> (Item, Option<Deed>) {
    match held.files.admit(&path, access(kind)) {
        Ok(admitted) => {
            let (path, file) = (admitted.canonical().to_owned(), admitted.file_id());
            let deed = match kind {
                Kind::Read => Some(Deed::Read { path, file }),
                Kind::Delete => Some(Deed::Delete { path, file }),
                _ => None,
            };
            (Item::plain(admitted.operation(kind)), deed)
        }
        Err(_) => (Item::plain(Operation { kind, target: Target::Elsewhere { asked: path } }), None),
    }
}

/// Returns a write as it would be, bound to that; or, where that cannot be told, as the agent shows it.
fn write(held: &Held, path: String, text: Option<NewText>, room: &mut usize) -> (Item, Option<Deed>) {
    let (item, _) = on_file(held, Kind::Write, path.clone());
    let Some(text) = text else { return (item, None) };
    // What the file holds now, whatever the agent believes.
    let current = held.files.preview(&path, &text.new).ok().map(|preview| preview.before);
    let whole = current.and_then(|before| text.whole(before.as_deref().map(String::as_str)));
    let shown = whole.and_then(|whole| Some((held.files.preview(&path, &whole).ok()?, whole)));
    let Some((preview, whole)) = shown else {
        let bytes = text.new.len() + text.old.as_ref().map_or(0, String::len);
        let change = Shown { before: text.old.map(Arc::new), after: Arc::new(text.new) };
        return (Item { change: fits(room, bytes).then_some(change), ..item }, None);
    };
    let bytes = preview.after.len() + preview.before.as_ref().map_or(0, |before| before.len());
    if !fits(room, bytes) {
        return (item, None);
    }
    (written_item(&path, &preview), Some(deed(&preview, &whole)))
}

/// Takes bytes from the room that the texts of one question have, if there are so many left.
fn fits(room: &mut usize, bytes: usize) -> bool {
    let fits = bytes <= *room;
    *room -= if fits { bytes } else { 0 };
    fits
}

fn run(held: &Held, invocation: Invocation, cwd: Option<String>) -> (Item, Deed) {
    let asked = cwd.unwrap_or_else(|| held.files.roots().cwd().to_owned());
    // A directory that cannot be used is shown as it is named; the command itself is refused later.
    let cwd = held.files.working_directory(&asked).map_or(asked, |directory| directory.path);
    let deed = Deed::Run { invocation: canonical(&invocation), cwd: cwd.clone(), env: Vec::new() };
    let command = looked_at(&held.files, invocation, cwd, Vec::new());
    (Item::plain(Operation { kind: Kind::Execute, target: Target::Command(command) }), deed)
}
