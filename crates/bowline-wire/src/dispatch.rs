//! From raw params to a typed handler and back, the same for both ends.

use std::future::Future;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{Error, ExtResponse};
use bowline_state::failure::Failure;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::Body;
use crate::methods::{self, Request};
use crate::service::{Answer, Params, Unproven};

/// Reads the params and lets `handle` answer them.
pub(crate) fn answer<R, F>(params: Params<'_>, handle: impl FnOnce(R) -> F) -> Result<Answer, Unproven>
where
    R: Request,
    F: Future<Output = Result<R::Response, Error>> + Send + 'static,
{
    Ok(match params.read::<R>()? {
        Ok(request) => answer_with(handle(request)),
        Err(error) => refuse(invalid_params(R::METHOD, &error)),
    })
}

/// Answers with what a handler returns.
pub(crate) fn answer_with<T, F>(handler: F) -> Answer
where
    T: Serialize,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    Answer::Later(Box::pin(async move {
        Body::of(&handler.await?).map_err(|error| Failure::Internal { reason: error.to_string() }.into())
    }))
}

/// Answers with an error.
pub(crate) fn refuse(failure: Failure) -> Answer {
    Answer::Now(Err(failure.into()))
}

/// Answers a method that nobody serves.
pub(crate) fn unknown<T>(method: &str) -> Result<T, Error> {
    Err(Failure::UnknownMethod { method: Some(method.to_owned()) }.into())
}

/// Says what is wrong with params, without quoting them.
pub(crate) fn invalid_params(method: &str, error: &serde_json::Error) -> Failure {
    Failure::InvalidParams { reason: format!("the params of {method} are wrong: {}", methods::reason(error)) }
}

/// Whether a method is an extension, which the protocol leaves to those who agree on it.
pub(crate) fn is_extension(method: &str) -> bool {
    method.starts_with('_')
}

/// Returns params as they came, for an extension.
pub(crate) fn raw_params(params: Params<'_>) -> Result<Arc<RawValue>, Unproven> {
    match params {
        Params::Missing => Ok(RawValue::NULL.to_owned().into()),
        Params::Checked(params) => Ok(params.to_owned().into()),
        Params::Guess(text) => RawValue::from_string(text.to_owned()).map(Into::into).map_err(|_| Unproven),
    }
}

/// Answers with what an extension returned, as it is.
pub(crate) fn answer_raw<F>(handler: F) -> Answer
where
    F: Future<Output = Result<ExtResponse, Error>> + Send + 'static,
{
    Answer::Later(Box::pin(async move { Ok(Body::raw(&handler.await?.0)) }))
}
