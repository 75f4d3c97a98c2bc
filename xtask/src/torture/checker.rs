//! The check of a round: where is each line that the user saved and did not remove?
//!
//! A line is accounted for if it is in the file; otherwise if a command can bring it back from the journal, because
//! `bowline changes`, `bowline diff` or `bowline restore` prints it; otherwise if Bowline reported it to its user. A
//! refused write or undo quotes lines that are still in place, so neither counts as a report.

use super::record::{ALL_FILES, TortureEvent, read_events};
use super::round_dir::RoundDir;
use super::saver::{OwedLine, SaverAccount};
use super::style::SaveStyle;
use anyhow::ensure;
use std::collections::BTreeSet;
use std::fs;

/// How far a timeline extends before and after a loss, in microseconds.
const TIMELINE_MARGIN: u64 = 8_000;
/// The maximum number of events in a timeline.
const MAX_EVENTS: usize = 30;

/// The whereabouts of a saving program's lines.
#[derive(Debug, Default)]
pub(super) struct LineAccount {
    pub(super) in_file: usize,
    pub(super) in_journal: usize,
    pub(super) reported: usize,
    pub(super) lost: Vec<LostLine>,
}

/// A line that is not accounted for.
#[derive(Debug)]
pub(super) struct LostLine {
    pub(super) line: OwedLine,
    pub(super) timeline: Vec<TortureEvent>,
}

/// Accounts for every line owed to a saving program.
pub(super) fn account_for_lines(
    scene: &RoundDir,
    style: SaveStyle,
    saved: &SaverAccount,
) -> anyhow::Result<LineAccount> {
    let text = fs::read(scene.saved_file(style)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let present: BTreeSet<&str> = text.lines().collect();
    let missing: Vec<&OwedLine> =
        saved.owed.iter().filter(|owed| !present.contains(owed.line.as_str())).collect();
    let mut account = LineAccount { in_file: saved.owed.len() - missing.len(), ..LineAccount::default() };
    if missing.is_empty() {
        return Ok(account);
    }
    let wanted: BTreeSet<&str> = missing.iter().map(|owed| owed.line.as_str()).collect();
    let restorable = restorable_lines(scene, style, &wanted)?;
    let notices = fs::read_to_string(scene.notices_file()).unwrap_or_default();
    let events = read_all_events(scene, style);
    for owed in missing {
        if restorable.contains(&owed.line) {
            account.in_journal += 1;
        } else if notices.contains(&owed.line) {
            account.reported += 1;
        } else {
            let timeline = build_timeline(&events, style, owed);
            account.lost.push(LostLine { line: owed.clone(), timeline });
        }
    }
    Ok(account)
}

/// Returns which of the wanted lines a user can get back with a command: the lines that a change in the journal removed
/// or added, since `bowline undo` and `bowline redo` revert exactly such a change, and the lines that `bowline restore`
/// prints.
fn restorable_lines(
    scene: &RoundDir,
    style: SaveStyle,
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

/// Returns which of the wanted lines a list of changes shows as removed or added, and the changes whose hunks the list
/// truncates.
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

fn command_output(scene: &RoundDir, arguments: &[&str]) -> anyhow::Result<String> {
    let output = scene.run_bowline(arguments)?;
    ensure!(
        output.status.success(),
        "bowline {} fails: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The number of the agent's operations, by kind.
#[derive(Debug, Default)]
pub(super) struct AgentCounts {
    pub(super) writes: usize,
    pub(super) merges: usize,
    pub(super) conflicts: usize,
}

pub(super) fn count_agent_events(scene: &RoundDir, style: SaveStyle) -> AgentCounts {
    let mut counts = AgentCounts::default();
    for event in read_events(&scene.agent_record_dir().join(style.name()), "agent") {
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

fn read_all_events(scene: &RoundDir, style: SaveStyle) -> Vec<TortureEvent> {
    let mut events: Vec<TortureEvent> = ["editor", "undo", "kill"]
        .into_iter()
        .flat_map(|actor| read_events(&scene.record_file(actor), actor))
        .collect();
    events.extend(read_events(&scene.record_file(style.name()), "user"));
    events.extend(read_events(&scene.agent_record_dir().join(style.name()), "agent"));
    events.sort_by_key(|event| event.at);
    events
}

/// Returns the events around a loss: between the last look that found the line and the first that did not.
fn build_timeline(events: &[TortureEvent], style: SaveStyle, owed: &OwedLine) -> Vec<TortureEvent> {
    let from = owed.last_seen.unwrap_or(owed.saved_at).saturating_sub(TIMELINE_MARGIN);
    let to = owed.missing_since.unwrap_or(owed.saved_at).max(owed.saved_at).saturating_add(TIMELINE_MARGIN);
    let concerns = |event: &&TortureEvent| {
        (event.style == style.name() || event.style == ALL_FILES) && (from..=to).contains(&event.at)
    };
    let chosen: Vec<TortureEvent> = events.iter().filter(concerns).cloned().collect();
    let skipped = chosen.len().saturating_sub(MAX_EVENTS);
    chosen.into_iter().skip(skipped).collect()
}

#[cfg(test)]
mod tests;
