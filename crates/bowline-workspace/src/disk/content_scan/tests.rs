//! Scans in pieces give what a scan of the whole gives, and a cached scan does not outlive its file's content.

use std::fs;
use std::io::Write as _;

use bowline_text::text;
use proptest::prelude::*;

use super::*;

fn scan_pieces(pieces: &[Vec<u8>]) -> ContentScan {
    let mut scan = ContentScan::read(&tempfile::tempfile().unwrap()).unwrap();
    pieces.iter().for_each(|piece| scan.feed(piece));
    scan
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
            prop_assert_eq!(scan.etag_hash(), ContentHash::digest(decoded.text.as_bytes()));
        } else {
            prop_assert_eq!(scan.etag_hash(), scan.hash());
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
    let cache = ContentScanCache::default();
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
