//! The JSON schema of the extension, generated from its types.

use expect_test::expect_file;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::file_extension::error::FileErrorData;
use crate::file_extension::{
    BATCH_METHOD, BatchFilesRequest, BatchFilesResponse, CHANGED_METHOD, FILE_EXTENSION_VERSION,
    FileCapabilities, FilesChangedNotification, LIST_METHOD, ListDirectoryRequest, ListDirectoryResponse,
    READ_METHOD, ReadFileRequest, ReadFileResponse, STAT_METHOD, StatFileRequest, StatFileResponse,
    UNWATCH_METHOD, UnwatchFilesRequest, UnwatchFilesResponse, WATCH_METHOD, WRITE_METHOD, WatchFilesRequest,
    WatchFilesResponse, WriteFileRequest, WriteFileResponse,
};

fn request<P: JsonSchema, R: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    json!({ "params": generator.subschema_for::<P>(), "result": generator.subschema_for::<R>() })
}

fn generate() -> Value {
    let generator = &mut SchemaGenerator::default();
    let methods = json!({
        LIST_METHOD: request::<ListDirectoryRequest, ListDirectoryResponse>(generator),
        STAT_METHOD: request::<StatFileRequest, StatFileResponse>(generator),
        READ_METHOD: request::<ReadFileRequest, ReadFileResponse>(generator),
        WRITE_METHOD: request::<WriteFileRequest, WriteFileResponse>(generator),
        BATCH_METHOD: request::<BatchFilesRequest, BatchFilesResponse>(generator),
        WATCH_METHOD: request::<WatchFilesRequest, WatchFilesResponse>(generator),
        UNWATCH_METHOD: request::<UnwatchFilesRequest, UnwatchFilesResponse>(generator),
        CHANGED_METHOD: { "params": generator.subschema_for::<FilesChangedNotification>() },
    });
    let capability = json!({
        "type": "object",
        "properties": {
            "version": { "const": FILE_EXTENSION_VERSION },
            "fs": generator.subschema_for::<FileCapabilities>(),
        },
        "required": ["version", "fs"],
    });
    let error_data = generator.subschema_for::<FileErrorData>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The file extension of Bowline",
        "description": "Generated from the types of bowline-protocol; docs/extensions.md explains them.",
        "x-methods": methods,
        "x-capability": capability,
        "x-errorData": error_data,
        "$defs": generator.take_definitions(true),
    })
}

#[test]
fn the_schema_file_is_the_schema_of_the_types() {
    let text = serde_json::to_string_pretty(&generate()).unwrap();
    expect_file!["../../../../../../docs/extensions.schema.json"].assert_eq(&format!("{text}\n"));
}
