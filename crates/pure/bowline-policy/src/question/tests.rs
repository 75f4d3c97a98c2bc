//! Tests of questions: what a person sees, and the rules that an answer creates.

use expect_test::{Expect, expect};

use agent_client_protocol_schema::v1::{
    PermissionOption, RequestPermissionOutcome, RequestPermissionResponse, SelectedPermissionOutcome,
    SessionId, ToolCallUpdate,
};

use super::*;
use crate::danger::find_dangers;
use crate::operation::CommandSpec;
use crate::paths::Protection;
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::terminal::Invocation;

fn file(kind: OperationKind, requested: &str, resolved: &str, protection: Option<Protection>) -> Operation {
    Operation {
        kind,
        target: OperationTarget::File {
            requested: requested.to_owned(),
            resolved: resolved.to_owned(),
            protection,
        },
    }
}

fn command(line: &str, env: &[(&str, &str)]) -> Operation {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let invocation = Invocation::Shell(line.to_owned());
    Operation {
        kind: OperationKind::Execute,
        target: OperationTarget::Command(CommandSpec {
            invocation,
            cwd: "/w".to_owned(),
            env,
            named_paths: Vec::new(),
        }),
    }
}

fn question(title: &str, items: Vec<QuestionItem>) -> Question {
    let operations: Vec<Operation> = items.iter().map(|item| item.operation.clone()).collect();
    Question {
        id: QuestionId(1),
        holder: GrantHolder { session: "s".to_owned(), turn: Some(2) },
        call: Some("t1".to_owned()),
        agent: Some("robot".to_owned()),
        trigger: QuestionTrigger::PermissionRequest,
        title: title.to_owned(),
        dangers: find_dangers(&operations, &["/w".to_owned()]),
        items,
        reason: "no rule covers it".to_owned(),
        suggestions: Vec::new(),
        agent_options: Vec::new(),
    }
}

fn check(title: &str, items: Vec<QuestionItem>, expected: Expect) {
    expected.assert_eq(&question(title, items).to_text());
}

