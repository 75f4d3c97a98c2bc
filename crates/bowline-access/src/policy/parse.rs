//! The strict parser of policy files: anything unknown is an error with its position.

use std::ops::Range;

use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::policy::{
    Effect, MAX_RULES, OperationKinds, Policy, Preset, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec,
    shell,
};
use bowline_protocol::terminal::Invocation;
use bowline_text::time::Timestamp;
use chrono::NaiveDate;
use indexmap::IndexMap;
use toml_edit::{Datetime, Document, Item, Offset, Table, Value};

use super::PolicyError;

/// The content of a file: the global layer, and one layer per workspace.
#[derive(Debug, Default)]
pub(super) struct PolicyLayers {
    global: PolicyLayer,
    workspaces: IndexMap<String, PolicyLayer>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct PolicyLayer {
    preset: Option<Preset>,
    rules: Vec<Rule>,
}

/// A syntax error and its position.
struct SyntaxError {
    at: Option<Range<usize>>,
    why: String,
}

fn syntax_error<T>(at: Option<Range<usize>>, why: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError { at, why: why.into() })
}

impl PolicyLayers {
    pub(super) fn parse(text: &str, path: &str) -> Result<Self, PolicyError> {
        let syntax = |fault: SyntaxError| {
            let at = fault.at.map_or(0, |span| span.start);
            let (line, column) = line_and_column(text, at);
            PolicyError::Syntax { path: path.to_owned(), line, column, why: fault.why }
        };
        let document = Document::parse(text).map_err(|error| {
            syntax(SyntaxError { at: error.span(), why: error.message().replace('\n', ", ") })
        })?;
        let layers = PolicyReader { path }.read_file(document.as_table()).map_err(syntax)?;
        if layers.rule_count() > MAX_RULES {
            return Err(PolicyError::TooManyRules(path.to_owned()));
        }
        Ok(layers)
    }

    /// Returns the policy of a workspace, whose own directory is the first root.
    pub(super) fn policy(&self, roots: &[String]) -> Policy {
        let own = roots.first().and_then(|root| self.workspaces.get(root));
        let preset = self.stated_preset(roots).unwrap_or_default();
        let own = own.map_or(&[][..], |layer| &layer.rules);
        // Messages to the user refer to a rule by this number.
        let rules = self.global.rules.iter().chain(own).cloned().zip(1..);
        let rules = rules.map(|(rule, number)| rule.with_number(number)).collect();
        Policy { preset, rules, roots: roots.to_vec(), ..Policy::default() }
    }

    /// Returns the preset stated for a workspace: its own, or else the global one.
    pub(super) fn stated_preset(&self, roots: &[String]) -> Option<Preset> {
        let own = roots.first().and_then(|root| self.preset(Some(root)));
        own.or(self.global.preset)
    }

    /// Returns the rules of one workspace alone, or the global ones.
    pub(super) fn rules(&self, workspace: Option<&str>) -> &[Rule] {
        match workspace {
            None => &self.global.rules,
            Some(root) => self.workspaces.get(root).map_or(&[], |layer| &layer.rules),
        }
    }

    pub(super) fn rule_count(&self) -> usize {
        self.global.rules.len() + self.workspaces.values().map(|layer| layer.rules.len()).sum::<usize>()
    }

    /// Returns whether two files are equal apart from the rules of one layer.
    pub(super) fn differs_only_in_rules(&self, other: &Self, workspace: Option<&str>) -> bool {
        let names = self.workspaces.keys().chain(other.workspaces.keys()).map(|name| Some(name.as_str()));
        names.chain([None]).all(|name| {
            self.preset(name) == other.preset(name)
                && (name == workspace || self.rules(name) == other.rules(name))
        })
    }

    /// Returns whether two files are equal apart from the preset of one layer.
    pub(super) fn differs_only_in_preset(&self, other: &Self, workspace: Option<&str>) -> bool {
        let names = self.workspaces.keys().chain(other.workspaces.keys()).map(|name| Some(name.as_str()));
        names.chain([None]).all(|name| {
            (name == workspace || self.preset(name) == other.preset(name))
                && self.rules(name) == other.rules(name)
        })
    }

    pub(super) fn preset(&self, workspace: Option<&str>) -> Option<Preset> {
        match workspace {
            None => self.global.preset,
            Some(root) => self.workspaces.get(root).and_then(|layer| layer.preset),
        }
    }
}

struct PolicyReader<'p> {
    path: &'p str,
}

