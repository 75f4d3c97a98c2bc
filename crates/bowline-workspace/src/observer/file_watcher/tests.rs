//! Tests of the watcher: steps in, dirty paths out.

use std::fmt::Write as _;

use bowline_history::observation::KnownFile;
use expect_test::{Expect, expect};

use super::*;
use crate::git_objects::GitObjects;
use crate::observer::{Observer, ObserverOptions, ScanEvent};
use crate::walker::fixture::TestTree;

fn start_watcher(tree: &TestTree) -> (Roots, FileWatcher) {
    let roots = tree.roots(&["/w"]);
    let watch = FileWatcher::start(&roots, FileWatcherOptions::default()).unwrap();
    (roots, watch)
}

fn dirty_text(tree: &TestTree, roots: &Roots, watch: &mut FileWatcher) -> String {
    match watch.take_dirty(roots) {
        DirtyPaths::Paths(paths) => tree.without_base(&paths.join(" ")),
        DirtyPaths::Everything => "everything".to_owned(),
    }
}

fn check(fixture: &str, steps: &str, expected: Expect) {
    let tree = TestTree::new(fixture);
    let (roots, mut watch) = start_watcher(&tree);
    let mut out = String::new();
    for step in steps.trim().lines() {
        let words: Vec<&str> = step.split(' ').collect();
        let path = |at: usize| tree.path(words[at]);
        match words[0] {
            "take" => {
                writeln!(out, "{}", dirty_text(&tree, &roots, &mut watch)).unwrap();
                continue;
            }
            "write" => tree.write(words[1], words[2..].join(" ")),
            "mkdir" => fs::create_dir(path(1)).unwrap(),
            "rm" => fs::remove_file(path(1)).unwrap(),
            "rmdir" => fs::remove_dir_all(path(1)).unwrap(),
            "mv" => fs::rename(path(1), path(2)).unwrap(),
            "read" => drop(fs::read(path(1)).unwrap()),
            other => panic!("{other}"),
        }
        writeln!(out, "> {step}").unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn changes_are_told_and_reads_are_not() {
    check(
        "
//- /w/a
//- /w/dir/b
//- /w/.git/index
//- /w/target/x
//- /w/.gitignore
target
",
        "
take
read /w/a
take
write /w/a one
write /w/dir/b two
take
rm /w/a
write /w/new three
take
write /w/.git/index store
write /w/target/x hidden
write /o/outside four
take
mv /w/dir/b /w/dir/c
take
",
        expect![[r#"

            > read /w/a

            > write /w/a one
            > write /w/dir/b two
            /w/a /w/dir/b
            > rm /w/a
            > write /w/new three
            /w/a /w/new
            > write /w/.git/index store
            > write /w/target/x hidden
            > write /o/outside four

            > mv /w/dir/b /w/dir/c
            /w/dir/b /w/dir/c
        "#]],
    );
}

#[test]
fn a_new_directory_is_dirty_as_a_whole_and_then_watched() {
    check(
        "//- /w/a\n",
        "
write /w/new/deep/er/x one
take
write /w/new/deep/er/y two
take
mkdir /w/new/deep/more
take
write /w/new/deep/more/z three
take
",
        expect![[r#"
            > write /w/new/deep/er/x one
            /w/new
            > write /w/new/deep/er/y two
            /w/new/deep/er/y
            > mkdir /w/new/deep/more
            /w/new/deep/more
            > write /w/new/deep/more/z three
            /w/new/deep/more/z
        "#]],
    );
}

#[test]
fn a_directory_is_watched_under_its_new_name() {
    check(
        "
//- /w/dir/sub/x
",
        "
mv /w/dir /w/dur
take
write /w/dur/sub/x one
take
mv /w/dur /away
take
write /away/sub/x two
take
mv /away /w/dir
take
write /w/dir/sub/x three
take
rmdir /w/dir
write /w/dir/sub/x anew
take
write /w/dir/sub/x again
take
",
        expect![[r#"
            > mv /w/dir /w/dur
            /w/dir /w/dur
            > write /w/dur/sub/x one
            /w/dur/sub/x
            > mv /w/dur /away
            /w/dur
            > write /away/sub/x two

            > mv /away /w/dir
            /w/dir
            > write /w/dir/sub/x three
            /w/dir/sub/x
            > rmdir /w/dir
            > write /w/dir/sub/x anew
            /w/dir /w/dir/sub /w/dir/sub/x
            > write /w/dir/sub/x again
            /w/dir/sub/x
        "#]],
    );
}

#[test]
fn a_directory_that_is_not_hidden_any_more_is_watched() {
    check(
        "
//- /w/.gitignore
target
//- /w/target/deep/x
",
        "
write /w/target/deep/x one
take
write /w/.gitignore nothing
take
write /w/target/deep/x two
take
",
        expect![[r#"
            > write /w/target/deep/x one

            > write /w/.gitignore nothing
            /w/.gitignore
            > write /w/target/deep/x two
            /w/target/deep/x
        "#]],
    );
}

#[test]
fn too_many_paths_are_everything_and_watching_goes_on() {
    let tree = TestTree::new("//- /w/\n");
    let roots = tree.roots(&["/w"]);
    let options = FileWatcherOptions { max_paths: 10, ..FileWatcherOptions::default() };
    let mut watch = FileWatcher::start(&roots, options).unwrap();
    for at in 0..10 {
        tree.write(&format!("/w/{at}"), "");
    }
    assert_eq!(dirty_text(&tree, &roots, &mut watch).split(' ').count(), 10);
    for at in 0..11 {
        tree.write(&format!("/w/{at}"), "");
    }
    fs::create_dir(tree.path("/w/new")).unwrap();
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "everything");
    tree.write("/w/new/x", "");
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "/w/new/x");
    assert!(watch.is_reliable);
}

#[test]
fn what_the_system_cannot_tell_is_everything() {
    let tree = TestTree::new("//- /w/a\n");
    let (roots, mut watch) = start_watcher(&tree);
    // As many events as the system may queue, each different from the one before.
    let most: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for _ in 0..=most / 4 {
        fs::rename(tree.path("/w/a"), tree.path("/w/b")).unwrap();
        fs::rename(tree.path("/w/b"), tree.path("/w/a")).unwrap();
    }
    fs::create_dir(tree.path("/w/unseen")).unwrap();
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "everything");
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "");
    tree.write("/w/unseen/x", "");
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "/w/unseen/x");
}

#[test]
fn a_tree_of_too_many_directories_is_not_watched() {
    let tree = TestTree::new("//- /w/1/\n//- /w/2/\n");
    let roots = tree.roots(&["/w"]);
    let options = FileWatcherOptions { max_directories: 3, ..FileWatcherOptions::default() };
    let mut watch = FileWatcher::start(&roots, options).unwrap();
    assert!(watch.is_reliable);
    fs::create_dir(tree.path("/w/3")).unwrap();
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "everything");
    assert!(!watch.is_reliable);
    assert_eq!(dirty_text(&tree, &roots, &mut watch), "everything");
    drop(watch);
    let error = FileWatcher::start(&roots, options).unwrap_err();
    assert_eq!(error.to_string(), "there are more than 3 directories to watch");
    assert!(matches!(watcher_error(Errno::NOSPC), FileWatcherError::Limit));
    assert!(matches!(watcher_error(Errno::MFILE), FileWatcherError::InstanceLimit));
}

#[test]
fn what_a_watch_tells_is_enough_for_the_observer() {
    let tree = TestTree::new("//- /w/d/0\n");
    let (roots, mut watch) = start_watcher(&tree);
    let mut observer = Observer::new(ObserverOptions::default());
    observer.first_scan(&roots, &GitObjects::default(), 0, &mut |_| ControlFlow::Continue(()));
    let mut told = 0;
    for round in 0..40 {
        for at in 0..=round % 5 {
            tree.write(&format!("/w/d/{}/{round}-{at}", round % 3 + 1), "x");
        }
        if round % 7 == 3 {
            fs::rename(tree.path("/w/d"), tree.path("/w/e")).unwrap();
            fs::rename(tree.path("/w/e"), tree.path("/w/d")).unwrap();
        }
        if round % 11 == 5 {
            fs::remove_dir_all(tree.path("/w/d/2")).unwrap();
        }
        let DirtyPaths::Paths(paths) = watch.take_dirty(&roots) else {
            panic!("a few paths are not everything")
        };
        let found = observer.scan_paths(&roots, &paths, 0, &mut |_| ControlFlow::Continue(()));
        told += found.changes.len();
        // A full scan finds nothing more.
        let rows: Vec<(String, KnownFile)> = observer.rows().map(|(path, known)| (path, *known)).collect();
        let mut other = Observer::restore(ObserverOptions::default(), rows);
        other.scan(&roots, 0, &mut |event| match event {
            ScanEvent::Change(seen, _) => panic!("round {round}: {seen:?}"),
            ScanEvent::Progress(_)
            | ScanEvent::Directory(_)
            | ScanEvent::Content { .. }
            | ScanEvent::GitContent { .. } => ControlFlow::Continue(()),
        });
    }
    assert!(told > 40, "{told}");
}
