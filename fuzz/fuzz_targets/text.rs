//! The text target: any file that decodes encodes to the same bytes again, and fitting a text to a file's format loses
//! no line.
//!
//! The first byte gives the position of a split: the file is before it, and the agent's text after it.

#![no_main]

use bowline_text::text::{
    DecodedText, Encoding, TextFormat, decode, decode_as, encode, fit_line_endings, looks_binary,
};
use libfuzzer_sys::fuzz_target;

/// The encodings to test, in addition to the file's own.
const NAMES: &[&str] =
    &["UTF-8", "UTF-16LE", "UTF-16BE", "windows-1252", "Shift_JIS", "EUC-JP", "GBK", "gb18030"];

fuzz_target!(|data: &[u8]| {
    let [cut, rest @ ..] = data else { return };
    let (file, written) = rest.split_at(usize::from(*cut).min(rest.len()));
    let old = match decode(file.to_vec()) {
        Ok(DecodedText { text, format }) => {
            assert_eq!(encode(&text, format).as_deref(), Ok(file));
            assert_eq!(decode_as(file.to_vec(), format).as_ref(), Ok(&text));
            assert!(!looks_binary(file));
            assert!(!text.contains('\0'));
            text
        }
        // A file that is not text is still used, decoded lossily.
        Err(_) => String::from_utf8_lossy(file).into_owned(),
    };
    let new = String::from_utf8_lossy(written);
    for name in NAMES {
        let encoding = Encoding::from_name(name).expect("a name of the standard");
        let format = TextFormat { encoding, has_bom: cut % 2 == 0 };
        match encode(&new, format) {
            Ok(bytes) => assert_eq!(decode_as(bytes, format).as_deref(), Ok(&*new)),
            Err(unencodable) => assert!(new.contains(unencodable.character)),
        }
    }
    let fitted = fit_line_endings(&new, &old);
    assert_eq!(contents(&fitted), contents(without_mark(&new, &old)));
    assert_eq!(fit_line_endings(&old, &old), old);
    if old.contains('\n') {
        assert_eq!(fit_line_endings(&old.replace("\r\n", "\n"), &old), old);
    }
});

fn without_mark<'a>(new: &'a str, old: &str) -> &'a str {
    if old.is_empty() || old.starts_with('\u{feff}') {
        new
    } else {
        new.strip_prefix('\u{feff}').unwrap_or(new)
    }
}

/// Returns the lines without their endings, the last one unchanged.
fn contents(text: &str) -> Vec<&str> {
    let mut contents: Vec<&str> = text.split('\n').collect();
    let last = contents.pop();
    contents.into_iter().map(|line| line.trim_end_matches('\r')).chain(last).collect()
}
