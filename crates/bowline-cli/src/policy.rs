//! `bowline policy`: what agents may do here, and why.

mod explaining;
pub(crate) mod hint;
mod rules;

use std::path::{Path, PathBuf};

use bowline_state::operation::Kind;
use bowline_state::policy::{Effect, Kinds, Preset};
use bowline_workspace::policy::{PolicyError, PolicyFile, Scope};
use clap::{Args, Subcommand, ValueEnum};

use crate::changes::Where;
use crate::ending::Ending;
use crate::records::here::{Here, Sign};
use crate::records::showing::{Look, print, safe};

pub(crate) use rules::describe_saved_rule;

/// What is asked for: the rules are shown if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: ShowArguments,
}

/// How the rules are shown.
#[derive(Args, Debug)]
struct ShowArguments {
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Without a command, the rules are shown.

Exit status: 0 done, 1 failed, 2 wrong usage.

Examples:
  bowline policy
  bowline policy explain execute 'cargo test && git push'
  bowline policy allow execute \"cargo test\"";

const SHOW_EXAMPLES: &str = "\
Of all rules that match, the strongest decides: deny before ask before allow. Where none matches, the preset holds:
  ask           reads are allowed, all else is asked about
  accept-edits  reads and writes are allowed, all else is asked about
  read-only     reads are allowed, all else is refused
  full          everything is allowed; secrets and variables that run code are still asked about, unless a rule names them
  deny          everything is refused
The mode of a session and the options of `bowline run` may be stricter for that session. --approve holds in place of the
preset, but for read-only and deny: these hold for every session until you change them.

Examples:
  bowline policy show
  bowline policy show --json";

const EXPLAIN_EXAMPLES: &str = "\
Nothing is done and nobody is asked. A command of one word is read as a line for a shell, one of several words is a program
with its arguments, as agents send them. Put -- before a command that has options.

Examples:
  bowline policy explain write src/main.rs
  bowline policy explain read .env
  bowline policy explain execute 'cargo test && git push'
  bowline policy explain execute -- git push origin
  bowline policy explain execute 'node x.js' --env NODE_OPTIONS=--inspect
  bowline policy explain fetch https://example.org/";

const RULE_EXAMPLES: &str = "\
The rule goes into your own file, for this workspace or for all. No agent can write that file, and nothing that lies in a
workspace is ever read as a rule.

KIND is read, write, delete, execute or fetch, or several with commas between them. PATTERN is
  for read, write, delete   a glob for files, absolute or from the workspace: src/**, **/*.pem, /etc/hosts
  for execute               the first words of a command: \"cargo test\"; with --exact that command and no other
  for fetch                 a host: example.org, *.example.org, or * for all
A rule for a command says nothing of variables that the agent sets for it and that make programs run other code. With
--env a rule speaks of such a variable, whatever the command is.

Examples:
  bowline policy allow execute \"cargo test\"
  bowline policy allow write,delete 'target/**'
  bowline policy deny read '**/*.pem' --always
  bowline policy ask execute \"git push\" --note \"releases are made by hand\"
  bowline policy allow fetch docs.rs --expires 7d
  bowline policy allow execute --env NODE_OPTIONS";

const FORGET_EXAMPLES: &str = "\
Examples:
  bowline policy forget 3              by its number in `bowline policy show`
  bowline policy forget \"cargo test\"   by its pattern, if one rule has it";

const PRESET_EXAMPLES: &str = "\
Examples:
  bowline policy preset accept-edits           for this workspace
  bowline policy preset read-only --always     for every workspace that has none of its own
  bowline policy preset none                   takes this workspace's own away";

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows the rules in force here, the preset, and where they are from, as `bowline policy` alone does
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// Says what would happen with something that an agent wants, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        /// What would be done
        #[arg(value_enum)]
        kind: KindArgument,
        /// A file, a command or an address
        #[arg(required = true, value_name = "WHAT")]
        what: Vec<String>,
        /// For execute: a variable that the agent sets for the command; may be given several times
        #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        /// Prints one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Lets agents do something without a question
    #[command(after_help = RULE_EXAMPLES)]
    Allow(RuleArguments),
    /// Has you asked before agents do something
    #[command(after_help = RULE_EXAMPLES)]
    Ask(RuleArguments),
    /// Refuses something to agents
    #[command(after_help = RULE_EXAMPLES)]
    Deny(RuleArguments),
    /// Takes a rule out of your file
    #[command(after_help = FORGET_EXAMPLES)]
    Forget {
        /// The rule's number, or its pattern
        #[arg(value_name = "N|PATTERN")]
        rule: String,
        #[command(flatten)]
        place: Where,
    },
    /// Sets what holds where no rule matches
    #[command(after_help = PRESET_EXAMPLES)]
    Preset {
        /// ask, accept-edits, read-only, full or deny; `none` for no own
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        scope: ScopeArguments,
        #[command(flatten)]
        place: Where,
    },
}