#[test]
fn a_write_shows_its_diff_and_where_the_name_leads() {
    let change = TextChange {
        before: Some(Arc::new("one\ntwo\n".to_owned())),
        after: Arc::new("one\nTWO\nthree\n".to_owned()),
    };
    let hook = file(OperationKind::Write, "/w/link", "/w/.git/hooks/pre-commit", Some(Protection::VcsHook));
    check(
        "Edit",
        vec![QuestionItem::with_change(hook, change)],
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
    let change = TextChange { before: None, after: Arc::new("a\nb".to_owned()) };
    check(
        "Create",
        vec![QuestionItem::with_change(file(OperationKind::Write, "/w/new", "/w/new", None), change)],
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
    let items = vec![QuestionItem::new(command("cargo test\u{202e}", &[("LD_PRELOAD", "/w/x.so\n")]))];
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
    let text = question("Run", vec![QuestionItem::new(command(&end, &[]))]).to_text();
    assert!(text.contains(&end), "a long command is shown whole");
    assert!(!text.contains("not shown"), "{text}");
    let endless = format!("echo {} ; rm -rf / ; echo {}", "x".repeat(200_000), "y".repeat(200_000));
    let text = question("Run", vec![QuestionItem::new(command(&endless, &[]))]).to_text();
    let second = text.lines().nth(1).unwrap();
    assert_eq!(second, "! a part of the command is not shown: it is too long");
    assert!(text.len() < 80_000, "{}", text.len());
    let long = "line\n".repeat(5000);
    let change = TextChange { before: None, after: Arc::new(long) };
    let item = QuestionItem::with_change(file(OperationKind::Write, "/w/new", "/w/new", None), change);
    let text = question("Create", vec![item.clone()]).to_text();
    assert!(text.lines().nth(1).unwrap().contains("lines of the change of /w/new are not shown"), "{text}");
    let text = question("Create", vec![item; 50]).to_text();
    assert!(text.contains("operations of it are not shown") && text.lines().count() < 2200, "{text}");
}

#[test]
fn other_things_are_shown_by_what_is_known_of_them() {
    let plain = |kind, target| QuestionItem::new(Operation { kind, target });
    check(
        "Many",
        vec![
            plain(OperationKind::Read, OperationTarget::OutsideRoots { requested: "/etc/passwd".to_owned() }),
            plain(OperationKind::Fetch, OperationTarget::Url("https://example.org/x".to_owned())),
            plain(OperationKind::Execute, OperationTarget::Described("db.query".to_owned())),
            QuestionItem::new(file(OperationKind::Delete, "/w/a", "/w/a", None)),
        ],
        expect![[r#"
            robot asks: Many
            ! outside the workspace: /etc/passwd
              read /etc/passwd (outside the workspace)
              fetch https://example.org/x
              something that it does by itself, in its own words: db.query
              delete /w/a
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn an_answer_that_holds_for_longer_makes_rules() {
    let question = question("Run", vec![QuestionItem::new(command("cargo test --all", &[]))]);
    let roots = ["/w".to_owned()];
    let mut out = String::new();
    for lifetime in [
        AnswerLifetime::Once,
        AnswerLifetime::Turn,
        AnswerLifetime::Session,
        AnswerLifetime::Project,
        AnswerLifetime::Always,
    ] {
        for choice in [AnswerChoice::Allow, AnswerChoice::Deny] {
            let answer = QuestionAnswer::new(choice, lifetime);
            for rule in question.rules(&answer, &roots).unwrap() {
                out += &format!("{lifetime:?} {choice:?}: {rule}, {:?}\n", rule.spec().lifetime);
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
    "#]].assert_eq(&out);
    let outside_of_a_turn =
        Question { holder: GrantHolder { session: "s".to_owned(), turn: None }, ..question };
    let answer = QuestionAnswer::new(AnswerChoice::Allow, AnswerLifetime::Turn);
    assert!(outside_of_a_turn.rules(&answer, &roots).unwrap().is_empty());
}

/// Returns the single item of a call that has only a description.
fn described_item(call: &str) -> QuestionItem {
    let call: ToolCallUpdate = serde_json::from_str(call).unwrap();
    let call = ToolCallView::from_update(None, &call);
    let operation = Operation {
        kind: OperationKind::Execute,
        target: OperationTarget::Described(call.title.to_string()),
    };
    QuestionItem {
        description: Some(Arc::new(ToolCallDescription::from_tool_call(&call))),
        ..QuestionItem::new(operation)
    }
}

fn agent_options(pairs: &[(&str, &str)], rules: bool) -> Vec<AgentOption> {
    let option = |(name, kind): &(&str, &str)| {
        let json = serde_json::json!({"optionId": name, "name": format!("{name}\u{1b}"), "kind": kind});
        serde_json::from_value::<PermissionOption>(json).unwrap()
    };
    AgentOption::selectable(AgentOption::from_options(&pairs.iter().map(option).collect::<Vec<_>>()), rules)
}

#[test]
fn what_is_neither_a_change_nor_a_command_is_shown_by_what_the_agent_tells() {
    let plan = described_item(
        r##"{"toolCallId":"c","title":"Ready to code?","kind":"switch_mode","content":[
            {"type":"content","content":{"type":"text","text":"# Plan\n1. delete the database\u001b[2J"}},
            {"type":"content","content":{"type":"resource_link","name":"more","uri":"https://a.b/c"}}]}"##,
    );
    let mut prompt = question("Ready to code?", vec![plan]);
    prompt.agent_options =
        agent_options(&[("auto", "allow_always"), ("by hand", "allow_once"), ("no", "reject_once")], false);
    expect![[r#"
        robot asks: Ready to code?
          a change of its mode in its own words: Ready to code?
          says │ # Plan
               │ 1. delete the database\u{1b}[2J
               │ [more](https://a.b/c)
        The agent offers
          1 auto\u{1b} (yes, always)
          2 by hand\u{1b} (yes)
          3 no\u{1b} (no)
        Asked because no rule covers it
    "#]]
    .assert_eq(&prompt.to_text());
    let mail = r#"{"toolCallId":"c","title":"mcp: send_mail","kind":"other","rawInput":{"body":"I quit","to":"boss"}}"#;
    check(
        "mcp: send_mail",
        vec![described_item(mail)],
        expect![[r#"
            robot asks: mcp: send_mail
              a use of a tool in its own words: mcp: send_mail
              with │ {
                   │   "body": "I quit",
                   │   "to": "boss"
                   │ }
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn what_an_agent_tells_is_cut_and_that_is_said_first() {
    for text in ["x".repeat(1 << 20), "y\n".repeat(5000), "é\n ".repeat(100_000)] {
        let call = serde_json::json!({"toolCallId": "c", "title": "T", "rawInput": {"a": text}, "content": [
            {"type": "content", "content": {"type": "text", "text": text}}]});
        let text = question("T", vec![described_item(&call.to_string())]).to_text();
        let second = text.lines().nth(1).unwrap();
        assert_eq!(second, "! a part of what the agent tells of it is not shown: it is too long");
        assert!(text.len() < 160_000 && text.lines().count() < 1100, "{}", text.len());
    }
}

#[test]
fn there_is_something_to_choose_only_where_yes_and_no_do_not_say_it() {
    let names = |pairs: &[(&str, &str)], rules| {
        agent_options(pairs, rules).iter().map(|offer| offer.id.to_string()).collect::<Vec<_>>().join(" ")
    };
    let usual = [
        ("once", "allow_once"),
        ("always", "allow_always"),
        ("no", "reject_once"),
        ("never", "reject_always"),
    ];
    assert_eq!(names(&usual, true), "", "a rule can be made here, and says what it is for");
    assert_eq!(names(&usual, false), "once always no never");
    assert_eq!(names(&[("once", "allow_once"), ("no", "reject_once")], false), "");
    assert_eq!(names(&[("a", "allow_once"), ("b", "allow_once")], true), "a b");
    assert_eq!(names(&[("a", "allow_once"), ("a", "allow_once"), ("b", "allow_once")], true), "", "which a?");
    let many: Vec<(String, &str)> = (0..30).map(|number| (number.to_string(), "allow_once")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    let mut prompt = question("Many", Vec::new());
    prompt.agent_options = agent_options(&many, true);
    assert_eq!(
        [AnswerChoice::Allow, AnswerChoice::Deny].map(|choice| prompt.default_option_number(choice)),
        [Some(1), None]
    );
    assert_eq!(prompt.selectable_options().len(), MAX_AGENT_OPTIONS);
    assert!(prompt.to_text().contains("! 21 more answers of the agent's are not shown"));
}

#[test]
fn blanks_push_nothing_out_of_sight() {
    let line = format!("sh -c 'echo ok{}; ./x{}y'", " ".repeat(3000), "\n".repeat(300));
    check(
        "Run",
        vec![QuestionItem::new(command(&line, &[]))],
        expect![[r#"
            robot asks: Run
            ! has many blanks or empty lines in a row: look at what comes after them
              run sh -c 'echo ok␣×3000; ./x⏎×300\ny'
              in /w
            Asked because no rule covers it
        "#]],
    );
}

#[test]
fn an_editor_offers_what_the_terminal_offers() {
    let roots = ["/w".to_owned()];
    let check = |items: Vec<Operation>, expected: Expect| {
        let mut asked = question("Do it", items.iter().cloned().map(QuestionItem::new).collect());
        asked.suggestions = match items.as_slice() {
            [operation] => suggest_rules(operation, &roots),
            several => {
                several.iter().filter_map(|each| suggest_rules(each, &roots).into_iter().next()).collect()
            }
        };
        let mut lines = Vec::new();
        for option in asked.permission_request(SessionId::new("s")).options {
            let selected = SelectedPermissionOutcome::new(option.option_id.clone());
            let response = RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected));
            let QuestionReply::Answered(answer) = asked.reply_from_editor(&response) else { continue };
            let rules = asked.rules(&answer, &roots).unwrap_or_default();
            lines.push(format!("{}: {:?} {:?}", option.name, answer.choice, answer.lifetime));
            lines.extend(rules.iter().map(|rule| format!("  {rule}")));
        }
        expected.assert_eq(&(lines.join("\n") + "\n"));
    };
    let write = |name: &str| file(OperationKind::Write, name, name, None);
    check(
        vec![write("/w/a")],
        expect![[r#"
        Allow once: Allow Once
        Allow edits of this file in this session: Allow Session
          a rule from an answer for this session (allow write: path `/w/a`)
        Always allow edits of this file in this project: Allow Project
          a rule from an answer (allow write: path `/w/a`)
        Reject: Deny Once
    "#]],
    );
    check(
        vec![write("/w/a"), write("/w/b")],
        expect![[r#"
        Allow once: Allow Once
        Allow edits of these 2 files in this session: Allow Session
          a rule from an answer for this session (allow write: path `/w/a`)
          a rule from an answer for this session (allow write: path `/w/b`)
        Always allow edits of these 2 files in this project: Allow Project
          a rule from an answer (allow write: path `/w/a`)
          a rule from an answer (allow write: path `/w/b`)
        Reject: Deny Once
    "#]],
    );
    check(
        vec![write("/w/a"), file(OperationKind::Delete, "/w/b", "/w/b", None)],
        expect![[r#"
        Allow once: Allow Once
        Allow these 2 operations in this session: Allow Session
          a rule from an answer for this session (allow write: path `/w/a`)
          a rule from an answer for this session (allow delete: path `/w/b`)
        Always allow these 2 operations in this project: Allow Project
          a rule from an answer (allow write: path `/w/a`)
          a rule from an answer (allow delete: path `/w/b`)
        Reject: Deny Once
    "#]],
    );
    check(
        vec![command("rm -rf /", &[])],
        expect![[r#"
        Allow once: Allow Once
        Allow exactly this command in this session: Allow Session
          a rule from an answer for this session (allow execute: exactly `rm -rf /`)
        Always allow exactly this command in this project: Allow Project
          a rule from an answer (allow execute: exactly `rm -rf /`)
        Reject: Deny Once
    "#]],
    );
    let url = OperationTarget::Url("https://example.com/a".to_owned());
    check(
        vec![Operation { kind: OperationKind::Fetch, target: url }],
        expect![[r#"
        Allow once: Allow Once
        Allow addresses at example.com in this session: Allow Session
          a rule from an answer for this session (allow fetch: host `example.com`)
        Always allow addresses at example.com in this project: Allow Project
          a rule from an answer (allow fetch: host `example.com`)
        Reject: Deny Once
    "#]],
    );
    let outside = OperationTarget::OutsideRoots { requested: "/etc/passwd".to_owned() };
    let outside = Operation { kind: OperationKind::Write, target: outside };
    check(
        vec![outside.clone()],
        expect![[r#"
        Allow once: Allow Once
        Reject: Deny Once
    "#]],
    );
    check(
        vec![write("/w/a"), outside],
        expect![[r#"
        Allow once: Allow Once
        Reject: Deny Once
    "#]],
    );
}

#[test]
fn an_editor_allows_only_what_was_offered_and_a_reason_comes_along() {
    let described = OperationTarget::Described("Deploy".to_owned());
    let operation = Operation { kind: OperationKind::Execute, target: described };
    let asked = question("Deploy", vec![QuestionItem::new(operation)]);
    let reply = |option: &'static str, reason: &str| {
        let selected = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option));
        let meta = serde_json::json!({ "bowline": { "reason": reason } });
        let response = RequestPermissionResponse::new(selected).meta(meta.as_object().cloned());
        match asked.reply_from_editor(&response) {
            QuestionReply::Answered(answer) => format!("{:?} {:?}", answer.choice, answer.reason),
            QuestionReply::NoUser => "nobody".to_owned(),
        }
    };
    assert_eq!(reply("allow", ""), "Allow None");
    assert_eq!(reply("allow-project", ""), "Deny None");
    assert_eq!(reply("reject", " not on a\u{1b} Friday "), "Deny Some(\"not on a\\\\u{1b} Friday\")");
    assert_eq!(reply("reject", "the user said no: too early"), "Deny Some(\"too early\")");
    assert_eq!(reply("nonsense", "why"), "Deny Some(\"why\")");
}
