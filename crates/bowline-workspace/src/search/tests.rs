//! Tests of searches: trees, documents and queries in, matching lines out.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::walker::fixture::TestTree;

fn search_output(tree: &TestTree, roots: &Roots, query: &SearchQuery, unsaved: &[(&str, &str)]) -> String {
    search_output_under(tree, roots, query, None, unsaved)
}

fn search_output_under(
    tree: &TestTree,
    roots: &Roots,
    query: &SearchQuery,
    under: Option<&AdmittedPath>,
    unsaved: &[(&str, &str)],
) -> String {
    let unsaved: UnsavedTexts =
        unsaved.iter().map(|(path, text)| (tree.path_text(path), Arc::new((*text).to_owned()))).collect();
    let mut out = String::new();
    match search(roots, query, under, &unsaved) {
        Err(error) => writeln!(out, "! {error}").unwrap(),
        Ok(result) => {
            for found in &result.matches {
                found.before.iter().for_each(|line| writeln!(out, "    {line}").unwrap());
                let cut = if found.is_truncated { " …" } else { "" };
                writeln!(out, "{}:{}:{}: {}{cut}", found.path, found.line, found.column, found.text).unwrap();
                found.after.iter().for_each(|line| writeln!(out, "    {line}").unwrap());
            }
            write!(out, "{} searched", result.files_searched).unwrap();
            let SkippedFiles { binary, too_large, secret, unreadable } = result.skipped;
            for (what, count) in [
                ("binary", binary),
                ("too large", too_large),
                ("secret", secret),
                ("unreadable", unreadable),
                ("truncated", u64::from(result.truncated)),
            ] {
                if count > 0 {
                    write!(out, ", {count} {what}").unwrap();
                }
            }
            out.push('\n');
        }
    }
    tree.without_base(&out)
}

fn check(fixture: &str, queries: &[SearchQuery], unsaved: &[(&str, &str)], expected: Expect) {
    let tree = TestTree::new(fixture);
    let roots = tree.roots(&["/w"]);
    let out: Vec<String> = queries.iter().map(|query| search_output(&tree, &roots, query, unsaved)).collect();
    expected.assert_eq(&out.join("--\n"));
}

