//! `bowline policy`: what agents may do here, and why.

mod explain;
pub(crate) mod hint;
mod rules;

use std::path::{Path, PathBuf};

use bowline_access::policy::{PolicyError, PolicyFile, RuleScope};
use bowline_policy::operation::OperationKind;
use bowline_policy::policy::{Effect, OperationKinds, Preset, Rule};
use clap::{Args, Subcommand, ValueEnum};

use crate::changes::WorkspaceArguments;
use bowline_client::common::console::{OutputStyle, escape_line, print};
use bowline_client::common::workspace_location::{WorkspaceLocation, WorkspaceMarker};
use bowline_client::error::{CliError, failed};

/// What is asked for: the rules are shown if nothing else is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    command: Option<PolicyCommand>,
    #[command(flatten)]
    show_arguments: PolicyShowArguments,
}

/// How the rules are shown.
#[derive(Args, Debug)]
struct PolicyShowArguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

const EXAMPLES: &str = "\
Without a command, the rules are shown.

Exit status: 0 success, 1 failure, 2 wrong usage.

Examples:
  bowline policy
  bowline policy explain execute 'cargo test && git push'
  bowline policy allow execute \"cargo test\"";

const SHOW_EXAMPLES: &str = "\
If several rules match, the strictest decides: deny before ask before allow. If none matches, the \
preset decides:
  ask           allow reads, ask about everything else
  accept-edits  allow reads and writes, ask about everything else
  read-only     allow reads, deny everything else
  full          allow everything, but ask about secrets and variables that run code unless a rule
                names them
  deny          deny everything
A session's mode and the options of `bowline run` can be stricter for that session. --approve \
replaces the preset, except read-only and deny: these apply to every session until you change them.

Examples:
  bowline policy show
  bowline policy show --json";

const EXPLAIN_EXAMPLES: &str = "\
Nothing is executed and no question is asked. A command given as one word is parsed as a shell \
command line; several words are a program and its arguments, as agents send them. Put -- before a \
command that has options.

Examples:
  bowline policy explain write src/main.rs
  bowline policy explain read .env
  bowline policy explain execute 'cargo test && git push'
  bowline policy explain execute -- git push origin
  bowline policy explain execute 'node x.js' --env NODE_OPTIONS=--inspect
  bowline policy explain fetch https://example.org/";

const RULE_EXAMPLES: &str = "\
The rule is added to your own file, for this workspace or for all. Agents cannot write that file, \
and rules are never read from files in a workspace.

KIND is read, write, delete, execute or fetch, or several separated by commas. PATTERN is
  for read, write, delete   a glob, absolute or relative to the workspace: src/**, **/*.pem,
                            /etc/hosts
  for execute               the first words of a command: \"cargo test\"; with --exact, the whole
                            command
  for fetch                 a host: example.org, *.example.org, or * for all
A rule for a command does not cover variables that the agent sets to make programs run other code. \
A rule with --env covers such a variable, for any command.

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
  bowline policy forget \"cargo test\"   by its pattern, if only one rule has it";

const PRESET_EXAMPLES: &str = "\
Examples:
  bowline policy preset accept-edits           for this workspace
  bowline policy preset read-only --always     for every workspace without its own preset
  bowline policy preset none                   remove this workspace's own preset";

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// Show the rules and the preset in force here, and their sources
    ///
    /// This is what `bowline policy` alone does.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(PolicyShowArguments),
    /// Show how a request of an agent would be decided, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain {
        /// The kind of operation
        #[arg(value_enum)]
        kind: KindArgument,
        /// A file, a command or a URL
        #[arg(required = true, value_name = "WHAT")]
        what: Vec<String>,
        /// For execute: a variable that the agent sets for the command
        ///
        /// Can be repeated.
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
        env: Vec<(String, String)>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Allow an operation without asking
    #[command(after_help = RULE_EXAMPLES)]
    Allow(RuleArguments),
    /// Ask before an operation
    #[command(after_help = RULE_EXAMPLES)]
    Ask(RuleArguments),
    /// Deny an operation
    #[command(after_help = RULE_EXAMPLES)]
    Deny(RuleArguments),
    /// Remove a rule from your file
    #[command(after_help = FORGET_EXAMPLES)]
    Forget {
        /// The number or the pattern of the rule
        #[arg(value_name = "N|PATTERN")]
        rule: String,
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
    /// Set the preset, which applies where no rule matches
    #[command(after_help = PRESET_EXAMPLES)]
    Preset {
        /// ask, accept-edits, read-only, full or deny; `none` removes the preset
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        scope: ScopeArguments,
        #[command(flatten)]
        workspace: WorkspaceArguments,
    },
}

