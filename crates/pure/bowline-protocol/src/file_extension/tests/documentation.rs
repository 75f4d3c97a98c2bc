//! Tests of the examples in `docs/extensions.md`: each is a message of the extension, written as the types write it.

use agent_client_protocol_schema::v1::{Error, Meta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::file_extension::{
    BATCH_METHOD, BatchError, BatchFilesRequest, BatchFilesResponse, CHANGED_METHOD, FileCapabilities,
    FileLimits, FilesChangedNotification, LIST_METHOD, ListDirectoryRequest, ListDirectoryResponse,
    READ_METHOD, ReadFileRequest, ReadFileResponse, STAT_METHOD, StatFileRequest, StatFileResponse,
    UNWATCH_METHOD, UnwatchFilesRequest, UnwatchFilesResponse, WATCH_METHOD, WRITE_METHOD, WatchFilesRequest,
    WatchFilesResponse, WriteFileRequest, WriteFileResponse,
};

const DOCUMENT: &str = include_str!("../../../../../../docs/extensions.md");
const METHODS: [&str; 8] = [
    LIST_METHOD, STAT_METHOD, READ_METHOD, WRITE_METHOD, BATCH_METHOD, WATCH_METHOD, UNWATCH_METHOD,
    CHANGED_METHOD,
];

/// Returns the examples: the lines of the JSON blocks.
fn examples() -> impl Iterator<Item = Value> {
    let blocks = DOCUMENT.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
    blocks
        .flat_map(str::lines)
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

fn rewrite<T: Serialize + DeserializeOwned>(value: &Value) -> Value {
    let read: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    json!(read)
}

/// Reads the params of a method, validates them, and writes them.
fn rewrite_params(method: &str, params: &Value) -> Value {
    fn read<T: DeserializeOwned>(params: &Value) -> T {
        serde_json::from_value(params.clone()).unwrap_or_else(|error| panic!("{error}: {params}"))
    }
    let limits = &FileLimits::DEFAULT;
    match method {
        LIST_METHOD => drop(read::<ListDirectoryRequest>(params).into_operation(limits).unwrap()),
        STAT_METHOD => drop(read::<StatFileRequest>(params).into_operation().unwrap()),
        READ_METHOD => drop(read::<ReadFileRequest>(params).into_operation(limits).unwrap()),
        WRITE_METHOD => drop(read::<WriteFileRequest>(params).into_operation(limits).unwrap()),
        BATCH_METHOD => drop(read::<BatchFilesRequest>(params).into_operations(limits).unwrap()),
        WATCH_METHOD => drop(read::<WatchFilesRequest>(params).into_operation().unwrap()),
        _ => {}
    }
    match method {
        LIST_METHOD => rewrite::<ListDirectoryRequest>(params),
        STAT_METHOD => rewrite::<StatFileRequest>(params),
        READ_METHOD => rewrite::<ReadFileRequest>(params),
        WRITE_METHOD => rewrite::<WriteFileRequest>(params),
        BATCH_METHOD => rewrite::<BatchFilesRequest>(params),
        WATCH_METHOD => rewrite::<WatchFilesRequest>(params),
        UNWATCH_METHOD => rewrite::<UnwatchFilesRequest>(params),
        CHANGED_METHOD => rewrite::<FilesChangedNotification>(params),
        other => panic!("no method {other}"),
    }
}

fn rewrite_result(method: &str, result: &Value) -> Value {
    match method {
        LIST_METHOD => rewrite::<ListDirectoryResponse>(result),
        STAT_METHOD => rewrite::<StatFileResponse>(result),
        READ_METHOD => rewrite::<ReadFileResponse>(result),
        WRITE_METHOD => rewrite::<WriteFileResponse>(result),
        BATCH_METHOD => rewrite::<BatchFilesResponse>(result),
        WATCH_METHOD => rewrite::<WatchFilesResponse>(result),
        UNWATCH_METHOD => rewrite::<UnwatchFilesResponse>(result),
        other => panic!("no answer to {other}"),
    }
}

#[test]
fn every_example_is_a_message_of_the_extension() {
    let (mut asked, mut shown) = (String::new(), BTreeSet::new());
    for example in examples() {
        if let Some(method) = example["method"].as_str() {
            assert_eq!(rewrite_params(method, &example["params"]), example["params"]);
            method.clone_into(&mut asked);
            shown.insert(format!("{method} params"));
        } else if example["result"].is_object() {
            assert_eq!(rewrite_result(&asked, &example["result"]), example["result"]);
            shown.insert(format!("{asked} result"));
        } else if example["error"].is_object() {
            let error: Error = serde_json::from_value(example["error"].clone()).unwrap();
            assert_eq!(json!(Error::from(BatchError::from_error(&error))), example["error"]);
        } else {
            let meta = &example["clientCapabilities"]["_meta"];
            let files = FileCapabilities::from_meta(&serde_json::from_value::<Meta>(meta.clone()).unwrap());
            let mut again = Meta::new();
            FileCapabilities::with_limits(&FileLimits::DEFAULT).insert_into(&mut again);
            assert_eq!((files.limits(), json!(again)), (FileLimits::DEFAULT, meta.clone()));
        }
    }
    let answered = METHODS.iter().filter(|method| **method != CHANGED_METHOD);
    let required = answered.map(|method| format!("{method} result"));
    let required = required.chain(METHODS.iter().map(|method| format!("{method} params")));
    assert_eq!(shown, required.collect());
}

#[test]
fn every_kind_of_error_is_explained() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../../../docs/extensions.schema.json")).unwrap();
    let kinds = schema["$defs"]["FileErrorKind"]["oneOf"].as_array().unwrap();
    for kind in kinds.iter().filter_map(|kind| kind["const"].as_str()).filter(|kind| *kind != "other") {
        assert!(DOCUMENT.contains(&format!("| `{kind}` |")), "{kind} is missing");
    }
}
