//! Tests of the types of images.

use super::*;

#[test]
fn images_are_known_by_their_content() {
    for (bytes, expected) in [
        (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
        (b"\xff\xd8\xff\xe0....", Some("image/jpeg")),
        (b"GIF89a....", Some("image/gif")),
        (b"GIF87a....", Some("image/gif")),
        (b"RIFF....WEBPVP8 ", Some("image/webp")),
        (b"RIFF....WAVEfmt ", None),
        (b"RIFF", None),
        (b"\x89PNG", None),
        (b"\x7fELF", None),
        (b"", None),
    ] {
        assert_eq!(find_image_type(bytes), expected, "{bytes:?}");
    }
}
