//! The text of a file of rules, read strictly: what is not understood is an error with its place.

use std::ops::Range;

use bowline_state::changes::Moment;
use bowline_state::operation::{Invocation, Kind};
use bowline_state::paths::LexicalPath;
use bowline_state::policy::{
    Effect, Kinds, Lifetime, MAX_RULES, Matcher, Policy, Preset, Rule, RuleSpec, Source, shell,
};
use chrono::NaiveDate;
use indexmap::IndexMap;
use toml_edit::{Datetime, Document, Item, Offset, Table, Value};

use super::PolicyError;

/// What a file says: for every workspace, and for each.
#[derive(Debug, Default)]
pub(super) struct Layers {
    everywhere: Layer,
    workspaces: IndexMap<String, Layer>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Layer {
    preset: Option<Preset>,
    rules: Vec<Rule>,
}

/// What is wrong, and where.
struct Fault {
    at: Option<Range<usize>>,
    why: String,
}

fn fault<T>(at: Option<Range<usize>>, why: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, why: why.into() })
}

impl Layers {
    pub(super) fn parse(text: &str, path: &str) -> Result<Self, PolicyError> {
        let syntax = |fault: Fault| {
            let at = fault.at.map_or(0, |span| span.start);
            let (line, column) = position(text, at);
            PolicyError::Syntax { path: path.to_owned(), line, column, why: fault.why }
        };
        let document = Document::parse(text)
            .map_err(|error| syntax(Fault { at: error.span(), why: error.message().replace('\n', ", ") }))?;
        let layers = Reader { path }.file(document.as_table()).map_err(syntax)?;
        if layers.count() > MAX_RULES {
            return Err(PolicyError::TooManyRules(path.to_owned()));
        }
        Ok(layers)
    }

    /// Returns the policy of a workspace, whose own directory is the first of its roots.
    pub(super) fn policy(&self, roots: &[String]) -> Policy {
        let own = roots.first().and_then(|root| self.workspaces.get(root));
        let preset = self.stated(roots).unwrap_or_default();
        let own = own.map_or(&[][..], |layer| &layer.rules);
        // Whoever is told of a rule finds it by that number.
        let rules = self.everywhere.rules.iter().chain(own).cloned().zip(1..);
        let rules = rules.map(|(rule, number)| rule.numbered(number)).collect();
        Policy { preset, rules, roots: roots.to_vec(), ..Policy::default() }
    }

    /// Returns the preset that is stated for a workspace: its own, else the one for all.
    pub(super) fn stated(&self, roots: &[String]) -> Option<Preset> {
        let own = roots.first().and_then(|root| self.preset(Some(root)));
        own.or(self.everywhere.preset)
    }

    /// Returns the rules of a workspace alone, or those for all.
    pub(super) fn rules(&self, workspace: Option<&str>) -> &[Rule] {
        match workspace {
            None => &self.everywhere.rules,
            Some(root) => self.workspaces.get(root).map_or(&[], |layer| &layer.rules),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.everywhere.rules.len() + self.workspaces.values().map(|layer| layer.rules.len()).sum::<usize>()
    }

    /// Says whether another file differs in nothing but the rules of one place.
    pub(super) fn differs_only_in(&self, other: &Self, workspace: Option<&str>) -> bool {
        let names = self.workspaces.keys().chain(other.workspaces.keys()).map(|name| Some(name.as_str()));
        names.chain([None]).all(|name| {
            self.preset(name) == other.preset(name)
                && (name == workspace || self.rules(name) == other.rules(name))
        })
    }

    /// Says whether another file differs in nothing but the preset of one place.
    pub(super) fn differs_only_in_preset(&self, other: &Self, workspace: Option<&str>) -> bool {
        let names = self.workspaces.keys().chain(other.workspaces.keys()).map(|name| Some(name.as_str()));
        names.chain([None]).all(|name| {
            (name == workspace || self.preset(name) == other.preset(name))
                && self.rules(name) == other.rules(name)
        })
    }

    pub(super) fn preset(&self, workspace: Option<&str>) -> Option<Preset> {
        match workspace {
            None => self.everywhere.preset,
            Some(root) => self.workspaces.get(root).and_then(|layer| layer.preset),
        }
    }
}

struct Reader<'p> {
    path: &'p str,
}