#[test]
fn files_are_searched_by_path_without_what_is_hidden() {
    check(
        "
//- /w/.gitignore
target
//- /w/b.rs
fn needle() {}
//- /w/b/z.rs
nothing
  a needle, and a needle
NEEDLE
//- /w/a.md
é needle
//- /w/target/x
needle
//- /w/.git/x
needle
//- /w/link -> b.rs
//- /w/out -> ../o/x
//- /o/x
needle
",
        &[
            SearchQuery::literal("needle"),
            SearchQuery { case: CaseMode::Smart, ..SearchQuery::literal("needle") },
            SearchQuery { case: CaseMode::Smart, ..SearchQuery::literal("NEEDLE") },
            SearchQuery { ignored: IgnoredFiles::Show, ..SearchQuery::literal("needle") },
        ],
        &[],
        expect![[r#"
            /w/a.md:1:3: é needle
            /w/b/z.rs:2:5:   a needle, and a needle
            /w/b.rs:1:4: fn needle() {}
            4 searched
            --
            /w/a.md:1:3: é needle
            /w/b/z.rs:2:5:   a needle, and a needle
            /w/b/z.rs:3:1: NEEDLE
            /w/b.rs:1:4: fn needle() {}
            4 searched
            --
            /w/b/z.rs:3:1: NEEDLE
            4 searched
            --
            /w/a.md:1:3: é needle
            /w/b/z.rs:2:5:   a needle, and a needle
            /w/b.rs:1:4: fn needle() {}
            /w/target/x:1:1: needle
            5 searched
        "#]],
    );
}

#[test]
fn a_pattern_is_literal_or_a_regular_expression_within_a_line() {
    check(
        "
//- /w/a
a.b
axb
x = [1]
",
        &[
            SearchQuery::literal("a.b"),
            SearchQuery::regex("a.b"),
            SearchQuery::literal("[1]"),
            SearchQuery::regex("^x|b$"),
            SearchQuery::regex(r"\w{3}"),
            SearchQuery::regex("$"),
        ],
        &[],
        expect![[r#"
            /w/a:1:1: a.b
            1 searched
            --
            /w/a:1:1: a.b
            /w/a:2:1: axb
            1 searched
            --
            /w/a:3:5: x = [1]
            1 searched
            --
            /w/a:1:3: a.b
            /w/a:2:3: axb
            /w/a:3:1: x = [1]
            1 searched
            --
            /w/a:2:1: axb
            1 searched
            --
            /w/a:1:4: a.b
            /w/a:2:4: axb
            /w/a:3:8: x = [1]
            1 searched
        "#]],
    );
}

#[test]
fn what_cannot_be_searched_for_is_said() {
    let long = "x".repeat(5000);
    let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
    check(
        "//- /w/a\n",
        &[
            SearchQuery::literal(""),
            SearchQuery::regex("a("),
            SearchQuery::regex(r"a\nb"),
            SearchQuery::literal("a\nb"),
            SearchQuery::regex(r"\w{100}{100}{100}"),
            SearchQuery::regex(format!("{}a{}", "(".repeat(200), ")".repeat(200))),
            SearchQuery::literal(long),
            SearchQuery { include: globs(&["a[", "b"]), ..SearchQuery::literal("x") },
            SearchQuery { exclude: globs(&["x"; 65]), ..SearchQuery::literal("x") },
        ],
        &[],
        expect![[r#"
            ! the pattern is empty, send what to search for
            --
            ! the pattern cannot be searched for: regex parse error:
                (?:a()
                ^
            error: unclosed group
            --
            ! the pattern cannot be searched for: the literal "\n" is not allowed in a regex
            --
            ! the pattern cannot be searched for: the literal "\n" is not allowed in a regex
            --
            ! the pattern cannot be searched for: compiled regex exceeds size limit of 10485760
            --
            ! the pattern cannot be searched for: regex parse error:
                (?:((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((a)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
                                                                                                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            error: exceed the maximum number of nested parentheses/brackets (100)
            --
            ! a pattern of 5000 bytes is too long, at most 4096 are allowed
            --
            ! the glob "a[" cannot be used: unclosed character class; missing ']'
            --
            ! 65 globs are too many, at most 64 are allowed
        "#]],
    );
}

#[test]
fn unsaved_text_goes_before_the_file_and_needs_none() {
    check(
        "
//- /w/.gitignore
hidden
//- /w/saved
needle on disk
//- /w/dirty
needle on disk
//- /w/hidden
//- /w/.env
//- /o/outside
",
        &[SearchQuery::literal("needle")],
        &[
            ("/w/dirty", "not here\nneedle, unsaved\n"),
            ("/w/new/never-saved", "needle, never saved"),
            ("/w/a-new-one", "needle, never saved"),
            ("/w/hidden", "needle, hidden"),
            ("/w/.env", "needle, secret"),
            ("/w/secrets/.env.local", "needle, secret"),
            ("/o/outside", "needle, outside"),
            ("/o/new", "needle, outside"),
        ],
        expect![[r#"
            /w/a-new-one:1:1: needle, never saved
            /w/dirty:2:1: needle, unsaved
            /w/new/never-saved:1:1: needle, never saved
            /w/saved:1:1: needle on disk
            5 searched, 2 secret
        "#]],
    );
}

#[test]
fn secrets_are_not_searched() {
    check(
        "
//- /w/.env
KEY=needle
//- /w/.ssh/id_rsa
needle
//- /w/a
needle
",
        &[SearchQuery::literal("needle")],
        &[],
        expect![[r#"
            /w/a:1:1: needle
            1 searched, 2 secret
        "#]],
    );
}

#[test]
fn globs_choose_files_by_name_or_by_the_way_from_the_root() {
    let globs = |include: &[&str], exclude: &[&str]| {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        SearchQuery { include: owned(include), exclude: owned(exclude), ..SearchQuery::literal("x") }
    };
    check(
        "
//- /w/a.rs
x
//- /w/a.md
x
//- /w/src/b.rs
x
//- /w/src/deep/c.rs
x
",
        &[
            globs(&["*.rs"], &[]),
            globs(&["src/*.rs"], &[]),
            globs(&["/*.rs"], &[]),
            globs(&["src/"], &["deep/"]),
            globs(&["*.{rs,md}"], &["src/**"]),
        ],
        &[],
        expect![[r#"
            /w/a.rs:1:1: x
            /w/src/b.rs:1:1: x
            /w/src/deep/c.rs:1:1: x
            3 searched
            --
            /w/src/b.rs:1:1: x
            1 searched
            --
            /w/a.rs:1:1: x
            1 searched
            --
            /w/src/b.rs:1:1: x
            1 searched
            --
            /w/a.md:1:1: x
            /w/a.rs:1:1: x
            2 searched
        "#]],
    );
}

#[test]
fn every_match_has_the_lines_around_it() {
    check(
        "
//- /w/a
1
2
3 x
4
5 x
6 x
7
8
9
10
11 x
",
        &[SearchQuery { context: 2, ..SearchQuery::literal("x") }],
        &[],
        expect![[r#"
                1
                2
            /w/a:3:3: 3 x
                4
                5 x
                3 x
                4
            /w/a:5:3: 5 x
                6 x
                7
                4
                5 x
            /w/a:6:3: 6 x
                7
                8
                9
                10
            /w/a:11:4: 11 x
            1 searched
        "#]],
    );
}

#[test]
fn binary_large_and_strange_files() {
    let tree = TestTree::new("");
    let roots = tree.roots(&["/w"]);
    let utf16: Vec<u8> = "\u{feff}one\r\nneedle é\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    tree.write("/w/binary", b"needle\0");
    tree.write("/w/late-nul", [b"needle\n".repeat(10_000), vec![0]].concat());
    tree.write("/w/large", b"needle ".repeat(30_000));
    tree.write("/w/utf16", utf16);
    tree.write("/w/latin1", b"\xe9t\xe9 needle\n");
    tree.write("/w/crlf", b"a\r\nneedle\r\nb\r\n");
    tree.write("/w/bom", b"\xef\xbb\xbfneedle\n");
    tree.write("/w/no-end", b"needle");
    let query = SearchQuery { max_file_size: 100_000, context: 1, ..SearchQuery::regex("needle( é)?$") };
    expect![[r#"
        /w/bom:1:1: needle
            a
        /w/crlf:2:1: needle
            b
        /w/latin1:1:5: été needle
        /w/no-end:1:1: needle
            one
        /w/utf16:2:1: needle é
        5 searched, 2 binary, 1 too large
    "#]]
    .assert_eq(&search_output(&tree, &roots, &query, &[]));
}

#[test]
fn long_lines_are_cut_between_characters_around_the_match() {
    let tree = TestTree::new("");
    let roots = tree.roots(&["/w"]);
    tree.write("/w/1", "é".repeat(100) + "needle" + &"è".repeat(100));
    tree.write("/w/2", "needle".to_owned() + &"è".repeat(100));
    tree.write("/w/3", "é".repeat(100) + "needle");
    let query = SearchQuery { max_line_bytes: 21, ..SearchQuery::literal("needle") };
    expect![[r#"
        /w/1:1:101: ééneedleèèèèè …
        /w/2:1:1: needleèèèèèèè …
        /w/3:1:101: éééééééneedle …
        3 searched
    "#]]
    .assert_eq(&search_output(&tree, &roots, &query, &[]));
}

#[test]
fn a_search_has_an_end_and_can_be_stopped() {
    let stop = Arc::new(AtomicBool::new(true));
    check(
        "
//- /w/a
x
x
1
x
2
//- /w/b
x
",
        &[
            SearchQuery { max_matches: 4, ..SearchQuery::literal("x") },
            SearchQuery { max_matches: 3, context: 1, ..SearchQuery::literal("x") },
            SearchQuery { max_matches: 2, ..SearchQuery::literal("x") },
            SearchQuery { max_matches: 0, ..SearchQuery::literal("x") },
            SearchQuery { stop: Some(stop), ..SearchQuery::literal("x") },
        ],
        &[],
        expect![[r#"
            /w/a:1:1: x
            /w/a:2:1: x
            /w/a:4:1: x
            /w/b:1:1: x
            2 searched
            --
            /w/a:1:1: x
                x
                x
            /w/a:2:1: x
                1
                1
            /w/a:4:1: x
                2
            2 searched, 1 truncated
            --
            /w/a:1:1: x
            /w/a:2:1: x
            1 searched, 1 truncated
            --
            1 searched, 1 truncated
            --
            0 searched, 1 truncated
        "#]],
    );
}

#[test]
fn a_search_may_be_of_one_directory_or_one_file() {
    let tree = TestTree::new(
        "
//- /w/a
x
//- /w/dir/b
x
//- /w/dir/c
x
//- /w/dir-not/d
x
",
    );
    let roots = tree.roots(&["/w"]);
    let mut out = String::new();
    for under in ["/w/dir", "/w/dir/b", "/w/none"] {
        let under = roots.admit(&tree.path_text(under), bowline_policy::paths::Access::Read).unwrap();
        let unsaved = [("/w/dir/new", "x"), ("/w/new", "x"), ("/w/dir/c", "")];
        out += &search_output_under(&tree, &roots, &SearchQuery::literal("x"), Some(&under), &unsaved);
        out += "--\n";
    }
    expect![[r#"
        /w/dir/b:1:1: x
        /w/dir/new:1:1: x
        3 searched
        --
        /w/dir/b:1:1: x
        1 searched
        --
        ! there is no /w/none
        --
    "#]]
    .assert_eq(&out);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Lines and contexts equal those of a plain loop, from disk and from a document.
    #[test]
    fn matches_are_those_of_a_plain_loop(lines in prop::collection::vec("[abé]{0,4}", 0..30), context in 0..4usize) {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let tree = TestTree::new("");
        let roots = tree.roots(&["/w"]);
        tree.write("/w/disk", &text);
        let query = SearchQuery { context, ..SearchQuery::literal("ab") };
        let unsaved = UnsavedTexts::from([(tree.path_text("/w/unsaved"), Arc::new(text))]);
        let result = search(&roots, &query, None, &unsaved).unwrap();
        let expected: Vec<SearchMatch> = ["/w/disk", "/w/unsaved"]
            .iter()
            .flat_map(|path| {
                lines.iter().enumerate().filter_map(|(at, line)| {
                    let start = line.find("ab")?;
                    Some(SearchMatch {
                        path: tree.path_text(path),
                        line: at as u64 + 1,
                        column: line[..start].chars().count() as u64 + 1,
                        text: line.clone(),
                        is_truncated: false,
                        before: lines[at.saturating_sub(context)..at].to_vec(),
                        after: lines[at + 1..lines.len().min(at + 1 + context)].to_vec(),
                    })
                })
            })
            .collect();
        prop_assert_eq!(result.matches, expected);
    }

    #[test]
    fn a_part_of_a_line_has_its_match_and_keeps_characters_whole(
        before in "[aé€😀]{0,40}",
        after in "[aé€😀]{0,40}",
        max_line_bytes in 8..60usize,
    ) {
        let text = format!("{before}x{after}");
        let tree = TestTree::new("");
        let unsaved = UnsavedTexts::from([(tree.path_text("/w/a"), Arc::new(text.clone()))]);
        let query = SearchQuery { max_line_bytes, ..SearchQuery::literal("x") };
        let result = search(&tree.roots(&["/w"]), &query, None, &unsaved).unwrap();
        let [found] = &result.matches[..] else { panic!("{result:?}") };
        prop_assert!(found.text.len() <= max_line_bytes && found.text.contains('x'), "{}", found.text);
        prop_assert!(text.contains(&found.text));
        prop_assert_eq!(found.is_truncated, text.len() > max_line_bytes);
    }

    // A file may grow or shrink after its size was read.
    #[test]
    fn a_file_is_read_whole_whatever_size_was_expected(length in 0..40_u64, size in 0..40_u64, limit in 0..40_u64) {
        let tree = TestTree::new("");
        let bytes: Vec<u8> = (0..length as u8).collect();
        tree.write("/w/a", &bytes);
        let file = File::open(tree.path("/w/a")).unwrap();
        let read = read_at_most(&file, size, limit).unwrap();
        if size > limit || length > limit {
            prop_assert_eq!(read, None);
        } else if length <= size {
            prop_assert_eq!(read, Some(bytes));
        } else {
            // What was appended after the size was read may be missing.
            let read = read.unwrap();
            prop_assert!(bytes.starts_with(&read) && read.len() as u64 >= size);
        }
    }

    // Any pattern is either searched for or refused.
    #[test]
    fn no_pattern_is_too_strange(pattern in any::<String>(), regex: bool) {
        let tree = TestTree::new("//- /w/a\nsome text\n");
        let kind = if regex { PatternKind::Regex } else { PatternKind::Literal };
        let include = vec![pattern.clone()];
        let query = SearchQuery { kind, include, ..SearchQuery::literal(pattern) };
        match search(&tree.roots(&["/w"]), &query, None, &UnsavedTexts::new()) {
            Ok(result) => prop_assert!(result.matches.len() <= 1),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
