//! Tests of the known files against a plain map of paths.

use std::collections::BTreeMap;

use bowline_history::observation::FileStamp;
use proptest::prelude::*;

use super::*;

fn tracked(number: u64) -> TrackedFile {
    let stamp = FileStamp { device: 1, inode: number, size: 0, mtime_ns: 0, ctime_ns: 0, mode: 0 };
    TrackedFile { known: KnownFile { stamp, hash: None, is_racy: false }, last_scan: 0 }
}

fn paths() -> impl Strategy<Value = String> {
    // `-` and `.` sort before `/`, so that neighbours of a directory lie between it and its files.
    prop::collection::vec(prop::sample::select(vec!["a", "a-b", "a.b", "b"]), 1..4)
        .prop_map(|names| format!("/{}", names.join("/")))
}

fn sorted<'f>(entries: impl Iterator<Item = FileEntry<'f>>) -> Vec<(String, u64)> {
    let mut all: Vec<_> = entries.map(|entry| (entry.path(), entry.tracked.known.stamp.inode)).collect();
    all.sort();
    all
}

proptest! {
    #[test]
    fn files_are_found_as_in_a_plain_map(
        first in prop::collection::vec(paths(), 0..12),
        steps in prop::collection::vec((paths(), any::<bool>()), 0..24),
        scope in paths(),
    ) {
        let mut plain: BTreeMap<String, u64> = first.iter().cloned().zip(0..).collect();
        let mut builder = KnownFilesBuilder::default();
        first.iter().zip(0..).for_each(|(path, number)| builder.push(path, tracked(number)));
        let mut files = builder.finish();
        for ((path, inserts), number) in steps.into_iter().zip(100..) {
            if inserts {
                plain.insert(path.clone(), number);
                files.insert(&path, tracked(number));
            } else {
                let removed = files.remove(&path).map(|tracked| tracked.known.stamp.inode);
                prop_assert_eq!(removed, plain.remove(&path));
            }
        }
        for (path, number) in &plain {
            prop_assert_eq!(files.get(path).map(|tracked| tracked.known.stamp.inode), Some(*number));
            prop_assert!(files.get_mut(path).is_some());
        }
        prop_assert_eq!(files.get(&scope).is_some(), plain.contains_key(&scope));
        let all: Vec<(String, u64)> = plain.into_iter().collect();
        let below = |(path, _): &&(String, u64)| *path == scope || path.starts_with(&format!("{scope}/"));
        prop_assert_eq!(sorted(files.iter_from(&scope)), all.iter().filter(below).cloned().collect::<Vec<_>>());
        prop_assert_eq!(sorted(files.iter_from("/")), all.clone());
        prop_assert_eq!(sorted(files.iter()), all);
    }
}
