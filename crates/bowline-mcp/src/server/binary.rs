//! Files that are not text: images for the model, other bytes as embedded resources, and files as resources.

use bowline_protocol::file_extension::{FileData, FileError, ReadParams};
use bowline_protocol::rpc_error::RpcError;
use rmcp::model::{ContentBlock, ResourceContents};

use super::DeniedOperation;
use super::batch::describe_error;
use super::outcome::ToolOutcome;
use super::resources::{file_uri, parse_file_uri};
use super::session::McpSession;

/// The largest file that is returned as bytes. Base64 makes it a third longer.
const MAX_BINARY_BYTES: u64 = 4 << 20;

/// The MIME type of bytes of an unknown kind.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The images that models read, by the first bytes of their content.
const IMAGE_TYPES: [(&str, &[u8]); 4] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
];

/// Returns the type of an image, by its content.
fn find_image_type(bytes: &[u8]) -> Option<&'static str> {
    let (name, _) = IMAGE_TYPES.iter().find(|(_, magic)| bytes.starts_with(magic))?;
    let is_other_riff = *name == "image/webp" && bytes.get(8..12) != Some(b"WEBP");
    (!is_other_riff).then_some(*name)
}

/// The whole content of a file.
enum FileContent {
    Text(String),
    Binary { bytes: Vec<u8>, base64: String },
}

/// Reads a whole file, if it is not too large.
async fn read_whole(session: &McpSession, params: ReadParams) -> Result<FileContent, FileError> {
    let path = params.path.to_string_lossy().into_owned();
    let read = session.backend.files().read_data(params.limit(MAX_BINARY_BYTES)).await?;
    if read.truncated {
        let (bytes, limit) = (read.size, MAX_BINARY_BYTES);
        return Err(FileError::TooLarge { path: Some(path), bytes, limit });
    }
    let base64 = read.data.clone().unwrap_or_default();
    match read.into_data()? {
        Some(FileData::Text(text)) => Ok(FileContent::Text(text)),
        Some(FileData::Bytes(bytes)) => Ok(FileContent::Binary { bytes, base64 }),
        None => Err(RpcError::Internal { reason: format!("{path} was read without content") }.into()),
    }
}

/// Reads a file that is not text, for the tool that reads files.
pub(crate) async fn read_binary(session: &McpSession, path: &str) -> Result<ToolOutcome, String> {
    let display_path = session.display_path(path);
    let content = read_whole(session, ReadParams::new(path).base64()).await;
    let content = content
        .map_err(|error| describe_error(session, &DeniedOperation::Read { path }, display_path, &error))?;
    let (bytes, base64) = match content {
        FileContent::Binary { bytes, base64 } => (bytes, base64),
        FileContent::Text(_) => return Err(format!("{display_path} was read as text: read it again")),
    };
    let count = bytes.len();
    let (kind, attachment) = match find_image_type(&bytes) {
        Some(image) => (image, ContentBlock::image(base64, image)),
        None => ("not text", ContentBlock::resource(to_blob(file_uri(path), UNKNOWN_TYPE, base64))),
    };
    let text = format!("[{display_path}: {kind}, {count} bytes]");
    Ok(ToolOutcome { attachment: Some(attachment), ..ToolOutcome::from_text(text) })
}

/// Reads a file of the workspace as a resource; `None` if there is none with this URI.
pub(crate) async fn read_file_resource(
    session: &McpSession,
    uri: &str,
) -> Option<Result<ResourceContents, String>> {
    let path = parse_file_uri(uri).filter(|_| session.backend.files().serves_file_extension())?;
    let params = ReadParams::new(path.as_str());
    let content = match read_whole(session, params.clone()).await {
        Err(FileError::NotText { .. }) => read_whole(session, params.base64()).await,
        content => content,
    };
    match content {
        Ok(FileContent::Text(text)) => Some(Ok(ResourceContents::TextResourceContents {
            uri: uri.to_owned(),
            mime_type: Some("text/plain".to_owned()),
            text,
            meta: None,
        })),
        Ok(FileContent::Binary { bytes, base64 }) => {
            let mime_type = find_image_type(&bytes).unwrap_or(UNKNOWN_TYPE);
            Some(Ok(to_blob(uri.to_owned(), mime_type, base64)))
        }
        Err(FileError::NotFound { .. } | FileError::NotFile { .. }) => None,
        Err(error) => {
            let tool = DeniedOperation::Read { path: &path };
            Some(Err(describe_error(session, &tool, session.display_path(&path), &error)))
        }
    }
}

fn to_blob(uri: String, mime_type: &str, blob: String) -> ResourceContents {
    ResourceContents::BlobResourceContents { uri, mime_type: Some(mime_type.to_owned()), blob, meta: None }
}

#[cfg(test)]
mod tests;
