//! Tests of the parsing of answers.

use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::question::{AgentOption, QuestionId, QuestionItem, QuestionTrigger};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn question() -> Question {
    let operation = Operation {
        kind: OperationKind::Fetch,
        target: OperationTarget::Url("https://example.org/x".to_owned()),
    };
    let suggestions = bowline_policy::policy::suggest_rules(&operation, &[]);
    Question {
        id: QuestionId(1),
        holder: GrantHolder { session: "s".to_owned(), turn: Some(1) },
        call: None,
        agent: Some("agent".to_owned()),
        trigger: QuestionTrigger::PermissionRequest,
        title: "Fetch\x1b[2J".to_owned(),
        items: vec![QuestionItem::new(operation)],
        dangers: Vec::new(),
        reason: "no rule covers it".to_owned(),
        suggestions,
        agent_options: Vec::new(),
    }
}

fn check(lines: &[&str], expected: Expect) {
    let question = question();
    let output = lines.iter().map(|line| match parse_reply(line, &question) {
        Ok(QuestionReply::Answered(answer)) => format!(
            "{line:?}: {:?} {:?} {:?} {:?}\n",
            answer.choice,
            answer.lifetime,
            answer.scope.iter().map(|scope| &scope.description).collect::<Vec<_>>(),
            answer.reason
        ),
        other => format!("{line:?}: {other:?}\n"),
    });
    expected.assert_eq(&output.collect::<String>());
}

#[test]
fn an_answer_is_a_letter_or_a_word() {
    check(
        &[
            "y", " YES ", "once", "n", "no", "NO", "N", "N1", "r", "r  too early ", "s", "session", "p",
            "project", "p1", "always",
        ],
        expect![[r#"
            "y": Allow Once [] None
            " YES ": Allow Once [] None
            "once": Allow Once [] None
            "n": Deny Once [] None
            "no": Deny Once [] None
            "NO": Deny Once [] None
            "N": Deny Project [] None
            "N1": Deny Project ["addresses at example.org"] None
            "r": Err(ReasonMissing)
            "r  too early ": Deny Once [] Some("too early")
            "s": Allow Session [] None
            "session": Allow Session [] None
            "p": Allow Project [] None
            "project": Allow Project [] None
            "p1": Allow Project ["addresses at example.org"] None
            "always": Allow Always [] None
        "#]],
    );
}

#[test]
fn whatever_is_unclear_is_asked_again() {
    check(
        // No single letter gives an answer that applies everywhere.
        &["", "a", "A", "a1", "ok", "s99", "s0", "N9", "Nn", "yy", "ß", "s\u{301}", "99999999999999999999"],
        expect![[r#"
            "": Err(Unrecognized)
            "a": Err(Unrecognized)
            "A": Err(Unrecognized)
            "a1": Err(Unrecognized)
            "ok": Err(Unrecognized)
            "s99": Err(Unrecognized)
            "s0": Err(Unrecognized)
            "N9": Err(Unrecognized)
            "Nn": Err(Unrecognized)
            "yy": Err(Unrecognized)
            "ß": Err(Unrecognized)
            "s\u{301}": Err(Unrecognized)
            "99999999999999999999": Err(Unrecognized)
        "#]],
    );
}

#[test]
fn an_answer_of_the_agents_own_is_a_number() {
    let option =
        |name: &str| serde_json::from_value(json!({"optionId": name, "name": name, "kind": "allow_once"}));
    let options: Vec<_> = ["Plan A", "Plan B"].into_iter().map(|name| option(name).unwrap()).collect();
    let question = Question {
        agent_options: AgentOption::selectable(AgentOption::from_options(&options), true),
        ..question()
    };
    let Ok(QuestionReply::Answered(answer)) = parse_reply("2", &question) else { panic!() };
    assert_eq!((answer.choice, answer.option_id), (AnswerChoice::Allow, Some("Plan B".into())));
    for unclear in ["0", "3"] {
        assert_eq!(parse_reply(unclear, &question), Err(ReplyParseError::Unrecognized), "{unclear}");
    }
    assert_eq!(
        ["y", "n"].map(|line| parse_reply(line, &question)),
        [Ok(QuestionReply::allow()), Ok(QuestionReply::deny())]
    );
    assert_eq!(answer_keys(&question)[0], ("y", "allow once (1)".to_owned()));
}

#[test]
fn a_question_shows_everything_and_steers_nothing() {
    let user = TerminalUser::new(RunOutput::start().0, OutputStyle::PLAIN);
    expect![[r#"

        agent asks: Fetch\u{1b}[2J
          fetch https://example.org/x
        Asked because no rule covers it
        y allow once   s this session   p this project   n reject   N always reject   r reject and say why
        s, p and N hold for addresses at example.org
    "#]]
    .assert_eq(&user.render_question(&question(), &[]));
}

#[test]
fn fields_are_read_as_what_they_are() {
    let schema = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "title": "Your name", "description": "as on the door"},
        "age": {"type": "integer", "default": 7},
        "size": {"type": "number"},
        "sure": {"type": "boolean"},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
    }});
    let form = Form::from_schema(&serde_json::from_value(schema).unwrap()).unwrap();
    let defaults = form.defaults();
    let mut output = String::new();
    for (field, typed) in form.fields.iter().zip(["Ada", "x", "2", "1.5", "yes"]) {
        output += &format!(
            "{}{:?}\n",
            describe_field(field, defaults.get(&field.name)),
            parse_value(&field.input, typed)
        );
    }
    expect![[r#"
        Your name (as on the door): String("Ada")
        age number [7]: String("x")
        colour
          1 Red
          2 Green
        number (may be left out): String("g")
        size number (may be left out): Number(1.5)
        sure y/n (may be left out): Boolean(true)
    "#]]
    .assert_eq(&output);
}
