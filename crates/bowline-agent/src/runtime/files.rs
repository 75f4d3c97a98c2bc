//! The session's files through its chosen backend, for callers that need not know which it is.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::TextSource;

use super::{Backend, SessionRuntime};

impl FileBackend for SessionRuntime {
    async fn read(&self, path: &str, window: LineWindow) -> Result<TextReadOutcome, RpcError> {
        let backend = self.backend_choice().read;
        let read = self.read(backend, path, window).await.map_err(|error| match error {
            // Clients report a missing file in many ways.
            error if error.is_file_missing() => RpcError::ResourceNotFound { uri: Some(path.to_owned()) },
            error => error.into(),
        })?;
        let source = match backend {
            Backend::Client | Backend::Workspace => TextSource::Document,
            Backend::Local => TextSource::Disk,
        };
        Ok(TextReadOutcome { text: Arc::clone(&read.text), source, is_whole: read.whole })
    }

    async fn write(
        &self,
        path: &str,
        content: String,
        requester: &Requester,
    ) -> Result<TextWriteOutcome, RpcError> {
        Ok(self.write(self.backend_choice().write, path, content, requester).await?)
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, RpcError> {
        Ok(Self::list(self, path, options).await?)
    }

    async fn search(&self, query: SearchQuery, directory: Option<String>) -> Result<SearchResult, RpcError> {
        Ok(Self::search(self, query, directory).await?.result)
    }
}