impl Reader<'_> {
    fn file(&self, table: &Table) -> Result<Layers, Fault> {
        let mut layers = Layers { everywhere: self.layer(table, None)?, ..Layers::default() };
        let Some(workspaces) = table.get("workspaces") else { return Ok(layers) };
        let Some(workspaces) = workspaces.as_table() else {
            return fault(workspaces.span(), "write [workspaces.\"/the/directory\"] on a line of its own");
        };
        for (name, item) in workspaces {
            let at = workspaces.key(name).and_then(toml_edit::Key::span);
            if LexicalPath::parse(name).map_or(true, |path| path.as_str() != name) {
                let why = format!(
                    "{name:?} is not the name of a directory: write an absolute path, with no / at its end"
                );
                return fault(at, why);
            }
            let Some(table) = item.as_table() else {
                return fault(at, format!("write [workspaces.{name:?}] on a line of its own"));
            };
            layers.workspaces.insert(name.to_owned(), self.layer(table, Some(name))?);
        }
        Ok(layers)
    }

    fn layer(&self, table: &Table, workspace: Option<&str>) -> Result<Layer, Fault> {
        let mut layer = Layer::default();
        for (key, item) in table {
            match key {
                "preset" => {
                    let parsed = text(item, "preset")?.parse::<Preset>();
                    layer.preset = Some(parsed.or_else(|error| fault(item.span(), error.to_string()))?);
                }
                "rules" => layer.rules = self.rules(item, workspace)?,
                "workspaces" if workspace.is_none() => {}
                _ => {
                    let known =
                        if workspace.is_none() { "preset, rules, workspaces" } else { "preset, rules" };
                    return unknown(table, key, known);
                }
            }
        }
        Ok(layer)
    }

    fn rules(&self, item: &Item, workspace: Option<&str>) -> Result<Vec<Rule>, Fault> {
        let Some(tables) = item.as_array_of_tables() else {
            return fault(item.span(), "write each rule on lines of its own, after [[rules]]");
        };
        let number = |at| Source::File {
            path: self.path.to_owned(),
            workspace: workspace.map(ToOwned::to_owned),
            number: at + 1,
        };
        tables.iter().enumerate().map(|(at, table)| rule(table, number(at), workspace.is_some())).collect()
    }
}

fn rule(table: &Table, source: Source, is_project: bool) -> Result<Rule, Fault> {
    let at = || table.span();
    let mut effect = None;
    let mut kinds = None;
    let mut matcher = None;
    let mut expires = None;
    let mut note = None;
    for (key, item) in table {
        let mut matches = |found: Matcher| match matcher.replace(found) {
            None => Ok(()),
            Some(_) => fault(
                item.span(),
                "a rule has one of path, command, exact, host, variable, everything: make it two rules",
            ),
        };
        match key {
            "effect" => {
                let parsed = text(item, key)?.parse::<Effect>();
                effect = Some(parsed.or_else(|error| fault(item.span(), error.to_string()))?);
            }
            "kinds" => kinds = Some(kinds_of(item)?),
            "path" => matches(Matcher::Path(text(item, key)?.to_owned()))?,
            "host" => matches(Matcher::Host(text(item, key)?.to_owned()))?,
            "variable" => matches(Matcher::Variable(text(item, key)?.to_owned()))?,
            "command" => matches(Matcher::Command(command(item)?))?,
            "exact" => matches(Matcher::Exact(match item.as_str() {
                Some(line) => Invocation::Shell(line.to_owned()),
                None => Invocation::Argv(words(item, "exact")?),
            }))?,
            "everything" if item.as_bool() == Some(true) => matches(Matcher::Everything)?,
            "everything" => return fault(item.span(), "write everything = true, or leave it out"),
            "expires" => expires = Some(end(item)?),
            "note" => note = Some(text(item, key)?.to_owned()),
            _ => {
                return unknown(
                    table,
                    key,
                    "effect, kinds, path, command, exact, host, variable, everything, expires, note",
                );
            }
        }
    }
    let Some(effect) = effect else {
        return fault(at(), "the rule has no effect: add effect = \"deny\", \"ask\" or \"allow\"");
    };
    let Some(matcher) = matcher else {
        return fault(
            at(),
            "the rule speaks of nothing: add one of path, command, exact, host, variable, everything",
        );
    };
    let kinds = match (kinds, &matcher) {
        (Some(kinds), _) => kinds,
        (None, Matcher::Path(_) | Matcher::Everything) => {
            return fault(
                at(),
                "the rule has no kinds: add kinds = [\"write\"], or others of read, write, delete, execute, fetch",
            );
        }
        (None, matcher) => matcher.kinds(),
    };
    let lifetime = if is_project { Lifetime::Project } else { Lifetime::Always };
    let spec = RuleSpec { effect, kinds, matcher, lifetime, expires, source, note };
    Rule::new(spec).or_else(|error| fault(at(), error.to_string()))
}

