//! The older HTTP transport: one event stream from the server, and an endpoint to post messages to.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Error, Sse};

use super::decode::{DecodedLine, decode, error_answer};
use super::sse;
use super::streamable_http::{HttpError, content_type, read_refusal};

/// The deadline for posting a message. Answers arrive over the stream.
const POST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LegacyError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the server did not say where to send messages")]
    NoEndpoint,
    #[error("the server wants messages sent to {0:?}, which is another host: nothing is sent there")]
    OtherHost(String),
}

/// A connection.
pub(super) struct LegacyTransport {
    client: reqwest::Client,
    headers: HeaderMap,
    endpoint: Url,
    events: BoxStream<'static, Result<Sse, Error>>,
}

impl LegacyTransport {
    /// Opens the stream, and waits until the server names its endpoint for messages.
    pub(super) async fn connect(
        client: reqwest::Client,
        url: Url,
        headers: HeaderMap,
    ) -> Result<Self, LegacyError> {
        let request = client.get(url.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
        let response = request.send().await.map_err(|error| HttpError::Request(error.without_url()))?;
        if !response.status().is_success() || !content_type(&response).starts_with("text/event-stream") {
            return Err(read_refusal(response).await.0.into());
        }
        let mut events = sse::events(response);
        let endpoint = loop {
            let Some(Ok(event)) = events.next().await else { return Err(LegacyError::NoEndpoint) };
            if event.event.as_deref() == Some("endpoint") {
                break event.data.unwrap_or_default();
            }
        };
        let endpoint = url.join(endpoint.trim()).map_err(|_| LegacyError::NoEndpoint)?;
        if endpoint.origin() != url.origin() {
            let address = bowline_text::display::escape_line(endpoint.as_str(), 200);
            return Err(LegacyError::OtherHost(address));
        }
        Ok(Self { client, headers, endpoint, events })
    }
}

impl Transport<RoleClient> for LegacyTransport {
    type Error = LegacyError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), LegacyError>> + Send + 'static {
        let request =
            self.client.post(self.endpoint.clone()).headers(self.headers.clone()).timeout(POST_TIMEOUT);
        async move {
            let response = request
                .json(&message)
                .send()
                .await
                .map_err(|error| HttpError::Request(error.without_url()))?;
            if response.status().is_success() { Ok(()) } else { Err(read_refusal(response).await.0.into()) }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // Events that are not messages count against the budget as well.
            tokio::task::consume_budget().await;
            let event = self.events.next().await?.ok()?;
            if !matches!(event.event.as_deref(), None | Some("" | "message")) {
                continue;
            }
            match decode(event.data.unwrap_or_default().as_bytes()) {
                DecodedLine::Message(message) => return Some(*message),
                DecodedLine::UnreadableAnswer(id) => {
                    return Some(error_answer(id, "the answer of the server cannot be read".to_owned()));
                }
                DecodedLine::Noise => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), LegacyError> {
        self.events = futures_util::stream::empty().boxed();
        Ok(())
    }
}
