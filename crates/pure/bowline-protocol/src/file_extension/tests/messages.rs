//! Tests of the messages on the wire.

use expect_test::{Expect, expect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write;

use crate::file_extension::{
    BatchFilesRequest, BatchFilesResponse, BatchOperation, ChangeAuthor, ChangeKind, DataEncoding,
    DirectoryEntry, Etag, FileChange, FileData, FileType, FilesChangedNotification, ListDirectoryRequest,
    ListDirectoryResponse, MkdirParams, ReadFileRequest, ReadFileResponse, ReadParams, RemoveParams,
    StatFileRequest, StatFileResponse, TransferParams, UnwatchFilesRequest, WatchFilesRequest,
    WatchFilesResponse, WriteFileRequest, WriteFileResponse, WriteParams,
};

/// Shows a message, which has to come back from the wire as it was.
fn write<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(text: &mut String, message: &T) {
    let wire = serde_json::to_string(message).unwrap();
    assert_eq!(serde_json::from_str::<T>(&wire).unwrap(), *message);
    writeln!(text, "{wire}").unwrap();
}

/// Shows how each text is read: written back, or the error.
fn check<T: Serialize + DeserializeOwned>(texts: &str, expected: Expect) {
    let mut shown = String::new();
    for line in texts.lines().filter(|line| !line.is_empty()) {
        match serde_json::from_str::<T>(line) {
            Ok(message) => writeln!(shown, "{}", serde_json::to_string(&message).unwrap()).unwrap(),
            Err(error) => writeln!(shown, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn requests_have_only_the_fields_that_are_set() {
    let mut text = String::new();
    write(&mut text, &ListDirectoryRequest::new("s", "/a"));
    let list =
        ListDirectoryRequest::new("s", "/a").depth(3).glob("*.rs").include_ignored().cursor("c").limit(5);
    write(&mut text, &list);
    write(&mut text, &StatFileRequest::new("s", "/a"));
    write(&mut text, &StatFileRequest::new("s", "/a").without_following());
    write(&mut text, &ReadFileRequest::new("s", ReadParams::new("/a")));
    let read = ReadParams::new("/a").base64().offset(1).limit(2).if_none_match("sha256:0");
    write(&mut text, &ReadFileRequest::new("s", read));
    write(&mut text, &WriteFileRequest::new("s", WriteParams::new("/a", "text")));
    let bytes = WriteParams::new("/a", vec![0, 255]).insert_at(7).create_parents().if_match("sha256:0");
    write(&mut text, &WriteFileRequest::new("s", bytes));
    write(&mut text, &WriteFileRequest::new("s", WriteParams::new("/a", "").append().create_only()));
    write(&mut text, &WatchFilesRequest::new("s", "/a"));
    write(&mut text, &WatchFilesRequest::new("s", "/a").recursive().glob("*.rs"));
    write(&mut text, &UnwatchFilesRequest::new("s", "w1"));
    expect![[r#"
        {"sessionId":"s","path":"/a"}
        {"sessionId":"s","path":"/a","depth":3,"glob":"*.rs","includeIgnored":true,"cursor":"c","limit":5}
        {"sessionId":"s","path":"/a"}
        {"sessionId":"s","path":"/a","followSymlinks":false}
        {"sessionId":"s","path":"/a","encoding":"utf-8"}
        {"sessionId":"s","path":"/a","encoding":"base64","offset":1,"limit":2,"ifNoneMatch":"sha256:0"}
        {"sessionId":"s","path":"/a","data":"text","encoding":"utf-8","mode":"truncate"}
        {"sessionId":"s","path":"/a","data":"AP8=","encoding":"base64","mode":"insert","position":7,"createParents":true,"ifMatch":"sha256:0"}
        {"sessionId":"s","path":"/a","data":"","encoding":"utf-8","mode":"append","createOnly":true}
        {"sessionId":"s","path":"/a"}
        {"sessionId":"s","path":"/a","recursive":true,"glob":"*.rs"}
        {"sessionId":"s","watchId":"w1"}
    "#]].assert_eq(&text);
}

#[test]
fn a_batch_has_every_operation() {
    let batch = BatchFilesRequest::new("s")
        .operation(ReadParams::new("/a").limit(5))
        .operation(WriteParams::new("/b", "text"))
        .operation(BatchOperation::Move(TransferParams::new("/c", "/d")))
        .operation(BatchOperation::Copy(TransferParams::new("/e", "/f").overwrite()))
        .operation(RemoveParams::new("/g"))
        .operation(RemoveParams::new("/h").recursive())
        .operation(MkdirParams::new("/i"))
        .operation(MkdirParams::new("/j").parents());
    let mut text = String::new();
    for operation in &batch.operations {
        write(&mut text, operation);
    }
    assert_eq!(
        serde_json::from_str::<BatchFilesRequest>(&serde_json::to_string(&batch).unwrap()).unwrap(),
        batch
    );
    expect![[r#"
        {"op":"read","path":"/a","encoding":"utf-8","limit":5}
        {"op":"write","path":"/b","data":"text","encoding":"utf-8","mode":"truncate"}
        {"op":"move","from":"/c","to":"/d"}
        {"op":"copy","from":"/e","to":"/f","overwrite":true}
        {"op":"remove","path":"/g"}
        {"op":"remove","path":"/h","recursive":true}
        {"op":"mkdir","path":"/i"}
        {"op":"mkdir","path":"/j","parents":true}
    "#]]
    .assert_eq(&text);
}

#[test]
fn results_come_back_as_they_were() {
    let etag = Etag::digest(b"text");
    let mut text = String::new();
    let entries = vec![
        DirectoryEntry {
            name: "a/b".to_owned(),
            file_type: FileType::File,
            size: Some(4),
            modified_at_ms: Some(-1),
        },
        DirectoryEntry { name: "c".to_owned(), file_type: FileType::Other, size: None, modified_at_ms: None },
    ];
    write(&mut text, &ListDirectoryResponse::default());
    write(&mut text, &ListDirectoryResponse { entries, next_cursor: Some("c".to_owned()), truncated: true });
    write(&mut text, &StatFileResponse::new(FileType::Directory, 0));
    write(
        &mut text,
        &StatFileResponse {
            modified_at_ms: Some(1),
            created_at_ms: Some(2),
            mode: Some(0o644),
            content_type: Some("text/plain".to_owned()),
            encoding: Some("UTF-8".to_owned()),
            etag: Some(etag.clone()),
            dirty: true,
            read_only: true,
            ..StatFileResponse::new(FileType::File, 4)
        },
    );
    let read = ReadFileResponse::new(FileData::from("text"), etag.clone(), 9).truncated(true).dirty(true);
    write(&mut text, &read);
    write(&mut text, &ReadFileResponse::new(FileData::from(vec![0, 1, 2]), etag.clone(), 3));
    write(&mut text, &ReadFileResponse::not_modified(DataEncoding::Utf8, etag.clone(), 4));
    write(&mut text, &WriteFileResponse::new(etag.clone()));
    let merged = WriteFileResponse {
        content: Some("merged".to_owned()),
        merged: true,
        ..WriteFileResponse::new(etag)
    };
    write(&mut text, &merged);
    write(&mut text, &WatchFilesResponse::new("w1"));
    let changes = vec![
        FileChange::new("/a", ChangeKind::Modified, ChangeAuthor::User),
        FileChange::renamed("/b", "/c", ChangeAuthor::Command),
    ];
    write(&mut text, &FilesChangedNotification::new("s", "w1", changes));
    write(&mut text, &FilesChangedNotification::new("s", "w1", Vec::new()).overflow(true));
    expect![[r#"
        {"entries":[],"truncated":false}
        {"entries":[{"name":"a/b","type":"file","size":4,"modifiedAtMs":-1},{"name":"c","type":"other"}],"nextCursor":"c","truncated":true}
        {"type":"directory","size":0,"dirty":false,"readOnly":false}
        {"type":"file","size":4,"modifiedAtMs":1,"createdAtMs":2,"mode":420,"contentType":"text/plain","encoding":"UTF-8","etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","dirty":true,"readOnly":true}
        {"data":"text","encoding":"utf-8","etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","size":9,"truncated":true,"dirty":true}
        {"data":"AAEC","encoding":"base64","etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","size":3,"truncated":false,"dirty":false}
        {"encoding":"utf-8","etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","size":4,"truncated":false,"dirty":false,"notModified":true}
        {"etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","merged":false,"formatted":false}
        {"etag":"sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1","content":"merged","merged":true,"formatted":false}
        {"watchId":"w1"}
        {"sessionId":"s","watchId":"w1","changes":[{"path":"/a","kind":"modified","by":"user"},{"path":"/c","kind":"renamed","by":"command","from":"/b"}]}
        {"sessionId":"s","watchId":"w1","changes":[],"overflow":true}
    "#]].assert_eq(&text);
}

#[test]
fn fields_that_are_null_or_unknown_do_no_harm() {
    check::<ListDirectoryRequest>(
        r#"{"sessionId":"s","path":"/a","depth":null,"glob":null,"includeIgnored":null,"cursor":null,"limit":null,"new":1,"_meta":{}}"#,
        expect![[r#"
            {"sessionId":"s","path":"/a"}
        "#]],
    );
    check::<ReadFileRequest>(
        r#"
{"sessionId":"s","path":"/a","encoding":null,"offset":null,"limit":null,"ifNoneMatch":null,"new":{"a":[1]}}
{"sessionId":"s","path":"/a","encoding":"utf8"}
"#,
        expect![[r#"
            {"sessionId":"s","path":"/a","encoding":"utf-8"}
            {"sessionId":"s","path":"/a","encoding":"utf-8"}
        "#]],
    );
    check::<WriteFileRequest>(
        r#"{"sessionId":"s","path":"/a","data":"","encoding":null,"mode":null,"position":null,"createOnly":null,"createParents":null,"ifMatch":null}"#,
        expect![[r#"
            {"sessionId":"s","path":"/a","data":"","encoding":"utf-8","mode":"truncate"}
        "#]],
    );
    check::<BatchFilesRequest>(
        r#"{"sessionId":"s","operations":[{"op":"move","from":"/a","to":"/b","overwrite":null},{"new":1,"path":"/c","op":"remove"}],"atomic":true}"#,
        expect![[r#"
            {"sessionId":"s","operations":[{"op":"move","from":"/a","to":"/b"},{"op":"remove","path":"/c"}]}
        "#]],
    );
}

#[test]
fn results_of_a_newer_client_are_read_as_far_as_they_are_known() {
    check::<ListDirectoryResponse>(
        r#"{"entries":[{"name":"a","type":"wormhole","inode":7}]}"#,
        expect![[r#"
            {"entries":[{"name":"a","type":"other"}],"truncated":false}
        "#]],
    );
    check::<FilesChangedNotification>(
        r#"
{"sessionId":"s","watchId":"w","changes":[{"path":"/a","kind":"touched","by":"ghost"},{"path":"/b","kind":"removed"}]}
"#,
        expect![[r#"
            {"sessionId":"s","watchId":"w","changes":[{"path":"/a","kind":"other","by":"other"},{"path":"/b","kind":"removed","by":"other"}]}
        "#]],
    );
    check::<BatchFilesResponse>(
        r#"
{"results":[{"op":"mkdir","created":true},{"op":"write","etag":"7"},{"op":"read","encoding":"base64","etag":"8","size":1,"data":"AA=="}]}
{"results":[{"op":"link"}]}
"#,
        expect![[r#"
            {"results":[{"op":"mkdir"},{"op":"write","etag":"7","merged":false,"formatted":false},{"op":"read","data":"AA==","encoding":"base64","etag":"8","size":1,"truncated":false,"dirty":false}]}
            ! unknown variant `link`, expected one of `read`, `write`, `move`, `copy`, `remove`, `mkdir` at line 1 column 24
        "#]],
    );
}

#[test]
fn params_that_are_no_request_are_refused() {
    check::<ListDirectoryRequest>(
        r#"
{"sessionId":"s"}
{"path":"/a"}
{"sessionId":"s","path":7}
{"sessionId":"s","path":"/a","limit":-1}
{"sessionId":"s","path":"/a","depth":"deep"}
[]
"#,
        expect![[r#"
            ! missing field `path` at line 1 column 17
            ! missing field `sessionId` at line 1 column 13
            ! invalid type: integer `7`, expected path string at line 1 column 25
            ! invalid value: integer `-1`, expected u64 at line 1 column 39
            ! invalid type: string "deep", expected u64 at line 1 column 43
            ! invalid length 0, expected struct ListDirectoryRequest with 7 elements at line 1 column 2
        "#]],
    );
    check::<WriteFileRequest>(
        r#"
{"sessionId":"s","path":"/a"}
{"sessionId":"s","path":"/a","data":"","mode":"prepend"}
{"sessionId":"s","path":"/a","data":"","encoding":"hex"}
{"sessionId":"s","path":"/a","data":null}
"#,
        expect![[r#"
            ! missing field `data` at line 1 column 29
            ! unknown variant `prepend`, expected one of `truncate`, `append`, `insert` at line 1 column 56
            ! unknown variant `hex`, expected one of `utf-8`, `utf8`, `base64` at line 1 column 56
            ! invalid type: null, expected a string at line 1 column 41
        "#]],
    );
    check::<BatchFilesRequest>(
        r#"
{"sessionId":"s"}
{"sessionId":"s","operations":{}}
"#,
        expect![[r#"
            ! missing field `operations` at line 1 column 17
            ! invalid type: map, expected a sequence at line 1 column 30
        "#]],
    );
}

#[test]
fn content_is_decoded_as_the_answer_says() {
    let read = |text: &str| serde_json::from_str::<ReadFileResponse>(text).unwrap().into_data();
    let answers = [
        r#"{"encoding":"utf-8","etag":"e","size":1,"data":"é"}"#,
        r#"{"encoding":"base64","etag":"e","size":1,"data":"AP8="}"#,
        r#"{"encoding":"base64","etag":"e","size":1,"data":"é"}"#,
        r#"{"encoding":"base64","etag":"e","size":1,"notModified":true}"#,
    ];
    let shown: Vec<_> = answers.iter().map(|answer| format!("{:?}\n", read(answer))).collect();
    expect![[r#"
        Ok(Some(Text("é")))
        Ok(Some(Bytes([0, 255])))
        Err(InvalidEncoding { position: Some(0) })
        Ok(None)
    "#]]
    .assert_eq(&shown.concat());
}
