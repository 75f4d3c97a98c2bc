//! Tests of listings: trees in, rendered listings out.

use std::fmt::Write as _;

use bowline_policy::paths::Access;
use expect_test::{Expect, expect};

use super::*;
use crate::walker::fixture::TestTree;

const TREE: &str = "
//- /w/.gitignore
target
*.log
//- /w/.git/config
//- /w/b.txt
four
//- /w/b/x
//- /w/b/y.log
//- /w/b/deep/er/z
//- /w/target/out
//- /w/inside -> b
//- /w/outside -> $T/o
//- /w/nested/root/file
//- /o/secret
";

fn check(directory: &str, options: ListOptions, expected: Expect) {
    let tree = TestTree::new(TREE);
    let roots = tree.roots(&["/w", "/w/nested/root"]);
    let mut out = String::new();
    let directory = roots.admit(&tree.path_text(directory), Access::Read).unwrap();
    match list(&roots, &directory, &options) {
        Err(error) => writeln!(out, "! {}", tree.without_base(&error.to_string())).unwrap(),
        Ok(listing) => {
            for ListEntry { path, kind, size, mtime_ns } in listing.entries {
                assert!(mtime_ns > 0);
                let size = if kind == EntryKind::File { format!(" {size}") } else { String::new() };
                writeln!(out, "{path} {kind:?}{size}").unwrap();
            }
            if listing.truncated {
                writeln!(out, "…").unwrap();
            }
        }
    }
    expected.assert_eq(&out);
}

const ONE_LEVEL: ListOptions =
    ListOptions { depth: 1, ignored: IgnoredFiles::Skip, max_entries: MAX_LIST_ENTRIES };

#[test]
fn a_directory_is_listed_by_name_without_what_is_hidden() {
    check(
        "/w",
        ONE_LEVEL,
        expect![[r#"
        .gitignore File 13
        b Directory
        b.txt File 5
        inside Link
        nested Directory
        outside Link
    "#]],
    );
}

#[test]
fn a_listing_may_go_deeper_and_into_nested_roots() {
    check(
        "/w",
        ListOptions { depth: 3, ..ONE_LEVEL },
        expect![[r#"
        .gitignore File 13
        b Directory
        b/deep Directory
        b/deep/er Directory
        b/x File 0
        b.txt File 5
        inside Link
        nested Directory
        nested/root Directory
        nested/root/file File 0
        outside Link
    "#]],
    );
}

#[test]
fn what_is_hidden_can_be_asked_for() {
    check(
        "/w/b",
        ListOptions { ignored: IgnoredFiles::Show, ..ONE_LEVEL },
        expect![[r#"
        deep Directory
        x File 0
        y.log File 0
    "#]],
    );
    check(
        "/w/target",
        ONE_LEVEL,
        expect![[r#"
        out File 0
    "#]],
    );
}

#[test]
fn a_listing_has_an_end() {
    check(
        "/w",
        ListOptions { max_entries: 3, depth: 9, ..ONE_LEVEL },
        expect![[r#"
            .gitignore File 13
            b Directory
            b/deep Directory
            …
        "#]],
    );
}

#[test]
fn a_link_to_a_directory_inside_is_listed_as_what_it_leads_to() {
    check(
        "/w/inside",
        ONE_LEVEL,
        expect![[r#"
        deep Directory
        x File 0
    "#]],
    );
}

#[test]
fn what_is_no_directory_is_said() {
    check(
        "/w/none",
        ONE_LEVEL,
        expect![[r#"
        ! /w/none does not exist
    "#]],
    );
    check(
        "/w/b.txt",
        ONE_LEVEL,
        expect![[r#"
        ! /w/b.txt is not a directory
    "#]],
    );
    check(
        "/w/.git",
        ONE_LEVEL,
        expect![[r#"
        ! /w/.git is the store of a version control system, which is not listed
    "#]],
    );
}
