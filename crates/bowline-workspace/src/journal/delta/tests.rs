//! Deltas: applying one to its base restores the content, regardless of what the two share.

use proptest::prelude::*;

use super::*;

fn check(base: &[u8], bytes: &[u8]) -> Option<usize> {
    let delta = encode(base, bytes)?;
    let mut made = base.to_vec();
    assert!(apply(&mut made, &delta, bytes.len()), "{} of {}", bytes.len(), base.len());
    assert_eq!(made, bytes);
    Some(delta.len() - HEADER_BYTES)
}

#[test]
fn a_few_changed_bytes_are_all_that_is_kept() {
    let base: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let edited = |at: usize, removed: usize, put: &[u8]| {
        let mut bytes = base.clone();
        bytes.splice(at..at + removed, put.iter().copied());
        bytes
    };
    assert_eq!(check(&base, &base), Some(0));
    for at in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 40_000, base.len() - 4] {
        assert_eq!(check(&base, &edited(at, 0, b"\xff\xfe\xfd")), Some(3), "put in at {at}");
        assert_eq!(check(&base, &edited(at, 1, b"\xff\xfe\xfd")), Some(3), "replaced at {at}");
        assert!(check(&base, &edited(at, 4, b"")).is_some_and(|kept| kept <= 4), "removed at {at}");
    }
    assert_eq!(check(&base, &base[..70_000]), Some(0));
    assert_eq!(check(&base, &base[10_000..]), Some(0));
}

#[test]
fn what_has_little_in_common_is_kept_whole() {
    let base = vec![b'a'; 10_000];
    assert_eq!(check(&base, &vec![b'b'; 10_000]), None);
    assert_eq!(check(&base, &[base.as_slice(), &[b'b'; 5_000]].concat()), None);
    assert_eq!(check(b"", &base), None);
}

/// With repetitive bytes the common prefix and suffix overlap.
#[test]
fn no_byte_is_counted_on_both_ends() {
    assert_eq!(check(&[b'a'; 10_000], &[b'a'; 10_001]), Some(1));
    assert_eq!(check(&[b'a'; 10_001], &[b'a'; 10_000]), Some(0));
    assert_eq!(check(&[b'a'; 10_000], b""), Some(0));
}

proptest! {
    #[test]
    fn what_is_made_is_what_it_was_made_of(
        base in proptest::collection::vec(0_u8..3, 0..10_000),
        at in any::<proptest::sample::Index>(),
        removed in 0_usize..300,
        put in proptest::collection::vec(0_u8..3, 0..300),
    ) {
        let at = at.index(base.len() + 1);
        let mut bytes = base.clone();
        bytes.splice(at..(at + removed).min(base.len()), put);
        check(&base, &bytes);
    }

    #[test]
    fn a_damaged_difference_makes_nothing_else_than_so_many_bytes(
        base in proptest::collection::vec(any::<u8>(), 0..100),
        delta in proptest::collection::vec(prop_oneof![0_u8..20, any::<u8>()], 0..20),
        size in 0_usize..150,
    ) {
        let mut made = base;
        prop_assert!(!apply(&mut made, &delta, size) || made.len() == size);
    }
}
