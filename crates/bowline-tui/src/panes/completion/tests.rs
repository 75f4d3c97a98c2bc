//! Tests of completion: tokens in, items out.

use super::*;

#[test]
fn what_can_be_completed_is_seen_at_the_cursor() {
    let command = |text: &str| Some(CompletionToken::Command(text.to_owned()));
    let file = |text: &str| Some(CompletionToken::File(text.to_owned()));
    let quoted = |text: &str| Some(CompletionToken::QuotedFile(text.to_owned()));
    for (before, row, token) in [
        ("/", 0, command("")),
        ("/com", 0, command("com")),
        ("/com x", 0, None),
        (" /com", 0, None),
        ("/com", 1, None),
        ("see @src/m", 0, file("src/m")),
        ("@", 3, file("")),
        ("me@home", 0, None),
        ("/review @a", 0, file("a")),
        ("", 0, None),
        ("see @\"my fi", 0, quoted("my fi")),
        ("@\"", 0, quoted("")),
        ("@\"a b\" and @x", 0, file("x")),
        ("@\"a b\" and @\"c d", 0, quoted("c d")),
        ("@\"a b\" and", 0, None),
        ("x@\"a b", 0, None),
    ] {
        assert_eq!(CompletionToken::at_cursor(before, row), token, "{before:?}");
    }
}

fn completed_texts(typed: &str, files: &[&str]) -> Vec<String> {
    let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    let completion = Completion::for_token(CompletionToken::File(typed.to_owned()), &[], &files);
    completion
        .map(|completion| completion.items.into_iter().map(|item| item.text).collect())
        .unwrap_or_default()
}

#[test]
fn the_best_comes_first() {
    let files = ["docs/main.md", "src/", "src/main.rs", "src/domain.rs", "ma", "x/m/a/i/n"];
    assert_eq!(
        completed_texts("main", &files),
        ["@src/main.rs ", "@docs/main.md ", "@src/domain.rs ", "@x/m/a/i/n "]
    );
    assert_eq!(completed_texts("sr", &files)[0], "@src/");
    assert_eq!(completed_texts("src/", &files)[0], "@src/main.rs ");
    assert_eq!(completed_texts("zzz", &files), [""; 0]);
    assert_eq!(completed_texts("src/main.rs", &files), [""; 0], "nothing is left to complete");
}

#[test]
fn a_name_with_blanks_is_put_in_quotes() {
    let files = ["my file.txt", "my dir/", "my dir/a b", "my\"odd file", "my\"odd"];
    assert_eq!(
        completed_texts("my", &files),
        ["@my\"odd ", "@\"my dir/", "@\"my dir/a b\" ", "@\"my file.txt\" "]
    );
    let files: Vec<String> = files.map(str::to_owned).into();
    let token = CompletionToken::at_cursor("see @\"my di", 0).unwrap();
    assert_eq!(token.char_count(), 7);
    let completion = Completion::for_token(token, &[], &files).unwrap();
    assert_eq!(completion.selected_item().unwrap().text, "@\"my dir/");
    let inside =
        Completion::for_token(CompletionToken::QuotedFile("my dir/".to_owned()), &[], &files).unwrap();
    assert_eq!(inside.selected_item().unwrap().text, "@\"my dir/a b\" ");
    assert_eq!(
        Completion::for_token(CompletionToken::QuotedFile("my file.txt".to_owned()), &[], &files),
        None
    );
}

#[test]
fn very_many_are_not_all_offered() {
    let files: Vec<String> = (0..10_000).map(|number| format!("file{number}")).collect();
    let completion = Completion::for_token(CompletionToken::File(String::new()), &[], &files).unwrap();
    assert_eq!(completion.items.len(), MAX_ITEMS);
}

#[test]
fn one_goes_round() {
    let mut completion =
        Completion::for_token(CompletionToken::File(String::new()), &[], &["a".to_owned(), "b".to_owned()])
            .unwrap();
    completion.move_selection(false);
    assert_eq!(completion.selected_item().unwrap().text, "@b ");
    completion.move_selection(true);
    assert_eq!(completion.selected_item().unwrap().text, "@a ");
}
