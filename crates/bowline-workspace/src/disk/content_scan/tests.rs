//! Scans in pieces give what a scan of the whole gives, and a cached scan does not outlive its file's content.

use std::fs;
use std::io::Write as _;

use bowline_text::text;
use proptest::prelude::*;

use super::*;

fn scan_pieces(pieces: &[Vec<u8>]) -> ContentScan {
    scan_pieces_up_to(u64::MAX, pieces)
}

fn scan_pieces_up_to(max_hashed_bytes: u64, pieces: &[Vec<u8>]) -> ContentScan {
    let mut scan = ContentScan::read(&tempfile::tempfile().unwrap(), max_hashed_bytes).unwrap();
    pieces.iter().for_each(|piece| scan.feed(piece));
    scan
}

fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |bytes: &'static [u8]| Just(bytes.to_vec());
    prop_oneof![
        fixed(UTF8_MARK),
        fixed("ä\n".as_bytes()),
        fixed(b"\xc3"),
        fixed(b"\xa4"),
        fixed(b"\0"),
        fixed(b"text\r\n"),
    ]
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(pieces in prop::collection::vec(any_piece(), 0..6)) {
        let whole = pieces.concat();
        let scan = scan_pieces(&pieces);
        prop_assert_eq!((scan.size(), scan.hash()), (whole.len() as u64, ContentHash::digest(&whole)));
        let unmarked = whole.strip_prefix(UTF8_MARK).unwrap_or(&whole);
        let is_text = std::str::from_utf8(unmarked).is_ok() && !unmarked.contains(&0);
        prop_assert_eq!(scan.is_text(), is_text);
        if let (true, Ok(decoded)) = (is_text, text::decode(whole)) {
            prop_assert_eq!(scan.text_hash(), ContentHash::digest(decoded.text.as_bytes()));
        } else {
            prop_assert_eq!(scan.text_hash(), scan.hash());
        }
    }

    #[test]
    fn text_is_recognised_however_it_is_cut(text: String, bytes: Vec<u8>, cut in 1_usize..9) {
        for content in [text.into_bytes(), bytes] {
            let mut partial = Vec::new();
            let is_text = content.chunks(cut).all(|piece| continues_text(&mut partial, piece)) && partial.is_empty();
            prop_assert_eq!(is_text, std::str::from_utf8(&content).is_ok());
        }
    }
}

#[test]
fn a_cached_scan_is_used_only_for_the_content_that_was_scanned() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let open = || {
        let file = fs::File::open(&path).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        (file, stat)
    };
    let cache = ContentScanCache::new(u64::MAX);
    let hash = |freshness| {
        let (file, stat) = open();
        cache.scan(&file, &stat, freshness).unwrap().unwrap().hash()
    };
    fs::write(&path, "one").unwrap();
    assert_eq!(hash(ScanFreshness::Exact), ContentHash::digest(b"one"));
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b" two").unwrap();
    assert_eq!(hash(ScanFreshness::Exact), ContentHash::digest(b"one two"));
    // A scan after our own append is trusted by the next append only.
    let mut claimed = scan_pieces(&[b"ONE TWO".to_vec()]);
    cache.record_append(&open().1, claimed.clone());
    assert_eq!(hash(ScanFreshness::SinceOwnAppend), ContentHash::digest(b"ONE TWO"));
    assert_eq!(hash(ScanFreshness::Exact), ContentHash::digest(b"one two"));
    // Another program has appended as well.
    claimed.feed(b"!");
    cache.record_append(&open().1, claimed);
    assert_eq!(hash(ScanFreshness::SinceOwnAppend), ContentHash::digest(b"one two"));
}

proptest! {
    // However a file came to its content, the journal has the same hash of it.
    #[test]
    fn a_file_that_grew_has_the_hash_of_its_content(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..END_BYTES * 2), 0..5),
        limit in 0..END_BYTES as u64 * 6,
    ) {
        let whole = pieces.concat();
        let grown = scan_pieces_up_to(limit, &pieces);
        let scanned = ContentScan::read(&file_with(&whole), limit).unwrap();
        let size = whole.len() as u64;
        prop_assert_eq!(grown.is_hashed(), size <= limit);
        prop_assert_eq!(grown.hash(), scanned.hash());
        prop_assert_eq!(hash_start(&file_with(&whole), size, limit).unwrap(), Some(grown.hash()));
        prop_assert_eq!(hash_start(&file_with(&whole), size + 1, limit).unwrap(), None);
        // More at the end does not matter.
        let longer = file_with(&[&whole[..], b"more"].concat());
        prop_assert_eq!(hash_start(&longer, size, limit).unwrap(), Some(grown.hash()));
    }
}

#[test]
fn a_large_file_is_known_by_its_size_and_its_end() {
    let content = |start: &[u8], end: u8| [start, &vec![b'x'; END_BYTES - 1], &[end]].concat();
    let hash = |bytes: &[u8]| hash_start(&file_with(bytes), bytes.len() as u64, 8).unwrap().unwrap();
    let known = hash(&content(b"start", b'!'));
    assert_eq!(hash(&content(b"START", b'!')), known, "its start is not read");
    for other in [content(b"start", b'?'), content(b"longer start", b'!')] {
        assert_ne!(hash(&other), known);
    }
    assert_ne!(hash_end(4, b"text"), ContentHash::digest(b"text"));
}

#[test]
fn the_etag_of_a_large_file_is_that_of_its_version() {
    let stat_of = |path: &std::path::Path| rustix::fs::stat(path).unwrap();
    let scan_of = |path: &std::path::Path| ContentScan::read(&File::open(path).unwrap(), 8).unwrap();
    // It was not changed lately.
    let program = std::env::current_exe().unwrap();
    let (scan, stat) = (scan_of(&program), stat_of(&program));
    assert_eq!(scan.etag(&stat), scan.etag(&stat));
    let (mut changed, mut unsettled) = (stat, stat);
    changed.st_ctime_nsec ^= 1;
    assert_ne!(scan.etag(&stat), scan.etag(&changed));
    // It may change again without a trace in its times.
    unsettled.st_ctime = i64::MAX;
    assert_ne!(scan.etag(&unsettled), scan.etag(&unsettled));
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    fs::write(&path, "8 bytes.").unwrap();
    assert_eq!(scan_of(&path).etag(&stat_of(&path)), ContentHash::digest(b"8 bytes.").into());
}
