//! Every hash is that of its bytes, whether it was cached or evicted, and the cache is bounded.

use proptest::prelude::*;

use super::*;

/// The contents of changes: small ones, and one that is too large to be cached.
fn content(number: usize) -> Option<Vec<u8>> {
    match number {
        0 => None,
        9 => Some(vec![9; MAX_REMEMBERED_BYTES + 1]),
        number => Some(vec![b'a'; number]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hashes_are_those_of_the_bytes(changes in proptest::collection::vec((0_usize..10, 0_usize..10), 0..30)) {
        let mut recent = RecentHashes::default();
        for (before, after) in changes {
            let (before, after) = (content(before), content(after));
            let hashes = recent.hashes(before.as_deref(), after.as_deref());
            let of = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(ContentHash::digest);
            prop_assert_eq!(hashes, (of(&before), of(&after)));
            prop_assert!(recent.contents.len() <= MAX_CONTENTS);
            for (hash, bytes) in &recent.contents {
                prop_assert!(bytes.len() <= MAX_REMEMBERED_BYTES);
                prop_assert_eq!(*hash, ContentHash::digest(bytes));
            }
        }
    }
}

#[test]
fn a_file_that_is_edited_takes_one_place() {
    let mut recent = RecentHashes::default();
    let of = |length: usize| vec![b'a'; length];
    for length in 1..100 {
        recent.hashes(Some(&of(length)), Some(&of(length + 1)));
    }
    let remembered =
        |recent: &RecentHashes| recent.contents.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>();
    assert_eq!(remembered(&recent), [100]);
    for length in [200, 300, 400, 500] {
        recent.hashes(None, Some(&of(length)));
    }
    assert_eq!(remembered(&recent), [200, 300, 400, 500]);
    recent.hashes(Some(&of(300)), None);
    assert_eq!(remembered(&recent), [200, 400, 500, 300]);
}
