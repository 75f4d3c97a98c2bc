//! Whatever a file holds, its text goes back to the same bytes, and a text that is fitted to it loses no line.
//!
//! The first byte says where the rest is cut: before the cut is the file, after it what an agent writes.

#![no_main]

use bowline_state::text::{Decoded, Encoding, Format, decode, decode_as, encode, fit, looks_binary, streams};
use libfuzzer_sys::fuzz_target;

/// What a text is written in, beside its own format.
const NAMES: &[&str] =
    &["UTF-8", "UTF-16LE", "UTF-16BE", "windows-1252", "Shift_JIS", "EUC-JP", "GBK", "gb18030"];

fuzz_target!(|data: &[u8]| {
    let [cut, rest @ ..] = data else { return };
    let (file, written) = rest.split_at(usize::from(*cut).min(rest.len()));
    let old = match decode(file.to_vec()) {
        Ok(Decoded { text, format }) => {
            assert_eq!(encode(&text, format).as_deref(), Ok(file));
            assert_eq!(decode_as(file.to_vec(), format).as_ref(), Ok(&text));
            assert!(!looks_binary(file));
            assert!(!text.contains('\0'));
            assert!(streams(file) || format.encoding != Encoding::Utf8);
            text
        }
        // What is no text can still be fitted to, as text with faults.
        Err(_) => String::from_utf8_lossy(file).into_owned(),
    };
    let new = String::from_utf8_lossy(written);
    for name in NAMES {
        let encoding = Encoding::named(name).expect("a name of the standard");
        let format = Format { encoding, bom: cut % 2 == 0 };
        match encode(&new, format) {
            Ok(bytes) => assert_eq!(decode_as(bytes, format).as_deref(), Ok(&*new)),
            Err(unencodable) => assert!(new.contains(unencodable.character)),
        }
    }
    let fitted = fit(&new, &old);
    assert_eq!(contents(&fitted), contents(without_mark(&new, &old)));
    assert_eq!(fit(&old, &old), old);
    if old.contains('\n') {
        assert_eq!(fit(&old.replace("\r\n", "\n"), &old), old);
    }
});

fn without_mark<'a>(new: &'a str, old: &str) -> &'a str {
    if old.is_empty() || old.starts_with('\u{feff}') {
        new
    } else {
        new.strip_prefix('\u{feff}').unwrap_or(new)
    }
}

/// The lines without their endings, the last one as it is.
fn contents(text: &str) -> Vec<&str> {
    let mut contents: Vec<&str> = text.split('\n').collect();
    let last = contents.pop();
    contents.into_iter().map(|line| line.trim_end_matches('\r')).chain(last).collect()
}
