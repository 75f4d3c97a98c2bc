//! Tests of forms and their checks, and of URLs as the user sees them.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Parses a form, and shows its fields, its defaults, and the errors in each content.
fn check(schema: Json, contents: &[Json], expected: Expect) {
    let schema: ElicitationSchema = serde_json::from_value(schema).unwrap();
    let form = match Form::from_schema(&schema) {
        Ok(form) => form,
        Err(error) => return expected.assert_eq(&format!("! {error}\n")),
    };
    let mut out = String::new();
    for FormField { name, title, required, input, .. } in &form.fields {
        let title = title.as_ref().map(|title| format!(" {title:?}")).unwrap_or_default();
        out += &format!("{name}{title}{} {input:?}\n", if *required { " (required)" } else { "" });
    }
    out += &format!("begins with {}\n", serde_json::to_string(&form.defaults()).unwrap());
    for content in contents {
        let errors = form.check(&serde_json::from_value(content.clone()).unwrap());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let verdict = if errors.is_empty() { "fine".to_owned() } else { errors.join(", ") };
        out += &format!("{content} {verdict}\n");
    }
    expected.assert_eq(&out);
}

fn check_urls(urls: &[&str], expected: Expect) {
    let mut out = String::new();
    for url in urls {
        match ElicitationUrl::parse(url) {
            Ok(page) => out += &(page.display_lines().join("\n") + "\n"),
            Err(error) => out += &format!("{}\n  refused: {error}\n", display_url(url)),
        }
    }
    expected.assert_eq(&out);
}

fn display_url(url: &str) -> String {
    bowline_text::display::escape_line(url, 60)
}

