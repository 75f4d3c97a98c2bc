//! The file extension target: any text is parsed and validated as params without a panic, a message that was read is
//! written and read back the same, operations keep their rules, and errors come back from the wire.

#![no_main]

use std::fmt::Debug;

use bowline_protocol::file_extension::overlap::OverlapChecker;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchFilesResponse, ByteRange, DataEncoding, FileCapabilities, FileData,
    FileError, FileGlob, FileLimits, FilesChangedNotification, ListDirectoryRequest, ListDirectoryResponse,
    ReadFileRequest, ReadFileResponse, StatFileRequest, StatFileResponse, UnwatchFilesRequest,
    WatchFilesRequest, WatchFilesResponse, WriteFileRequest, WriteFileResponse,
};
use bowline_protocol::schema::v1::Error;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

const LIMITS: FileLimits =
    FileLimits { write_bytes: 64, batch_bytes: 128, batch_operations: 8, ..FileLimits::DEFAULT };

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    check_outcome(read::<ListDirectoryRequest>(text).map(|request| request.into_operation(&LIMITS)));
    check_outcome(read::<StatFileRequest>(text).map(StatFileRequest::into_operation));
    check_outcome(read::<ReadFileRequest>(text).map(|request| request.into_operation(&LIMITS)));
    check_outcome(read::<WriteFileRequest>(text).map(|request| request.into_operation(&LIMITS)));
    check_outcome(read::<WatchFilesRequest>(text).map(WatchFilesRequest::into_operation));
    // A batch with a malformed operation is written without it, so only its validation is checked.
    if let Ok(batch) = serde_json::from_str::<BatchFilesRequest>(text) {
        check_batch(batch);
    }
    read::<UnwatchFilesRequest>(text);
    read::<ListDirectoryResponse>(text);
    read::<StatFileResponse>(text);
    read::<ReadFileResponse>(text).map(ReadFileResponse::into_data);
    read::<WriteFileResponse>(text);
    read::<BatchFilesResponse>(text);
    read::<WatchFilesResponse>(text);
    read::<FilesChangedNotification>(text);
    if let Ok(meta) = serde_json::from_str(text) {
        let files = FileCapabilities::from_meta(&meta);
        let mut again = meta.clone();
        files.insert_into(&mut again);
        assert_eq!(FileCapabilities::from_meta(&again), files);
    }
    if let Ok(error) = serde_json::from_str::<Error>(text) {
        check_error(BatchError::from_error(&error));
    }
    if let Ok(glob) = FileGlob::new(text) {
        glob.is_match("src/main.rs");
    }
    if let Ok(decoded) = FileData::decode(text.to_owned(), DataEncoding::Base64) {
        assert_eq!(decoded.into_encoded().0, text);
    }
    if let [offset, limit, ..] = *data {
        let range = ByteRange { offset: offset.into(), limit: u64::from(limit).max(1) };
        if let Ok(window) = range.slice_text(text) {
            assert!(!window.data.is_empty() || range.offset == text.len() as u64);
            assert!(window.data.len() as u64 <= range.limit.max(4));
            assert_eq!(window.is_truncated, range.offset + (window.data.len() as u64) < text.len() as u64);
        }
    }
});

/// Reads a message, which has to come back if it is written.
fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(text: &str) -> Option<T> {
    let message: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&message).expect("a message is JSON");
    assert_eq!(serde_json::from_str::<T>(&written).expect("a written message can be read"), message);
    Some(message)
}

fn check_outcome<T>(outcome: Option<Result<T, FileError>>) {
    if let Some(Err(error)) = outcome {
        check_error(error.into());
    }
}

fn check_batch(batch: BatchFilesRequest) {
    match batch.into_operations(&LIMITS) {
        Ok(operations) => {
            assert!(operations.len() as u64 <= LIMITS.batch_operations);
            assert!(
                operations.iter().map(|operation| operation.data_bytes()).sum::<u64>() <= LIMITS.batch_bytes
            );
            let mut checker = OverlapChecker::default();
            for operation in &operations {
                checker.add(&operation.effects()).expect("operations do not overlap");
            }
        }
        Err(error) => check_error(error),
    }
}

/// Checks that an error that went over the wire once stays the same: texts are truncated only the first time.
fn check_error(error: BatchError) {
    let once = BatchError::from_error(&Error::from(error));
    assert_eq!(BatchError::from_error(&Error::from(once.clone())), once);
}
