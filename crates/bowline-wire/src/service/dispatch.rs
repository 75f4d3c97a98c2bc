//! Conversion between raw params and typed handlers, shared by both ends.

use std::future::Future;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{Error, ExtResponse};
use bowline_protocol::file_extension::FileError;
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;

use crate::message::body::JsonBody;
use crate::message::methods::RpcRequest;
use crate::service::{RawParams, ServiceResponse, UncheckedParamsError};

/// Parses the params and passes them to `handle`.
pub(crate) fn handle_request<R, F>(
    params: RawParams<'_>,
    handle: impl FnOnce(R) -> F,
) -> Result<ServiceResponse, UncheckedParamsError>
where
    R: RpcRequest,
    F: Future<Output = Result<R::Response, Error>> + Send + 'static,
{
    Ok(match params.parse_with(R::from_json)? {
        Ok(request) => respond_with(handle(request), R::response_to_body),
        Err(error) => {
            let failure = RpcError::invalid_params(R::METHOD, &error);
            let error = if R::HAS_ERROR_KIND { FileError::from(failure).into() } else { failure.into() };
            ServiceResponse::Ready(Err(error))
        }
    })
}

/// Answers with what a handler returns, serialised by a function.
pub(crate) fn respond_with<T, F>(
    handler: F,
    serialise: fn(&T) -> Result<JsonBody, serde_json::Error>,
) -> ServiceResponse
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    ServiceResponse::Deferred(Box::pin(async move {
        serialise(&handler.await?).map_err(|error| RpcError::Internal { reason: error.to_string() }.into())
    }))
}

/// Answers with an error.
pub(crate) fn respond_error(failure: RpcError) -> ServiceResponse {
    ServiceResponse::Ready(Err(failure.into()))
}

/// Answers a method that is not served.
pub(crate) fn method_not_found<T>(method: &str) -> Result<T, Error> {
    Err(RpcError::UnknownMethod { method: Some(method.to_owned()) }.into())
}

/// Returns whether a method is an extension, which the protocol leaves undefined.
pub(crate) fn is_extension(method: &str) -> bool {
    method.starts_with('_')
}

/// Returns the raw params of an extension.
pub(crate) fn to_raw_params(params: RawParams<'_>) -> Result<Arc<RawValue>, UncheckedParamsError> {
    match params {
        RawParams::Missing => Ok(RawValue::NULL.to_owned().into()),
        RawParams::Checked(params) => Ok(params.to_owned().into()),
        RawParams::Unchecked(text) => {
            RawValue::from_string(text.to_owned()).map(Into::into).map_err(|_| UncheckedParamsError)
        }
    }
}

/// Answers with an extension's raw result.
pub(crate) fn respond_raw<F>(handler: F) -> ServiceResponse
where
    F: Future<Output = Result<ExtResponse, Error>> + Send + 'static,
{
    ServiceResponse::Deferred(Box::pin(async move { Ok(JsonBody::from_raw(&handler.await?.0)) }))
}