/// A rule to add.
#[derive(Args, Debug)]
struct RuleArguments {
    /// read, write, delete, execute or fetch; several with commas between them
    #[arg(value_name = "KIND", value_parser = kinds)]
    kinds: Kinds,
    /// Which files, commands or hosts
    #[arg(required_unless_present = "env", value_name = "PATTERN")]
    pattern: Vec<String>,
    /// For execute: a variable that the agent sets for a command, in place of a pattern
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pattern", "exact"])]
    env: Option<String>,
    /// For execute: this command and no other, in place of all that begin so
    #[arg(long)]
    exact: bool,
    /// When the rule ends: a date such as 2027-01-31, or a span such as 7d
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// What you want to remember of it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    scope: ScopeArguments,
    #[command(flatten)]
    place: Where,
}

/// Where something holds.
#[derive(Args, Debug)]
struct ScopeArguments {
    /// For this workspace; this is so if nothing is said
    #[arg(long, conflicts_with = "always")]
    project: bool,
    /// For every workspace
    #[arg(long)]
    always: bool,
}

impl ScopeArguments {
    fn scope(&self) -> Scope {
        if self.always { Scope::Everywhere } else { Scope::Workspace }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArgument {
    /// Reading a file, or listing a directory
    Read,
    /// Creating or changing a file
    Write,
    /// Removing a file
    Delete,
    /// Running a command
    Execute,
    /// Fetching something from the network
    Fetch,
}

/// Reads a variable with its value.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write the variable as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads some kinds, with commas between them.
fn kinds(text: &str) -> Result<Kinds, String> {
    let kind = |word: &str| {
        let known = Kind::ALL.into_iter().find(|kind| kind.word() == word.trim());
        known.ok_or_else(|| format!("{word:?} is not one of read, write, delete, execute, fetch"))
    };
    text.split(',').map(kind).collect()
}

/// Does it.
pub(crate) fn run(arguments: PolicyArguments) -> Result<(), Ending> {
    match arguments.command.unwrap_or(Command::Show(arguments.show)) {
        Command::Show(ShowArguments { json, place }) => {
            let (here, file) = open(&place, Scope::Workspace)?;
            print(&rules::shown(&file, &here, json, Look::of_stdout())?)
        }
        Command::Explain { kind, what, env, json, place } => explaining::run(kind, &what, env, json, &place),
        Command::Allow(arguments) => rules::add(&arguments, Effect::Allow),
        Command::Ask(arguments) => rules::add(&arguments, Effect::Ask),
        Command::Deny(arguments) => rules::add(&arguments, Effect::Deny),
        Command::Forget { rule, place } => rules::forget(&rule, &place),
        Command::Preset { name, scope, place } => preset(&name, scope.scope(), &place),
    }
}

fn preset(name: &str, scope: Scope, place: &Where) -> Result<(), Ending> {
    let preset = match name {
        "none" => None,
        name => Some(name.parse::<Preset>().map_err(|error| Ending::Usage(format!("{error}, none")))?),
    };
    let (here, file) = open(place, scope)?;
    let changed = file.state_preset(preset, scope).map_err(failed)?;
    let what = preset.map_or_else(|| "no own preset".to_owned(), |preset| format!("the preset {preset}"));
    let now = if changed { "has" } else { "already has" };
    print(&format!("{} {now} {what}\n", holder(&here, scope)))
}

/// Returns for whom something holds, in words.
fn holder(here: &Here, scope: Scope) -> String {
    match scope {
        Scope::Workspace => format!("the workspace {}", safe(&here.root)),
        Scope::Everywhere => "every workspace".to_owned(),
    }
}

/// Opens the user's rules, as they hold for the workspace that is meant.
fn open(place: &Where, scope: Scope) -> Result<(Here, PolicyFile), Ending> {
    let here = Here::find(place.cwd.as_deref(), Sign::Itself)?;
    let path = here.places.policy.clone();
    // What holds everywhere can be said anywhere, also in a directory that cannot be a workspace because the rules are in it.
    let root = match scope {
        Scope::Everywhere if path.starts_with(&here.root) => path.join("no workspace"),
        Scope::Everywhere | Scope::Workspace => PathBuf::from(&here.root),
    };
    let file = PolicyFile::open(Path::new(&path), &[root]).map_err(|error| match error {
        PolicyError::InsideWorkspace { root, .. } => failed(anyhow::anyhow!(
            "no agent can work in {}, because your rules lie in it: name a project with --cwd",
            safe(&root)
        )),
        other => failed(other),
    })?;
    Ok((here, file))
}

fn failed(error: impl Into<anyhow::Error>) -> Ending {
    Ending::Failed(error.into())
}