fn unknown<T>(table: &Table, key: &str, known: &str) -> Result<T, Fault> {
    fault(
        table.key(key).and_then(toml_edit::Key::span),
        format!("{key:?} is not known here, only {known} are"),
    )
}

fn text<'i>(item: &'i Item, key: &str) -> Result<&'i str, Fault> {
    item.as_str().map_or_else(|| fault(item.span(), format!("{key} is a text: put it in quotes")), Ok)
}

fn words(item: &Item, key: &str) -> Result<Vec<String>, Fault> {
    let Some(array) = item.as_array() else {
        return fault(item.span(), format!("{key} is a text or a list of texts"));
    };
    let word = |value: &Value| match value.as_str() {
        Some(word) => Ok(word.to_owned()),
        None => fault(value.span(), format!("{key} is a list of texts: put each in quotes")),
    };
    array.iter().map(word).collect()
}

fn kinds_of(item: &Item) -> Result<Kinds, Fault> {
    let words = match item.as_str() {
        Some(word) => vec![word.to_owned()],
        None => words(item, "kinds")?,
    };
    let kind = |word: &String| match Kind::ALL.into_iter().find(|kind| kind.word() == word) {
        Some(kind) => Ok(kind),
        None => fault(item.span(), format!("{word:?} is not one of read, write, delete, execute, fetch")),
    };
    words.iter().map(kind).collect()
}

/// Reads the words of a command as a shell would, if they are nothing but words.
fn command(item: &Item) -> Result<Vec<String>, Fault> {
    let Some(line) = item.as_str() else { return words(item, "command") };
    plain_words(line).map_or_else(
        || {
            fault(
                item.span(),
                "command is plain words, as in a shell: quote the others, or write a list of words",
            )
        },
        Ok,
    )
}

/// Returns the words of a line that is nothing but words, read as a shell would.
#[must_use]
pub fn plain_words(line: &str) -> Option<Vec<String>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let only = commands.pop().filter(|_| commands.is_empty())?;
    let is_plain = only.assignments.is_empty()
        && only.redirections.is_empty()
        && only.text.trim() == line.trim()
        && only.words.iter().all(|word| word.is_literal);
    is_plain.then(|| only.words.into_iter().map(|word| word.text).collect())
}

fn end(item: &Item) -> Result<Moment, Fault> {
    let found = item.as_datetime().and_then(milliseconds);
    found.map_or_else(
        || fault(item.span(), "expires is a date with time and zone, such as 2027-01-01T00:00:00Z"),
        Ok,
    )
}

/// Reads a date as a person writes it: `2027-01-01`, which begins at midnight, or with time and zone,
/// `2027-01-01T12:00:00Z`. Where no zone is named, it is UTC.
#[must_use]
pub fn moment(text: &str) -> Option<Moment> {
    let mut datetime: Datetime = text.parse().ok()?;
    let midnight = toml_edit::Time { hour: 0, minute: 0, second: None, nanosecond: None };
    datetime.date?;
    datetime.time.get_or_insert(midnight);
    datetime.offset.get_or_insert(Offset::Z);
    milliseconds(&datetime)
}

fn milliseconds(datetime: &Datetime) -> Option<Moment> {
    let (date, time) = (datetime.date?, datetime.time?);
    let offset = match datetime.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let date = NaiveDate::from_ymd_opt(date.year.into(), date.month.into(), date.day.into())?;
    let utc = date.and_hms_opt(time.hour.into(), time.minute.into(), 0)?.and_utc();
    let seconds = utc.timestamp() - offset * 60 + i64::from(time.second.unwrap_or(0));
    Some(Moment(seconds * 1000 + i64::from(time.nanosecond.unwrap_or(0) / 1_000_000)))
}

/// Returns the line and the column of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (line, before[start..].chars().count() + 1)
}
