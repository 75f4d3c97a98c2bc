//! Tests of content hashes as text.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

#[test]
fn a_hash_is_64_hexadecimal_digits() {
    let hash = ContentHash::digest(b"abc");
    expect!["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"].assert_eq(&hash.to_string());
    expect!["ContentHash(ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad)"]
        .assert_eq(&format!("{hash:?}"));
    let digits = hash.to_string();
    let mut out = String::new();
    for text in [
        digits.to_uppercase(),
        digits[1..].to_owned(),
        format!("{digits}0"),
        digits.replace("ba", "bg"),
        digits.replace("ba", "+1"),
        digits.replace("ba", "é"),
        String::new(),
    ] {
        match text.parse::<ContentHash>() {
            Ok(parsed) => writeln!(out, "{}", parsed == hash).unwrap(),
            Err(error) => writeln!(out, "! {error}").unwrap(),
        }
    }
    expect![[r#"
        true
        ! a content hash has 64 hexadecimal digits
        ! a content hash has 64 hexadecimal digits
        ! a content hash has 64 hexadecimal digits
        ! a content hash has 64 hexadecimal digits
        ! a content hash has 64 hexadecimal digits
        ! a content hash has 64 hexadecimal digits
    "#]]
    .assert_eq(&out);
}

proptest! {
    #[test]
    fn pieces_have_the_hash_of_the_whole(pieces: Vec<Vec<u8>>) {
        let mut hasher = ContentHasher::default();
        pieces.iter().for_each(|piece| hasher.update(piece));
        prop_assert_eq!(hasher.finish(), ContentHash::digest(&pieces.concat()));
    }

    #[test]
    fn a_hash_is_read_as_it_is_written(bytes in any::<[u8; 32]>()) {
        let hash = ContentHash::from(bytes);
        prop_assert_eq!(hash.as_bytes(), &bytes);
        prop_assert_eq!(hash.to_string().parse(), Ok(hash));
    }
}
