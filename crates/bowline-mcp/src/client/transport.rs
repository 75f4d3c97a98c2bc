//! The transport to a server, whichever kind it is: one type, so that the SDK's service is compiled once.

use std::convert::Infallible;
use std::io;

use futures_util::future::{FutureExt as _, TryFutureExt as _};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::transport::{StreamableHttpClientTransport, Transport};

use super::acp_transport::AcpTransport;
use super::legacy_sse::{LegacyError, LegacyTransport};
use super::stdio::StdioTransport;
use super::streamable_http::{BoundedHttpClient, HttpError};

/// The transport to a server.
pub(super) enum ServerTransport {
    Stdio(StdioTransport),
    StreamableHttp(StreamableHttpClientTransport<BoundedHttpClient>),
    LegacySse(LegacyTransport),
    Acp(AcpTransport),
}

/// Why a message could not be sent to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error(transparent)]
    Stdio(#[from] io::Error),
    #[error(transparent)]
    StreamableHttp(#[from] StreamableHttpError<HttpError>),
    #[error(transparent)]
    LegacySse(#[from] LegacyError),
    #[error(transparent)]
    Acp(#[from] Infallible),
}

impl Transport<RoleClient> for ServerTransport {
    type Error = TransportError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        match self {
            Self::Stdio(stdio) => stdio.send(message).err_into().boxed(),
            Self::StreamableHttp(http) => http.send(message).err_into().boxed(),
            Self::LegacySse(sse) => sse.send(message).err_into().boxed(),
            Self::Acp(acp) => acp.send(message).err_into().boxed(),
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        match self {
            Self::Stdio(stdio) => stdio.receive().await,
            Self::StreamableHttp(http) => http.receive().await,
            Self::LegacySse(sse) => sse.receive().await,
            Self::Acp(acp) => acp.receive().await,
        }
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        match self {
            Self::Stdio(stdio) => Ok(stdio.close().await?),
            Self::StreamableHttp(http) => Ok(http.close().await?),
            Self::LegacySse(sse) => Ok(sse.close().await?),
            Self::Acp(acp) => Ok(acp.close().await?),
        }
    }
}