#[test]
fn a_form_asks_first_for_what_it_requires() {
    check(
        json!({
            "type": "object",
            "properties": {
                "age": { "type": "integer", "minimum": 0, "maximum": 150 },
                "name": { "type": "string", "title": "Your name", "minLength": 2, "maxLength": 5, "default": "Zoë" },
                "share": { "type": "number", "minimum": 0.5, "default": 0.75 },
                "subscribe": { "type": "boolean", "default": true },
                "when": { "type": "string", "format": "date" },
            },
            "required": ["subscribe", "name", "name"],
        }),
        &[
            json!({ "name": "Zoë", "subscribe": false }),
            json!({ "name": "Z", "age": -1, "share": 0.25, "subscribe": true, "when": "tomorrow" }),
            json!({ "name": "Zoë Zoë", "age": 151, "share": 1, "subscribe": "yes" }),
            json!({ "name": 1, "age": 1.5, "share": "1", "when": ["2026-01-01"] }),
            json!({ "name": "Zoë", "subscribe": true, "password": "hunter2" }),
            json!({}),
        ],
        expect![[r#"
            subscribe (required) Boolean { default: Some(true) }
            name "Your name" (required) Text { length: ValueBounds { min: Some(2), max: Some(5) }, pattern: None, format: None, default: Some("Zoë") }
            age Integer { range: ValueBounds { min: Some(0), max: Some(150) }, default: None }
            share Number { range: ValueBounds { min: Some(0.5), max: None }, default: Some(0.75) }
            when Text { length: ValueBounds { min: None, max: None }, pattern: None, format: Some(Date), default: None }
            begins with {"name":"Zoë","share":0.75,"subscribe":true}
            {"name":"Zoë","subscribe":false} fine
            {"name":"Z","age":-1,"share":0.25,"subscribe":true,"when":"tomorrow"} name is shorter than 2, age is less than 0, share is less than 0.5, when is not a date, like 2026-01-31
            {"name":"Zoë Zoë","age":151,"share":1,"subscribe":"yes"} subscribe is not yes or no, name is longer than 5, age is more than 150
            {"name":1,"age":1.5,"share":"1","when":["2026-01-01"]} subscribe is required, name is not a text, age is not a whole number, share is not a number, when is not a text
            {"name":"Zoë","subscribe":true,"password":"hunter2"} password was not asked for
            {} subscribe is required, name is required
        "#]],
    );
}

#[test]
fn options_are_chosen_and_not_made_up() {
    check(
        json!({
            "type": "object",
            "properties": {
                "colour": { "type": "string", "enum": ["red", "green"], "default": "blue" },
                "plan": { "type": "string", "oneOf": [
                    { "const": "a", "title": "Small", "description": "for one" },
                    { "const": "b", "title": "Large" },
                ] },
                "tags": { "type": "array", "minItems": 1, "maxItems": 2,
                    "items": { "type": "string", "enum": ["x", "y", "z"] }, "default": ["x"] },
                "titled": { "type": "array", "items": { "anyOf": [{ "const": "1", "title": "One" }] } },
            },
        }),
        &[
            json!({ "colour": "green", "plan": "b", "tags": ["z", "x"], "titled": ["1"] }),
            json!({ "colour": "blue", "plan": "Small", "tags": [], "titled": ["One"] }),
            json!({ "colour": true, "tags": ["x", "y", "z"] }),
            json!({ "tags": ["x", "x"], "plan": "" }),
            json!({ "tags": "x" }),
        ],
        expect![[r#"
            colour SingleSelect { options: [SelectOption { value: "red", title: "red", description: None }, SelectOption { value: "green", title: "green", description: None }], default: Some("blue") }
            plan SingleSelect { options: [SelectOption { value: "a", title: "Small", description: Some("for one") }, SelectOption { value: "b", title: "Large", description: None }], default: None }
            tags MultiSelect { options: [SelectOption { value: "x", title: "x", description: None }, SelectOption { value: "y", title: "y", description: None }, SelectOption { value: "z", title: "z", description: None }], count: ValueBounds { min: Some(1), max: Some(2) }, default: Some(["x"]) }
            titled MultiSelect { options: [SelectOption { value: "1", title: "One", description: None }], count: ValueBounds { min: None, max: None }, default: None }
            begins with {"tags":["x"]}
            {"colour":"green","plan":"b","tags":["z","x"],"titled":["1"]} fine
            {"colour":"blue","plan":"Small","tags":[],"titled":["One"]} colour is none of the options, plan is none of the options, tags has fewer options than 1, titled is none of the options
            {"colour":true,"tags":["x","y","z"]} colour is not one of the options, tags has more options than 2
            {"tags":["x","x"],"plan":""} plan is none of the options, tags has an option twice
            {"tags":"x"} tags is not a list of options
        "#]],
    );
}

#[test]
fn unknown_field_types_are_marked_unknown() {
    let properties = json!({
        "shade": { "type": "_colour", "default": "#ffffff" },
        "list": { "type": "array", "items": { "type": "_colour", "enum": ["red"] } },
    });
    check(
        json!({ "type": "object", "properties": properties }),
        &[json!({}), json!({ "shade": "#000000" })],
        expect![[r##"
            list Unknown { kind: "list of _colour" }
            shade Unknown { kind: "_colour" }
            begins with {}
            {} fine
            {"shade":"#000000"} shade is not of a type that is known here
        "##]],
    );
    check(
        json!({ "properties": properties, "required": ["shade"] }),
        &[],
        expect![[r#"
        ! field shade is required, and its type _colour is not known here
    "#]],
    );
    check(
        json!({ "properties": {}, "required": ["nothing\u{202e}"] }),
        &[],
        expect![[r#"
        ! field nothing\u{202e} is required, and is not among the properties
    "#]],
    );
}

#[test]
fn an_oversized_form_is_refused() {
    let properties: BTreeMap<String, Json> =
        (0..=MAX_FIELDS).map(|number| (format!("f{number}"), json!({ "type": "boolean" }))).collect();
    check(
        json!({ "properties": properties }),
        &[],
        expect![[r#"
        ! the form has 101 fields, at most 100 are shown: ask for less
    "#]],
    );
    let options: Vec<String> = (0..=MAX_OPTIONS).map(|number| number.to_string()).collect();
    check(
        json!({ "properties": { "f": { "type": "string", "enum": options } } }),
        &[],
        expect![[r#"
        ! field f has 1001 options, at most 1000 are shown: offer less
    "#]],
    );
}

#[test]
fn formats_are_told_simply() {
    let texts = [
        ("email", "a@example.com", true),
        ("email", "a.b+c@localhost", true),
        ("email", "@example.com", false),
        ("email", "a@b@example.com", false),
        ("email", "a b@example.com", false),
        ("email", "a@example..com", false),
        ("email", "a@", false),
        ("uri", "https://example.com/a?b#c", true),
        ("uri", "urn:isbn:1", true),
        ("uri", "example.com", false),
        ("uri", "1https://example.com", false),
        ("uri", "https:", false),
        ("uri", "https://example.com/a b", false),
        ("date", "2024-02-29", true),
        ("date", "2000-02-29", true),
        ("date", "2026-04-30", true),
        ("date", "2026-12-31", true),
        ("date", "2023-02-29", false),
        ("date", "1900-02-29", false),
        ("date", "2026-04-31", false),
        ("date", "2026-13-01", false),
        ("date", "2026-00-01", false),
        ("date", "2026-01-00", false),
        ("date", "2026-1-1", false),
        ("date", "+026-01-01", false),
        ("date", "2026-01-01-01", false),
        ("date-time", "2026-01-31T23:59:60Z", true),
        ("date-time", "2026-01-31t00:00:00.123+23:59", true),
        ("date-time", "2026-01-31T12:00:00-01:00", true),
        ("date-time", "2026-01-31", false),
        ("date-time", "2026-01-31T12:00:00", false),
        ("date-time", "2026-01-31T24:00:00Z", false),
        ("date-time", "2026-01-31T12:60:00Z", false),
        ("date-time", "2026-01-31T12:00:61Z", false),
        ("date-time", "2026-01-31T12:00Z", false),
        ("date-time", "2026-01-31T12:00:00.Z", false),
        ("date-time", "2026-01-31T12:00:00+24:00", false),
        ("date-time", "2026-01-31T12:00:00+01:60", false),
        ("date-time", "2026-02-30T12:00:00Z", false),
    ];
    for (format, text, is_valid) in texts {
        let known: StringFormat = serde_json::from_value(json!(format)).unwrap();
        assert_eq!(formats::check_format(known, text).is_none(), is_valid, "{text} as {format}");
    }
}

#[test]
fn a_person_sees_where_an_address_leads() {
    check_urls(
        &[
            "https://example.com/login?next=https://other.example",
            "http://example.com",
            "HTTPS://Example.COM.:8443/",
            "https://bank.example@evil.example/",
            "https://bank.example:443@evil.example:8080#@third.example",
            "https://xn--pple-43d.com/",
            "https://\u{430}pple.com/\u{202e}moc",
            "https://192.0.2.7/",
            "https://0x7f.1/",
            "https://2130706433/",
            "http://127.0.0.1:8080/",
            "http://[::1]/",
            "http://app.localhost/",
        ],
        expect![[r#"
            opens example.com
              https://example.com/login?next=https://other.example
            opens example.com
              http://example.com
            ! the connection is not encrypted: others can read what you send
            opens Example.COM.
              HTTPS://Example.COM.:8443/
            opens evil.example
              https://bank.example@evil.example/
            ! what stands before the @ is not where the address leads
            opens evil.example
              https://bank.example:443@evil.example:8080#@third.example
            ! what stands before the @ is not where the address leads
            opens xn--pple-43d.com
              https://xn--pple-43d.com/
            ! the host's name has letters of other scripts, written as xn--
            opens аpple.com
              https://аpple.com/\u{202e}moc
            ! а[U+0430]pple.com has letters that may look like others
            opens 192.0.2.7
              https://192.0.2.7/
            ! the host is a number, not a name
            opens 0x7f.1
              https://0x7f.1/
            ! the host is a number, not a name
            opens 2130706433
              https://2130706433/
            ! the host is a number, not a name
            opens 127.0.0.1
              http://127.0.0.1:8080/
            ! the connection is not encrypted: others can read what you send
            ! the host is a number, not a name
            ! the address leads to this computer
            opens [::1]
              http://[::1]/
            ! the connection is not encrypted: others can read what you send
            ! the host is a number, not a name
            ! the address leads to this computer
            opens app.localhost
              http://app.localhost/
            ! the connection is not encrypted: others can read what you send
            ! the address leads to this computer
        "#]],
    );
}

#[test]
fn unclear_addresses_are_refused() {
    let long = format!("https://example.com/{}", "a".repeat(MAX_URL_BYTES));
    check_urls(
        &[
            "javascript:alert(1)",
            "file:///etc/passwd",
            "vscode://settings",
            "//example.com",
            "",
            "https://",
            "https:///path",
            "https://...",
            "https://exa mple.com",
            "https://example.com\\@evil.example",
            "https://example\t.com",
            "https://ex%61mple.com",
            "https://[::1",
            "https://[not]/",
            "https://example.com:port/",
            "https://user@/",
            &long,
        ],
        expect![[r#"
            javascript:alert(1)
              refused: the address is not one of http:// or https://
            file:///etc/passwd
              refused: the address is not one of http:// or https://
            vscode://settings
              refused: the address is not one of http:// or https://
            //example.com
              refused: the address is not one of http:// or https://

              refused: the address is not one of http:// or https://
            https://
              refused: it is not clear to which host the address leads
            https:///path
              refused: it is not clear to which host the address leads
            https://...
              refused: it is not clear to which host the address leads
            https://exa mple.com
              refused: it is not clear to which host the address leads
            https://example.com\@evil.example
              refused: it is not clear to which host the address leads
            https://example\t.com
              refused: it is not clear to which host the address leads
            https://ex%61mple.com
              refused: it is not clear to which host the address leads
            https://[::1
              refused: it is not clear to which host the address leads
            https://[not]/
              refused: it is not clear to which host the address leads
            https://example.com:port/
              refused: it is not clear to which host the address leads
            https://user@/
              refused: it is not clear to which host the address leads
            https://ex…[4096 more]…aaaaaaaaaa
              refused: the address has 4116 bytes, at most 4096 are shown
        "#]],
    );
}

proptest! {
    #[test]
    fn every_address_is_shown_whole_and_safely(url in "https?://\\PC{0,40}|.{0,60}") {
        if let Ok(page) = ElicitationUrl::parse(&url) {
            prop_assert_eq!(page.url(), &url);
            prop_assert!(url.contains(page.host()) && !page.host().is_empty());
            let shown = page.display_lines().join("");
            let steers = |character: char| character.is_control() || bowline_text::display::is_reordering(character);
            prop_assert!(!shown.chars().any(steers));
            // Plain text is shown unchanged.
            if url.is_ascii() {
                prop_assert!(shown.contains(&url));
            }
        }
    }

    #[test]
    fn form_defaults_are_valid(
        text in proptest::option::of(".{0,8}"), least in 0u32..4, most in 2u32..8, number in -5i64..5, low in -3i64..3
    ) {
        let schema = json!({ "properties": {
            "text": { "type": "string", "minLength": least, "maxLength": most, "default": text },
            "number": { "type": "integer", "minimum": low, "default": number },
            "fraction": { "type": "number", "maximum": low, "default": number },
        } });
        let form = Form::from_schema(&serde_json::from_value(schema).unwrap()).unwrap();
        prop_assert_eq!(form.check(&form.defaults()), []);
        prop_assert_eq!(form.defaults().contains_key("number"), number >= low);
        prop_assert_eq!(form.defaults().contains_key("fraction"), number <= low);
    }
}
