//! The merge target: for any three texts, the merge loses no line, invents none and joins none with another, and
//! applying a diff to one text gives the other.
//!
//! The byte 0xff separates the texts. The bytes from 0x80 stand for whole lines, so that the texts have some in common.

#![no_main]

use bowline_text::diff::{self, DiffContent, DiffSide, FileDiff};
use bowline_text::merge::{MAX_CONFLICT_HUNKS, MAX_HUNK_TEXT_BYTES, merge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut texts = data.splitn(3, |byte| *byte == 0xff).map(text);
    let mut next = || texts.next().unwrap_or_default();
    let (base, ours, theirs) = (next(), next(), next());
    check_merge(&base, &ours, &theirs);
    check_diff(&base, &ours);
    check_diff(&ours, &theirs);
});

fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            0x80.. => text.push_str(&format!("line {}\n", byte % 32)),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn check_merge(base: &str, ours: &str, theirs: &str) {
    assert_eq!(merge(base, ours, base).expect("one side changed nothing"), ours);
    assert_eq!(merge(base, base, theirs).expect("one side changed nothing"), theirs);
    assert_eq!(merge(base, ours, ours).expect("both sides are equal"), ours);
    match (merge(base, ours, theirs), merge(base, theirs, ours)) {
        (Ok(merged), Ok(other_way)) => {
            assert_eq!(merged, other_way);
            for line in merged.split_inclusive('\n') {
                assert!(
                    [ours, theirs].iter().any(|side| side.split_inclusive('\n').any(|known| known == line))
                );
            }
        }
        (Err(conflict), Err(other_way)) => {
            assert_eq!(conflict.total, other_way.total);
            assert_eq!(conflict.hunks.len(), conflict.total.min(MAX_CONFLICT_HUNKS));
            for hunk in &conflict.hunks {
                assert!(
                    [&hunk.base, &hunk.ours, &hunk.theirs]
                        .iter()
                        .all(|text| text.len() <= MAX_HUNK_TEXT_BYTES)
                );
            }
        }
        (one, other) => panic!("{one:?} but {other:?} the other way"),
    }
}

fn check_diff(old: &str, new: &str) {
    let hunks: Vec<usize> = (0..diff::compute_hunks(old, new).len()).collect();
    assert_eq!(diff::revert_hunks(old, new, &hunks).as_deref(), Ok(old));
    assert_eq!(diff::revert_hunks(old, new, &[]).as_deref(), Ok(new));
    assert!(diff::revert_hunks(old, new, &[hunks.len()]).is_err());
    assert_eq!(diff::apply_edits(old, &diff::compute_edits(old, new)).as_deref(), Ok(new));
    let side = |text| Some(DiffSide { content: DiffContent::Text(text), mode: 0o644 });
    let patch = diff::format_unified_diff(&FileDiff { path: old, before: side(old), after: side(new) }, 3);
    assert_eq!(patch.is_empty(), old == new);
}