/// A rule to add.
#[derive(Args, Debug)]
struct RuleArguments {
    /// read, write, delete, execute or fetch, or several separated by commas
    #[arg(value_name = "KIND", value_parser = parse_kinds)]
    kinds: OperationKinds,
    /// The files, commands or hosts
    #[arg(required_unless_present = "env", value_name = "PATTERN")]
    pattern: Vec<String>,
    /// For execute: match a variable that the agent sets, instead of a pattern
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pattern", "exact"])]
    env: Option<String>,
    /// For execute: match exactly this command, not all that begin with it
    #[arg(long)]
    exact: bool,
    /// When the rule expires: a date such as 2027-01-31, or a span such as 7d
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// A note to keep with the rule
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    scope: ScopeArguments,
    #[command(flatten)]
    workspace: WorkspaceArguments,
}

/// Where something holds.
#[derive(Args, Debug)]
struct ScopeArguments {
    /// Apply to this workspace (the default)
    #[arg(long, conflicts_with = "always")]
    project: bool,
    /// Apply to every workspace
    #[arg(long)]
    always: bool,
}

impl ScopeArguments {
    fn scope(&self) -> RuleScope {
        if self.always { RuleScope::Global } else { RuleScope::Workspace }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArgument {
    /// Read a file or list a directory
    Read,
    /// Create or change a file
    Write,
    /// Delete a file
    Delete,
    /// Run a command
    Execute,
    /// Fetch from the network
    Fetch,
}

/// Parses a variable with its value.
fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write the variable as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a comma-separated list of kinds.
fn parse_kinds(text: &str) -> Result<OperationKinds, String> {
    let kind = |word: &str| {
        let known = OperationKind::ALL.into_iter().find(|kind| kind.as_str() == word.trim());
        known.ok_or_else(|| format!("{word:?} is not one of read, write, delete, execute, fetch"))
    };
    text.split(',').map(kind).collect()
}

/// Runs the command.
pub(crate) fn run(arguments: PolicyArguments) -> Result<(), CliError> {
    match arguments.command.unwrap_or(PolicyCommand::Show(arguments.show_arguments)) {
        PolicyCommand::Show(PolicyShowArguments { json, workspace }) => {
            let (location, file) = open_policy(&workspace, RuleScope::Workspace)?;
            print(&rules::format_rules(&file, &location, json, OutputStyle::for_stdout())?)
        }
        PolicyCommand::Explain { kind, what, env, json, workspace } => {
            explain::run(kind, &what, env, json, &workspace)
        }
        PolicyCommand::Allow(arguments) => rules::add_rule(&arguments, Effect::Allow),
        PolicyCommand::Ask(arguments) => rules::add_rule(&arguments, Effect::Ask),
        PolicyCommand::Deny(arguments) => rules::add_rule(&arguments, Effect::Deny),
        PolicyCommand::Forget { rule, workspace } => rules::forget_rule(&rule, &workspace),
        PolicyCommand::Preset { name, scope, workspace } => set_preset(&name, scope.scope(), &workspace),
    }
}

fn set_preset(name: &str, scope: RuleScope, workspace: &WorkspaceArguments) -> Result<(), CliError> {
    let preset = match name {
        "none" => None,
        name => Some(name.parse::<Preset>().map_err(|error| CliError::Usage(format!("{error}, none")))?),
    };
    let (location, file) = open_policy(workspace, scope)?;
    let changed = file.set_preset(preset, scope).map_err(failed)?;
    let description =
        preset.map_or_else(|| "no own preset".to_owned(), |preset| format!("the preset {preset}"));
    let verb = if changed { "has" } else { "already has" };
    print(&format!("{} {verb} {description}\n", describe_scope(&location, scope)))
}

/// Describes the scope of a rule or preset.
fn describe_scope(location: &WorkspaceLocation, scope: RuleScope) -> String {
    match scope {
        RuleScope::Workspace => format!("the workspace {}", escape_line(&location.root)),
        RuleScope::Global => "every workspace".to_owned(),
    }
}

/// Opens the user's rules, as they apply to the selected workspace.
fn open_policy(
    workspace: &WorkspaceArguments,
    scope: RuleScope,
) -> Result<(WorkspaceLocation, PolicyFile), CliError> {
    let location = WorkspaceLocation::find(workspace.cwd.as_deref(), WorkspaceMarker::Directory)?;
    let path = location.dirs.policy.clone();
    // Global settings can be changed from anywhere, even from the directory of the rules, which cannot be a workspace.
    let root = match scope {
        RuleScope::Global if path.starts_with(&location.root) => path.join("no workspace"),
        RuleScope::Global | RuleScope::Workspace => PathBuf::from(&location.root),
    };
    let file = PolicyFile::open(Path::new(&path), &[root]).map_err(|error| match error {
        PolicyError::InsideWorkspace { root, .. } => failed(anyhow::anyhow!(
            "no agent can work in {}, because your rules lie in it: name a project with --cwd",
            escape_line(&root)
        )),
        other => failed(other),
    })?;
    Ok((location, file))
}

/// Returns the rules in force in the current directory, in the order of their numbers.
pub(crate) fn list_rules() -> Result<Vec<Rule>, CliError> {
    let location = WorkspaceLocation::of_directory(None)?;
    let file = PolicyFile::open(&location.dirs.policy, &[PathBuf::from(&location.root)]).map_err(failed)?;
    Ok(file.policy().map_err(failed)?.rules.clone())
}
