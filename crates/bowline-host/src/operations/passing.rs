//! Judging what an agent asks of another client: by the same rules and with the same log, and done there.

use std::sync::Arc;

use bowline_state::accumulator::ToolCallView;
use bowline_state::audit::{Action, By, Decision, Subject};
use bowline_state::claims::NewText;
use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::passing::Act;
use bowline_state::question::{Item, Occasion};
use bowline_state::schema::v1::{PermissionOption, RequestPermissionResponse};
use bowline_state::terminal;
use bowline_workspace::approvals::Request;
use bowline_workspace::terminals::looked_at;

use super::permission::{Written, allowed, asked, denied, on_file, why_not, write};
use super::terminals::deed;
use super::{Asking, Operating, blocking, clear};
use crate::front_end::Event;
use crate::session::Held;

/// A text that is larger is not shown to whoever is asked.
const MAX_TEXT: usize = 8 << 20;

/// What rules alone say to a permission request.
pub(crate) enum Ruled {
    /// They decide, and this is the answer.
    Answered(RequestPermissionResponse),
    /// A person decides, whom the other client asks.
    Ask(Box<(Operating, Request)>),
}

/// Judges a permission request that another client would answer.
pub(crate) async fn judge(
    held: Arc<Held>,
    asking: Asking,
    call: ToolCallView,
    options: Vec<PermissionOption>,
) -> Result<Ruled, Failure> {
    let (mut operating, request) = asked(held.clone(), asking.agent, call, &options).await?;
    let Some(decided) = held.shared.approvals.by_rules(&request).await else {
        return Ok(Ruled::Ask(Box::new((operating, request))));
    };
    blocking(move || match decided {
        Ok(cleared) => {
            let Some(outcome) = allowed(&held, &options, &cleared) else {
                // The agent takes no yes for once, and rules say no more than that: a person may.
                return Ok(Ruled::Ask(Box::new((operating, request))));
            };
            operating.entry().by = cleared.by();
            operating.record(Decision::Allowed)?;
            Ok(Ruled::Answered(RequestPermissionResponse::new(outcome)))
        }
        Err(refused) => {
            operating.entry().by = refused.by();
            tell(&mut operating, &request.title);
            let failure = operating.fail(refused.into());
            let response = RequestPermissionResponse::new(denied(&options));
            Ok(Ruled::Answered(match failure {
                Failure::Denied { why } => response.meta(why_not(why)),
                failure => response.meta(why_not(failure.to_string())),
            }))
        }
    })
    .await?
}

/// Lets something pass that another client will do, or says why not. Asks a person where the rules want it.
pub(crate) async fn lets(held: Arc<Held>, asking: Asking, act: Act) -> Result<(), Failure> {
    let Asking { agent, call, cancel, .. } = asking;
    let (action, title) = match &act {
        Act::Read { path } => (Action::Read, format!("read {path}")),
        Act::Write { path, .. } => (Action::Write, format!("write {path}")),
        Act::Run(asked) => (Action::TerminalCreate, format!("run {}", display::line(&asked.command, 4096))),
    };
    let mut operating = Operating::new(held.clone(), action, call.clone()).on(Subject::Text(title.clone()));
    let its = held.clone();
    let (item, deeds) = match blocking(move || described(&its, act)).await? {
        Ok(described) => described,
        Err(failure) => return blocking(move || Err(operating.fail(failure))).await?,
    };
    operating.entry().subject = Subject::from(&item.operation.target);
    let request = Request {
        holder: operating.holder(),
        call,
        agent,
        occasion: Occasion::Act,
        title,
        items: vec![item],
        warnings: Vec::new(),
        offers: Vec::new(),
        deeds,
    };
    let cleared = clear(&mut operating, &request, &cancel).await;
    blocking(move || match cleared.and_then(|_| operating.wanted()) {
        Ok(()) => operating.record(Decision::Allowed),
        Err(failure) => {
            tell(&mut operating, &request.title);
            Err(operating.fail(failure))
        }
    })
    .await?
}

/// Returns what would be done, for rules and a person, and bound to what it is. Waits for the disk.
fn described(held: &Held, act: Act) -> Result<(Item, Vec<bowline_state::grants::Deed>), Failure> {
    match act {
        Act::Read { path } => {
            let (item, deed) = on_file(held, Kind::Read, path);
            Ok((item, deed.into_iter().collect()))
        }
        Act::Write { path, content } => {
            let text = NewText { old: None, new: content };
            let Written { item, deed, .. } = write(held, path, Some(text), &mut { MAX_TEXT });
            Ok((item, deed.into_iter().collect()))
        }
        Act::Run(asked) => {
            let invocation = terminal::invocation(&asked.command, &asked.args)
                .map_err(|why| Failure::InvalidParams { reason: why.to_string() })?;
            let cwd = asked.cwd.unwrap_or_else(|| held.files.roots().cwd().to_owned());
            // A directory that is not of the workspace is judged as it is named.
            let cwd = held.files.working_directory(&cwd).map_or(cwd, |directory| directory.path);
            let command = looked_at(&held.files, invocation, cwd, asked.env);
            let deeds = vec![deed(&command)];
            let operation = Operation { kind: Kind::Execute, target: Target::Command(command) };
            Ok((Item::plain(operation), deeds))
        }
    }
}

/// Tells the user which rule denied something. An agent does not hear of it.
fn tell(operating: &mut Operating, title: &str) {
    let why = match &operating.entry().by {
        By::Rule(rule) => format!("by the rule {rule}"),
        By::Preset(preset) => format!("by the preset {preset}"),
        _ => return,
    };
    let title = display::line(title, 200);
    let text = format!(
        "denied {title}, {why}: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them"
    );
    operating.held.show(Event::Notice { text: &text });
}
