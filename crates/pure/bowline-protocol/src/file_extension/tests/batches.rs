//! Tests of the validation of batches.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;
use std::path::Path;

use super::describe;
use crate::file_extension::overlap::{OverlapChecker, PathEffect};
use crate::file_extension::{
    BatchFilesRequest, FileError, FileLimits, FileOperation, ReadParams, RemoveParams, WriteParams,
};

const LIMITS: FileLimits =
    FileLimits { batch_operations: 6, batch_bytes: 8, write_bytes: 6, ..FileLimits::DEFAULT };

/// Shows each batch, a line of operations, as the number of its operations or an error.
fn check(batches: &str, expected: Expect) {
    let mut text = String::new();
    for line in batches.lines().filter(|line| !line.is_empty()) {
        let operations: Vec<serde_json::Value> = serde_json::from_str(&format!("[{line}]")).unwrap();
        let params = json!({ "sessionId": "s", "operations": operations });
        let batch: BatchFilesRequest = serde_json::from_str(&params.to_string()).unwrap();
        describe(&mut text, batch.into_operations(&LIMITS).map(|operations| operations.len()));
    }
    expected.assert_eq(&text);
}

#[test]
fn operations_are_validated() {
    let params = json!({ "sessionId": "s", "operations": [
        { "op": "read", "path": "/a", "limit": 5 },
        { "op": "write", "path": "/b", "data": "AA==", "encoding": "base64", "createOnly": true },
        { "op": "move", "from": "/c", "to": "/d" },
        { "op": "copy", "from": "/e", "to": "/f", "overwrite": true },
        { "op": "remove", "path": "/g", "recursive": true },
        { "op": "mkdir", "path": "/h", "parents": true },
    ]});
    let batch: BatchFilesRequest = serde_json::from_value(params).unwrap();
    let operations: Vec<FileOperation> = batch.into_operations(&LIMITS).unwrap();
    let shown: Vec<_> = operations.iter().map(|operation| format!("{operation:?}\n")).collect();
    expect![[r#"
        Read(ReadOperation { path: AbsolutePath { path: "/a" }, encoding: Utf8, range: ByteRange { offset: 0, limit: 5 }, if_none_match: None })
        Write(WriteOperation { path: AbsolutePath { path: "/b" }, data: Bytes([0]), placement: Truncate, condition: CreateOnly, create_parents: false })
        Move(TransferOperation { from: AbsolutePath { path: "/c" }, to: AbsolutePath { path: "/d" }, destination: MustNotExist })
        Copy(TransferOperation { from: AbsolutePath { path: "/e" }, to: AbsolutePath { path: "/f" }, destination: Overwrite })
        Remove(RemoveOperation { path: AbsolutePath { path: "/g" }, recursive: true })
        Mkdir(MkdirOperation { path: AbsolutePath { path: "/h" }, parents: true })
    "#]].assert_eq(&shown.concat());
}

#[test]
fn an_invalid_operation_is_named_by_its_index() {
    check(
        r#"
{"op":"mkdir","path":"/a"},{"op":"mkdir","path":"b"}
{"op":"mkdir","path":"/a"},{"op":"link","path":"/b"}
{"op":"mkdir","path":"/a"},{"op":"read","path":7},{"op":"mkdir","path":"b"}
{"op":"mkdir","path":"a"},{"op":"read","path":7}
{"op":"mkdir","path":"/a"},{"path":"/b"}
{"op":"mkdir","path":"/a"},null
{"op":"move","from":"/a"}
{"op":"read","path":"/a","limit":0}
{"op":"write","path":"/a","data":"!","encoding":"base64"}
{"op":"write","path":"/a","data":"1234567"}
{"op":"remove","path":"/a/../b"}
{"op":"copy","from":"/a","to":"/b/.."}
"#,
        expect![[r#"
            ! {"code":-32602,"message":"operation 1: b is a relative path, send an absolute path","data":{"kind":"badParams","index":1,"reason":"relative","path":"b"}}
            ! {"code":-32602,"message":"operation 1: the operation is wrong: expected one of `read`, `write`, `move`, `copy`, `remove`, `mkdir` at column 12","data":{"kind":"badParams","index":1}}
            ! {"code":-32602,"message":"operation 1: the operation is wrong: expected path string","data":{"kind":"badParams","index":1}}
            ! {"code":-32602,"message":"operation 0: a is a relative path, send an absolute path","data":{"kind":"badParams","index":0,"reason":"relative","path":"a"}}
            ! {"code":-32602,"message":"operation 1: the operation is wrong: missing field `op` before column 13","data":{"kind":"badParams","index":1}}
            ! {"code":-32602,"message":"operation 1: the operation is wrong: expected an operation at column 4","data":{"kind":"badParams","index":1}}
            ! {"code":-32602,"message":"operation 0: the operation is wrong: missing field `to`","data":{"kind":"badParams","index":0}}
            ! {"code":-32602,"message":"operation 0: limit is at least 1","data":{"kind":"badParams","index":0}}
            ! {"code":-32602,"message":"operation 0: the data is not base64: byte 0 is wrong","data":{"kind":"invalidEncoding","index":0,"position":0}}
            ! {"code":-32602,"message":"operation 0: /a has 7 bytes, the limit is 6","data":{"kind":"tooLarge","index":0,"path":"/a","bytes":7,"limit":6}}
            ! {"code":-32602,"message":"operation 0: a path in a batch cannot contain `..`","data":{"kind":"badParams","index":0}}
            ! {"code":-32602,"message":"operation 0: a path in a batch cannot contain `..`","data":{"kind":"badParams","index":0}}
        "#]],
    );
}

#[test]
fn a_batch_has_limits_as_a_whole() {
    check(
        r#"
{"op":"write","path":"/a","data":"1234"},{"op":"write","path":"/b","data":"MTIzNA==","encoding":"base64"}
{"op":"write","path":"/a","data":"1234"},{"op":"write","path":"/b","data":"12345"}
{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"}
{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"read","path":"a"}
"#,
        expect![[r#"
            2
            ! {"code":-32602,"message":"the batch has 9 bytes, the limit is 8","data":{"kind":"tooLarge","bytes":9,"limit":8}}
            6
            ! {"code":-32602,"message":"too many operations, the limit is 6","data":{"kind":"tooMany","limit":6,"items":"operations"}}
        "#]],
    );
    assert_eq!(BatchFilesRequest::new("s").into_operations(&LIMITS), Ok(Vec::new()));
}

#[test]
fn ten_thousand_operations_are_refused() {
    let batch = (0..10_000).fold(BatchFilesRequest::new("s"), |batch, number| {
        batch.operation(RemoveParams::new(format!("/{number}")))
    });
    let mut text = String::new();
    describe(&mut text, batch.into_operations(&FileLimits::DEFAULT));
    expect![[r#"
        ! {"code":-32602,"message":"too many operations, the limit is 1000","data":{"kind":"tooMany","limit":1000,"items":"operations"}}
    "#]].assert_eq(&text);
}

#[test]
fn a_path_is_changed_once() {
    check(
        r#"
{"op":"write","path":"/a","data":""},{"op":"write","path":"/a","data":""}
{"op":"write","path":"/a","data":""},{"op":"write","path":"//a/./","data":""}
{"op":"write","path":"/a","data":""},{"op":"write","path":"/ab","data":""},{"op":"write","path":"/A","data":""}
{"op":"move","from":"/a","to":"/b"},{"op":"write","path":"/a","data":""}
{"op":"move","from":"/a","to":"/b"},{"op":"write","path":"/b","data":""}
{"op":"move","from":"/a","to":"/b"},{"op":"move","from":"/b","to":"/a"}
{"op":"copy","from":"/a","to":"/b"},{"op":"copy","from":"/a","to":"/b"}
{"op":"copy","from":"/a","to":"/b"},{"op":"copy","from":"/a","to":"/c"}
{"op":"remove","path":"/a"},{"op":"write","path":"/a","data":""}
"#,
        expect![[r#"
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: //a/./ overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"//a/./","other":0}}
            3
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /b overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/b","other":0}}
            ! {"code":-32602,"message":"operation 1: /b overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/b","other":0}}
            ! {"code":-32602,"message":"operation 1: /b overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/b","other":0}}
            2
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
        "#]],
    );
}

#[test]
fn nothing_above_or_beneath_a_changed_path_is_changed() {
    check(
        r#"
{"op":"move","from":"/a","to":"/b"},{"op":"write","path":"/a/x","data":""}
{"op":"write","path":"/a/x","data":""},{"op":"move","from":"/a","to":"/b"}
{"op":"move","from":"/a","to":"/b"},{"op":"remove","path":"/b/x/y"}
{"op":"remove","path":"/a","recursive":true},{"op":"copy","from":"/b","to":"/a/b"}
{"op":"write","path":"/a-b","data":""},{"op":"write","path":"/a/b","data":""},{"op":"remove","path":"/a"}
{"op":"write","path":"/a/b","data":""},{"op":"write","path":"/a-b","data":""},{"op":"write","path":"/a/c","data":""}
{"op":"remove","path":"/"},{"op":"write","path":"/a","data":""}
"#,
        expect![[r#"
            ! {"code":-32602,"message":"operation 1: /a/x overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a/x","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /b/x/y overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/b/x/y","other":0}}
            ! {"code":-32602,"message":"operation 1: /a/b overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a/b","other":0}}
            ! {"code":-32602,"message":"operation 2: /a overlaps with operation 1","data":{"kind":"overlap","index":2,"path":"/a","other":1}}
            3
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
        "#]],
    );
}

#[test]
fn reads_come_before_changes() {
    check(
        r#"
{"op":"read","path":"/a"},{"op":"read","path":"/a"},{"op":"write","path":"/a","data":""}
{"op":"write","path":"/a","data":""},{"op":"read","path":"/a"}
{"op":"read","path":"/a/x"},{"op":"remove","path":"/a","recursive":true}
{"op":"remove","path":"/a","recursive":true},{"op":"read","path":"/a/x"}
{"op":"copy","from":"/a","to":"/b"},{"op":"write","path":"/a/x","data":""}
{"op":"write","path":"/a/x","data":""},{"op":"copy","from":"/a","to":"/b"}
"#,
        expect![[r#"
            3
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            2
            ! {"code":-32602,"message":"operation 1: /a/x overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a/x","other":0}}
            2
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
        "#]],
    );
}

#[test]
fn a_directory_is_created_once_and_before_its_content() {
    check(
        r#"
{"op":"mkdir","path":"/a"},{"op":"write","path":"/a/x","data":""},{"op":"mkdir","path":"/a/b"},{"op":"move","from":"/y","to":"/a/b/y"}
{"op":"write","path":"/a/x","data":"","createParents":true},{"op":"mkdir","path":"/a","parents":true}
{"op":"mkdir","path":"/a/b","parents":true},{"op":"mkdir","path":"/a"}
{"op":"mkdir","path":"/a"},{"op":"mkdir","path":"/a","parents":true}
{"op":"mkdir","path":"/a"},{"op":"remove","path":"/a"}
{"op":"mkdir","path":"/a/b"},{"op":"remove","path":"/a"}
{"op":"remove","path":"/a"},{"op":"mkdir","path":"/a"}
{"op":"move","from":"/a","to":"/b"},{"op":"mkdir","path":"/b/c"}
{"op":"mkdir","path":"/a"},{"op":"mkdir","path":"/b"},{"op":"move","from":"/c","to":"/a/c"},{"op":"mkdir","path":"/a/d"}
"#,
        expect![[r#"
            4
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /a overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/a","other":0}}
            ! {"code":-32602,"message":"operation 1: /b/c overlaps with operation 0","data":{"kind":"overlap","index":1,"path":"/b/c","other":0}}
            4
        "#]],
    );
}

#[test]
fn nothing_is_moved_or_copied_onto_or_into_itself() {
    check(
        r#"
{"op":"move","from":"/a","to":"/a"}
{"op":"move","from":"/a","to":"/./a/"}
{"op":"move","from":"/a","to":"/a/b"}
{"op":"copy","from":"/a/b","to":"/a","overwrite":true}
{"op":"copy","from":"/a","to":"/ab"}
"#,
        expect![[r#"
            ! {"code":-32602,"message":"operation 0: /a and /a are the same, or one contains the other","data":{"kind":"overlap","index":0,"path":"/a","to":"/a"}}
            ! {"code":-32602,"message":"operation 0: /a and /./a/ are the same, or one contains the other","data":{"kind":"overlap","index":0,"path":"/a","to":"/./a/"}}
            ! {"code":-32602,"message":"operation 0: /a and /a/b are the same, or one contains the other","data":{"kind":"overlap","index":0,"path":"/a","to":"/a/b"}}
            ! {"code":-32602,"message":"operation 0: /a/b and /a are the same, or one contains the other","data":{"kind":"overlap","index":0,"path":"/a/b","to":"/a"}}
            1
        "#]],
    );
}

/// The rules of overlaps, each operation compared with every earlier one.
fn find_overlap_slowly(operations: &[Vec<PathEffect<'_>>]) -> Option<(usize, usize)> {
    let is_beneath = |path: &Path, above: &Path| path.starts_with(above);
    let is_related = |one: &Path, two: &Path| is_beneath(one, two) || is_beneath(two, one);
    let overlaps = |earlier: PathEffect<'_>, later: PathEffect<'_>| match (earlier, later) {
        (PathEffect::Read(_), _) | (PathEffect::CreateDirectory(_), PathEffect::Read(_)) => false,
        (
            PathEffect::Change(one),
            PathEffect::Read(two) | PathEffect::Change(two) | PathEffect::CreateDirectory(two),
        ) => is_related(one, two),
        (PathEffect::CreateDirectory(one), PathEffect::Change(two) | PathEffect::CreateDirectory(two)) => {
            is_beneath(one, two)
        }
    };
    (0..operations.len()).find_map(|later| {
        let overlaps_with = |earlier: &usize| {
            operations[*earlier].iter().any(|one| operations[later].iter().any(|two| overlaps(*one, *two)))
        };
        Some((later, (0..later).find(overlaps_with)?))
    })
}

fn any_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["a", "b", "a-", "ab"], 1..4)
        .prop_map(|names| format!("/{}", names.join("/")))
}

proptest! {
    #[test]
    fn overlaps_are_those_of_the_rules(kinds in proptest::collection::vec((0..4, any_path(), any_path()), 0..12)) {
        let operations: Vec<Vec<PathEffect<'_>>> = kinds
            .iter()
            .filter_map(|(kind, one, two)| {
                let (one, two) = (Path::new(one), Path::new(two));
                let is_apart = !one.starts_with(two) && !two.starts_with(one);
                match kind {
                    0 => Some(vec![PathEffect::Read(one)]),
                    1 => Some(vec![PathEffect::CreateDirectory(one)]),
                    2 => is_apart.then(|| vec![PathEffect::Change(one), PathEffect::Change(two)]),
                    _ => Some(vec![PathEffect::Change(one)]),
                }
            })
            .collect();
        let mut checker = OverlapChecker::default();
        let found = operations.iter().find_map(|effects| checker.add(effects).err());
        let expected = find_overlap_slowly(&operations);
        prop_assert_eq!(found.as_ref().and_then(|error| error.index), expected.map(|(later, _)| later as u64));
        // Several earlier operations may overlap with this one; the reported one does.
        if let (Some(error), Some((later, _))) = (found, expected) {
            let FileError::Overlap { other, .. } = error.error else { panic!("{error:?}") };
            let other = usize::try_from(other).unwrap();
            prop_assert!(other < later);
            let pair = [operations[other].clone(), operations[later].clone()];
            prop_assert_eq!(find_overlap_slowly(&pair), Some((1, 0)));
        }
    }

    #[test]
    fn a_batch_comes_back_from_the_wire(paths in proptest::collection::vec((any_path(), any::<Vec<u8>>()), 0..5)) {
        let batch = paths.into_iter().fold(BatchFilesRequest::new("s"), |batch, (path, data)| {
            batch.operation(ReadParams::new(&path)).operation(WriteParams::new(path, data))
        });
        let wire = serde_json::to_string(&batch).unwrap();
        prop_assert_eq!(serde_json::from_str::<BatchFilesRequest>(&wire).unwrap(), batch.clone());
        prop_assert_eq!(serde_json::from_value::<BatchFilesRequest>(json!(batch)).unwrap(), batch);
    }
}
