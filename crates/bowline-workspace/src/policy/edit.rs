//! Changing the text of a file of rules, with all else in it as it was.

use bowline_state::changes::Moment;
use bowline_state::operation::{Invocation, Kind};
use bowline_state::policy::{Matcher, Preset, Rule, RuleSpec};
use toml_edit::{Array, ArrayOfTables, Datetime, DocumentMut, Item, Table, value};

use super::document::plain_words;

/// Says whether two rules say the same, wherever they are from.
pub(super) fn same(one: &Rule, other: &Rule) -> bool {
    let key = |rule: &Rule| {
        let RuleSpec { effect, kinds, matcher, expires, note, .. } = rule.spec();
        (*effect, *kinds, matcher.clone(), *expires, note.clone())
    };
    key(one) == key(other)
}

/// Returns the text with a rule more, or nothing if its form has no place for one.
pub(super) fn add(text: &str, rule: &Rule, workspace: Option<&str>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let layer = match workspace {
        None => document.as_table_mut(),
        Some(root) => {
            let workspaces = document.entry("workspaces").or_insert_with(implicit).as_table_mut()?;
            workspaces.entry(root).or_insert_with(implicit).as_table_mut()?
        }
    };
    let rules = layer.entry("rules").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    rules.as_array_of_tables_mut()?.push(table(rule)?);
    Some(document.to_string())
}

/// Returns the text with a rule less.
pub(super) fn remove(text: &str, at: usize, workspace: Option<&str>) -> Option<String> {
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

/// Returns the text with another preset, or none, or nothing if its form has no place for one.
pub(super) fn state(text: &str, preset: Option<Preset>, workspace: Option<&str>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let layer = match workspace {
        None => document.as_table_mut(),
        Some(root) => {
            let workspaces = document.entry("workspaces").or_insert_with(implicit).as_table_mut()?;
            let layer = workspaces.entry(root).or_insert_with(implicit).as_table_mut()?;
            // A table that has nothing but other tables is not written, and neither is what is put in.
            layer.set_implicit(false);
            layer
        }
    };
    match preset {
        Some(preset) => {
            layer.insert("preset", value(preset.word()));
        }
        None => {
            layer.remove("preset");
        }
    }
    Some(document.to_string())
}

fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn table(rule: &Rule) -> Option<Table> {
    let spec = rule.spec();
    let mut table = Table::new();
    table.insert("effect", value(spec.effect.word()));
    table.insert("kinds", value(spec.kinds.iter().map(Kind::word).collect::<Array>()));
    match &spec.matcher {
        Matcher::Everything => table.insert("everything", value(true)),
        Matcher::Path(pattern) => table.insert("path", value(pattern)),
        Matcher::Host(host) => table.insert("host", value(host)),
        Matcher::Variable(name) => table.insert("variable", value(name)),
        Matcher::Command(words) => {
            let line = words.join(" ");
            let is_plain = plain_words(&line).as_ref() == Some(words);
            table.insert(
                "command",
                if is_plain { value(line) } else { value(words.iter().collect::<Array>()) },
            )
        }
        Matcher::Exact(Invocation::Argv(words)) => {
            table.insert("exact", value(words.iter().collect::<Array>()))
        }
        Matcher::Exact(Invocation::Shell(line)) => table.insert("exact", value(line)),
    };
    if let Some(end) = spec.expires {
        table.insert("expires", value(datetime(end)?));
    }
    if let Some(note) = &spec.note {
        table.insert("note", value(note));
    }
    Some(table)
}

/// Returns a moment as a date, if it has a year of four digits.
fn datetime(Moment(milliseconds): Moment) -> Option<Datetime> {
    let (days, rest) = (milliseconds.div_euclid(86_400_000), milliseconds.rem_euclid(86_400_000));
    let shifted = days.checked_add(719_468)?;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, fraction) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z").parse().ok()
}
