//! What a person sees of a question, and what an answer makes of it.

use expect_test::{Expect, expect};

use super::*;
use crate::danger::dangers;
use crate::operation::{Command, Invocation};
use crate::paths::Protection;

fn file(kind: Kind, asked: &str, resolved: &str, protection: Option<Protection>) -> Operation {
    Operation {
        kind,
        target: Target::File { asked: asked.to_owned(), resolved: resolved.to_owned(), protection },
    }
}

fn command(line: &str, env: &[(&str, &str)]) -> Operation {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let invocation = Invocation::Shell(line.to_owned());
    Operation {
        kind: Kind::Execute,
        target: Target::Command(Command { invocation, cwd: "/w".to_owned(), env, reaches: Vec::new() }),
    }
}

fn question(title: &str, items: Vec<Item>) -> Question {
    let operations: Vec<Operation> = items.iter().map(|item| item.operation.clone()).collect();
    Question {
        id: QuestionId(1),
        holder: Holder { session: "s".to_owned(), turn: Some(2) },
        call: Some("t1".to_owned()),
        agent: Some("robot".to_owned()),
        occasion: Occasion::Request,
        title: title.to_owned(),
        dangers: dangers(&operations, &["/w".to_owned()]),
        items,
        because: "no rule covers it".to_owned(),
        suggestions: Vec::new(),
    }
}

fn check(title: &str, items: Vec<Item>, expected: Expect) {
    expected.assert_eq(&question(title, items).text());
}

#[test]
fn a_write_shows_its_diff_and_where_the_name_leads() {
    let change = Shown {
        before: Some(Arc::new("one\ntwo\n".to_owned())),
        after: Arc::new("one\nTWO\nthree\n".to_owned()),
    };
    let hook = file(Kind::Write, "/w/link", "/w/.git/hooks/pre-commit", Some(Protection::Hook));
    check(
        "Edit",
        vec![Item { operation: hook, change: Some(change) }],
        expect![[r#"
            robot asks: Edit
            ! writes a git hook: runs later (/w/.git/hooks/pre-commit)
            ! /w/link leads to /w/.git/hooks/pre-commit
              write /w/link (leads to /w/.git/hooks/pre-commit)
              lines: 2 added, 1 removed
              @@ -1,2 +1,3 @@
               one
              -two
              +TWO
              +three
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn a_new_file_says_so() {
    let change = Shown { before: None, after: Arc::new("a\nb".to_owned()) };
    check(
        "Create",
        vec![Item { operation: file(Kind::Write, "/w/new", "/w/new", None), change: Some(change) }],
        expect![[r#"
            robot asks: Create
              write /w/new
              new file, lines: 2
              @@ -0,0 +1,2 @@
              +a
              +b
              \ No newline at end of file
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn a_command_shows_all_of_itself() {
    let end = format!("echo {} && rm -rf /", "x".repeat(20_000));
    let items = vec![Item::plain(command("cargo test\u{202e}", &[("LD_PRELOAD", "/w/x.so\n")]))];
    check(
        "Run \u{1b}[2Jtests",
        items,
        expect![[r#"
            robot asks: Run \u{1b}[2Jtests
            ! sets LD_PRELOAD: the system loads code from it into every program
              run cargo test\u{202e}
              in /w
              with LD_PRELOAD=/w/x.so\n
            Asked because no rule covers it
        "#]],
    );
    let text = question("Run", vec![Item::plain(command(&end, &[]))]).text();
    assert!(text.contains(&end), "a long command is shown whole");
    assert!(!text.contains("not shown"), "{text}");
    let endless = format!("echo {} ; rm -rf / ; echo {}", "x".repeat(200_000), "y".repeat(200_000));
    let text = question("Run", vec![Item::plain(command(&endless, &[]))]).text();
    let second = text.lines().nth(1).unwrap();
    assert_eq!(second, "! a part of the command is not shown: it is too long");
    assert!(text.len() < 80_000, "{}", text.len());
    let long = "line\n".repeat(5000);
    let change = Shown { before: None, after: Arc::new(long) };
    let item = Item { operation: file(Kind::Write, "/w/new", "/w/new", None), change: Some(change) };
    let text = question("Create", vec![item.clone()]).text();
    assert!(text.lines().nth(1).unwrap().contains("lines of the change of /w/new are not shown"), "{text}");
    let text = question("Create", vec![item; 50]).text();
    assert!(text.contains("operations of it are not shown") && text.lines().count() < 2200, "{text}");
}

#[test]
fn other_things_are_shown_by_what_is_known_of_them() {
    let plain = |kind, target| Item::plain(Operation { kind, target });
    check(
        "Many",
        vec![
            plain(Kind::Read, Target::Elsewhere { asked: "/etc/passwd".to_owned() }),
            plain(Kind::Fetch, Target::Url("https://example.org/x".to_owned())),
            plain(Kind::Execute, Target::Described("db.query".to_owned())),
            Item::plain(file(Kind::Delete, "/w/a", "/w/a", None)),
        ],
        expect![[r#"
            robot asks: Many
            ! outside the workspace: /etc/passwd
              read /etc/passwd (outside the workspace)
              fetch https://example.org/x
              a command or something like it in its own words: db.query
              delete /w/a
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn an_answer_that_holds_for_longer_makes_rules() {
    let question = question("Run", vec![Item::plain(command("cargo test --all", &[]))]);
    let roots = ["/w".to_owned()];
    let mut seen = String::new();
    for keep in [Keep::Once, Keep::Turn, Keep::Session, Keep::Project, Keep::Always] {
        for choice in [Choice::Allow, Choice::Deny] {
            let answer = Answer { choice, keep, scope: Vec::new(), reason: None };
            for rule in question.rules(&answer, &roots).unwrap() {
                seen += &format!("{keep:?} {choice:?}: {rule}, {:?}\n", rule.spec().lifetime);
            }
        }
    }
    expect![[r#"
        Turn Allow: a rule from an answer for this turn (allow execute: exactly `cargo test --all`), Turn { session: "s", turn: 2 }
        Turn Deny: a rule from an answer for this turn (deny execute: exactly `cargo test --all`), Turn { session: "s", turn: 2 }
        Session Allow: a rule from an answer for this session (allow execute: exactly `cargo test --all`), Session { session: "s" }
        Session Deny: a rule from an answer for this session (deny execute: exactly `cargo test --all`), Session { session: "s" }
        Project Allow: a rule from an answer (allow execute: exactly `cargo test --all`), Project
        Project Deny: a rule from an answer (deny execute: exactly `cargo test --all`), Project
        Always Allow: a rule from an answer (allow execute: exactly `cargo test --all`), Always
        Always Deny: a rule from an answer (deny execute: exactly `cargo test --all`), Always
    "#]].assert_eq(&seen);
    let outside_of_a_turn = Question { holder: Holder { session: "s".to_owned(), turn: None }, ..question };
    let answer = Answer { choice: Choice::Allow, keep: Keep::Turn, scope: Vec::new(), reason: None };
    assert!(outside_of_a_turn.rules(&answer, &roots).unwrap().is_empty());
}
