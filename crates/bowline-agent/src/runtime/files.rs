//! The session's files by whoever serves them, for those who do not care who that is.

use std::sync::Arc;

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_workspace::files::{Asker, Files, TextRead, TextWritten};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::Served;

use super::{Runtimes, Server};

impl Files for Runtimes {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        let by = self.choice().read;
        let read = self.read(by, path, window).await.map_err(|fault| match fault {
            // Clients have many ways to say it.
            fault if fault.is_missing() => Failure::ResourceNotFound { uri: Some(path.to_owned()) },
            fault => fault.into(),
        })?;
        let served = match by {
            Server::Client | Server::Workspace => Served::Document,
            Server::Local => Served::Disk,
        };
        Ok(TextRead { text: Arc::clone(&read.text), served, whole: read.whole })
    }

    async fn write(&self, path: &str, content: String, asker: &Asker) -> Result<TextWritten, Failure> {
        Ok(self.write(self.choice().write, path, content, asker).await?)
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Failure> {
        Ok(Self::list(self, path, options).await?)
    }

    async fn search(&self, query: SearchQuery, below: Option<String>) -> Result<SearchResult, Failure> {
        Ok(Self::search(self, query, below).await?.found)
    }
}
