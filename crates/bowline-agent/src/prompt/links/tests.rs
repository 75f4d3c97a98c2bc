//! Links as clients write them, and their targets.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(uris: &[&str], expected: Expect) {
    let mut out = String::new();
    for uri in uris {
        write!(out, "{uri} →").unwrap();
        match parse_link(uri, "/w") {
            LinkTarget::Files(files) => {
                for file in files {
                    match file.lines {
                        None => write!(out, " {:?}", file.path).unwrap(),
                        Some(lines) => {
                            write!(out, " {:?} {}-{}", file.path, lines.first, lines.last).unwrap()
                        }
                    }
                }
            }
            LinkTarget::Directory(path) => write!(out, " directory {path:?}").unwrap(),
            LinkTarget::Other(uri) => write!(out, " not read: {uri:?}").unwrap(),
        }
        out.push('\n');
    }
    expected.assert_eq(&out);
}

#[test]
fn file_uris_are_decoded() {
    check(
        &[
            "file:///w/a.rs",
            "FILE:///w/a.rs",
            "file:/w/a.rs",
            "file://localhost/w/a.rs",
            "file:///w/with%20blank/%C3%A4.rs",
            "file:///w/ä b.rs",
            "file:///w/100%.txt",
            "file:///w/a%2fb",
            "file:///w/what%3f.rs?symbol=main",
            "file:///w/src/",
        ],
        expect![[r#"
            file:///w/a.rs → "/w/a.rs"
            FILE:///w/a.rs → "/w/a.rs"
            file:/w/a.rs → "/w/a.rs"
            file://localhost/w/a.rs → "/w/a.rs"
            file:///w/with%20blank/%C3%A4.rs → "/w/with blank/ä.rs" "/w/with%20blank/%C3%A4.rs"
            file:///w/ä b.rs → "/w/ä b.rs"
            file:///w/100%.txt → "/w/100%.txt"
            file:///w/a%2fb → "/w/a/b" "/w/a%2fb"
            file:///w/what%3f.rs?symbol=main → "/w/what?.rs" "/w/what%3f.rs?symbol=main"
            file:///w/src/ → directory "/w/src/"
        "#]],
    );
}

#[test]
fn lines_are_read_as_editors_write_them() {
    check(
        &[
            "file:///w/a.rs#L10",
            "file:///w/a.rs#L10-20",
            "file:///w/a.rs#L10-L20",
            "file:///w/a.rs#L10:20",
            "file:///w/a.rs?symbol=x#L10:20",
            "file:///w/a.rs#L3C1-L5C9",
            "file:///w/a.rs#10,20",
            "file:///w/a.rs#L20-10",
            "file:///w/a.rs#L0",
            "file:///w/a.rs:10",
            "file:///w/a.rs:10-20",
            "file:///w/a.rs:10:4",
            "file:///w/a.rs#L99999999999",
            "file:///w/c#/a.cs",
            "file:///w/a.md#heading",
            "/w/a.rs:10",
            "a.rs#L5",
        ],
        expect![[r#"
            file:///w/a.rs#L10 → "/w/a.rs" 10-10
            file:///w/a.rs#L10-20 → "/w/a.rs" 10-20
            file:///w/a.rs#L10-L20 → "/w/a.rs" 10-20
            file:///w/a.rs#L10:20 → "/w/a.rs" 10-20
            file:///w/a.rs?symbol=x#L10:20 → "/w/a.rs" 10-20
            file:///w/a.rs#L3C1-L5C9 → "/w/a.rs" 3-5
            file:///w/a.rs#10,20 → "/w/a.rs" 10-20
            file:///w/a.rs#L20-10 → "/w/a.rs" 20-20
            file:///w/a.rs#L0 → "/w/a.rs" 1-1
            file:///w/a.rs:10 → "/w/a.rs:10" "/w/a.rs" 10-10
            file:///w/a.rs:10-20 → "/w/a.rs:10-20" "/w/a.rs" 10-20
            file:///w/a.rs:10:4 → "/w/a.rs:10:4" "/w/a.rs" 10-10
            file:///w/a.rs#L99999999999 → "/w/a.rs" "/w/a.rs#L99999999999"
            file:///w/c#/a.cs → "/w/c" "/w/c#/a.cs"
            file:///w/a.md#heading → "/w/a.md" "/w/a.md#heading"
            /w/a.rs:10 → "/w/a.rs:10" "/w/a.rs" 10-10
            a.rs#L5 → "/w/a.rs#L5" "/w/a.rs" 5-5
        "#]],
    );
}

#[test]
fn what_is_elsewhere_is_not_read() {
    check(
        &[
            "https://example.com/a", "file://server/share/a", "file:a.rs", "file://", "file:", "", "~/a.rs",
            "zed:///agent/thread/1", "git+ssh://x/y", "untitled:Untitled-1", "file:///w/a%00b",
            "file:///w/%ff",
        ],
        expect![[r#"
            https://example.com/a → not read: "https://example.com/a"
            file://server/share/a → not read: "file://server/share/a"
            file:a.rs → not read: "file:a.rs"
            file:// → not read: "file://"
            file: → not read: "file:"
             → not read: ""
            ~/a.rs → not read: "~/a.rs"
            zed:///agent/thread/1 → not read: "zed:///agent/thread/1"
            git+ssh://x/y → not read: "git+ssh://x/y"
            untitled:Untitled-1 → not read: "untitled:Untitled-1"
            file:///w/a%00b → not read: "/w/a\0b"
            file:///w/%ff → not read: "file:///w/%ff"
        "#]],
    );
}

#[test]
fn plain_paths_are_paths() {
    check(
        &["/w/a b.rs", "src/a.rs", "./a.rs", "../a.rs", "Makefile:10", "src/"],
        expect![[r#"
        /w/a b.rs → "/w/a b.rs"
        src/a.rs → "/w/src/a.rs"
        ./a.rs → "/w/a.rs"
        ../a.rs → "/w/../a.rs"
        Makefile:10 → "/w/Makefile:10" "/w/Makefile" 10-10
        src/ → directory "/w/src/"
    "#]],
    );
}

proptest! {
    #[test]
    fn every_path_comes_back(path in "/[a-zä%#?: ./-]{1,20}[a-z]") {
        let encoded: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let uri = format!("file:///{}", encoded.strip_prefix("%2F").unwrap());
        let LinkTarget::Files(files) = parse_link(&uri, "/") else { panic!("{uri}") };
        prop_assert_eq!(&files[0], &FileLink { path, lines: None });
    }

    #[test]
    fn nothing_breaks_it(uri in "(file:/{0,3})?[a-z%0-9#:L?/-]{0,20}\\PC{0,4}") {
        parse_link(&uri, "/w");
    }
}