impl PolicyReader<'_> {
    fn read_file(&self, table: &Table) -> Result<PolicyLayers, SyntaxError> {
        let mut layers = PolicyLayers { global: self.read_layer(table, None)?, ..PolicyLayers::default() };
        let Some(workspaces) = table.get("workspaces") else { return Ok(layers) };
        let Some(workspaces) = workspaces.as_table() else {
            return syntax_error(
                workspaces.span(),
                "write [workspaces.\"/the/directory\"] on a line of its own",
            );
        };
        for (name, item) in workspaces {
            let at = workspaces.key(name).and_then(toml_edit::Key::span);
            if LexicalPath::parse(name).map_or(true, |path| path.as_str() != name) {
                let why = format!(
                    "{name:?} is not the name of a directory: write an absolute path, with no / at its end"
                );
                return syntax_error(at, why);
            }
            let Some(table) = item.as_table() else {
                return syntax_error(at, format!("write [workspaces.{name:?}] on a line of its own"));
            };
            layers.workspaces.insert(name.to_owned(), self.read_layer(table, Some(name))?);
        }
        Ok(layers)
    }

    fn read_layer(&self, table: &Table, workspace: Option<&str>) -> Result<PolicyLayer, SyntaxError> {
        let mut layer = PolicyLayer::default();
        for (key, item) in table {
            match key {
                "preset" => {
                    let parsed = read_text(item, "preset")?.parse::<Preset>();
                    layer.preset =
                        Some(parsed.or_else(|error| syntax_error(item.span(), error.to_string()))?);
                }
                "rules" => layer.rules = self.read_rules(item, workspace)?,
                "workspaces" if workspace.is_none() => {}
                _ => {
                    let known =
                        if workspace.is_none() { "preset, rules, workspaces" } else { "preset, rules" };
                    return unknown_key(table, key, known);
                }
            }
        }
        Ok(layer)
    }

    fn read_rules(&self, item: &Item, workspace: Option<&str>) -> Result<Vec<Rule>, SyntaxError> {
        let Some(tables) = item.as_array_of_tables() else {
            return syntax_error(item.span(), "write each rule on lines of its own, after [[rules]]");
        };
        let number = |at| RuleSource::File {
            path: self.path.to_owned(),
            workspace: workspace.map(ToOwned::to_owned),
            number: at + 1,
        };
        tables
            .iter()
            .enumerate()
            .map(|(at, table)| read_rule(table, number(at), workspace.is_some()))
            .collect()
    }
}

fn read_rule(table: &Table, source: RuleSource, is_project: bool) -> Result<Rule, SyntaxError> {
    let at = || table.span();
    let mut effect = None;
    let mut kinds = None;
    let mut matcher = None;
    let mut expires = None;
    let mut note = None;
    for (key, item) in table {
        let mut matches = |found: RuleMatcher| match matcher.replace(found) {
            None => Ok(()),
            Some(_) => syntax_error(
                item.span(),
                "a rule has one of path, command, exact, host, variable, everything: make it two rules",
            ),
        };
        match key {
            "effect" => {
                let parsed = read_text(item, key)?.parse::<Effect>();
                effect = Some(parsed.or_else(|error| syntax_error(item.span(), error.to_string()))?);
            }
            "kinds" => kinds = Some(read_kinds(item)?),
            "path" => matches(RuleMatcher::Path(read_text(item, key)?.to_owned()))?,
            "host" => matches(RuleMatcher::Host(read_text(item, key)?.to_owned()))?,
            "variable" => matches(RuleMatcher::Variable(read_text(item, key)?.to_owned()))?,
            "command" => matches(RuleMatcher::Command(read_command(item)?))?,
            "exact" => matches(RuleMatcher::Exact(match item.as_str() {
                Some(line) => Invocation::Shell(line.to_owned()),
                None => Invocation::Argv(read_words(item, "exact")?),
            }))?,
            "everything" if item.as_bool() == Some(true) => matches(RuleMatcher::Everything)?,
            "everything" => return syntax_error(item.span(), "write everything = true, or leave it out"),
            "expires" => expires = Some(read_expiry(item)?),
            "note" => note = Some(read_text(item, key)?.to_owned()),
            _ => {
                return unknown_key(
                    table,
                    key,
                    "effect, kinds, path, command, exact, host, variable, everything, expires, note",
                );
            }
        }
    }
    let Some(effect) = effect else {
        return syntax_error(at(), "the rule has no effect: add effect = \"deny\", \"ask\" or \"allow\"");
    };
    let Some(matcher) = matcher else {
        return syntax_error(
            at(),
            "the rule speaks of nothing: add one of path, command, exact, host, variable, everything",
        );
    };
    let kinds = match (kinds, &matcher) {
        (Some(kinds), _) => kinds,
        (None, RuleMatcher::Path(_) | RuleMatcher::Everything) => {
            return syntax_error(
                at(),
                "the rule has no kinds: add kinds = [\"write\"], or others of read, write, delete, execute, fetch",
            );
        }
        (None, matcher) => matcher.kinds(),
    };
    let lifetime = if is_project { RuleLifetime::Project } else { RuleLifetime::Always };
    let spec = RuleSpec { effect, kinds, matcher, lifetime, expires, source, note };
    Rule::new(spec).or_else(|error| syntax_error(at(), error.to_string()))
}

