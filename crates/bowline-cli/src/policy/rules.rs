//! Rules: showing them, adding one, forgetting one.

use std::fmt::Write as _;
use std::path::Path;

use bowline_state::display;
use bowline_state::operation::{Invocation, Kind};
use bowline_state::paths::LexicalPath;
use bowline_state::policy::{Effect, Kinds, Lifetime, Matcher, Rule, RuleSpec, Source};
use bowline_state::terminal;
use bowline_workspace::clock::iso8601;
use bowline_workspace::policy::{PolicyFile, Scope, plain_words};
use serde_json::json;

use super::{KindArgument, RuleArguments, failed, holder, open};
use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::Here;
use crate::records::showing::{Ink, Look, count, print, safe};
use crate::records::times::{at, read};
use bowline_workspace::clock::now;

impl From<KindArgument> for Kind {
    fn from(kind: KindArgument) -> Self {
        match kind {
            KindArgument::Read => Self::Read,
            KindArgument::Write => Self::Write,
            KindArgument::Delete => Self::Delete,
            KindArgument::Execute => Self::Execute,
            KindArgument::Fetch => Self::Fetch,
        }
    }
}

/// Returns the rules in force.
///
/// # Errors
/// Returns why they cannot be used.
pub(super) fn shown(file: &PolicyFile, here: &Here, json: bool, look: Look) -> Result<String, Ending> {
    let policy = file.current().map_err(failed)?;
    let own = file.preset(Scope::Workspace).map_err(failed)?;
    let all = file.preset(Scope::Everywhere).map_err(failed)?;
    let from = match (own, all) {
        (Some(_), _) => "this workspace's own",
        (None, Some(_)) => "that of every workspace",
        (None, None) => "the usual one; your file states none",
    };
    let path = here.places.policy.to_string_lossy().into_owned();
    if json {
        let rules: Vec<_> =
            policy.rules.iter().enumerate().map(|(number, rule)| object(number + 1, rule)).collect();
        let told = json!({
            "workspace": here.root,
            "file": path,
            "exists": here.places.policy.exists(),
            "preset": policy.preset.word(),
            "preset_of_workspace": own.map(|preset| preset.word()),
            "preset_of_all": all.map(|preset| preset.word()),
            "rules": rules,
        });
        return Ok(format!("{told}\n"));
    }
    let none = if here.places.policy.exists() { "" } else { " (not there yet)" };
    let mut text = format!(
        "workspace {}\nrules in  {}{none}\npreset    {}: {from}\n",
        safe(&here.root),
        safe(&path),
        look.paint(Ink::Head, policy.preset.word())
    );
    if policy.rules.is_empty() {
        text.push_str("\nno rules: `bowline policy allow`, `ask` and `deny` add some\n");
        return Ok(text);
    }
    text.push('\n');
    let digits = policy.rules.len().to_string().len();
    for (number, rule) in policy.rules.iter().enumerate() {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{:>digits$}  {}", number + 1, line(rule, look));
    }
    Ok(text)
}

/// Returns a rule on one line.
pub(super) fn line(rule: &Rule, look: Look) -> String {
    let spec = rule.spec();
    let ink = match spec.effect {
        Effect::Allow => Ink::Good,
        Effect::Ask => Ink::Mark,
        Effect::Deny => Ink::Bad,
    };
    let effect = look.paint(ink, spec.effect.word());
    let mut text = format!("{effect} {}: {}", spec.kinds, what(&spec.matcher));
    let mut more = vec![
        match &spec.lifetime {
            Lifetime::Project => "this workspace",
            // A file has no rules of other lifetimes.
            _ => "every workspace",
        }
        .to_owned(),
    ];
    if let Some(end) = spec.expires {
        more.push(if end <= now() { format!("ended {}", at(end)) } else { format!("until {}", at(end)) });
    }
    if let Some(note) = spec.note.as_ref().filter(|note| !note.is_empty()) {
        more.push(safe(note));
    }
    _ = write!(text, "  {}", look.paint(Ink::Faint, &format!("({})", more.join("; "))));
    text
}

