//! Walks: trees in, visited entries out; and a race against a process that swaps directories for links.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_policy::paths::{Access, MAX_COMPONENTS, MAX_PATH_BYTES};
use expect_test::{Expect, expect};
use rustix::fs::CWD;

use super::fixture::TestTree;
use super::*;

const SORTED: WalkOptions = WalkOptions {
    ignored: IgnoredFiles::Skip,
    order: WalkOrder::ByName,
    file_systems: FileSystemScope::SameAsRoot,
    metadata: EntryMetadata::Full,
    max_entries: 1000,
    max_depth: MAX_DEPTH,
};

fn write_entry(out: &mut String, entry: &WalkEntry<'_>) {
    let mark = match entry.kind() {
        EntryKind::File => "",
        EntryKind::Directory => "/",
        EntryKind::Link => "@",
        EntryKind::Other => "?",
    };
    writeln!(out, "{}{mark}", entry.path()).unwrap();
}

fn walk_output(tree: &TestTree, roots: &Roots, options: &WalkOptions) -> String {
    let mut out = String::new();
    let report = walk(roots, options, &mut |entry| {
        write_entry(&mut out, entry);
        ControlFlow::Continue(())
    });
    writeln!(out, "{} entries", report.entries).unwrap();
    for (what, count) in [
        ("not UTF-8", report.not_utf8),
        ("too deep", report.too_deep),
        ("unreadable", report.unreadable),
        ("truncated", u64::from(report.truncated)),
        ("stopped", u64::from(report.stopped)),
    ] {
        if count > 0 {
            writeln!(out, "{what}: {count}").unwrap();
        }
    }
    tree.without_base(&out)
}

fn check(fixture: &str, roots: &[&str], expected: Expect) {
    let tree = TestTree::new(fixture);
    expected.assert_eq(&walk_output(&tree, &tree.roots(roots), &SORTED));
}

