//! Tests of forms: what they show, and what they send.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::view::widgets::test_util::{
    any_key, any_size, any_text, ctrl_key, draw_to_buffer, draw_to_text, key_event,
};

fn form_pane(schema: Json) -> ElicitationPane {
    pane(
        json!({ "mode": "form", "sessionId": "s", "message": "Where should it go?", "requestedSchema": schema }),
    )
}

fn page_pane(url: &str) -> ElicitationPane {
    pane(json!({ "mode": "url", "sessionId": "s", "message": "Log in", "elicitationId": "e", "url": url }))
}

fn pane(request: Json) -> ElicitationPane {
    ElicitationPane::new(Some("robot".to_owned()), Arc::new(serde_json::from_value(request).unwrap()))
}

fn check(pane: &mut ElicitationPane, (width, height): (u16, u16), expected: Expect) {
    expected.assert_eq(&draw_to_text(width, height, |frame, area| pane.draw(frame, area)));
}

fn full_schema() -> Json {
    json!({
        "type": "object",
        "title": "Deployment",
        "required": ["name", "count"],
        "properties": {
            "name": { "type": "string", "title": "Name", "description": "Of the service", "minLength": 2, "maxLength": 9 },
            "count": { "type": "integer", "minimum": 1, "maximum": 5, "default": 3 },
            "ratio": { "type": "number" },
            "force": { "type": "boolean", "default": false },
            "zone": { "type": "string", "enum": ["north", "south"] },
            "tags": {
                "type": "array",
                "items": { "type": "string", "enum": ["red", "green", "blue"] },
                "maxItems": 2,
                "default": ["green"],
            },
        },
    })
}

fn type_text(pane: &mut ElicitationPane, text: &str) {
    for letter in text.chars() {
        let code = if letter == '\t' { KeyCode::Tab } else { KeyCode::Char(letter) };
        assert_eq!(pane.handle_key(key_event(code)), None);
    }
}

fn submit(pane: &mut ElicitationPane) -> Option<Json> {
    pane.handle_key(ctrl_key('s')).map(|action| serde_json::to_value(action).unwrap())
}

