//! Tests of the errors: each has one form on the wire, and comes back from it.

use agent_client_protocol_schema::v1::{Error, SessionId};
use bowline_text::merge::ConflictHunk;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;
use std::fmt::Write;

use crate::file_extension::{BatchError, Etag, FileError, WatchId};
use crate::rpc_error::{MAX_MESSAGE_BYTES, RpcError};

/// Shows each failure on the wire, and what is decoded if that differs.
fn check(failures: Vec<FileError>, expected: Expect) {
    let mut text = String::new();
    for failure in failures {
        let error = Error::from(failure.clone());
        writeln!(text, "{}", serde_json::to_string(&error).unwrap()).unwrap();
        let back = FileError::from_error(&error);
        if back != failure {
            writeln!(text, "  back: {back:?}").unwrap();
        }
    }
    expected.assert_eq(&text);
}

fn path() -> String {
    "/src/a".to_owned()
}

/// Returns one failure of each variant.
fn all_failures() -> Vec<FileError> {
    let (from, to) = ("/a".to_owned(), "/b".to_owned());
    let hunk = ConflictHunk { line: 3, base: "a\n".into(), ours: "b\n".into(), theirs: "c\n".into() };
    vec![
        FileError::NotFound { path: path() },
        FileError::PermissionDenied { reason: "the user said no".to_owned() },
        FileError::OutsideRoots { path: path() },
        FileError::AcrossRoots { from: from.clone(), to: to.clone() },
        FileError::AlreadyExists { path: path() },
        FileError::Conflict {
            path: path(),
            reason: "read it again".to_owned(),
            etag: Some(Etag::from("sha256:0")),
            hunks: vec![hunk],
        },
        FileError::Conflict { path: path(), reason: "it is gone".to_owned(), etag: None, hunks: Vec::new() },
        FileError::TooLarge { path: Some(path()), bytes: 20, limit: 10 },
        FileError::TooLarge { path: None, bytes: 20, limit: 10 },
        FileError::TooMany { items: "operations".to_owned(), limit: 10 },
        FileError::NotText { path: path(), reason: "it is binary".to_owned() },
        FileError::NotFile { path: path() },
        FileError::NotDirectory { path: path() },
        FileError::NotEmpty { path: path() },
        FileError::BadParams { reason: "the mode `insert` needs a position".to_owned() },
        FileError::InvalidEncoding { position: Some(3) },
        FileError::InvalidEncoding { position: None },
        FileError::OutOfRange { position: 20, size: 10 },
        FileError::InsideCharacter { position: 20 },
        FileError::Overlap { path: path(), other: 2 },
        FileError::OntoItself { from, to },
        FileError::UnknownWatch { watch_id: WatchId::from("w1") },
        FileError::Rpc(RpcError::RelativePath { path: "a".to_owned() }),
        FileError::Rpc(RpcError::ResourceNotFound { uri: None }),
        FileError::Rpc(RpcError::SessionNotFound { session_id: SessionId::new("s1") }),
        FileError::Rpc(RpcError::PastEnd { lines: 7 }),
        FileError::Rpc(RpcError::Cancelled),
        FileError::Rpc(RpcError::Internal { reason: "the disk is full".to_owned() }),
        FileError::Rpc(RpcError::Busy { limit: 64 }),
        FileError::Rpc(RpcError::Other {
            code: 7,
            message: "seven".to_owned(),
            data: Some(json!({ "a": 1 })),
        }),
    ]
}

