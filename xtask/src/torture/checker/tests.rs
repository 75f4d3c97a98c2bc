//! A checker that overlooks a loss would make every run look good: here are losses that it must find.

use super::{account, search_list};
use crate::torture::record::Recorder;
use crate::torture::saver::{self, SaverAccount, SaverPlan};
use crate::torture::scene::{Programs, Scene};
use crate::torture::style::Style;
use clap::ValueEnum as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Saves in every style with no agent about, and returns the account of each.
fn save_alone(scene: &Scene, saves: usize) -> Vec<(Style, SaverAccount)> {
    let style_account = |style: &Style| {
        let plan = SaverPlan {
            style: *style,
            file: scene.file(*style),
            seed: scene.seed,
            saves,
            record: scene.record(style.name()),
            account: scene.record("account"),
            agent_record: scene.record("agent"),
            stop: scene.stop(),
            lock: Some(scene.lock()),
        };
        saver::run(&plan).unwrap();
        (*style, SaverAccount::read(&plan.account).unwrap())
    };
    scene.styles.iter().map(style_account).collect()
}

/// Returns a scene with a program in Bowline's place that has no journal.
fn scene(scratch: &tempfile::TempDir) -> Scene {
    let programs = Programs { bowline: PathBuf::from("/bin/true"), torture: PathBuf::from("/bin/false") };
    Scene::create(scratch.path(), &programs, 1, Style::value_variants()).unwrap()
}

#[test]
fn with_no_agent_every_line_is_in_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let scene = scene(&scratch);
    for (style, saved) in save_alone(&scene, 4) {
        let account = account(&scene, style, &saved).unwrap();
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
    let scene = scene(&scratch);
    for (style, saved) in save_alone(&scene, 3) {
        let owed = saved.owed.last().unwrap().clone();
        let mut agent = Recorder::open(&scene.agent_records().join(style.name())).unwrap();
        agent.record(style.name(), "wrote 0 bytes").unwrap();
        let text = fs::read_to_string(scene.file(style)).unwrap();
        fs::write(scene.file(style), text.replace(&format!("{}\n", owed.line), "")).unwrap();
        let account = account(&scene, style, &saved).unwrap();
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
    let scene = scene(&scratch);
    let (style, saved) = save_alone(&scene, 1).remove(0);
    let owed = saved.owed.first().unwrap();
    fs::write(scene.file(style), "").unwrap();
    scene.add_notice(format!("bowline: this is in no file: {}\n", owed.line).as_bytes()).unwrap();
    let account = account(&scene, style, &saved).unwrap();
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