#[test]
fn a_form_shows_its_fields_with_their_defaults() {
    check(
        &mut form_pane(full_schema()),
        (80, 24),
        expect![[r#"
            robot wants to know:
            Where should it go?

            Deployment
            Name (required)
            Of the service
            text, 2 to 9 characters
              >
            count (required)
            whole number, 1 to 5
              > 3
            force
            y, n, or Space
              ( ) yes  (•) no
            ratio
            number
              >
            tags
            some of these, at most 2: ← → to move, Space to mark
              [ ] red
              [x] green
              [ ] blue
            ─ lines 1–22 of 26: PgUp PgDn ──────────────────────────────────────────────────
            ^S send  ^D decline  Tab next field  Space mark  Esc cancel
        "#]],
    );
    check(
        &mut form_pane(full_schema()),
        (20, 5),
        expect![[r#"
            Of the service
            text, 2 to 9
            characters
              >
            ^S send  Esc cancel
        "#]],
    );
}

#[test]
fn what_is_filled_in_is_sent() {
    let mut pane = form_pane(full_schema());
    type_text(&mut pane, "web\t");
    pane.handle_key(key_event(KeyCode::Backspace));
    type_text(&mut pane, "4\ty\t0.5\tj \t j ");
    check(
        &mut pane,
        (60, 30),
        expect![[r#"
            robot wants to know:
            Where should it go?

            Deployment
            Name (required)
            Of the service
            text, 2 to 9 characters
              > web
            count (required)
            whole number, 1 to 5
              > 4
            force
            y, n, or Space
              (•) yes  ( ) no
            ratio
            number
              > 0.5
            tags
            some of these, at most 2: ← → to move, Space to mark
              [ ] red
              [x] green
              [x] blue
            zone
            one of these: ← → to move, Space to choose
              ( ) north
              (•) south



            ^S send  ^D decline  Tab next field  Space mark  Esc cancel
        "#]],
    );
    expect![[r#"{"action":"accept","content":{"count":4,"force":true,"name":"web","ratio":0.5,"tags":["green","blue"],"zone":"south"}}"#]]
    .assert_eq(&submit(&mut pane).unwrap().to_string());
}

#[test]
fn text_is_pasted_into_the_field_that_is_filled_in() {
    let mut pane = form_pane(json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
    pane.paste("one\r\ntwo\n");
    expect![[r#"{"action":"accept","content":{"a":"one two "}}"#]]
        .assert_eq(&submit(&mut pane).unwrap().to_string());
}

#[test]
fn what_was_left_open_is_not_sent() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string" }, "b": { "type": "boolean" }, "c": { "type": "string", "enum": ["x"] } },
    });
    expect![[r#"{"action":"accept","content":{}}"#]]
        .assert_eq(&submit(&mut form_pane(schema)).unwrap().to_string());
}

#[test]
fn what_is_wrong_is_said_and_not_sent() {
    let mut pane = form_pane(full_schema());
    assert_eq!(submit(&mut pane), None);
    check(
        &mut pane,
        (60, 10),
        expect![[r#"
            Where should it go?

            Deployment
            Name (required)
            Of the service
            text, 2 to 9 characters
              >
            ─ lines 2–8 of 26: PgUp PgDn ───────────────────────────────
            ! name is required
            ^S send  ^D decline  Tab next field  Space mark  Esc cancel
        "#]],
    );
    type_text(&mut pane, "web\tx");
    assert_eq!(submit(&mut pane), None);
    check(
        &mut pane,
        (60, 10),
        expect![[r#"
            Name (required)
            Of the service
            text, 2 to 9 characters
              > web
            count (required)
            whole number, 1 to 5
              > 3x
            ─ lines 5–11 of 26: PgUp PgDn ──────────────────────────────
            ! count is not a whole number
            ^S send  ^D decline  Tab next field  Space mark  Esc cancel
        "#]],
    );
    pane.handle_key(key_event(KeyCode::Backspace));
    type_text(&mut pane, "3");
    assert_eq!(submit(&mut pane), None);
    check(
        &mut pane,
        (60, 10),
        expect![[r#"
            Name (required)
            Of the service
            text, 2 to 9 characters
              > web
            count (required)
            whole number, 1 to 5
              > 33
            ─ lines 5–11 of 26: PgUp PgDn ──────────────────────────────
            ! count is more than 5
            ^S send  ^D decline  Tab next field  Space mark  Esc cancel
        "#]],
    );
}

#[test]
fn enter_sends_nothing() {
    let mut pane = form_pane(full_schema());
    for _ in 0..20 {
        assert_eq!(pane.handle_key(key_event(KeyCode::Enter)), None);
    }
    assert_eq!(pane.handle_key(ctrl_key('d')), Some(ElicitationAction::Decline));
    assert_eq!(pane.handle_key(key_event(KeyCode::Esc)), Some(ElicitationAction::Cancel));
}

#[test]
fn an_address_is_shown_whole_and_agreed_to_by_its_own_key() {
    let mut pane =
        page_pane("http://bank.example@127.0.0.1:8080/login?next=/a/very/long/way/to/go/until/it/ends");
    check(
        &mut pane,
        (60, 14),
        expect![[r#"
            robot wants you to visit a page:
            Log in

            ! the connection is not encrypted: others can read what you
            send
            ! what stands before the @ is not where the address leads
            ! the host is a number, not a name
            ! the address leads to this computer
            It leads to 127.0.0.1
            http://bank.example@127.0.0.1:8080/login?next=/a/very/long/w
            ay/to/go/until/it/ends
            It is not opened for you: copy it into a browser if you
            ─ lines 1–12 of 13: PgUp PgDn ──────────────────────────────
            ^S I agree to open it  ^D decline  Esc cancel
        "#]],
    );
    assert_eq!(pane.handle_key(key_event(KeyCode::Enter)), None);
    assert_eq!(pane.handle_key(key_event(KeyCode::Char('y'))), None);
    let accepted = pane.handle_key(ctrl_key('s'));
    assert_eq!(accepted, Some(ElicitationAction::Accept(ElicitationAcceptAction::new())));
}

#[test]
fn what_cannot_be_shown_cannot_be_agreed_to() {
    let mut pane = page_pane("javascript:alert(1)");
    check(
        &mut pane,
        (60, 8),
        expect![[r#"
        robot asks for something that cannot be shown:
        Log in

        ! the address is not one of http:// or https://



        ^D decline  Esc cancel
    "#]],
    );
    assert_eq!(pane.handle_key(key_event(KeyCode::Char('y'))), None);
    assert_eq!(pane.handle_key(ctrl_key('s')), None);
    let mut missing = form_pane(json!({ "type": "object", "properties": {}, "required": ["a"] }));
    check(
        &mut missing,
        (60, 8),
        expect![[r#"
        robot asks for something that cannot be shown:
        Where should it go?

        ! field a is required, and is not among the properties



        ^D decline  Esc cancel
    "#]],
    );
    assert_eq!(missing.handle_key(ctrl_key('s')), None);
}

#[test]
fn an_agents_default_cannot_hide_what_it_is() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string", "default": "ok\u{202e}\u{1b}[2J", "title": "\u{1b}]0;x\u{7}" } },
    });
    check(
        &mut form_pane(schema),
        (50, 9),
        expect![[r#"
        robot wants to know:
        Where should it go?

        \u{1b}]0;x\u{7}
        text
          > ok\u{202e}\u{1b}[2J


        ^S send  ^D decline  Tab next field  Esc cancel
    "#]],
    );
}

#[test]
fn long_lists_move_under_the_cursor() {
    let options: Vec<String> = (0..50).map(|option| format!("option {option}")).collect();
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "enum": options } } });
    let mut pane = form_pane(schema);
    type_text(&mut pane, &"j".repeat(20));
    type_text(&mut pane, " ");
    check(
        &mut pane,
        (40, 16),
        expect![[r#"
        robot wants to know:
        Where should it go?

        a
        one of these: ← → to move, Space to
        choose
          ( ) option 17
          ( ) option 18
          ( ) option 19
          (•) option 20
          ( ) option 21
          ( ) option 22
          ( ) option 23
          21 of 50 options

        ^S send  ^D decline  Tab next field  Esc
    "#]],
    );
    expect![[r#"{"action":"accept","content":{"a":"option 20"}}"#]]
        .assert_eq(&submit(&mut pane).unwrap().to_string());
}

fn any_request() -> impl Strategy<Value = Json> {
    let property = prop_oneof![
        (any_text(), any_text())
            .prop_map(|(title, default)| json!({ "type": "string", "title": title, "default": default })),
        (any::<i64>(), any::<i64>())
            .prop_map(|(min, max)| json!({ "type": "integer", "minimum": min, "maximum": max })),
        any::<f64>().prop_map(|default| json!({ "type": "number", "default": default })),
        any_text().prop_map(|description| json!({ "type": "boolean", "description": description })),
        proptest::collection::vec(any_text(), 0..20)
            .prop_map(|options| json!({ "type": "string", "enum": options })),
        proptest::collection::vec(any_text(), 0..20)
            .prop_map(|options| json!({ "type": "array", "items": { "type": "string", "enum": options } })),
        any_text().prop_map(|kind| json!({ "type": format!("_{kind}") })),
    ];
    let form = (any_text(), proptest::collection::btree_map(any_text(), property, 0..6)).prop_map(
        |(message, properties)| {
            let schema = json!({ "type": "object", "properties": properties });
            json!({ "mode": "form", "sessionId": "s", "message": message, "requestedSchema": schema })
        },
    );
    let page = (any_text(), any_text()).prop_map(|(message, path)| {
        json!({ "mode": "url", "sessionId": "s", "message": message, "elicitationId": "e", "url": format!("https://x.example/{path}") })
    });
    prop_oneof![4 => form, 1 => page]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nothing_breaks_it_and_what_is_sent_is_what_was_asked_for(
        request in any_request(),
        steps in proptest::collection::vec((any_key(), any_size()), 1..24),
    ) {
        let mut pane = pane(request);
        for (key, (width, height)) in steps.into_iter().chain([(ctrl_key('s'), (80, 24))]) {
            if let Some(ElicitationAction::Accept(accepted)) = pane.handle_key(key) {
                match &pane.body {
                    ElicitationBody::Form { form, .. } => {
                        prop_assert_eq!(key, ctrl_key('s'));
                        prop_assert_eq!(form.check(&accepted.content.unwrap_or_default()), []);
                    }
                    ElicitationBody::Page(_) => prop_assert_eq!(key, ctrl_key('s')),
                    ElicitationBody::Unsupported(_) => prop_assert!(false),
                }
            }
            draw_to_buffer(width, height, |frame, area| pane.draw(frame, area));
        }
    }
}
