//! Tests of the error mapping, as data.

use super::*;
use bowline_text::display::is_reordering;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

/// Shows each failure on the wire, and what is decoded if that differs.
fn check(failures: Vec<RpcError>, expected: Expect) {
    let mut text = String::new();
    for failure in failures {
        let error = Error::from(failure.clone());
        writeln!(text, "{}", serde_json::to_string(&error).unwrap()).unwrap();
        let decoded = RpcError::from_error(&error);
        if decoded != failure {
            writeln!(text, "  back: {decoded:?}").unwrap();
        }
    }
    expected.assert_eq(&text);
}

/// Shows how a peer's error is decoded.
fn check_peer_errors(errors: &str, expected: Expect) {
    let mut text = String::new();
    for line in errors.lines().filter(|line| !line.is_empty()) {
        let error: Error = serde_json::from_str(line).unwrap();
        writeln!(text, "{:?}", RpcError::from_error(&error)).unwrap();
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
            RpcError::ResourceNotFound { uri: Some(text("/src/a")) },
            RpcError::ResourceNotFound { uri: None },
            RpcError::SessionNotFound { session_id: SessionId::new("s1") },
            RpcError::InvalidParams { reason: text("missing field `path`") },
            RpcError::OutsideRoots { path: text("/etc/passwd") },
            RpcError::RelativePath { path: text("src/a") },
            RpcError::PastEnd { lines: 7 },
            RpcError::TooLarge { path: text("/src/a"), bytes: 20, limit: 10 },
            RpcError::NotText { path: text("/src/a"), reason: text("it is binary") },
            RpcError::Conflict {
                path: text("/src/a"),
                reason: text("read it again"),
                hunks: vec![ConflictHunk {
                    line: 3,
                    base: text("a\n"),
                    ours: text("b\n"),
                    theirs: text("c\n"),
                }],
            },
            RpcError::UnknownMethod { method: Some(text("fs/delete")) },
            RpcError::UnknownMethod { method: None },
            RpcError::NotAdvertised {
                method: text("session/load"),
                capability: text("agentCapabilities.loadSession"),
            },
            RpcError::Internal { reason: text("cannot read /src") },
            RpcError::Cancelled,
            RpcError::AuthRequired { reason: None },
            RpcError::AuthRequired { reason: Some("set a key".to_owned()) },
            RpcError::Parse { reason: text("expected value at line 1 column 1") },
            RpcError::InvalidRequest { reason: text("no method") },
            RpcError::Busy { limit: 64 },
            RpcError::Denied { reason: text("the user said no") },
            RpcError::Other {
                code: -32042,
                message: text("open the URL"),
                data: Some(json!({ "elicitations": [] })),
            },
            RpcError::Other { code: 7, message: text("seven"), data: None },
        ],
        expect![[r#"
            {"code":-32002,"message":"Resource not found: /src/a","data":{"uri":"/src/a"}}
            {"code":-32002,"message":"Resource not found"}
            {"code":-32002,"message":"Resource not found: session s1","data":{"sessionId":"s1"}}
            {"code":-32602,"message":"missing field `path`"}
            {"code":-32602,"message":"/etc/passwd is outside the session's directories","data":{"reason":"outside","path":"/etc/passwd"}}
            {"code":-32602,"message":"src/a is a relative path, send an absolute path","data":{"reason":"relative","path":"src/a"}}
            {"code":-32602,"message":"the read starts past the end: the file has 7 lines","data":{"reason":"past_end","lines":7}}
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
    check_peer_errors(
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
            AuthRequired { reason: None }
            Cancelled
            Other { code: -32029, message: "slow down", data: Some(Object {"retryAfter": Number(5)}) }
            Other { code: -32050, message: "from the future", data: Some(Array [Number(1)]) }
        "#]],
    );
}

#[test]
fn a_message_quotes_a_peer_only_in_part_and_on_one_line() {
    let long = "ä".repeat(MAX_DATA_TEXT_BYTES);
    let mut shown = String::new();
    for failure in [
        RpcError::ResourceNotFound { uri: Some(text("/a\n\u{1b}[31mb\u{202e}\u{2066}\u{200f}")) },
        RpcError::SessionNotFound { session_id: SessionId::new(long.clone()) },
        RpcError::RelativePath { path: long.clone() },
        RpcError::Internal { reason: long.clone() },
        RpcError::Other { code: 1, message: long.clone(), data: Some(json!(long)) },
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
fn data_is_cut_between_characters_and_no_earlier_than_needed() {
    let path = |bytes: usize| {
        let failure = RpcError::OutsideRoots { path: "x".repeat(bytes) };
        match RpcError::from_error(&failure.into()) {
            RpcError::OutsideRoots { path } => path,
            other => panic!("{other}"),
        }
    };
    assert_eq!(path(MAX_DATA_TEXT_BYTES), "x".repeat(MAX_DATA_TEXT_BYTES));
    assert_eq!(path(MAX_DATA_TEXT_BYTES + 1), format!("{}…", "x".repeat(MAX_DATA_TEXT_BYTES - 3)));
}

#[test]
fn a_closed_gate_is_a_failure_that_names_method_and_capability() {
    check(
        vec![
            CapabilityError::MethodNotAdvertised {
                method: "fs/read_text_file",
                capability: "clientCapabilities.fs.readTextFile",
            }
            .into(),
            CapabilityError::PartNotAdvertised {
                part: "an image in a prompt",
                capability: "promptCapabilities.image",
            }
            .into(),
            CapabilityError::UnknownPart { part: "an elicitation of another mode" }.into(),
            CapabilityError::BeforeInitialize { subject: "session/new" }.into(),
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
fn wire_safe_text() -> BoxedStrategy<String> {
    "[ -~äöü𝕏]{0,40}".boxed()
}

/// Texts of every kind, some of them too long.
fn any_text() -> BoxedStrategy<String> {
    (any::<String>(), 0..400usize).prop_map(|(text, times)| text.repeat(times)).boxed()
}

fn any_error(texts: BoxedStrategy<String>) -> impl Strategy<Value = RpcError> {
    let maybe = proptest::option::of(texts.clone());
    let reason = texts.clone();
    let other_code = any::<i32>().prop_filter("a code of its own", |&code| {
        code != BUSY_CODE && matches!(ErrorCode::from(code), ErrorCode::Other(_))
    });
    prop_oneof![
        maybe.clone().prop_map(|uri| RpcError::ResourceNotFound { uri }),
        texts.clone().prop_map(|id| RpcError::SessionNotFound { session_id: SessionId::new(id) }),
        reason.clone().prop_map(|reason| RpcError::InvalidParams { reason }),
        texts.clone().prop_map(|path| RpcError::OutsideRoots { path }),
        texts.clone().prop_map(|path| RpcError::RelativePath { path }),
        any::<u64>().prop_map(|lines| RpcError::PastEnd { lines }),
        (texts.clone(), any::<(u64, u64)>()).prop_map(|(path, (bytes, limit))| RpcError::TooLarge {
            path,
            bytes,
            limit
        }),
        (texts.clone(), texts.clone()).prop_map(|(path, reason)| RpcError::NotText { path, reason }),
        (texts.clone(), texts.clone(), any::<u64>()).prop_map(|(path, reason, line)| {
            let hunk = ConflictHunk { line, base: path.clone(), ours: reason.clone(), theirs: String::new() };
            RpcError::Conflict { path, reason, hunks: vec![hunk] }
        }),
        maybe.clone().prop_map(|method| RpcError::UnknownMethod { method }),
        (texts.clone(), texts.clone())
            .prop_map(|(method, capability)| RpcError::NotAdvertised { method, capability }),
        reason.clone().prop_map(|reason| RpcError::Internal { reason }),
        Just(RpcError::Cancelled),
        maybe.clone().prop_map(|reason| RpcError::AuthRequired { reason }),
        reason.clone().prop_map(|reason| RpcError::Parse { reason }),
        reason.prop_map(|reason| RpcError::InvalidRequest { reason }),
        any::<u64>().prop_map(|limit| RpcError::Busy { limit }),
        texts.clone().prop_map(|reason| RpcError::Denied { reason }),
        (other_code, texts.clone(), proptest::option::of(texts)).prop_map(|(code, message, data)| {
            RpcError::Other { code, message, data: data.map(Value::from) }
        }),
    ]
}

/// Encodes a failure as text and decodes it at the other end.
fn round_trip(failure: RpcError) -> RpcError {
    let wire = serde_json::to_string(&Error::from(failure)).unwrap();
    RpcError::from_error(&serde_json::from_str(&wire).unwrap())
}

proptest! {
    #[test]
    fn a_failure_comes_back_from_the_wire_as_it_was(failure in any_error(wire_safe_text())) {
        prop_assert_eq!(round_trip(failure.clone()), failure);
    }

    #[test]
    fn what_the_wire_had_to_cut_it_cuts_once(failure in any_error(any_text())) {
        let truncated = round_trip(failure);
        prop_assert_eq!(round_trip(truncated.clone()), truncated);
    }

    #[test]
    fn no_message_is_long_or_steers_a_terminal(failure in any_error(any_text())) {
        let message = Error::from(failure).message;
        prop_assert!(message.len() <= MAX_MESSAGE_BYTES);
        prop_assert!(!message.chars().any(|character| character.is_control() || is_reordering(character)), "{:?}", message);
    }
}

#[test]
fn a_bare_message_is_told_with_its_reason() {
    let describe = |text: &str| describe_error(&serde_json::from_str::<Error>(text).unwrap());
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
        assert_eq!(describe(error), expected);
    }
}
