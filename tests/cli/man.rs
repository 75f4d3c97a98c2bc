//! Tests of `bowline man`: every command has a page.

use expect_test::expect;

use crate::fixture::CliFixture;

#[test]
fn a_page_has_what_the_help_says() {
    let scene = CliFixture::new();
    let page = scene.run(&["man", "sessions", "show"]);
    for part in [".TH bowline-sessions-show 1", ".SH NAME", ".SH SYNOPSIS", "\\-\\-json"] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    expect![[r#"
        --- stderr
        bowline: `bowline sessions` has no command fly: see `bowline --help`
        --- 2
    "#]]
    .assert_eq(&scene.run(&["man", "sessions", "fly"]));
}

#[test]
fn every_visible_command_gets_a_page_in_the_directory() {
    let scene = CliFixture::new();
    expect![[r#"
        --- stderr
        bowline: wrote 49 pages to man/man1
        --- 0
    "#]]
    .assert_eq(&scene.run(&["man", "--output", "man/man1"]));
    let directory = scene.project().join("man/man1");
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        names.iter().any(|name| name == "bowline.1") && names.iter().any(|name| name == "bowline-undo.1")
    );
    assert!(!names.iter().any(|name| name.contains("supervisor") || name.contains("bridge")), "{names:?}");
}
