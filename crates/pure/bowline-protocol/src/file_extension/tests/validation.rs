//! Tests of the validation of single requests.

use expect_test::{Expect, expect};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

use super::describe;
use crate::file_extension::operations::{MAX_GLOB_BYTES, MAX_PATH_BYTES};
use crate::file_extension::{
    FileError, FileGlob, FileLimits, ListDirectoryRequest, ReadFileRequest, StatFileRequest,
    WatchFilesRequest, WriteFileRequest,
};

const LIMITS: FileLimits =
    FileLimits { list_entries: 100, read_bytes: 50, write_bytes: 8, ..FileLimits::DEFAULT };

/// Shows each request, given without its session, as an operation or an error.
fn check<R: DeserializeOwned, T: Debug>(
    requests: &str,
    validate: impl Fn(R) -> Result<T, FileError>,
    expected: Expect,
) {
    let mut text = String::new();
    for line in requests.lines().filter(|line| !line.is_empty()) {
        let mut params: Value = serde_json::from_str(line).unwrap();
        params["sessionId"] = json!("s");
        describe(&mut text, validate(serde_json::from_value(params).unwrap()));
    }
    expected.assert_eq(&text);
}

#[test]
fn paths_are_absolute() {
    check(
        r#"
{"path":"/a/../b/./c//d/"}
{"path":"/"}
{"path":"a"}
{"path":""}
{"path":"./a"}
{"path":"~/a"}
{"path":"file:///a"}
{"path":"/a\u0000b"}
{"path":"/a\u001b[2Jb","followSymlinks":false}
"#,
        StatFileRequest::into_operation,
        expect![[r#"
            StatOperation { path: AbsolutePath { path: "/a/../b/./c//d/" }, follow_symlinks: true }
            StatOperation { path: AbsolutePath { path: "/" }, follow_symlinks: true }
            ! {"code":-32602,"message":"a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"a"}}
            ! {"code":-32602,"message":" is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":""}}
            ! {"code":-32602,"message":"./a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"./a"}}
            ! {"code":-32602,"message":"~/a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"~/a"}}
            ! {"code":-32602,"message":"file:///a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"file:///a"}}
            ! {"code":-32602,"message":"the path contains a zero byte","data":{"kind":"badParams"}}
            StatOperation { path: AbsolutePath { path: "/a\u{1b}[2Jb" }, follow_symlinks: false }
        "#]],
    );
}

#[test]
fn a_path_has_a_maximum_length() {
    let stat = |length: usize| StatFileRequest::new("s", "/".repeat(length)).into_operation();
    let mut text = String::new();
    describe(&mut text, stat(MAX_PATH_BYTES).map(|operation| operation.path.as_str().len()));
    describe(&mut text, stat(MAX_PATH_BYTES + 1));
    expect![[r#"
        4096
        ! {"code":-32602,"message":"a path has at most 4096 bytes","data":{"kind":"badParams"}}
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_listing_has_a_page_and_a_depth() {
    check(
        r#"
{"path":"/a"}
{"path":"/a","depth":3,"glob":"*.rs","includeIgnored":true,"cursor":"c","limit":7}
{"path":"/a","limit":18446744073709551615}
{"path":"/a","limit":0}
{"path":"/a","depth":0}
{"path":"/a","glob":"[a"}
{"path":"/a","glob":"{a"}
"#,
        |request: ListDirectoryRequest| request.into_operation(&LIMITS),
        expect![[r#"
            ListOperation { path: AbsolutePath { path: "/a" }, depth: 1, glob: None, include_ignored: false, cursor: None, limit: 100 }
            ListOperation { path: AbsolutePath { path: "/a" }, depth: 3, glob: Some(FileGlob("*.rs")), include_ignored: true, cursor: Some("c"), limit: 7 }
            ListOperation { path: AbsolutePath { path: "/a" }, depth: 1, glob: None, include_ignored: false, cursor: None, limit: 100 }
            ! {"code":-32602,"message":"limit is at least 1","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"depth is at least 1","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"invalid glob: unclosed character class; missing ']'","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"invalid glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)","data":{"kind":"badParams"}}
        "#]],
    );
}

#[test]
fn a_read_has_a_range() {
    check(
        r#"
{"path":"/a"}
{"path":"/a","encoding":"base64","offset":7,"limit":20,"ifNoneMatch":"sha256:0"}
{"path":"/a","offset":18446744073709551615,"limit":18446744073709551615}
{"path":"/a","limit":0}
{"path":"a","limit":0}
"#,
        |request: ReadFileRequest| request.into_operation(&LIMITS),
        expect![[r#"
            ReadOperation { path: AbsolutePath { path: "/a" }, encoding: Utf8, range: ByteRange { offset: 0, limit: 50 }, if_none_match: None }
            ReadOperation { path: AbsolutePath { path: "/a" }, encoding: Base64, range: ByteRange { offset: 7, limit: 20 }, if_none_match: Some(Etag(sha256:0)) }
            ReadOperation { path: AbsolutePath { path: "/a" }, encoding: Utf8, range: ByteRange { offset: 18446744073709551615, limit: 50 }, if_none_match: None }
            ! {"code":-32602,"message":"limit is at least 1","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"a"}}
        "#]],
    );
}

#[test]
fn a_write_has_one_placement_and_one_condition() {
    check(
        r#"
{"path":"/a","data":"text"}
{"path":"/a","data":"text","mode":"append","createParents":true}
{"path":"/a","data":"text","mode":"insert","position":3,"ifMatch":"sha256:0"}
{"path":"/a","data":"text","createOnly":true}
{"path":"/a","data":"text","mode":"insert"}
{"path":"/a","data":"text","position":3}
{"path":"/a","data":"text","mode":"append","position":3}
{"path":"/a","data":"text","createOnly":true,"ifMatch":"sha256:0"}
{"path":"/a","data":"text","createOnly":true,"mode":"append"}
{"path":"/a","data":"text","createOnly":true,"mode":"insert","position":0}
"#,
        |request: WriteFileRequest| request.into_operation(&LIMITS),
        expect![[r#"
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Text("text"), placement: Truncate, condition: Unconditional, create_parents: false }
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Text("text"), placement: Append, condition: Unconditional, create_parents: true }
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Text("text"), placement: Insert { position: 3 }, condition: IfMatch(Etag(sha256:0)), create_parents: false }
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Text("text"), placement: Truncate, condition: CreateOnly, create_parents: false }
            ! {"code":-32602,"message":"the mode `insert` needs a position","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"a position is for the mode `insert`","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"a position is for the mode `insert`","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"createOnly and ifMatch contradict each other","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"createOnly is for the mode `truncate`","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"createOnly is for the mode `truncate`","data":{"kind":"badParams"}}
        "#]],
    );
}

#[test]
fn written_data_is_decoded_and_has_a_maximum_size() {
    check(
        r#"
{"path":"/a","data":"AAEC/w==","encoding":"base64"}
{"path":"/a","data":"","encoding":"base64"}
{"path":"/a","data":"AAEC_w==","encoding":"base64"}
{"path":"/a","data":"AAEC/w","encoding":"base64"}
{"path":"/a","data":"AAEC\n/w==","encoding":"base64"}
{"path":"/a","data":"A","encoding":"base64"}
{"path":"/a","data":"AAEC/x==","encoding":"base64"}
{"path":"/a","data":"12345678"}
{"path":"/a","data":"123456789"}
{"path":"/a","data":"1234567é"}
{"path":"/a","data":"AAAAAAAAAAAA","encoding":"base64"}
"#,
        |request: WriteFileRequest| request.into_operation(&LIMITS),
        expect![[r#"
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Bytes([0, 1, 2, 255]), placement: Truncate, condition: Unconditional, create_parents: false }
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Bytes([]), placement: Truncate, condition: Unconditional, create_parents: false }
            ! {"code":-32602,"message":"the data is not base64: byte 4 is wrong","data":{"kind":"invalidEncoding","position":4}}
            ! {"code":-32602,"message":"the data is not base64: it is incomplete","data":{"kind":"invalidEncoding"}}
            ! {"code":-32602,"message":"the data is not base64: byte 4 is wrong","data":{"kind":"invalidEncoding","position":4}}
            ! {"code":-32602,"message":"the data is not base64: it is incomplete","data":{"kind":"invalidEncoding"}}
            ! {"code":-32602,"message":"the data is not base64: byte 5 is wrong","data":{"kind":"invalidEncoding","position":5}}
            WriteOperation { path: AbsolutePath { path: "/a" }, data: Text("12345678"), placement: Truncate, condition: Unconditional, create_parents: false }
            ! {"code":-32602,"message":"/a has 9 bytes, the limit is 8","data":{"kind":"tooLarge","path":"/a","bytes":9,"limit":8}}
            ! {"code":-32602,"message":"/a has 9 bytes, the limit is 8","data":{"kind":"tooLarge","path":"/a","bytes":9,"limit":8}}
            ! {"code":-32602,"message":"/a has 9 bytes, the limit is 8","data":{"kind":"tooLarge","path":"/a","bytes":9,"limit":8}}
        "#]],
    );
}

#[test]
fn a_watch_may_select_paths() {
    check(
        r#"
{"path":"/a"}
{"path":"/a","recursive":true,"glob":"src/**"}
{"path":"/a","glob":"a{"}
{"path":"a"}
"#,
        WatchFilesRequest::into_operation,
        expect![[r#"
            WatchOperation { path: AbsolutePath { path: "/a" }, recursive: false, glob: None }
            WatchOperation { path: AbsolutePath { path: "/a" }, recursive: true, glob: Some(FileGlob("src/**")) }
            ! {"code":-32602,"message":"invalid glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)","data":{"kind":"badParams"}}
            ! {"code":-32602,"message":"a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"a"}}
        "#]],
    );
}

#[test]
fn a_glob_matches_names_or_relative_paths() {
    let paths = ["main.rs", "src/main.rs", "src/bin/main.rs", "src/main.rs/x", "main.rsx"];
    let mut text = String::new();
    for pattern in
        ["*.rs", "main.rs", "/main.rs", "/*.rs", "src/*.rs", "src/**", "**/bin/*", "*", "{src/,}main.rs"]
    {
        let glob = FileGlob::new(pattern).unwrap();
        let matching: Vec<_> = paths.into_iter().filter(|path| glob.is_match(path)).collect();
        text += &format!("{pattern}: {}\n", matching.join(" "));
    }
    expect![[r#"
        *.rs: main.rs src/main.rs src/bin/main.rs
        main.rs: main.rs src/main.rs src/bin/main.rs
        /main.rs: main.rs
        /*.rs: main.rs
        src/*.rs: src/main.rs
        src/**: src/main.rs src/bin/main.rs src/main.rs/x
        **/bin/*: src/bin/main.rs
        *: main.rs src/main.rs src/bin/main.rs src/main.rs/x main.rsx
        {src/,}main.rs: src/main.rs
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_glob_that_is_too_long_or_too_complex_is_refused() {
    let mut text = String::new();
    describe(&mut text, FileGlob::new(&"a".repeat(MAX_GLOB_BYTES)).map(|glob| glob.pattern().len()));
    describe(&mut text, FileGlob::new(&"a".repeat(MAX_GLOB_BYTES + 1)));
    // A pattern that compiles or not, but never panics.
    drop(FileGlob::new(&"{a,b}*[!x-\u{10ffff}]?".repeat(40)));
    drop(FileGlob::new(&"{".repeat(MAX_GLOB_BYTES)));
    drop(FileGlob::new(&"**/".repeat(MAX_GLOB_BYTES / 3)));
    expect![[r#"
        1024
        ! {"code":-32602,"message":"a glob has at most 1024 bytes","data":{"kind":"badParams"}}
    "#]]
    .assert_eq(&text);
}
