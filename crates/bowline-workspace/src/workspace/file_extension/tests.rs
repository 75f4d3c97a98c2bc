//! Listings, metadata and ranges as JSON: the request's params in, the answer or the error's kind out.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bowline_history::changes::ChangeOrigin;
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{
    Etag, FileError, FileLimits, ListDirectoryRequest, ReadFileRequest, ReadParams, StatFileRequest,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::MAX_WHOLE_BYTES;
use crate::disk::content_scan::CHUNK_BYTES;
use crate::workspace::fixture::TestProject;

/// Serves a request of a session, and returns the answer as a line without the hash of etags.
fn serve(project: &TestProject, method: &str, mut params: Value) -> String {
    let session = project.workspace.session("s");
    let path = project.path(params["path"].as_str().unwrap_or_default());
    params["sessionId"] = json!("s");
    params["path"] = json!(path.trim_end_matches('/'));
    let limits = FileLimits { list_entries: 3, ..FileLimits::DEFAULT };
    let answer = match method {
        "list" => {
            let request: ListDirectoryRequest = serde_json::from_value(params).unwrap();
            let answer = request.into_operation(&limits).and_then(|operation| session.list_page(&operation));
            answer.map(|answer| json!(answer))
        }
        "stat" => {
            let request: StatFileRequest = serde_json::from_value(params).unwrap();
            request.into_operation().and_then(|operation| {
                let path = operation.path.as_str();
                if !operation.follow_symlinks
                    && let Some(link) = session.stat_symlink(path)?
                {
                    return Ok(json!(link));
                }
                let admitted = session.admit(path, Access::Read)?;
                session.stat_admitted(&admitted).map(|answer| json!(answer))
            })
        }
        _ => {
            let request: ReadFileRequest = serde_json::from_value(params).unwrap();
            request.into_operation(&limits).and_then(|operation| {
                let admitted = session.admit(operation.path.as_str(), Access::Read)?;
                session.read_range(&admitted, &operation).map(|answer| json!(answer))
            })
        }
    };
    describe(project, answer)
}

fn describe(project: &TestProject, answer: Result<Value, FileError>) -> String {
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let text = error.to_string().replace(project.path("").trim_end_matches('/'), "$ROOT");
            return format!("{:?}: {text}\n", error.kind());
        }
    };
    if let Some(etag) = answer.get_mut("etag") {
        *etag = json!(etag.as_str().unwrap_or_default()[..11].to_owned());
    }
    for entry in answer.get_mut("entries").and_then(Value::as_array_mut).into_iter().flatten() {
        entry.as_object_mut().unwrap().shift_remove("modifiedAtMs");
    }
    answer.as_object_mut().unwrap().shift_remove("modifiedAtMs");
    format!("{answer}\n")
}

/// Opens a document and changes its text.
fn type_text(project: &TestProject, name: &str, text: &str) {
    let path = project.path(name);
    let revision = project.workspace.open_document(&path).unwrap().revision;
    project.workspace.change_document(&path, text.to_owned(), revision).unwrap();
}

fn check(project: &TestProject, requests: &[(&str, Value)], expected: Expect) {
    let answers = requests.iter().map(|(method, params)| serve(project, method, params.clone()));
    expected.assert_eq(&answers.collect::<String>());
}

