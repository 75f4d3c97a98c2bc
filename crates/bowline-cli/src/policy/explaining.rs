//! What would happen with something that an agent wants, and why.

use std::fmt::Write as _;

use bowline_state::display;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_state::policy::{Context, Effect, Ground, Policy, Reason, Ruling};
use bowline_state::terminal;
use bowline_workspace::approvals::{Fallback, unreviewed};
use bowline_workspace::policy::Scope;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::looked_at_within;
use serde_json::json;

use super::rules::line;
use super::{KindArgument, failed, open};
use crate::changes::Where;
use crate::client::config::Config;
use crate::client::options;
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::showing::{Ink, Look, print, safe};
use bowline_workspace::clock::now;

/// Something that an agent wants, and what is to happen with it.
struct Judged {
    what: String,
    ruling: Ruling,
    /// What happens in `run` and `chat`, if the user's configuration says something else for them.
    in_clients: Option<Effect>,
}

/// Explains.
///
/// # Errors
/// Says what cannot be judged.
pub(super) fn run(
    kind: KindArgument,
    what: &[String],
    env: Vec<(String, String)>,
    json: bool,
    place: &Where,
) -> Result<(), Ending> {
    if kind != KindArgument::Execute && !env.is_empty() {
        return Err(Ending::Usage("--env is for execute alone".to_owned()));
    }
    let (here, file) = open(place, Scope::Workspace)?;
    let unreviewed = unreviewed(&here.log());
    let (current, stated) = file.stated().map_err(failed)?;
    let policy = Policy { unreviewed, ..Policy::clone(&current) };
    let config = here.places.policy.parent().map(Config::read).transpose()?.unwrap_or_default();
    let in_clients = config.approve.map(|approve| {
        let preset = Fallback::Unless(options::preset(approve)).preset(stated);
        Policy { preset, ..policy.clone() }
    });
    let roots = Roots::open(&RootSpec::writable(here.root.as_str()), &[]).map_err(failed)?;
    let roots = roots.keeping_out([&here.places.state, &here.places.anchors, &here.places.policy]);
    let judge = |what: String, operation: &Operation| {
        let context = Context { session: String::new(), turn: None, now: now() };
        let in_clients = in_clients.as_ref().map(|policy| policy.judge(operation, &context).effect);
        let ruling = policy.judge(operation, &context);
        let differs = |effect: &Effect| *effect != ruling.effect;
        Judged { what, in_clients: in_clients.filter(differs), ruling }
    };
    let kind = Kind::from(kind);
    let single = || match what {
        [one] if one.trim().is_empty() => Err(Ending::Usage(format!("name something to {}", kind.word()))),
        [one] => Ok(one.as_str()),
        _ => Err(Ending::Usage(format!("name one thing to {}, there are {}", kind.word(), what.len()))),
    };
    let judged = match kind {
        Kind::Execute => {
            let (program, arguments) =
                what.split_first().ok_or_else(|| Ending::Usage("name a command".to_owned()))?;
            let invocation =
                terminal::invocation(program, arguments).map_err(|why| Ending::Usage(why.to_string()))?;
            let shown = display::invocation(&invocation).into_owned();
            let command = looked_at_within(&roots, invocation, here.root.clone(), env);
            judge(shown, &Operation { kind, target: Target::Command(command) })
        }
        Kind::Fetch => {
            let url = single()?;
            // A host alone, as rules name it.
            let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}/") };
            judge(url.clone(), &Operation { kind, target: Target::Url(url) })
        }
        Kind::Read | Kind::Write | Kind::Delete => {
            let path = here.file(single()?.as_ref())?;
            judge(here.name(&path).to_owned(), &file_operation(&roots, kind, path.clone()))
        }
    };
    print(&if json { object(&policy, &here, &judged) } else { text(&policy, &judged, Look::of_stdout()) })
}

fn file_operation(roots: &Roots, kind: Kind, path: String) -> Operation {
    let access = if kind == Kind::Read { Access::Read } else { Access::Write };
    match roots.admit(&path, access) {
        Ok(admitted) => admitted.operation(kind),
        Err(_) => Operation { kind, target: Target::Elsewhere { asked: path } },
    }
}

/// Returns what is to happen, and every reason: of a line with several commands at least one for each.
fn text(policy: &Policy, judged: &Judged, look: Look) -> String {
    let shown = |effect| match effect {
        Effect::Allow => (Ink::Good, "allowed"),
        Effect::Ask => (Ink::Mark, "asked about"),
        Effect::Deny => (Ink::Bad, "denied"),
    };
    let (ink, word) = shown(judged.ruling.effect);
    let mut text = format!("{}: {}\n", look.paint(ink, word), safe(&judged.what));
    for reason in &judged.ruling.because {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {}", because(policy, reason));
    }
    if let Some((ink, word)) = judged.in_clients.map(shown) {
        let word = look.paint(ink, word);
        _ = writeln!(text, "in run and chat: {word}, because of `approve` in your config.toml");
    }
    text
}

/// Returns a reason. A rule has the number that `bowline policy show` gives it.
fn because(policy: &Policy, reason: &Reason) -> String {
    let Ground::Rule { index, .. } = reason.ground else { return safe(&reason.to_string()) };
    let Some(rule) = policy.rules.get(index) else { return safe(&reason.to_string()) };
    let of = reason.subject.as_ref().map_or_else(String::new, |subject| format!("`{}`: ", safe(subject)));
    format!("{}: {of}rule {}, {}", reason.effect, index + 1, line(rule, Look::PLAIN))
}

fn object(policy: &Policy, here: &Here, judged: &Judged) -> String {
    let because = judged.ruling.because.iter().map(|reason| {
        json!({"effect": reason.effect.word(), "subject": reason.subject, "text": because(policy, reason)})
    });
    let told = json!({
        "workspace": here.root,
        "preset": policy.preset.word(),
        "what": judged.what,
        "effect": judged.ruling.effect.word(),
        "because": because.collect::<Vec<_>>(),
        "run_and_chat": judged.in_clients.unwrap_or(judged.ruling.effect).word(),
    });
    format!("{told}\n")
}
