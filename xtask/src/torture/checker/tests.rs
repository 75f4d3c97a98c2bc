//! Losses that the checker must find: a checker that misses one would make every run look good.

use super::{account_for_lines, search_list};
use crate::torture::record::EventRecorder;
use crate::torture::round_dir::{RoundDir, TorturePrograms};
use crate::torture::saver::{self, SaverAccount, SaverOptions};
use crate::torture::style::SaveStyle;
use clap::ValueEnum as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Saves in every style without an agent, and returns the account of each.
fn save_alone(scene: &RoundDir, saves: usize) -> Vec<(SaveStyle, SaverAccount)> {
    let style_account = |style: &SaveStyle| {
        let plan = SaverOptions {
            style: *style,
            file: scene.saved_file(*style),
            seed: scene.seed,
            saves,
            record: scene.record_file(style.name()),
            account: scene.record_file("account"),
            agent_record: scene.record_file("agent"),
            stop: scene.stop_file(),
            lock: Some(scene.lock_file()),
        };
        saver::run(&plan).unwrap();
        (*style, SaverAccount::read(&plan.account).unwrap())
    };
    scene.styles.iter().map(style_account).collect()
}

/// Returns a round directory in which a program without a journal stands in for Bowline.
fn round_dir(scratch: &tempfile::TempDir) -> RoundDir {
    let programs =
        TorturePrograms { bowline: PathBuf::from("/bin/true"), torture: PathBuf::from("/bin/false") };
    RoundDir::create(scratch.path(), &programs, 1, SaveStyle::value_variants()).unwrap()
}

#[test]
fn with_no_agent_every_line_is_in_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let scene = round_dir(&scratch);
    for (style, saved) in save_alone(&scene, 4) {
        let account = account_for_lines(&scene, style, &saved).unwrap();
        assert_eq!((saved.saves, account.lost.len()), (4, 0), "{style:?}");
        assert!(account.in_file > 0 && account.in_file == saved.owed.len(), "{style:?}: {account:?}");
        let left: Vec<_> =
            fs::read_dir(scene.project()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left.len(), scene.styles.len(), "a saving program leaves nothing beside: {left:?}");
    }
}

#[test]
fn a_line_that_is_nowhere_is_lost_and_its_story_names_who_was_there() {
    let scratch = tempfile::tempdir().unwrap();
    let scene = round_dir(&scratch);
    for (style, saved) in save_alone(&scene, 3) {
        let owed = saved.owed.last().unwrap().clone();
        let mut agent = EventRecorder::open(&scene.agent_record_dir().join(style.name())).unwrap();
        agent.record(style.name(), "wrote 0 bytes").unwrap();
        let text = fs::read_to_string(scene.saved_file(style)).unwrap();
        fs::write(scene.saved_file(style), text.replace(&format!("{}\n", owed.line), "")).unwrap();
        let account = account_for_lines(&scene, style, &saved).unwrap();
        let lost: Vec<&str> = account.lost.iter().map(|lost| lost.line.line.as_str()).collect();
        assert_eq!(lost, [owed.line.as_str()]);
        let actors: BTreeSet<&str> =
            account.lost.iter().flat_map(|lost| &lost.timeline).map(|event| event.actor.as_str()).collect();
        assert!(actors.contains("user"), "{actors:?}");
    }
}

#[test]
fn a_line_that_the_user_was_told_of_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let scene = round_dir(&scratch);
    let (style, saved) = save_alone(&scene, 1).remove(0);
    let owed = saved.owed.first().unwrap();
    fs::write(scene.saved_file(style), "").unwrap();
    scene.add_notice(format!("bowline: this is in no file: {}\n", owed.line).as_bytes()).unwrap();
    let account = account_for_lines(&scene, style, &saved).unwrap();
    assert_eq!((account.reported, account.lost.len()), (1, saved.owed.len() - 1));
}

#[test]
fn a_list_of_changes_is_searched_for_changed_lines_and_cut_hunks() {
    let list = "\
session s
  turn 1 · 2026-01-01 00:00:00Z (just now)
    12 edited   held.txt +1 −1  call 7
         hunk 1, line 2
         -held-1-000001 the hole
         +agent 1-1
    13 edited   held.txt +20
         hunk 1, line 9
         +held-1-000002 round
         … 8 more lines
2 changes
";
    let wanted = BTreeSet::from(["held-1-000001 the hole", "held-1-000002 round", "held-1-000003 round"]);
    let (found, cut) = search_list(list, "held.txt", &wanted);
    assert_eq!(found.iter().collect::<Vec<_>>(), ["held-1-000001 the hole", "held-1-000002 round"]);
    assert_eq!(cut.iter().collect::<Vec<_>>(), ["13"]);
}