/// Returns a rule that was just saved, where it holds, and how to take it out again.
pub(crate) fn describe_saved_rule(rule: &Rule) -> String {
    let spec = rule.spec();
    let holds = match &spec.lifetime {
        Lifetime::Project => "in this project",
        _ => "in every project",
    };
    let name = match &spec.matcher {
        Matcher::Everything => "*".to_owned(),
        Matcher::Path(text) | Matcher::Host(text) | Matcher::Variable(text) => text.clone(),
        Matcher::Command(words) => words.join(" "),
        Matcher::Exact(invocation) => display::invocation(invocation).into_owned(),
    };
    // A name that does not survive being shown and pasted is looked up instead.
    let named = Some(&name).filter(|name| name.len() <= MAX_PASTED && safe(name) == **name);
    let remove = match named.and_then(|name| shlex::try_quote(name).ok()) {
        Some(name) => format!("bowline policy forget {name}"),
        None => "find its number in `bowline policy show`, then `bowline policy forget NUMBER`".to_owned(),
    };
    format!(
        "rule saved {holds}: {} {}: {}\nto remove it: {remove}",
        spec.effect.word(),
        spec.kinds,
        what(&spec.matcher)
    )
}

/// A pattern that is no longer than this can be pasted into a command, in bytes.
const MAX_PASTED: usize = 200;

/// Returns what a rule speaks of.
fn what(matcher: &Matcher) -> String {
    match matcher {
        Matcher::Everything => "everything".to_owned(),
        Matcher::Path(pattern) => safe(pattern),
        Matcher::Host(host) => safe(host),
        Matcher::Variable(name) => format!("variable {}", safe(name)),
        Matcher::Command(words) => {
            format!("{} …", safe(&display::invocation(&Invocation::Argv(words.clone()))))
        }
        Matcher::Exact(invocation) => format!("exactly {}", safe(&display::invocation(invocation))),
    }
}

fn object(number: usize, rule: &Rule) -> serde_json::Value {
    let spec = rule.spec();
    let pattern = match &spec.matcher {
        Matcher::Everything => json!(true),
        Matcher::Path(text) | Matcher::Host(text) | Matcher::Variable(text) => json!(text),
        Matcher::Command(words) | Matcher::Exact(Invocation::Argv(words)) => json!(words),
        Matcher::Exact(Invocation::Shell(line)) => json!(line),
    };
    json!({
        "number": number,
        "effect": spec.effect.word(),
        "kinds": spec.kinds.iter().map(Kind::word).collect::<Vec<_>>(),
        spec.matcher.word(): pattern,
        "scope": if spec.lifetime == Lifetime::Project { "project" } else { "always" },
        "expires": spec.expires.map(iso8601),
        "note": spec.note,
    })
}

/// Adds a rule to the user's file.
///
/// # Errors
/// Says what is wrong with the rule, or why it cannot be kept.
pub(super) fn add(arguments: &RuleArguments, effect: Effect) -> Result<(), Ending> {
    let scope = arguments.scope.scope();
    let expires = arguments.expires.as_deref().map(|text| read(text, now(), 1)).transpose()?;
    if expires.is_some_and(|end| end <= now()) {
        return Err(Ending::Usage("--expires is in the past: the rule would never hold".to_owned()));
    }
    let rule = Rule::new(RuleSpec {
        effect,
        kinds: arguments.kinds,
        matcher: matcher(arguments)?,
        lifetime: if scope == Scope::Workspace { Lifetime::Project } else { Lifetime::Always },
        expires,
        source: Source::Flag,
        note: arguments.note.clone(),
    });
    let rule = rule.map_err(|fault| Ending::Usage(fault.to_string()))?;
    let (here, file) = open(&arguments.place, scope)?;
    if let Some(directory) = useless_directory(rule.spec(), &here.root) {
        let directory = safe(&display::invocation(&Invocation::Argv(vec![format!("{directory}:ro")])));
        return Err(Ending::Usage(format!(
            "the rule would have no effect: agents read nothing outside of {}, whatever rules say; to let one read there, start it with --add-dir {directory}",
            safe(&here.root),
        )));
    }
    file.remember(&rule, scope).map_err(failed)?;
    let rules = file.rules().map_err(failed)?;
    let same = |known: &&Rule| {
        let (known, rule) = (known.spec(), rule.spec());
        (known.effect, known.kinds, &known.matcher, &known.lifetime, known.expires)
            == (rule.effect, rule.kinds, &rule.matcher, &rule.lifetime, rule.expires)
    };
    let number =
        rules.iter().position(|known| same(&known)).map_or_else(String::new, |at| format!("{}  ", at + 1));
    print(&format!("{number}{}\nholds for {}\n", line(&rule, Look::of_stdout()), holder(&here, scope)))
}