#[test]
fn every_failure_has_its_kind_on_the_wire_and_comes_back_from_it() {
    check(
        all_failures(),
        expect![[r#"
        {"code":-32002,"message":"Resource not found: /src/a","data":{"kind":"notFound","path":"/src/a","uri":"/src/a"}}
        {"code":-32030,"message":"permission denied: the user said no","data":{"kind":"permissionDenied","why":"the user said no"}}
        {"code":-32602,"message":"/src/a is outside the session's directories","data":{"kind":"outsideRoots","path":"/src/a","reason":"outside"}}
        {"code":-32602,"message":"/a and /b are in different directories of the session","data":{"kind":"acrossRoots","path":"/a","to":"/b"}}
        {"code":-32602,"message":"/src/a already exists","data":{"kind":"alreadyExists","path":"/src/a"}}
        {"code":-32602,"message":"/src/a: read it again","data":{"kind":"conflict","path":"/src/a","etag":"sha256:0","reason":"conflict","why":"read it again","hunks":[{"line":3,"base":"a\n","ours":"b\n","theirs":"c\n"}]}}
        {"code":-32602,"message":"/src/a: it is gone","data":{"kind":"conflict","path":"/src/a","reason":"conflict","why":"it is gone","hunks":[]}}
        {"code":-32602,"message":"/src/a has 20 bytes, the limit is 10","data":{"kind":"tooLarge","path":"/src/a","bytes":20,"limit":10}}
        {"code":-32602,"message":"the batch has 20 bytes, the limit is 10","data":{"kind":"tooLarge","bytes":20,"limit":10}}
        {"code":-32602,"message":"too many operations, the limit is 10","data":{"kind":"tooMany","limit":10,"items":"operations"}}
        {"code":-32602,"message":"/src/a cannot be read as text: it is binary","data":{"kind":"notText","path":"/src/a","reason":"not_text","why":"it is binary"}}
        {"code":-32602,"message":"/src/a is not a file","data":{"kind":"notFile","path":"/src/a"}}
        {"code":-32602,"message":"/src/a is not a directory","data":{"kind":"notDirectory","path":"/src/a"}}
        {"code":-32602,"message":"/src/a is not empty: remove it with recursive","data":{"kind":"notEmpty","path":"/src/a"}}
        {"code":-32602,"message":"the mode `insert` needs a position","data":{"kind":"badParams"}}
        {"code":-32602,"message":"the data is not base64: byte 3 is wrong","data":{"kind":"invalidEncoding","position":3}}
        {"code":-32602,"message":"the data is not base64: it is incomplete","data":{"kind":"invalidEncoding"}}
        {"code":-32602,"message":"20 is past the end: the content has 10 bytes","data":{"kind":"outOfRange","position":20,"size":10}}
        {"code":-32602,"message":"20 is inside a character","data":{"kind":"outOfRange","position":20}}
        {"code":-32602,"message":"/src/a overlaps with operation 2","data":{"kind":"overlap","path":"/src/a","other":2}}
        {"code":-32602,"message":"/a and /b are the same, or one contains the other","data":{"kind":"overlap","path":"/a","to":"/b"}}
        {"code":-32602,"message":"no watch w1","data":{"kind":"unknownWatch","watchId":"w1"}}
        {"code":-32602,"message":"a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"a"}}
        {"code":-32002,"message":"Resource not found","data":{"kind":"notFound"}}
        {"code":-32002,"message":"Resource not found: session s1","data":{"kind":"unknownSession","sessionId":"s1"}}
        {"code":-32602,"message":"the read starts past the end: the file has 7 lines","data":{"kind":"outOfRange","reason":"past_end","lines":7}}
        {"code":-32800,"message":"Request cancelled","data":{"kind":"cancelled"}}
        {"code":-32603,"message":"the disk is full","data":{"kind":"internal"}}
        {"code":-32029,"message":"too many requests at once, the limit is 64","data":{"kind":"internal","limit":64}}
        {"code":7,"message":"seven","data":{"kind":"other","a":1}}
    "#]],
    );
}

#[test]
fn the_failure_of_a_batch_has_its_index() {
    let mut text = String::new();
    for failure in all_failures() {
        let failure = BatchError { index: Some(7), error: failure };
        let error = Error::from(failure.clone());
        assert_eq!(BatchError::from_error(&error), failure);
        assert_eq!(error.data.as_ref().and_then(|data| data["index"].as_u64()), Some(7));
        writeln!(text, "{}", error.message).unwrap();
    }
    expect![[r#"
        operation 7: Resource not found: /src/a
        operation 7: permission denied: the user said no
        operation 7: /src/a is outside the session's directories
        operation 7: /a and /b are in different directories of the session
        operation 7: /src/a already exists
        operation 7: /src/a: read it again
        operation 7: /src/a: it is gone
        operation 7: /src/a has 20 bytes, the limit is 10
        operation 7: the batch has 20 bytes, the limit is 10
        operation 7: too many operations, the limit is 10
        operation 7: /src/a cannot be read as text: it is binary
        operation 7: /src/a is not a file
        operation 7: /src/a is not a directory
        operation 7: /src/a is not empty: remove it with recursive
        operation 7: the mode `insert` needs a position
        operation 7: the data is not base64: byte 3 is wrong
        operation 7: the data is not base64: it is incomplete
        operation 7: 20 is past the end: the content has 10 bytes
        operation 7: 20 is inside a character
        operation 7: /src/a overlaps with operation 2
        operation 7: /a and /b are the same, or one contains the other
        operation 7: no watch w1
        operation 7: a is a relative path, send an absolute path
        operation 7: Resource not found
        operation 7: Resource not found: session s1
        operation 7: the read starts past the end: the file has 7 lines
        operation 7: Request cancelled
        operation 7: the disk is full
        operation 7: too many requests at once, the limit is 64
        operation 7: seven
    "#]]
    .assert_eq(&text);
}

#[test]
fn failures_of_the_protocol_get_the_kinds_of_the_extension() {
    check(
        vec![
            RpcError::ResourceNotFound { uri: Some(path()) }.into(),
            RpcError::Denied { reason: "no rule allows it".to_owned() }.into(),
            RpcError::OutsideRoots { path: path() }.into(),
            RpcError::TooLarge { path: path(), bytes: 20, limit: 10 }.into(),
            RpcError::NotText { path: path(), reason: "it is binary".to_owned() }.into(),
            RpcError::Conflict { path: path(), reason: "read it again".to_owned(), hunks: Vec::new() }.into(),
            RpcError::InvalidParams { reason: "wrong".to_owned() }.into(),
        ],
        expect![[r#"
            {"code":-32002,"message":"Resource not found: /src/a","data":{"kind":"notFound","path":"/src/a","uri":"/src/a"}}
            {"code":-32030,"message":"permission denied: no rule allows it","data":{"kind":"permissionDenied","why":"no rule allows it"}}
            {"code":-32602,"message":"/src/a is outside the session's directories","data":{"kind":"outsideRoots","path":"/src/a","reason":"outside"}}
            {"code":-32602,"message":"/src/a has 20 bytes, the limit is 10","data":{"kind":"tooLarge","path":"/src/a","bytes":20,"limit":10}}
            {"code":-32602,"message":"/src/a cannot be read as text: it is binary","data":{"kind":"notText","path":"/src/a","reason":"not_text","why":"it is binary"}}
            {"code":-32602,"message":"/src/a: read it again","data":{"kind":"conflict","path":"/src/a","reason":"conflict","why":"read it again","hunks":[]}}
            {"code":-32602,"message":"wrong","data":{"kind":"badParams"}}
        "#]],
    );
}

#[test]
fn errors_of_other_clients_are_read_as_far_as_they_say() {
    let mut text = String::new();
    for line in [
        r#"{"code":-32002,"message":"Resource not found","data":{"uri":"/a"}}"#,
        r#"{"code":-32002,"message":"gone"}"#,
        r#"{"code":-32602,"message":"gone","data":{"kind":"notFound"}}"#,
        r#"{"code":-32011,"message":"changed","data":{"kind":"conflict","path":"/a","etag":"7"}}"#,
        r#"{"code":-32011,"message":"changed","data":{"kind":"conflict"}}"#,
        r#"{"code":-32009,"message":"no","data":{"kind":"permissionDenied"}}"#,
        r#"{"code":-32602,"message":"odd","data":{"kind":"quantum","path":"/a"}}"#,
        r#"{"code":-32602,"message":"odd","data":{"kind":7}}"#,
        r#"{"code":-32602,"message":"odd","data":{"kind":"overlap","path":"/a","other":-1}}"#,
        r#"{"code":-32603,"message":"Internal error","data":"details"}"#,
        r#"{"code":-32602,"message":"operation 3: wrong","data":{"kind":"badParams","index":3}}"#,
        r#"{"code":-32602,"message":"wrong","data":{"kind":"badParams","index":3}}"#,
    ] {
        writeln!(text, "{:?}", BatchError::from_error(&serde_json::from_str(line).unwrap())).unwrap();
    }
    expect![[r#"
        BatchError { index: None, error: NotFound { path: "/a" } }
        BatchError { index: None, error: Rpc(ResourceNotFound { uri: None }) }
        BatchError { index: None, error: BadParams { reason: "gone" } }
        BatchError { index: None, error: Conflict { path: "/a", reason: "changed", etag: Some(Etag(7)), hunks: [] } }
        BatchError { index: None, error: Rpc(Other { code: -32011, message: "changed", data: None }) }
        BatchError { index: None, error: PermissionDenied { reason: "no" } }
        BatchError { index: None, error: BadParams { reason: "odd: {\"path\":\"/a\"}" } }
        BatchError { index: None, error: BadParams { reason: "odd: {\"kind\":7}" } }
        BatchError { index: None, error: BadParams { reason: "odd: {\"kind\":\"overlap\",\"path\":\"/a\",\"other\":-1}" } }
        BatchError { index: None, error: Rpc(Internal { reason: "Internal error: details" }) }
        BatchError { index: Some(3), error: BadParams { reason: "wrong" } }
        BatchError { index: Some(3), error: BadParams { reason: "wrong" } }
    "#]].assert_eq(&text);
}

proptest! {
    #[test]
    fn no_message_is_long_or_steers_a_terminal(text in "\\PC{0,20}[\u{0}-\u{1f}]{0,3}", times in 1..100usize, index in any::<u64>()) {
        let text = text.repeat(times);
        let failures = [
            FileError::AlreadyExists { path: text.clone() },
            FileError::PermissionDenied { reason: text.clone() },
            FileError::BadParams { reason: text.clone() },
            FileError::Conflict { path: text.clone(), reason: text.clone(), etag: None, hunks: Vec::new() },
            FileError::UnknownWatch { watch_id: WatchId::from(text) },
        ];
        for failure in failures {
            let error = Error::from(BatchError { index: Some(index), error: failure });
            prop_assert!(error.message.len() <= MAX_MESSAGE_BYTES);
            prop_assert!(!error.message.chars().any(char::is_control), "{:?}", error.message);
            let once = BatchError::from_error(&error);
            prop_assert_eq!(BatchError::from_error(&Error::from(once.clone())), once);
        }
    }
}
