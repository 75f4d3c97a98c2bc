//! Batches of the file extension on the documents of a fake editor.

use bowline_protocol::file_extension::{
    BatchError, BatchOperation, BatchResult, DestinationPolicy, Etag, FileData, FileError, FileOperation,
    ReadFileResponse, WriteCondition, WriteFileResponse, WriteOperation, WritePlacement,
};

use super::EditorDocuments;

/// Formats a written text, by its path.
pub(super) type Formatter = dyn Fn(&str, &str) -> String + Send;

/// Returns operations as a line of the log.
pub(super) fn format_operations(operations: &[BatchOperation]) -> String {
    let line = |operation: &BatchOperation| match operation {
        BatchOperation::Read(read) => format!("read {}", read.path.display()),
        BatchOperation::Write(write) => {
            let mode = serde_json::to_string(&write.mode).unwrap_or_default();
            let condition = match (write.create_only, &write.if_match) {
                (true, _) => " if missing",
                (false, Some(_)) => " if unchanged",
                (false, None) => "",
            };
            format!("write {} {:?} {}{condition}", write.path.display(), write.data, mode.trim_matches('"'))
        }
        BatchOperation::Move(transfer) => {
            format!("move {} to {}", transfer.from.display(), transfer.to.display())
        }
        BatchOperation::Copy(transfer) => {
            format!("copy {} to {}", transfer.from.display(), transfer.to.display())
        }
        BatchOperation::Remove(removal) => format!("remove {}", removal.path.display()),
        BatchOperation::Mkdir(mkdir) => format!("mkdir {}", mkdir.path.display()),
    };
    operations.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Returns the documents after a batch, and its results.
///
/// # Errors
/// Returns the operation that fails.
pub(super) fn apply_operations(
    documents: &EditorDocuments,
    operations: Vec<FileOperation>,
    formatter: Option<&Formatter>,
) -> Result<(EditorDocuments, Vec<BatchResult>), BatchError> {
    let (mut documents, mut results) = (documents.clone(), Vec::new());
    for (index, operation) in (0..).zip(operations) {
        let result = apply_operation(&mut documents, operation, formatter);
        results.push(result.map_err(|error| BatchError { index: Some(index), error })?);
    }
    Ok((documents, results))
}

fn apply_operation(
    documents: &mut EditorDocuments,
    operation: FileOperation,
    formatter: Option<&Formatter>,
) -> Result<BatchResult, FileError> {
    let missing = |path: &str| FileError::NotFound { path: path.to_owned() };
    match operation {
        FileOperation::Read(read) => {
            let text = documents.get(read.path.as_str()).ok_or_else(|| missing(read.path.as_str()))?;
            let (etag, size) = (Etag::digest(text.as_bytes()), text.len() as u64);
            Ok(BatchResult::Read(ReadFileResponse::new(FileData::Text(text.clone()), etag, size)))
        }
        FileOperation::Write(write) => write_document(documents, write, formatter),
        FileOperation::Move(transfer) => {
            let (from, to) = (transfer.from.as_str(), transfer.to.as_str());
            if documents.contains_key(to) && transfer.destination == DestinationPolicy::MustNotExist {
                return Err(FileError::AlreadyExists { path: to.to_owned() });
            }
            let text = documents.remove(from).ok_or_else(|| missing(from))?;
            documents.insert(to.to_owned(), text);
            Ok(BatchResult::Move {})
        }
        FileOperation::Copy(transfer) => {
            let from = transfer.from.as_str();
            let text = documents.get(from).cloned().ok_or_else(|| missing(from))?;
            documents.insert(transfer.to.as_str().to_owned(), text);
            Ok(BatchResult::Copy {})
        }
        FileOperation::Remove(removal) => {
            let path = removal.path.as_str();
            documents.remove(path).ok_or_else(|| missing(path))?;
            Ok(BatchResult::Remove {})
        }
        FileOperation::Mkdir(_) => Ok(BatchResult::Mkdir {}),
    }
}

fn write_document(
    documents: &mut EditorDocuments,
    write: WriteOperation,
    formatter: Option<&Formatter>,
) -> Result<BatchResult, FileError> {
    let path = write.path.as_str().to_owned();
    let current = documents.get(&path).cloned();
    let etag = current.as_ref().map(|text| Etag::digest(text.as_bytes()));
    match &write.condition {
        WriteCondition::CreateOnly if current.is_some() => return Err(FileError::AlreadyExists { path }),
        WriteCondition::IfMatch(expected) if etag.as_ref() != Some(expected) => {
            let reason = "the file has changed, read it again".to_owned();
            return Err(FileError::Conflict { path, reason, etag, hunks: Vec::new() });
        }
        _ => {}
    }
    let data = String::from_utf8_lossy(write.data.as_bytes()).into_owned();
    let text = match write.placement {
        WritePlacement::Truncate => data,
        WritePlacement::Append | WritePlacement::Insert { .. } => current.unwrap_or_default() + &data,
    };
    let formatted = formatter.map_or_else(|| text.clone(), |format| format(&path, &text));
    let mut response = WriteFileResponse::new(Etag::digest(formatted.as_bytes()));
    if formatted != text {
        (response.formatted, response.content) = (true, Some(formatted.clone()));
    }
    documents.insert(path, formatted);
    Ok(BatchResult::Write(response))
}
