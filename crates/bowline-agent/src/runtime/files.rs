//! The session's files through its chosen backend, for callers that need not know which it is.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_workspace::BoxFuture;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::TextSource;

use super::{Backend, SessionRuntime};

impl FileBackend for SessionRuntime {
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>> {
        Box::pin(async move {
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
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: String,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>> {
        Box::pin(async move { Ok(self.write(self.backend_choice().write, path, content, requester).await?) })
    }

    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>> {
        Box::pin(async move { Ok(Self::list(self, path, options).await?) })
    }

    fn search(
        &self,
        query: SearchQuery,
        directory: Option<String>,
    ) -> BoxFuture<'_, Result<SearchResult, RpcError>> {
        Box::pin(async move { Ok(Self::search(self, query, directory).await?.result) })
    }
}