/// Returns the directory of a rule that would let files be read outside of the workspace: rules cannot open what is not offered,
/// and what is offered is read without them.
fn useless_directory(rule: &RuleSpec, root: &str) -> Option<String> {
    let Matcher::Path(pattern) = &rule.matcher else { return None };
    let is_about = rule.effect == Effect::Allow
        && rule.kinds == Kinds::from(Kind::Read)
        && rule.lifetime == Lifetime::Project;
    let literal = pattern.split(['*', '?', '[', '{']).next().unwrap_or_default();
    let parent = match literal.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
        None => "",
    };
    let directory = LexicalPath::parse(Path::new(root).join(parent)).ok()?;
    let is_inside = Path::new(directory.as_str()).starts_with(root);
    (is_about && !is_inside).then(|| directory.as_str().to_owned())
}

/// Returns what a command line says that a rule speaks of.
fn matcher(arguments: &RuleArguments) -> Result<Matcher, Ending> {
    let kinds = arguments.kinds;
    let single = |what: &str| match arguments.pattern.as_slice() {
        [pattern] => Ok(pattern.clone()),
        _ => Err(Ending::Usage(format!(
            "there are {} patterns, a rule has one: write {what} in quotes, one rule each",
            arguments.pattern.len()
        ))),
    };
    let is_for = |kind| kinds.contains(kind);
    if let Some(name) = &arguments.env {
        // Other kinds are refused with the rule.
        return Ok(Matcher::Variable(name.clone()));
    }
    if kinds == Kinds::from(Kind::Execute) {
        let words = match arguments.pattern.as_slice() {
            [all] if all == "*" => return Ok(Matcher::Everything),
            [line] if arguments.exact => {
                let exact = terminal::invocation(line, &[]).map_err(|why| Ending::Usage(why.to_string()))?;
                return Ok(Matcher::Exact(exact));
            }
            [line] if line.trim().is_empty() => {
                return Err(Ending::Usage("the command is empty: write its first words".to_owned()));
            }
            [line] => plain_words(line).ok_or_else(|| {
                Ending::Usage(format!(
                    "{} is more than the words of one command: name each command in a rule of its own, or use --exact",
                    safe(line)
                ))
            })?,
            words => words.to_vec(),
        };
        return Ok(if arguments.exact {
            Matcher::Exact(Invocation::Argv(words))
        } else {
            Matcher::Command(words)
        });
    }
    if arguments.exact {
        return Err(Ending::Usage("--exact is for execute alone".to_owned()));
    }
    if kinds == Kinds::from(Kind::Fetch) {
        return Ok(Matcher::Host(single("a host")?));
    }
    if is_for(Kind::Execute) || is_for(Kind::Fetch) {
        return Err(Ending::Usage(
            "files, commands and hosts have patterns of their own: make a rule for each".to_owned(),
        ));
    }
    Ok(Matcher::Path(single("a glob")?))
}

/// Takes a rule out of the user's file, by its number or its pattern.
///
/// # Errors
/// Says that there is no such rule, or more than one, or why it cannot be taken out.
pub(super) fn forget(named: &str, place: &Where) -> Result<(), Ending> {
    let (_, file) = open(place, Scope::Workspace)?;
    let rules = file.rules().map_err(failed)?;
    let by_number = named.parse::<usize>().ok().and_then(|number| rules.get(number.checked_sub(1)?));
    let fitting: Vec<&Rule> = match by_number {
        Some(rule) => vec![rule],
        None => rules.iter().filter(|rule| is_named(&rule.spec().matcher, named)).collect(),
    };
    let [rule] = fitting.as_slice() else {
        return Err(match fitting.len() {
            0 => failed(anyhow::anyhow!(
                "there is no rule {} here, there are {}: `bowline policy show` lists them",
                safe(named),
                count(rules.len(), "rule", "rules")
            )),
            number => Ending::Usage(format!(
                "{number} rules are for {}: name one by its number in `bowline policy show`",
                safe(named)
            )),
        });
    };
    let scope = if rule.spec().lifetime == Lifetime::Project { Scope::Workspace } else { Scope::Everywhere };
    if !file.forget(rule, scope).map_err(failed)? {
        return Err(failed(anyhow::anyhow!("somebody else took the rule out already")));
    }
    print(&format!("forgotten: {}\n", line(rule, Look::of_stdout())))
}

fn is_named(matcher: &Matcher, named: &str) -> bool {
    match matcher {
        Matcher::Everything => named == "*",
        Matcher::Path(text) | Matcher::Host(text) | Matcher::Variable(text) => text == named,
        Matcher::Command(words) => words.join(" ") == named || plain_words(named).as_ref() == Some(words),
        Matcher::Exact(invocation) => display::invocation(invocation) == named,
    }
}
