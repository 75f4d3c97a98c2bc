//! The account of a round: where is each line that the user saved and did not remove?
//!
//! A line is accounted for if it is in the file; else if a named command brings it back from the journal, by what
//! `bowline changes` and `bowline diff` show of it or `bowline restore` prints; else if Bowline told its user of it by name. A refusal that an agent
//! got, or an undo that was refused, quotes lines that are still in their place, so neither counts as such a report.

use super::record::{EVERY_FILE, Event, read_events};
use super::saver::{OwedLine, SaverAccount};
use super::scene::Scene;
use super::style::Style;
use anyhow::ensure;
use std::collections::BTreeSet;
use std::fs;

/// How long before and after a line was lost the time line reaches, in microseconds.
const AROUND: u64 = 8_000;
/// A time line has at most so many events.
const MOST_EVENTS: usize = 30;

/// Where the lines of a saving program are.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) in_file: usize,
    pub(super) in_journal: usize,
    pub(super) reported: usize,
    pub(super) lost: Vec<LostLine>,
}

/// A line that nothing accounts for.
#[derive(Debug)]
pub(super) struct LostLine {
    pub(super) line: OwedLine,
    pub(super) timeline: Vec<Event>,
}

/// Accounts for every line that a saving program is owed.
pub(super) fn account(scene: &Scene, style: Style, saved: &SaverAccount) -> anyhow::Result<Account> {
    let text = fs::read(scene.file(style)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let present: BTreeSet<&str> = text.lines().collect();
    let missing: Vec<&OwedLine> =
        saved.owed.iter().filter(|owed| !present.contains(owed.line.as_str())).collect();
    let mut account = Account { in_file: saved.owed.len() - missing.len(), ..Account::default() };
    if missing.is_empty() {
        return Ok(account);
    }
    let wanted: BTreeSet<&str> = missing.iter().map(|owed| owed.line.as_str()).collect();
    let restorable = restorable_lines(scene, style, &wanted)?;
    let notices = fs::read_to_string(scene.notices()).unwrap_or_default();
    let events = read_all_events(scene, style);
    for owed in missing {
        if restorable.contains(&owed.line) {
            account.in_journal += 1;
        } else if notices.contains(&owed.line) {
            account.reported += 1;
        } else {
            let timeline = timeline(&events, style, owed);
            account.lost.push(LostLine { line: owed.clone(), timeline });
        }
    }
    Ok(account)
}

/// Returns which of the wanted lines a user gets back by a command: those that a change of the journal removed or added,
/// since `bowline undo` and `bowline redo` take exactly such a change back, and those of a text that `bowline restore`
/// prints.
fn restorable_lines(
    scene: &Scene,
    style: Style,
    wanted: &BTreeSet<&str>,
) -> anyhow::Result<BTreeSet<String>> {
    let file = style.file_name();
    let list = command_output(scene, &["changes", "--all", "--full", "--hunks", "--file", &file])?;
    let (mut found, cut) = search_list(&list, &file, wanted);
    for change in cut {
        if found.len() == wanted.len() {
            break;
        }
        let patch = command_output(scene, &["diff", "--change", &change])?;
        let changed = patch.lines().filter_map(|line| line.strip_prefix(['-', '+']));
        found.extend(changed.filter_map(|text| wanted.get(text)).map(|text| (*text).to_owned()));
    }
    let kept = command_output(scene, &["restore"])?;
    for line in kept.lines().filter(|line| line.contains(&file)) {
        let Some((id, _)) = line.split_once(' ') else { continue };
        let text = command_output(scene, &["restore", id, "--print"])?;
        found.extend(text.lines().filter_map(|text| wanted.get(text)).map(|text| (*text).to_owned()));
    }
    Ok(found)
}

/// Returns which of the wanted lines a list of changes shows as removed or added, and the changes whose hunks it cuts short.
fn search_list(list: &str, file: &str, wanted: &BTreeSet<&str>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut found, mut cut) = (BTreeSet::new(), BTreeSet::new());
    let mut change = None;
    for line in list.lines().map(str::trim_start) {
        if let Some(text) = line.strip_prefix(['-', '+']) {
            found.extend(wanted.get(text).map(|text| (*text).to_owned()));
        } else if line.starts_with('…') {
            cut.extend(change.clone());
        } else if let Some((number, rest)) = line.split_once(' ')
            && rest.contains(file)
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            change = Some(number.to_owned());
        }
    }
    (found, cut)
}

fn command_output(scene: &Scene, arguments: &[&str]) -> anyhow::Result<String> {
    let output = scene.bowline(arguments)?;
    ensure!(
        output.status.success(),
        "bowline {} fails: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How often the agent did what.
#[derive(Debug, Default)]
pub(super) struct AgentCounts {
    pub(super) writes: usize,
    pub(super) merges: usize,
    pub(super) conflicts: usize,
}

pub(super) fn count_agent_events(scene: &Scene, style: Style) -> AgentCounts {
    let mut counts = AgentCounts::default();
    for event in read_events(&scene.agent_records().join(style.name()), "agent") {
        match event.text.split(' ').next() {
            Some("wrote") => counts.writes += 1,
            Some("merged") => {
                counts.writes += 1;
                counts.merges += 1;
            }
            Some("refused") => counts.conflicts += 1,
            _ => {}
        }
    }
    counts
}

fn read_all_events(scene: &Scene, style: Style) -> Vec<Event> {
    let mut events: Vec<Event> = ["editor", "undo", "kill"]
        .into_iter()
        .flat_map(|actor| read_events(&scene.record(actor), actor))
        .collect();
    events.extend(read_events(&scene.record(style.name()), "user"));
    events.extend(read_events(&scene.agent_records().join(style.name()), "agent"));
    events.sort_by_key(|event| event.at);
    events
}

/// Returns what happened around the time at which a line got lost: between the last look that found it and the first that
/// did not.
fn timeline(events: &[Event], style: Style, owed: &OwedLine) -> Vec<Event> {
    let from = owed.last_seen.unwrap_or(owed.saved_at).saturating_sub(AROUND);
    let to = owed.missing_since.unwrap_or(owed.saved_at).max(owed.saved_at).saturating_add(AROUND);
    let concerns = |event: &&Event| {
        (event.style == style.name() || event.style == EVERY_FILE) && (from..=to).contains(&event.at)
    };
    let chosen: Vec<Event> = events.iter().filter(concerns).cloned().collect();
    let skipped = chosen.len().saturating_sub(MOST_EVENTS);
    chosen.into_iter().skip(skipped).collect()
}

#[cfg(test)]
mod tests;
