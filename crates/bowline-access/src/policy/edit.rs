//! Edits of the text of a policy file that preserve the rest of it.

use bowline_policy::operation::OperationKind;
use bowline_policy::policy::{Preset, Rule, RuleMatcher, RuleSpec};
use bowline_protocol::terminal::Invocation;
use bowline_storage::clock::format_iso8601;
use toml_edit::{Array, ArrayOfTables, Datetime, DocumentMut, Item, Table, value};

use super::parse::parse_plain_words;

/// Returns whether two rules are equal apart from their source.
pub(super) fn is_same_rule(one: &Rule, other: &Rule) -> bool {
    let key = |rule: &Rule| {
        let RuleSpec { effect, kinds, matcher, expires, note, .. } = rule.spec();
        (*effect, *kinds, matcher.clone(), *expires, note.clone())
    };
    key(one) == key(other)
}

/// Returns the text with a rule added, or `None` if its layout does not allow it.
pub(super) fn add_rule(text: &str, rule: &Rule, workspace: Option<&str>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let layer = match workspace {
        None => document.as_table_mut(),
        Some(root) => {
            let workspaces = document.entry("workspaces").or_insert_with(implicit_table).as_table_mut()?;
            workspaces.entry(root).or_insert_with(implicit_table).as_table_mut()?
        }
    };
    let rules = layer.entry("rules").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    rules.as_array_of_tables_mut()?.push(rule_table(rule)?);
    Some(document.to_string())
}

/// Returns the text with a rule removed.
pub(super) fn remove_rule(text: &str, at: usize, workspace: Option<&str>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let layer = match workspace {
        None => document.as_table_mut(),
        Some(root) => document.get_mut("workspaces")?.get_mut(root)?.as_table_mut()?,
    };
    let rules = layer.get_mut("rules")?.as_array_of_tables_mut()?;
    if at >= rules.len() {
        return None;
    }
    rules.remove(at);
    if rules.is_empty() {
        layer.remove("rules");
    }
    Some(document.to_string())
}

/// Returns the text with the preset set or removed, or `None` if its layout does not allow it.
pub(super) fn set_preset(text: &str, preset: Option<Preset>, workspace: Option<&str>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let layer = match workspace {
        None => document.as_table_mut(),
        Some(root) => {
            let workspaces = document.entry("workspaces").or_insert_with(implicit_table).as_table_mut()?;
            let layer = workspaces.entry(root).or_insert_with(implicit_table).as_table_mut()?;
            // An implicit table is not written, and neither would be its preset.
            layer.set_implicit(false);
            layer
        }
    };
    match preset {
        Some(preset) => {
            layer.insert("preset", value(preset.as_str()));
        }
        None => {
            layer.remove("preset");
        }
    }
    Some(document.to_string())
}

fn implicit_table() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn rule_table(rule: &Rule) -> Option<Table> {
    let spec = rule.spec();
    let mut table = Table::new();
    table.insert("effect", value(spec.effect.as_str()));
    table.insert("kinds", value(spec.kinds.iter().map(OperationKind::as_str).collect::<Array>()));
    match &spec.matcher {
        RuleMatcher::Everything => table.insert("everything", value(true)),
        RuleMatcher::Path(pattern) => table.insert("path", value(pattern)),
        RuleMatcher::Host(host) => table.insert("host", value(host)),
        RuleMatcher::Variable(name) => table.insert("variable", value(name)),
        RuleMatcher::Command(words) => {
            let line = words.join(" ");
            let is_plain = parse_plain_words(&line).as_ref() == Some(words);
            table.insert(
                "command",
                if is_plain { value(line) } else { value(words.iter().collect::<Array>()) },
            )
        }
        RuleMatcher::Exact(Invocation::Argv(words)) => {
            table.insert("exact", value(words.iter().collect::<Array>()))
        }
        RuleMatcher::Exact(Invocation::Shell(line)) => table.insert("exact", value(line)),
    };
    if let Some(end) = spec.expires {
        table.insert("expires", value(format_iso8601(end).parse::<Datetime>().ok()?));
    }
    if let Some(note) = &spec.note {
        table.insert("note", value(note));
    }
    Some(table)
}
