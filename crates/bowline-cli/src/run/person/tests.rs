//! Tests of how answers are read.

use bowline_state::grants::Holder;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::question::{Item, Occasion, Offer, QuestionId};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn question() -> Question {
    let operation = Operation { kind: Kind::Fetch, target: Target::Url("https://example.org/x".to_owned()) };
    let suggestions = bowline_state::policy::suggest(&operation, &[]);
    Question {
        id: QuestionId(1),
        holder: Holder { session: "s".to_owned(), turn: Some(1) },
        call: None,
        agent: Some("agent".to_owned()),
        occasion: Occasion::Request,
        title: "Fetch\x1b[2J".to_owned(),
        items: vec![Item::plain(operation)],
        dangers: Vec::new(),
        because: "no rule covers it".to_owned(),
        suggestions,
        offers: Vec::new(),
    }
}

fn check(lines: &[&str], expected: Expect) {
    let question = question();
    let told = lines.iter().map(|line| match reply(line, &question) {
        Ok(Reply::Answered(answer)) => format!(
            "{line:?}: {:?} {:?} {:?} {:?}\n",
            answer.choice,
            answer.keep,
            answer.scope.iter().map(|scope| &scope.text).collect::<Vec<_>>(),
            answer.reason
        ),
        other => format!("{line:?}: {other:?}\n"),
    });
    expected.assert_eq(&told.collect::<String>());
}

#[test]
fn an_answer_is_a_letter_or_a_word() {
    check(
        &[
            "y",
            " YES ",
            "once",
            "n",
            "no",
            "NO",
            "N",
            "N1",
            "r",
            "r  too early ",
            "s",
            "session",
            "p",
            "project",
            "p1",
            "always",
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
            "r": Err(Reason)
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
        // Nothing holds everywhere for a single letter.
        &["", "a", "A", "a1", "ok", "s99", "s0", "N9", "Nn", "yy", "ß", "s\u{301}", "99999999999999999999"],
        expect![[r#"
            "": Err(Help)
            "a": Err(Help)
            "A": Err(Help)
            "a1": Err(Help)
            "ok": Err(Help)
            "s99": Err(Help)
            "s0": Err(Help)
            "N9": Err(Help)
            "Nn": Err(Help)
            "yy": Err(Help)
            "ß": Err(Help)
            "s\u{301}": Err(Help)
            "99999999999999999999": Err(Help)
        "#]],
    );
}

#[test]
fn an_answer_of_the_agents_own_is_a_number() {
    let option =
        |name: &str| serde_json::from_value(json!({"optionId": name, "name": name, "kind": "allow_once"}));
    let options: Vec<_> = ["Plan A", "Plan B"].into_iter().map(|name| option(name).unwrap()).collect();
    let question = Question { offers: Offer::to_choose(Offer::all(&options), true), ..question() };
    let Ok(Reply::Answered(answer)) = reply("2", &question) else { panic!() };
    assert_eq!((answer.choice, answer.option), (Choice::Allow, Some("Plan B".into())));
    for unclear in ["0", "3"] {
        assert_eq!(reply(unclear, &question), Err(Unclear::Help), "{unclear}");
    }
    assert_eq!(["y", "n"].map(|line| reply(line, &question)), [Ok(Reply::allow()), Ok(Reply::deny())]);
    assert_eq!(keys(&question)[0], ("y", "allow once (1)".to_owned()));
}

#[test]
fn a_question_shows_everything_and_steers_nothing() {
    let person = Person::new(Output::begin().0, Paint::Plain);
    expect![[r#"

        agent asks: Fetch\u{1b}[2J
          fetch https://example.org/x
        Asked because no rule covers it
        y allow once   s this session   p this project   n reject   N always reject   r reject and say why
        s, p and N hold for addresses at example.org
    "#]]
    .assert_eq(&person.question(&question(), &[]));
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
    let form = Form::read(&serde_json::from_value(schema).unwrap()).unwrap();
    let defaults = form.defaults();
    let mut told = String::new();
    for (field, typed) in form.fields.iter().zip(["Ada", "x", "2", "1.5", "yes"]) {
        told += &format!("{}{:?}\n", described(field, defaults.get(&field.name)), value(&field.input, typed));
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
    .assert_eq(&told);
}
