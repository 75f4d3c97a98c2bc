//! What the module promises, as data.

use super::*;
use crate::display::reorders;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

/// Shows each failure as it goes over the wire, and what comes back if that is something else.
fn check(failures: Vec<Failure>, expected: Expect) {
    let mut text = String::new();
    for failure in failures {
        let error = Error::from(failure.clone());
        writeln!(text, "{}", serde_json::to_string(&error).unwrap()).unwrap();
        let back = Failure::from_error(&error);
        if back != failure {
            writeln!(text, "  back: {back:?}").unwrap();
        }
    }
    expected.assert_eq(&text);
}

/// Shows what a peer's error is taken for.
fn check_foreign(errors: &str, expected: Expect) {
    let mut text = String::new();
    for line in errors.lines().filter(|line| !line.is_empty()) {
        let error: Error = serde_json::from_str(line).unwrap();
        writeln!(text, "{:?}", Failure::from_error(&error)).unwrap();
    }
    expected.assert_eq(&text);
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn every_failure_has_one_form_on_the_wire_and_comes_back_from_it() {
    check(
        vec![
            Failure::ResourceNotFound { uri: Some(text("/src/a")) },
            Failure::ResourceNotFound { uri: None },
            Failure::SessionNotFound { session_id: SessionId::new("s1") },
            Failure::InvalidParams { reason: text("missing field `path`") },
            Failure::OutsideRoots { path: text("/etc/passwd") },
            Failure::RelativePath { path: text("src/a") },
            Failure::PastEnd { lines: 7 },
            Failure::TooLarge { path: text("/src/a"), bytes: 20, limit: 10 },
            Failure::NotText { path: text("/src/a"), why: text("it is binary") },
            Failure::Conflict {
                path: text("/src/a"),
                why: text("read it again"),
                hunks: vec![ConflictHunk {
                    line: 3,
                    base: text("a\n"),
                    ours: text("b\n"),
                    theirs: text("c\n"),
                }],
            },
            Failure::UnknownMethod { method: Some(text("fs/delete")) },
            Failure::UnknownMethod { method: None },
            Failure::NotAdvertised {
                method: text("session/load"),
                capability: text("agentCapabilities.loadSession"),
            },
            Failure::Internal { reason: text("cannot read /src") },
            Failure::Cancelled,
            Failure::AuthRequired { why: None },
            Failure::AuthRequired { why: Some("set a key".to_owned()) },
            Failure::Parse { reason: text("expected value at line 1 column 1") },
            Failure::InvalidRequest { reason: text("no method") },
            Failure::Busy { limit: 64 },
            Failure::Denied { why: text("the user said no") },
            Failure::Other {
                code: -32042,
                message: text("open the URL"),
                data: Some(json!({ "elicitations": [] })),
            },
            Failure::Other { code: 7, message: text("seven"), data: None },
        ],
        expect![[r#"
            {"code":-32002,"message":"Resource not found: /src/a","data":{"uri":"/src/a"}}
            {"code":-32002,"message":"Resource not found"}
            {"code":-32002,"message":"Resource not found: session s1","data":{"sessionId":"s1"}}
            {"code":-32602,"message":"missing field `path`"}
            {"code":-32602,"message":"/etc/passwd is outside the session's directories","data":{"reason":"outside","path":"/etc/passwd"}}
            {"code":-32602,"message":"src/a is a relative path, send an absolute path","data":{"reason":"relative","path":"src/a"}}
            {"code":-32602,"message":"the read starts past the end, there are this many lines: 7","data":{"reason":"past_end","lines":7}}
            {"code":-32602,"message":"/src/a has 20 bytes, a read gives at most 10: read a window with line and limit","data":{"reason":"too_large","path":"/src/a","bytes":20,"limit":10}}
            {"code":-32602,"message":"/src/a cannot be read as text: it is binary","data":{"reason":"not_text","path":"/src/a","why":"it is binary"}}
            {"code":-32602,"message":"/src/a: read it again","data":{"reason":"conflict","path":"/src/a","why":"read it again","hunks":[{"line":3,"base":"a\n","ours":"b\n","theirs":"c\n"}]}}
            {"code":-32601,"message":"Method not found: fs/delete","data":{"method":"fs/delete"}}
            {"code":-32601,"message":"Method not found"}
            {"code":-32601,"message":"session/load needs agentCapabilities.loadSession, which was not advertised","data":{"method":"session/load","capability":"agentCapabilities.loadSession"}}
            {"code":-32603,"message":"cannot read /src"}
            {"code":-32800,"message":"Request cancelled"}
            {"code":-32000,"message":"Authentication required"}
            {"code":-32000,"message":"Authentication required: set a key","data":{"why":"set a key"}}
            {"code":-32700,"message":"expected value at line 1 column 1"}
            {"code":-32600,"message":"no method"}
            {"code":-32029,"message":"too many requests at once, the limit is 64","data":{"limit":64}}
            {"code":-32030,"message":"permission denied: the user said no","data":{"why":"the user said no"}}
            {"code":-32042,"message":"open the URL","data":{"elicitations":[]}}
            {"code":7,"message":"seven"}
        "#]],
    );
}

#[test]
fn an_error_that_says_less_keeps_its_code_and_its_text() {
    check_foreign(
        r#"
{"code":-32002,"message":"Resource not found"}
{"code":-32002,"message":"gone","data":{"uri":"file:///a","sessionId":"s1"}}
{"code":-32002,"message":"gone","data":{"uri":7}}
{"code":-32601,"message":"Method not found"}
{"code":-32601,"message":"Method not found","data":{"capability":"terminal"}}
{"code":-32602,"message":"Invalid params","data":"missing field `cwd`"}
{"code":-32602,"message":"Invalid params","data":null}
{"code":-32602,"message":"Invalid params","data":{"path":"/a"}}
{"code":-32602,"message":"Invalid params","data":{"reason":"outside"}}
{"code":-32602,"message":"Invalid params","data":{"reason":"odd","path":"/a"}}
{"code":-32602,"message":"Invalid params","data":{"lines":3}}
{"code":-32602,"message":"Invalid params","data":{"reason":"past_end","lines":-3}}
{"code":-32603,"message":"Internal error","data":{"details":"disk full"}}
{"code":-32000,"message":"Authentication required","data":{"authMethods":[]}}
{"code":-32800,"message":"whatever"}
{"code":-32029,"message":"slow down","data":{"retryAfter":5}}
{"code":-32050,"message":"from the future","data":[1]}
"#,
        expect![[r#"
            ResourceNotFound { uri: None }
            ResourceNotFound { uri: Some("file:///a") }
            ResourceNotFound { uri: None }
            UnknownMethod { method: None }
            UnknownMethod { method: None }
            InvalidParams { reason: "Invalid params: missing field `cwd`" }
            InvalidParams { reason: "Invalid params" }
            InvalidParams { reason: "Invalid params: {\"path\":\"/a\"}" }
            InvalidParams { reason: "Invalid params: {\"reason\":\"outside\"}" }
            InvalidParams { reason: "Invalid params: {\"reason\":\"odd\",\"path\":\"/a\"}" }
            InvalidParams { reason: "Invalid params: {\"lines\":3}" }
            InvalidParams { reason: "Invalid params: {\"reason\":\"past_end\",\"lines\":-3}" }
            Internal { reason: "Internal error: {\"details\":\"disk full\"}" }
            AuthRequired { why: None }
            Cancelled
            Other { code: -32029, message: "slow down", data: Some(Object {"retryAfter": Number(5)}) }
            Other { code: -32050, message: "from the future", data: Some(Array [Number(1)]) }
        "#]],
    );
}

#[test]
fn a_message_quotes_a_peer_only_in_part_and_on_one_line() {
    let long = "ä".repeat(MAX_DATA_TEXT);
    let mut shown = String::new();
    for failure in [
        Failure::ResourceNotFound { uri: Some(text("/a\n\u{1b}[31mb\u{202e}\u{2066}\u{200f}")) },
        Failure::SessionNotFound { session_id: SessionId::new(long.clone()) },
        Failure::RelativePath { path: long.clone() },
        Failure::Internal { reason: long.clone() },
        Failure::Other { code: 1, message: long.clone(), data: Some(json!(long)) },
    ] {
        let error = Error::from(failure);
        let letters = error.message.matches('ä').count();
        let message = error.message.replace(&"ä".repeat(letters.max(1)), &format!("<{letters} times ä>"));
        let data = error.data.map_or(0, |data| data.to_string().len());
        writeln!(shown, "{message} with {data} bytes of data").unwrap();
    }
    expect![[r#"
        Resource not found: /a\n\u{1b}[31mb\u{202e}\u{2066}\u{200f} with 34 bytes of data
        Resource not found: session <98 times ä>… with 4111 bytes of data
        <98 times ä>… is a relative path, send an absolute path with 4126 bytes of data
        <498 times ä>… with 0 bytes of data
        <498 times ä>… with 8194 bytes of data
    "#]]
    .assert_eq(&shown);
}

#[test]
fn a_quote_is_cut_where_it_no_longer_fits() {
    let fits = "x".repeat(MAX_QUOTED);
    let cut = format!("{}…", "x".repeat(MAX_QUOTED - 3));
    assert_eq!(quote(&fits), fits);
    assert_eq!(quote(&format!("{fits}x")), cut);
    // An escape is shown whole or not at all.
    assert_eq!(
        quote(&format!("{}\u{1b}{fits}", "x".repeat(MAX_QUOTED - 5))),
        format!("{}…", "x".repeat(MAX_QUOTED - 5))
    );
    assert_eq!(quote("tab\there \u{2069}\u{61c}"), r"tab\there \u{2069}\u{61c}");
}

#[test]
fn data_is_cut_between_characters_and_no_earlier_than_needed() {
    let path = |bytes: usize| {
        let failure = Failure::OutsideRoots { path: "x".repeat(bytes) };
        match Failure::from_error(&failure.into()) {
            Failure::OutsideRoots { path } => path,
            other => panic!("{other}"),
        }
    };
    assert_eq!(path(MAX_DATA_TEXT), "x".repeat(MAX_DATA_TEXT));
    assert_eq!(path(MAX_DATA_TEXT + 1), format!("{}…", "x".repeat(MAX_DATA_TEXT - 3)));
}

#[test]
fn a_closed_gate_is_a_failure_that_names_method_and_capability() {
    check(
        vec![
            NotAdvertised::Method {
                method: "fs/read_text_file",
                capability: "clientCapabilities.fs.readTextFile",
            }
            .into(),
            NotAdvertised::Part { part: "an image in a prompt", capability: "promptCapabilities.image" }
                .into(),
            NotAdvertised::Unknown { part: "an elicitation of another mode" }.into(),
            NotAdvertised::BeforeInitialize { what: "session/new" }.into(),
        ],
        expect![[r#"
            {"code":-32601,"message":"fs/read_text_file needs clientCapabilities.fs.readTextFile, which was not advertised","data":{"method":"fs/read_text_file","capability":"clientCapabilities.fs.readTextFile"}}
            {"code":-32602,"message":"an image in a prompt needs promptCapabilities.image, which was not advertised"}
            {"code":-32602,"message":"an elicitation of another mode is not known here"}
            {"code":-32600,"message":"session/new may not be used before initialize"}
        "#]],
    );
}

/// Texts that the wire carries unchanged.
fn carried() -> BoxedStrategy<String> {
    "[ -~äöü𝕏]{0,40}".boxed()
}

/// Texts of every kind, some of them too long.
fn any_text() -> BoxedStrategy<String> {
    (any::<String>(), 0..400usize).prop_map(|(text, times)| text.repeat(times)).boxed()
}

fn failures(texts: BoxedStrategy<String>) -> impl Strategy<Value = Failure> {
    let maybe = proptest::option::of(texts.clone());
    let reason = texts.clone();
    let other_code = any::<i32>().prop_filter("a code of its own", |&code| {
        code != BUSY_CODE && matches!(ErrorCode::from(code), ErrorCode::Other(_))
    });
    prop_oneof![
        maybe.clone().prop_map(|uri| Failure::ResourceNotFound { uri }),
        texts.clone().prop_map(|id| Failure::SessionNotFound { session_id: SessionId::new(id) }),
        reason.clone().prop_map(|reason| Failure::InvalidParams { reason }),
        texts.clone().prop_map(|path| Failure::OutsideRoots { path }),
        texts.clone().prop_map(|path| Failure::RelativePath { path }),
        any::<u64>().prop_map(|lines| Failure::PastEnd { lines }),
        (texts.clone(), any::<(u64, u64)>()).prop_map(|(path, (bytes, limit))| Failure::TooLarge {
            path,
            bytes,
            limit
        }),
        (texts.clone(), texts.clone()).prop_map(|(path, why)| Failure::NotText { path, why }),
        (texts.clone(), texts.clone(), any::<u64>()).prop_map(|(path, why, line)| {
            let hunk = ConflictHunk { line, base: path.clone(), ours: why.clone(), theirs: String::new() };
            Failure::Conflict { path, why, hunks: vec![hunk] }
        }),
        maybe.clone().prop_map(|method| Failure::UnknownMethod { method }),
        (texts.clone(), texts.clone())
            .prop_map(|(method, capability)| Failure::NotAdvertised { method, capability }),
        reason.clone().prop_map(|reason| Failure::Internal { reason }),
        Just(Failure::Cancelled),
        maybe.clone().prop_map(|why| Failure::AuthRequired { why }),
        reason.clone().prop_map(|reason| Failure::Parse { reason }),
        reason.prop_map(|reason| Failure::InvalidRequest { reason }),
        any::<u64>().prop_map(|limit| Failure::Busy { limit }),
        texts.clone().prop_map(|why| Failure::Denied { why }),
        (other_code, texts.clone(), proptest::option::of(texts)).prop_map(|(code, message, data)| {
            Failure::Other { code, message, data: data.map(Value::from) }
        }),
    ]
}

/// Sends a failure as text and reads it at the other end.
fn over_the_wire(failure: Failure) -> Failure {
    let wire = serde_json::to_string(&Error::from(failure)).unwrap();
    Failure::from_error(&serde_json::from_str(&wire).unwrap())
}

proptest! {
    #[test]
    fn a_failure_comes_back_from_the_wire_as_it_was(failure in failures(carried())) {
        prop_assert_eq!(over_the_wire(failure.clone()), failure);
    }

    #[test]
    fn what_the_wire_had_to_cut_it_cuts_once(failure in failures(any_text())) {
        let once = over_the_wire(failure);
        prop_assert_eq!(over_the_wire(once.clone()), once);
    }

    #[test]
    fn no_message_is_long_or_steers_a_terminal(failure in failures(any_text())) {
        let message = Error::from(failure).message;
        prop_assert!(message.len() <= MAX_MESSAGE);
        prop_assert!(!message.chars().any(|it| it.is_control() || reorders(it)), "{:?}", message);
    }
}

#[test]
fn a_bare_message_is_told_with_its_reason() {
    let told = |text: &str| error_text(&serde_json::from_str::<Error>(text).unwrap());
    for (error, expected) in [
        (
            r#"{"code":-32603,"message":"Internal error","data":{"details":"no quota"}}"#,
            "Internal error: no quota",
        ),
        (
            r#"{"code":-32603,"message":"internal error","data":"full\u001b[2J"}"#,
            r"internal error: full\u{1b}[2J",
        ),
        (
            r#"{"code":-32602,"message":"Invalid params","data":{"path":"/a"}}"#,
            r#"Invalid params: {"path":"/a"}"#,
        ),
        (r#"{"code":-32603,"message":"Internal error","data":null}"#, "Internal error"),
        (r#"{"code":-32602,"message":"/a is outside","data":{"reason":"outside"}}"#, "/a is outside"),
    ] {
        assert_eq!(told(error), expected);
    }
}
