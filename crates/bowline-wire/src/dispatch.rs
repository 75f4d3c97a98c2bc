//! From raw params to a typed handler and back, the same for both ends.

use std::future::Future;

use agent_client_protocol_schema::v1::{Error, ExtNotification, ExtRequest, ExtResponse};
use bowline_state::failure::Failure;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::Body;
use crate::methods::{self, Request};
use crate::service::Answer;

/// Reads the params and lets `handle` answer them.
pub(crate) fn answer<R, F>(params: Option<&RawValue>, handle: impl FnOnce(R) -> F) -> Answer
where
    R: Request,
    F: Future<Output = Result<R::Response, Error>> + Send + 'static,
{
    match methods::decode::<R>(params) {
        Ok(request) => answer_with(handle(request)),
        Err(error) => refuse(invalid_params(R::METHOD, &error)),
    }
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

pub(crate) fn extension_request(method: &str, params: Option<&RawValue>) -> ExtRequest {
    ExtRequest::new(method, raw_params(params).into())
}

pub(crate) fn extension_notification(method: &str, params: Option<&RawValue>) -> ExtNotification {
    ExtNotification::new(method, raw_params(params).into())
}

pub(crate) fn extension_response(response: ExtResponse) -> Box<RawValue> {
    response.0.as_ref().to_owned()
}

fn raw_params(params: Option<&RawValue>) -> Box<RawValue> {
    params.map_or_else(|| RawValue::NULL.to_owned(), ToOwned::to_owned)
}
