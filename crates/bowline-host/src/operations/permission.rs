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
use bowline_state::policy::{Preset, canonical_in};
use bowline_state::question::{Choice, Item, Occasion, Offer, Shown, Told};
use bowline_state::schema::v1::{
    Meta, PermissionOption, PermissionOptionId, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome,
};
use bowline_wire::ClientContext;
use bowline_workspace::approvals::{Cleared, Request};
use bowline_workspace::terminals::looked_at;

use super::files::{WILL_DROP_PRIVILEGES, deed, written_item};
use super::{Operating, blocking, clear};
use crate::session::Held;

/// The texts of one question have at most so many bytes; files beyond that are named, and asked about when they are written.
const MAX_TEXTS: usize = 32 << 20;

/// The reason in the audit log for denying what rules allow for once, because the agent takes a yes for always only.
pub const ONLY_ALLOW_ALWAYS: &str =
    "the agent offers only to allow it always, which takes a person or the preset full";

/// The same for an agent that takes no yes.
pub const NO_ALLOW_OPTION: &str = "the agent offers no option to allow it";

/// Serves `session/request_permission`.
pub(crate) async fn request(
    held: Arc<Held>,
    agent: Option<String>,
    request: RequestPermissionRequest,
    cx: ClientContext,
) -> Result<RequestPermissionResponse, Failure> {
    let id = &request.tool_call.tool_call_id;
    let call = ToolCallView::described(held.snapshot().tool_call(id), &request.tool_call);
    let superseded = id.0.to_string();
    let (mut operating, asked) = asked(held, agent, call, &request.options).await?;
    let cleared = clear(&mut operating, &asked, cx.cancel()).await;
    let cancelled_here = cx.cancel().is_fired();
    let chosen = operating.chosen.take();
    blocking(move || {
        let (outcome, recorded) = match &cleared {
            Ok(cleared) => match allowed(&operating.held, &request.options, cleared) {
                Some(outcome) => (outcome, Recorded::Allowed),
                None => {
                    // What the agent is told was denied is no approval.
                    operating.held.shared.approvals.supersede(operating.held.name(), &superseded);
                    let is_always = answer(&request.options, Decision::Allow(Lifetime::Always)).is_ok();
                    let why = if is_always { ONLY_ALLOW_ALWAYS } else { NO_ALLOW_OPTION };
                    operating.entry().reason = Some(why.to_owned());
                    (denied(&request.options), Recorded::Denied)
                }
            },
            // The request itself was taken back: its answer is an error, as for every other request.
            Err(Failure::Cancelled) if cancelled_here => return Err(operating.fail(Failure::Cancelled)),
            Err(Failure::Cancelled) => (RequestPermissionOutcome::Cancelled, Recorded::Cancelled),
            Err(busy @ Failure::Busy { .. }) => return Err(operating.fail(busy.clone())),
            Err(failure) => {
                operating.entry().reason = Some(failure.to_string());
                let outcome = chosen.and_then(|id| chosen_one(&request.options, &id, Choice::Deny));
                (outcome.unwrap_or_else(|| denied(&request.options)), Recorded::Denied)
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

/// Returns what a tool call that an agent asks about would do, as it is judged and asked about. What was approved for the
/// call before is void.
pub(super) async fn asked(
    held: Arc<Held>,
    agent: Option<String>,
    call: ToolCallView,
    options: &[PermissionOption],
) -> Result<(Operating, Request), Failure> {
    let call_id = call.id.0.to_string();
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
    let Described { items, deeds, warnings } = blocking(move || describe(&its, &call)).await?;
    drop(place);
    if let [item] = items.as_slice() {
        operating.entry().subject = Subject::from(&item.operation.target);
    }
    let request = Request {
        holder: operating.holder(),
        call: Some(call_id),
        agent,
        occasion: Occasion::Request,
        title,
        items,
        warnings: warnings.into_iter().chain(lacking(options)).collect(),
        offers: Offer::all(options),
        deeds,
    };
    Ok((operating, request))
}

/// Returns the outcome that allows it and nothing more. What holds for longer is remembered here, not by the agent: its
/// idea of always may be wider. Where the agent offers only always, a person who was told so has said yes to that, and
/// the preset full allows whatever follows. Waits for the disk.
pub(super) fn allowed(
    held: &Held,
    options: &[PermissionOption],
    cleared: &Cleared,
) -> Option<RequestPermissionOutcome> {
    if let Cleared::Person { option: Some(id), .. } = cleared {
        return chosen_one(options, id, Choice::Allow);
    }
    answer(options, Decision::Allow(Lifetime::Once)).ok().or_else(|| {
        let is_full = || held.shared.approvals.policy().is_ok_and(|policy| policy.preset == Preset::Full);
        let may_last = matches!(cleared, Cleared::Person { .. }) || is_full();
        may_last.then(|| answer(options, Decision::Allow(Lifetime::Always)).ok())?
    })
}

/// Returns the answer that a person chose by its name, if it was offered and says yes or no as the person did.
fn chosen_one(
    options: &[PermissionOption],
    id: &PermissionOptionId,
    choice: Choice,
) -> Option<RequestPermissionOutcome> {
    let offer = Offer::all(options).into_iter().find(|offer| offer.id == *id && offer.choice == choice)?;
    Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(offer.id)))
}

/// Warns of an agent that wants to be allowed for always or not at all, or that takes no yes.
fn lacking(options: &[PermissionOption]) -> Option<String> {
    let offers = |lifetime| answer(options, Decision::Allow(lifetime)).is_ok();
    match (offers(Lifetime::Once), offers(Lifetime::Always)) {
        (true, _) => None,
        (false, true) => Some("the agent takes a yes for always: it offers nothing less".to_owned()),
        (false, false) => Some("the agent offers no yes: whatever is answered, it is told no".to_owned()),
    }
}

pub(super) fn denied(options: &[PermissionOption]) -> RequestPermissionOutcome {
    answer(options, Decision::Deny(Lifetime::Once)).unwrap_or(RequestPermissionOutcome::Cancelled)
}

/// Returns why it was denied, for agents that look: the protocol has no place for it.
pub(super) fn why_not(why: String) -> Meta {
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), serde_json::json!({ "reason": why }));
    meta
}

/// What a tool call would do, as far as it says.
struct Described {
    /// For rules and a person.
    items: Vec<Item>,
    /// For what of it an approval can be kept until it is done.
    deeds: Vec<Deed>,
    /// What a person has to know besides: what the call says that is not so, and what it would do beyond that.
    warnings: Vec<String>,
}

/// Returns what a tool call would do. Waits for the disk.
fn describe(held: &Held, call: &ToolCallView) -> Described {
    let mut wrong: Vec<String> = Vec::new();
    let mut drops_privileges = false;
    let mut items = Vec::new();
    let mut deeds = Vec::new();
    let mut room = MAX_TEXTS;
    for claim in claims(call) {
        match claim {
            Claim::Read { path } => {
                let (item, deed) = on_file(held, Kind::Read, absolute(held, path));
                items.push(item);
                deeds.extend(deed);
            }
            Claim::Delete { path } => {
                let (item, deed) = on_file(held, Kind::Delete, absolute(held, path));
                items.push(item);
                deeds.extend(deed);
            }
            Claim::Write { path, text } => {
                let written = write(held, absolute(held, path.clone()), text, &mut room);
                items.push(written.item);
                deeds.extend(written.deed);
                drops_privileges |= written.drops_privileges;
                if written.is_wrong {
                    wrong.push(path);
                }
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
    // What has neither a text nor a command to look at is all in what the agent tells, which need not be told twice.
    let described = |item: &Item| matches!(item.operation.target, Target::Described(_));
    let at = items.iter().position(described).or_else(|| items.iter().position(Item::is_bare));
    if let Some(item) = at.and_then(|at| items.get_mut(at)) {
        item.told = Some(Arc::new(Told::of(call)));
    }
    let wrong = match wrong.as_slice() {
        [] => None,
        [path] => {
            Some(format!("{path} does not have the text that would be replaced, or has it more than once"))
        }
        [path, rest @ ..] => Some(format!(
            "{path} and {} others do not have the text that would be replaced, or have it more than once",
            rest.len()
        )),
    };
    let dropped = drops_privileges.then(|| WILL_DROP_PRIVILEGES.to_owned());
    Described { items, deeds, warnings: wrong.into_iter().chain(dropped).collect() }
}

/// Returns the path that an agent means. The input of a tool may name a file from the session's directory; `~` is for the
/// tool to know.
fn absolute(held: &Held, path: String) -> String {
    if path.is_empty() || path.starts_with(['/', '~']) {
        return path;
    }
    format!("{}/{path}", held.files.roots().cwd())
}

/// A write as it would be.
pub(super) struct Written {
    pub(super) item: Item,
    pub(super) deed: Option<Deed>,
    /// Whether the file does not have what it is said to have.
    is_wrong: bool,
    /// Whether it has setuid or setgid, which it would lose.
    drops_privileges: bool,
}

fn access(kind: Kind) -> Access {
    if kind == Kind::Read { Access::Read } else { Access::Write }
}

pub(super) fn on_file(held: &Held, kind: Kind, path: String) -> (Item, Option<Deed>) {
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
pub(super) fn write(held: &Held, path: String, text: Option<NewText>, room: &mut usize) -> Written {
    let (item, _) = on_file(held, Kind::Write, path.clone());
    let Some(text) = text else {
        return Written { item, deed: None, is_wrong: false, drops_privileges: false };
    };
    // What the file holds now, whatever the agent believes.
    let current = held.files.preview(&path, &text.new).ok().map(|preview| preview.before);
    let is_known = current.is_some();
    let whole = current.and_then(|before| text.whole(before.as_deref().map(String::as_str)));
    let is_wrong = is_known && whole.is_none();
    let shown = whole.and_then(|whole| Some((held.files.preview(&path, &whole).ok()?, whole)));
    let Some((preview, whole)) = shown else {
        let bytes = text.new.len() + text.old.as_ref().map_or(0, String::len);
        let change = Shown { before: text.old.map(Arc::new), after: Arc::new(text.new) };
        let item = Item { change: fits(room, bytes).then_some(change), ..item };
        return Written { item, deed: None, is_wrong, drops_privileges: false };
    };
    let drops_privileges = preview.drops_privileges;
    let bytes = preview.after.len() + preview.before.as_ref().map_or(0, |before| before.len());
    if !fits(room, bytes) {
        return Written { item, deed: None, is_wrong, drops_privileges };
    }
    let deed = Some(deed(&preview, &whole));
    Written { item: written_item(&path, &preview), deed, is_wrong, drops_privileges }
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
    let deed = Deed::Run { invocation: canonical_in(&invocation, &cwd), cwd: cwd.clone(), env: Vec::new() };
    let command = looked_at(&held.files, invocation, cwd, Vec::new());
    (Item::plain(Operation { kind: Kind::Execute, target: Target::Command(command) }), deed)
}