#[test]
fn a_listing_has_pages() {
    let project = TestProject::new(&[("b.rs", "fn\n"), ("c.txt", "text\n"), (".gitignore", "ignored\n")]);
    fs::create_dir_all(project.path("a/deep")).unwrap();
    project.write("a/one.rs", "1");
    project.write("a/deep/two.rs", "2");
    project.write("ignored", "");
    symlink("/etc/passwd", project.path("link")).unwrap();
    check(
        &project,
        &[
            ("list", json!({ "path": "" })),
            ("list", json!({ "path": "", "cursor": "b.rs" })),
            ("list", json!({ "path": "", "cursor": "zzz" })),
            ("list", json!({ "path": "", "depth": 9, "glob": "*.rs" })),
            ("list", json!({ "path": "", "depth": 9, "glob": "a/*", "limit": 1 })),
            ("list", json!({ "path": "", "glob": "ign*", "includeIgnored": true })),
            ("list", json!({ "path": "b.rs" })),
            ("list", json!({ "path": "missing" })),
            ("list", json!({ "path": "../.." })),
        ],
        expect![[r#"
            {"entries":[{"name":".gitignore","type":"file","size":8},{"name":"a","type":"directory"},{"name":"b.rs","type":"file","size":3}],"nextCursor":"b.rs","truncated":true}
            {"entries":[{"name":"c.txt","type":"file","size":5},{"name":"link","type":"symlink"}],"truncated":false}
            {"entries":[],"truncated":false}
            {"entries":[{"name":"a/deep/two.rs","type":"file","size":1},{"name":"a/one.rs","type":"file","size":1},{"name":"b.rs","type":"file","size":3}],"truncated":false}
            {"entries":[{"name":"a/deep","type":"directory"}],"nextCursor":"a/deep","truncated":true}
            {"entries":[{"name":"ignored","type":"file","size":0}],"truncated":false}
            NotDirectory: $ROOT/b.rs is not a directory
            NotFound: $ROOT/missing does not exist
            OutsideRoots: $ROOT/../.. is outside the session's directories
        "#]],
    );
}

#[test]
fn metadata_describe_what_the_session_sees() {
    let project = TestProject::new(&[("text", "grün\n"), ("open", "saved\n")]);
    fs::write(project.path("latin"), b"gr\xfcn und bl\xe4u, sch\xf6n\n").unwrap();
    fs::write(project.path("binary"), b"\x89PNG\0\0").unwrap();
    fs::create_dir(project.path("directory")).unwrap();
    symlink("text", project.path("link")).unwrap();
    symlink("/etc/passwd", project.path("outside")).unwrap();
    for (name, mode) in [("text", 0o640), ("latin", 0o444), ("binary", 0o755), ("open", 0o644)] {
        fs::set_permissions(project.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(project.path("directory"), fs::Permissions::from_mode(0o755)).unwrap();
    type_text(&project, "open", "typed, not saved\n");
    type_text(&project, "new", "never saved\n");
    let stat = |path: &str| ("stat", json!({ "path": path }));
    check(
        &project,
        &[
            stat("text"),
            stat("latin"),
            stat("binary"),
            stat("link"),
            ("stat", json!({ "path": "link", "followSymlinks": false })),
            ("stat", json!({ "path": "outside", "followSymlinks": false })),
            stat("outside"),
            stat("open"),
            stat("new"),
            stat("missing"),
            stat("missing/below"),
            stat("text/below"),
        ],
        expect![[r#"
            {"type":"file","size":6,"mode":416,"encoding":"UTF-8","etag":"sha256:d2d8","dirty":false,"readOnly":false}
            {"type":"file","size":21,"mode":292,"encoding":"windows-1252","etag":"sha256:aea0","dirty":false,"readOnly":true}
            {"type":"file","size":6,"mode":493,"etag":"sha256:4ed1","dirty":false,"readOnly":false}
            {"type":"file","size":6,"mode":416,"encoding":"UTF-8","etag":"sha256:d2d8","dirty":false,"readOnly":false}
            {"type":"symlink","size":4,"dirty":false,"readOnly":false}
            {"type":"symlink","size":11,"dirty":false,"readOnly":false}
            OutsideRoots: $ROOT/outside is outside the session's directories
            {"type":"file","size":17,"mode":420,"encoding":"UTF-8","etag":"sha256:9a39","dirty":true,"readOnly":false}
            {"type":"file","size":12,"etag":"sha256:dfa3","dirty":true,"readOnly":false}
            NotFound: $ROOT/missing does not exist
            NotFound: $ROOT/missing/below does not exist
            NotDirectory: $ROOT/text/below is not a directory
        "#]],
    );
    // The size of a directory depends on the file system.
    assert!(serve(&project, "stat", json!({ "path": "directory" })).contains(r#""type":"directory""#));
}

#[test]
fn ranges_are_of_the_text_or_of_the_bytes() {
    let project = TestProject::new(&[("text", "grün\n"), ("marked", "\u{feff}one\n"), ("open", "saved\n")]);
    fs::write(project.path("binary"), b"\x89PNG\0\0").unwrap();
    fs::create_dir(project.path("directory")).unwrap();
    type_text(&project, "open", "typed\n");
    let read = |path: &str, more: Value| {
        let mut params = json!({ "path": path });
        params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        ("read", params)
    };
    let etag = Etag::digest("grün\n".as_bytes());
    check(
        &project,
        &[
            read("text", json!({})),
            read("text", json!({ "limit": 3 })),
            read("text", json!({ "offset": 2, "limit": 1 })),
            read("text", json!({ "offset": 3 })),
            read("text", json!({ "offset": 6 })),
            read("text", json!({ "offset": 7 })),
            read("text", json!({ "encoding": "base64" })),
            read("text", json!({ "encoding": "base64", "offset": 1, "limit": 2 })),
            read("text", json!({ "ifNoneMatch": etag.as_str() })),
            read("text", json!({ "ifNoneMatch": "sha256:0" })),
            read("marked", json!({})),
            read("marked", json!({ "encoding": "base64" })),
            read("binary", json!({})),
            read("binary", json!({ "encoding": "base64", "offset": 1, "limit": 3 })),
            read("open", json!({})),
            read("open", json!({ "encoding": "base64" })),
            read("directory", json!({})),
            read("missing", json!({})),
        ],
        expect![[r#"
            {"data":"grün\n","encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":false,"dirty":false}
            {"data":"gr","encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":true,"dirty":false}
            {"data":"ü","encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":true,"dirty":false}
            OutOfRange: 3 is inside a character
            {"data":"","encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":false,"dirty":false}
            OutOfRange: 7 is past the end: the content has 6 bytes
            {"data":"Z3LDvG4K","encoding":"base64","etag":"sha256:d2d8","size":6,"truncated":false,"dirty":false}
            {"data":"csM=","encoding":"base64","etag":"sha256:d2d8","size":6,"truncated":true,"dirty":false}
            {"encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":false,"dirty":false,"notModified":true}
            {"data":"grün\n","encoding":"utf-8","etag":"sha256:d2d8","size":6,"truncated":false,"dirty":false}
            {"data":"one\n","encoding":"utf-8","etag":"sha256:2c8b","size":4,"truncated":false,"dirty":false}
            {"data":"77u/b25lCg==","encoding":"base64","etag":"sha256:2c8b","size":7,"truncated":false,"dirty":false}
            NotText: $ROOT/binary cannot be read as text: read it as base64
            {"data":"UE5H","encoding":"base64","etag":"sha256:4ed1","size":6,"truncated":true,"dirty":false}
            {"data":"typed\n","encoding":"utf-8","etag":"sha256:04af","size":6,"truncated":false,"dirty":true}
            {"data":"dHlwZWQK","encoding":"base64","etag":"sha256:04af","size":6,"truncated":false,"dirty":true}
            NotFile: $ROOT/directory is not a file
            NotFound: $ROOT/missing does not exist
        "#]],
    );
}

#[test]
fn a_large_file_is_read_in_pieces() {
    let project = TestProject::new(&[]);
    // The character at the end of a piece is split.
    let mut text = "x".repeat(CHUNK_BYTES - 1) + "ü";
    text.push_str(&"y\n".repeat(usize::try_from(MAX_WHOLE_BYTES / 2).unwrap()));
    fs::write(project.path("large"), &text).unwrap();
    fs::write(project.path("marked"), format!("\u{feff}{text}")).unwrap();
    fs::write(project.path("binary"), [text.as_bytes(), b"\xff"].concat()).unwrap();
    let session = project.workspace.session("s");
    let read = |name: &str, params: Value| {
        let mut params = params;
        (params["sessionId"], params["path"]) = (json!("s"), json!(project.path(name)));
        let request: ReadFileRequest = serde_json::from_value(params).unwrap();
        let operation = request.into_operation(&FileLimits::DEFAULT).unwrap();
        let admitted = session.admit(&project.path(name), Access::Read).unwrap();
        session.read_range(&admitted, &operation)
    };
    let offset = CHUNK_BYTES - 2;
    for name in ["large", "marked"] {
        let part = read(name, json!({ "offset": offset, "limit": 4 })).unwrap();
        assert_eq!(part.data.as_deref(), Some("xüy"), "{name}");
        assert_eq!((part.etag, part.size), (Etag::digest(text.as_bytes()), text.len() as u64), "{name}");
        assert!(part.truncated, "{name}");
    }
    let error = read("large", json!({ "offset": offset + 2 })).unwrap_err();
    assert_eq!(error.to_string(), "1048576 is inside a character");
    let bytes = read("binary", json!({ "encoding": "base64", "offset": text.len() })).unwrap();
    assert_eq!((bytes.data.as_deref(), bytes.truncated), (Some("/w=="), false));
    assert!(matches!(read("binary", json!({})), Err(FileError::NotText { .. })));
}

#[test]
fn what_was_read_is_the_base_of_the_next_write() {
    let project = TestProject::new(&[("a", "one\ntwo\nthree\n")]);
    serve(&project, "read", json!({ "path": "a", "encoding": "base64" }));
    project.write("a", "ONE\ntwo\nthree\n");
    let session = project.workspace.session("s");
    let written = session.write(&project.path("a"), "one\ntwo\nTHREE\n", &ChangeOrigin::default()).unwrap();
    assert_eq!(*written.text, "ONE\ntwo\nTHREE\n");
    // After a read of a part, other lines cannot be changed.
    project.write("a", "1\n2\n3\n");
    let other = project.workspace.session("other");
    let admitted = other.admit(&project.path("a"), Access::Read).unwrap();
    let request = ReadFileRequest::new("other", ReadParams::new(project.path("a")).limit(2));
    other.read_range(&admitted, &request.into_operation(&FileLimits::DEFAULT).unwrap()).unwrap();
    let refused = other.write(&project.path("a"), "1\n2\nthree\n", &ChangeOrigin::default()).unwrap_err();
    assert!(refused.to_string().contains("would change or remove line 3"), "{refused}");
}