fn unknown_key<T>(table: &Table, key: &str, known: &str) -> Result<T, SyntaxError> {
    syntax_error(
        table.key(key).and_then(toml_edit::Key::span),
        format!("{key:?} is not known here, only {known} are"),
    )
}

fn read_text<'i>(item: &'i Item, key: &str) -> Result<&'i str, SyntaxError> {
    item.as_str().map_or_else(|| syntax_error(item.span(), format!("{key} is a text: put it in quotes")), Ok)
}

fn read_words(item: &Item, key: &str) -> Result<Vec<String>, SyntaxError> {
    let Some(array) = item.as_array() else {
        return syntax_error(item.span(), format!("{key} is a text or a list of texts"));
    };
    let word = |value: &Value| match value.as_str() {
        Some(word) => Ok(word.to_owned()),
        None => syntax_error(value.span(), format!("{key} is a list of texts: put each in quotes")),
    };
    array.iter().map(word).collect()
}

fn read_kinds(item: &Item) -> Result<OperationKinds, SyntaxError> {
    let words = match item.as_str() {
        Some(word) => vec![word.to_owned()],
        None => read_words(item, "kinds")?,
    };
    let kind = |word: &String| match OperationKind::ALL.into_iter().find(|kind| kind.as_str() == word) {
        Some(kind) => Ok(kind),
        None => {
            syntax_error(item.span(), format!("{word:?} is not one of read, write, delete, execute, fetch"))
        }
    };
    words.iter().map(kind).collect()
}

/// Splits a command into words as a shell would, if it consists of nothing else.
fn read_command(item: &Item) -> Result<Vec<String>, SyntaxError> {
    let Some(line) = item.as_str() else { return read_words(item, "command") };
    parse_plain_words(line).map_or_else(
        || {
            syntax_error(
                item.span(),
                "command is plain words, as in a shell: quote the others, or write a list of words",
            )
        },
        Ok,
    )
}

/// Splits a line into words as a shell would, or returns `None` if it has anything but words.
#[must_use]
pub fn parse_plain_words(line: &str) -> Option<Vec<String>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let only = commands.pop().filter(|_| commands.is_empty())?;
    let is_plain = only.assignments.is_empty()
        && only.redirections.is_empty()
        && only.text.trim() == line.trim()
        && only.words.iter().all(|word| word.is_literal);
    is_plain.then(|| only.words.into_iter().map(|word| word.text).collect())
}

fn read_expiry(item: &Item) -> Result<Timestamp, SyntaxError> {
    let found = item.as_datetime().and_then(datetime_to_timestamp);
    found.map_or_else(
        || syntax_error(item.span(), "expires is a date with time and zone, such as 2027-01-01T00:00:00Z"),
        Ok,
    )
}

/// Parses a date as users write it: `2027-01-01`, which means midnight, or with time and zone, `2027-01-01T12:00:00Z`.
/// Without a zone, it is UTC.
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let mut datetime: Datetime = text.parse().ok()?;
    let midnight = toml_edit::Time { hour: 0, minute: 0, second: None, nanosecond: None };
    datetime.date?;
    datetime.time.get_or_insert(midnight);
    datetime.offset.get_or_insert(Offset::Z);
    datetime_to_timestamp(&datetime)
}

fn datetime_to_timestamp(datetime: &Datetime) -> Option<Timestamp> {
    let (date, time) = (datetime.date?, datetime.time?);
    let offset = match datetime.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let date = NaiveDate::from_ymd_opt(date.year.into(), date.month.into(), date.day.into())?;
    let utc = date.and_hms_opt(time.hour.into(), time.minute.into(), 0)?.and_utc();
    let seconds = utc.timestamp() - offset * 60 + i64::from(time.second.unwrap_or(0));
    Some(Timestamp(seconds * 1000 + i64::from(time.nanosecond.unwrap_or(0) / 1_000_000)))
}

/// Returns the line and the column of a byte offset, both from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (line, before[start..].chars().count() + 1)
}