#[test]
fn everything_is_shown_by_name_and_links_are_not_followed() {
    check(
        "
//- /w/b/x
//- /w/b.txt
//- /w/a
//- /w/.hidden/y
//- /w/empty/
//- /w/out -> ../o
//- /w/in -> b
//- /w/.git/config
//- /w/.hg/store
//- /w/b/.svn/entries
//- /o/secret
",
        &["/w"],
        expect![[r#"
            /w/.hidden/
            /w/.hidden/y
            /w/a
            /w/b/
            /w/b/x
            /w/b.txt
            /w/empty/
            /w/in@
            /w/out@
            9 entries
        "#]],
    );
}

#[test]
fn the_innermost_rule_decides_and_the_last_of_a_file() {
    check(
        "
//- /w/.gitignore
*.log
!kept.log
/target
build/
bad[
# comment
\\#odd
//- /w/a.log
//- /w/kept.log
//- /w/target/x
//- /w/sub/target/y
//- /w/sub/build/z
//- /w/sub/.gitignore
!a.log
kept.log
//- /w/sub/a.log
//- /w/sub/kept.log
//- /w/sub/b.log
//- /w/build
//- /w/#odd
",
        &["/w"],
        expect![[r#"
            /w/.gitignore
            /w/build
            /w/kept.log
            /w/sub/
            /w/sub/.gitignore
            /w/sub/a.log
            /w/sub/target/
            /w/sub/target/y
            8 entries
        "#]],
    );
}

#[test]
fn ignore_files_go_before_git_and_the_exclude_file_comes_last() {
    check(
        "
//- /w/.git/info/exclude
*.tmp
*.mine
!never.log
//- /w/.gitignore
!a.tmp
*.log
//- /w/.ignore
!b.log
*.md
//- /w/a.tmp
//- /w/b.tmp
//- /w/x.mine
//- /w/a.log
//- /w/b.log
//- /w/never.log
//- /w/x.md
//- /w/sub/.gitignore
!x.md
//- /w/sub/x.md
",
        &["/w"],
        expect![[r#"
            /w/.gitignore
            /w/.ignore
            /w/a.tmp
            /w/b.log
            /w/sub/
            /w/sub/.gitignore
            6 entries
        "#]],
    );
}

#[test]
fn the_rules_around_a_root_count_up_to_the_top_of_its_repository() {
    check(
        "
//- /.gitignore
*.c
//- /w/.git/info/exclude
*.b
//- /w/.gitignore
*.a
/sub/root/only-here
//- /w/sub/.ignore
*.d
//- /w/sub/root/only-here
//- /w/sub/root/deep/only-here
//- /w/sub/root/x.a
//- /w/sub/root/x.b
//- /w/sub/root/x.c
//- /w/sub/root/x.d
",
        &["/w/sub/root"],
        expect![[r#"
            /w/sub/root/deep/
            /w/sub/root/deep/only-here
            /w/sub/root/x.c
            3 entries
        "#]],
    );
}

#[test]
fn a_root_that_is_itself_ignored_is_walked() {
    check(
        "
//- /w/.git/
//- /w/.gitignore
target
//- /w/target/x
//- /w/target/target
",
        &["/w/target"],
        expect![[r#"
            /w/target/x
            1 entries
        "#]],
    );
}

#[test]
fn a_repository_in_another_has_its_own_rules() {
    check(
        "
//- /w/.git/
//- /w/.gitignore
*.a
//- /w/.ignore
*.i
//- /w/sub/.git
gitdir: elsewhere
//- /w/sub/x.a
//- /w/sub/x.i
//- /w/sub/x.b
",
        &["/w"],
        expect![[r#"
            /w/.gitignore
            /w/.ignore
            /w/sub/
            /w/sub/x.a
            /w/sub/x.b
            5 entries
        "#]],
    );
}

#[test]
fn a_root_in_another_is_walked_once_and_not_hidden() {
    check(
        "
//- /w/.ignore
hidden
//- /w/a
//- /w/in/x
//- /w/in/deeper/y
//- /w/hidden/z
",
        &["/w", "/w/in", "/w/hidden", "/w/in", "/w/in/deeper"],
        expect![[r#"
            /w/.ignore
            /w/a
            /w/in/
            /w/in/deeper/
            /w/in/x
            /w/hidden/z
            /w/in/deeper/y
            7 entries
        "#]],
    );
}

#[test]
fn rules_are_read_from_files_only_and_not_from_huge_ones() {
    let tree = TestTree::new(
        "
//- /o/rules
*.a
//- /w/link/.gitignore -> ../../o/rules
//- /w/link/x.a
//- /w/pipe/x.a
//- /w/directory/.gitignore/x.a
//- /w/bom/x.a
",
    );
    rustix::fs::mknodat(CWD, tree.path("/w/pipe/.ignore"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    tree.write("/w/bom/.gitignore", "\u{feff}*.a\r\n");
    tree.write("/w/huge/.gitignore", [b"*.a\n".as_slice(), &vec![b'#'; 1 << 20]].concat());
    tree.write("/w/huge/x.a", "");
    tree.write("/w/many/.gitignore", "*.a\n".repeat(2_001));
    tree.write("/w/many/x.a", "");
    expect![[r#"
        /w/bom/
        /w/bom/.gitignore
        /w/directory/
        /w/directory/.gitignore/
        /w/directory/.gitignore/x.a
        /w/huge/
        /w/huge/.gitignore
        /w/huge/x.a
        /w/link/
        /w/link/.gitignore@
        /w/link/x.a
        /w/many/
        /w/many/.gitignore
        /w/many/x.a
        /w/pipe/
        /w/pipe/.ignore?
        /w/pipe/x.a
        17 entries
    "#]]
    .assert_eq(&walk_output(&tree, &tree.roots(&["/w"]), &SORTED));
}

#[test]
fn ignore_rules_can_be_disabled_but_git_stays_hidden() {
    let tree = TestTree::new(
        "
//- /w/.git/config
//- /w/.gitignore
x
//- /w/x
",
    );
    let all = WalkOptions { ignored: IgnoredFiles::Show, ..SORTED };
    expect![[r#"
        /w/.gitignore
        /w/x
        2 entries
    "#]]
    .assert_eq(&walk_output(&tree, &tree.roots(&["/w"]), &all));
}

#[test]
fn what_bowline_keeps_is_not_shown() {
    let tree = TestTree::new(
        "
//- /w/state/journal
//- /w/a
",
    );
    let roots = tree.roots(&["/w"]).with_reserved_paths([tree.path("/w/state")]);
    expect![[r#"
        /w/a
        1 entries
    "#]]
    .assert_eq(&walk_output(&tree, &roots, &SORTED));
}

#[test]
fn a_walk_that_reads_only_types_finds_the_same() {
    let tree = TestTree::new("//- /w/a/b/c\n//- /w/d/\n//- /w/e -> a\n//- /w/.gitignore\nf\n//- /w/f\n");
    let roots = tree.roots(&["/w"]);
    let types = WalkOptions { metadata: EntryMetadata::Type, ..SORTED };
    assert_eq!(walk_output(&tree, &roots, &types), walk_output(&tree, &roots, &SORTED));
    let mut sizes = Vec::new();
    let mut visit = |entry: &WalkEntry<'_>| {
        sizes.push(entry.stamp().size);
        ControlFlow::Continue(())
    };
    walk(&roots, &types, &mut visit);
    assert_eq!(sizes, [0; 6]);
}

#[test]
fn a_walk_has_bounds() {
    let tree = TestTree::new(
        "
//- /w/a/b/c
//- /w/d/e
//- /w/f
",
    );
    let roots = tree.roots(&["/w"]);
    let mut out = String::new();
    for (max_entries, max_depth) in [(6, 9), (5, 9), (2, 9), (0, 9), (9, 1), (9, 2)] {
        let options = WalkOptions { max_entries, max_depth, ..SORTED };
        writeln!(out, "at most {max_entries}, {max_depth} deep").unwrap();
        out += &walk_output(&tree, &roots, &options);
    }
    expect![[r#"
        at most 6, 9 deep
        /w/a/
        /w/a/b/
        /w/a/b/c
        /w/d/
        /w/d/e
        /w/f
        6 entries
        at most 5, 9 deep
        /w/a/
        /w/a/b/
        /w/a/b/c
        /w/d/
        /w/d/e
        5 entries
        truncated: 1
        at most 2, 9 deep
        /w/a/
        /w/a/b/
        2 entries
        truncated: 1
        at most 0, 9 deep
        0 entries
        truncated: 1
        at most 9, 1 deep
        /w/a/
        /w/d/
        /w/f
        3 entries
        at most 9, 2 deep
        /w/a/
        /w/a/b/
        /w/d/
        /w/d/e
        /w/f
        5 entries
    "#]]
    .assert_eq(&out);
}

#[test]
fn unrepresentable_names_are_counted() {
    let tree = TestTree::new("");
    fs::write(tree.path("/w").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    // Deeper than any nameable path, created one by one.
    let open = |from: &OwnedFd, name: &str| {
        rustix::fs::mkdirat(from, name, Mode::RWXU).unwrap();
        open_at(from, name, OFlags::PATH).unwrap()
    };
    let mut deep = rustix::fs::open(tree.path("/w"), OFlags::PATH, Mode::empty()).unwrap();
    let mut long = rustix::io::fcntl_dupfd_cloexec(&deep, 0).unwrap();
    for _ in 0..300 {
        deep = open(&deep, "d");
    }
    for _ in 0..20 {
        long = open(&long, &"l".repeat(250));
    }
    let report = walk(&tree.roots(&["/w"]), &SORTED, &mut |entry| {
        assert!(entry.path().len() <= MAX_PATH_BYTES && path_names(entry.path()).count() <= MAX_COMPONENTS);
        ControlFlow::Continue(())
    });
    assert_eq!((report.not_utf8, report.too_deep, report.unreadable), (1, 2, 0));
}

#[test]
fn a_visitor_can_stop() {
    let tree = TestTree::new("//- /w/a\n//- /w/b/c\n//- /w/b/d\n//- /o/x\n");
    let mut seen = 0;
    let report = walk(&tree.roots(&["/w", "/o"]), &SORTED, &mut |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((seen, report.entries, report.stopped, report.truncated), (3, 3, true, false));
}

#[test]
fn special_files_are_shown_and_never_opened() {
    let tree = TestTree::new("//- /w/file\ntext");
    rustix::fs::mknodat(CWD, tree.path("/w/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    std::os::unix::net::UnixListener::bind(tree.path("/w/socket")).unwrap();
    let mut out = String::new();
    walk(&tree.roots(&["/w"]), &SORTED, &mut |entry| {
        let opened = entry.open().map(|(mut file, stamp)| {
            assert_eq!(stamp, entry.stamp());
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        });
        writeln!(out, "{}: {opened:?}", entry.path()).unwrap();
        ControlFlow::Continue(())
    });
    expect![[r#"
        /w/file: Ok("text")
        /w/pipe: Err(Kind(InvalidInput))
        /w/socket: Err(Kind(InvalidInput))
    "#]]
    .assert_eq(&tree.without_base(&out));
}

#[test]
fn a_walk_can_start_below_a_root() {
    let tree = TestTree::new(
        "
//- /w/.gitignore
*.log
target
//- /w/target/x
//- /w/target/x.log
//- /w/a/x.log
//- /w/a/x
//- /w/a/nested/y
//- /w/a/link -> x
//- /w/.git/config
",
    );
    let roots = tree.roots(&["/w", "/w/a/nested"]);
    let (mut out, mut cache) = (String::new(), IgnoreRulesCache::default());
    for (path, start) in [
        ("/w/a", StartVisibility::RulesApply),
        ("/w/target", StartVisibility::RulesApply),
        ("/w/target", StartVisibility::AlwaysVisible),
        ("/w/target/x", StartVisibility::RulesApply),
        ("/w/a/x", StartVisibility::RulesApply),
        ("/w/a/x.log", StartVisibility::RulesApply),
        ("/w/a/x.log", StartVisibility::AlwaysVisible),
        ("/w/a/x/below", StartVisibility::RulesApply),
        ("/w/a/link", StartVisibility::RulesApply),
        ("/w/a/link/below", StartVisibility::RulesApply),
        ("/w/none", StartVisibility::RulesApply),
        ("/w/.git/config", StartVisibility::AlwaysVisible),
        ("/elsewhere", StartVisibility::RulesApply),
        ("/w", StartVisibility::RulesApply),
    ] {
        let mut seen = String::new();
        let (arrival, _) =
            walk_from(&roots, &tree.path_text(path), start, &SORTED, &mut cache, &mut |entry| {
                write_entry(&mut seen, entry);
                ControlFlow::Continue(())
            });
        writeln!(out, "> {path} {start:?}: {arrival:?}\n{seen}").unwrap();
    }
    expect![[r#"
        > /w/a RulesApply: Directory
        /w/a/link@
        /w/a/nested/
        /w/a/x
        /w/a/nested/y

        > /w/target RulesApply: Hidden

        > /w/target AlwaysVisible: Directory
        /w/target/x

        > /w/target/x RulesApply: Hidden

        > /w/a/x RulesApply: Entry
        /w/a/x

        > /w/a/x.log RulesApply: Hidden

        > /w/a/x.log AlwaysVisible: Entry
        /w/a/x.log

        > /w/a/x/below RulesApply: Missing

        > /w/a/link RulesApply: Entry
        /w/a/link@

        > /w/a/link/below RulesApply: Missing

        > /w/none RulesApply: Missing

        > /w/.git/config AlwaysVisible: VersionControlStore

        > /elsewhere RulesApply: Outside

        > /w RulesApply: Directory
        /w/.gitignore
        /w/a/
        /w/a/link@
        /w/a/nested/
        /w/a/x
        /w/a/nested/y

    "#]]
    .assert_eq(&tree.without_base(&out));
    let admitted = roots.admit(&tree.path_text("/w/a/x"), Access::Read).unwrap();
    assert_eq!(walk_below(&roots, &admitted, &SORTED, &mut |_| ControlFlow::Continue(())).entries, 1);
}

#[test]
fn a_single_path_is_not_followed_through_links() {
    let tree = TestTree::new(
        "
//- /w/.gitignore
x
//- /w/a/x
//- /w/link -> a
//- /o/x
//- /w/out -> ../o
",
    );
    let roots = tree.roots(&["/w"]);
    let mut out = String::new();
    for path in ["/w/a/x", "/w/a", "/w/link", "/w/link/x", "/w/out/x", "/w/a/x/y", "/w/none/x", "/o/x"] {
        let mut seen = String::new();
        visit_path(&roots, &tree.path_text(path), &mut |entry| {
            write_entry(&mut seen, entry);
            ControlFlow::Continue(())
        })
        .unwrap();
        writeln!(out, "> {path}\n{seen}").unwrap();
    }
    expect![[r#"
        > /w/a/x
        /w/a/x

        > /w/a
        /w/a/

        > /w/link
        /w/link@

        > /w/link/x

        > /w/out/x

        > /w/a/x/y

        > /w/none/x

        > /o/x

    "#]]
    .assert_eq(&tree.without_base(&out));
}

/// How many walks the race takes.
const WALKS: usize = 3_000;

#[test]
fn directories_swapped_for_links_do_not_lead_a_walk_outside() {
    let tree = TestTree::new(
        "
//- /w/d/inner/inside
in
//- /o/inner/secret
out
//- /o/secret
out
//- /o/.gitignore
inside
",
    );
    let roots = tree.roots(&["/w"]);
    let (directory, link, away) = (tree.path("/w/d"), tree.path("/o-link"), tree.path("/away"));
    std::os::unix::fs::symlink(tree.path("/o"), &link).unwrap();
    let over = AtomicBool::new(false);
    let (mut with, mut without) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&directory, &away).unwrap();
                fs::rename(&link, &directory).unwrap();
                fs::rename(&directory, &link).unwrap();
                fs::rename(&away, &directory).unwrap();
            }
        });
        for _ in 0..WALKS {
            let mut inside = false;
            walk(&roots, &SORTED, &mut |entry| {
                assert!(!entry.path().contains("secret"), "{}", entry.path());
                if entry.kind() == EntryKind::File {
                    let mut text = String::new();
                    if let Ok((mut file, _)) = entry.open() {
                        file.read_to_string(&mut text).unwrap();
                        assert_eq!(text.trim(), "in");
                    }
                    inside = true;
                }
                ControlFlow::Continue(())
            });
            visit_path(&roots, &tree.path_text("/w/d/secret"), &mut |entry| panic!("{}", entry.path()))
                .unwrap();
            if inside { with += 1 } else { without += 1 }
        }
        over.store(true, Ordering::Relaxed);
    });
    // Otherwise there was no race.
    assert!(with > 0 && without > 0, "{with} {without}");
}
