//! Conversion between raw params and typed handlers, and the methods that are declared by request, shared by both ends.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use agent_client_protocol_schema::v1::{Error, ExtResponse};
use bowline_protocol::file_extension::FileError;
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;

use crate::message::body::JsonBody;
use crate::message::methods::{RpcNotification, RpcRequest};
use crate::service::{BoxFuture, RawParams, ServiceResponse, UncheckedParamsError};

/// Declares methods of a handle that call the other side, if it advertised the method. `$errors` describes their errors.
macro_rules! calls {
    ($errors:literal; $($(#[$doc:meta])* $method:ident($request:ident), $advertised:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn $method(
                &self,
                request: $request,
            ) -> Result<<$request as RpcRequest>::Response, CallError> {
                self.check($advertised)?;
                self.inner.caller.call(&request).await
            }
        )*
    };
}

/// Declares handlers of a trait that answer -32601 unless they are implemented.
macro_rules! default_handlers {
    ($context:ident; $($(#[$doc:meta])* $method:ident($request:ident);)*) => {
        $(
            $(#[$doc])*
            fn $method(
                &self,
                request: $request,
                cx: $context,
            ) -> impl Future<Output = Result<<$request as RpcRequest>::Response, Error>> + Send {
                ready(method_not_found($request::METHOD))
            }
        )*
    };
}

/// Dispatches a request to its handler, by its method. What follows the braces are arms for other methods; extensions
/// and unknown methods are the same for both ends.
macro_rules! dispatch {
    (
        $dispatcher:ident.$service:ident, $peer:ident, $incoming:ident
        { $($request:ident => $method:ident $(, $advertised:expr)?;)* }
        $($other_arms:tt)*
    ) => {
        match $incoming.method {
            $($request::METHOD => {
                $dispatcher.call($($advertised,)? $incoming, |service, request: $request, cx| async move {
                    service.$method(request, cx).await
                })
            })*
            $($other_arms)*
            method if is_extension(method) => {
                let service = Arc::clone(&$dispatcher.$service);
                let (params, cx) = RequestContext::from_request($incoming, $dispatcher.$peer.clone());
                let request = ExtRequest::new(method, to_raw_params(params)?);
                Ok(respond_raw(async move { service.ext_request(request, cx).await }))
            }
            method => {
                $incoming.params.require_checked()?;
                Ok(respond_error(RpcError::UnknownMethod { method: Some(method.to_owned()) }))
            }
        }
    };
}

pub(crate) use {calls, default_handlers, dispatch};

/// Consults a gate; before `initialize`, the closed one.
pub(crate) fn with_gate<G: Default, T>(gate: &OnceLock<G>, check: impl FnOnce(&G) -> T) -> T {
    match gate.get() {
        Some(gate) => check(gate),
        None => check(&G::default()),
    }
}

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

/// Parses the params of a notification and passes them to `handle`; ignores invalid ones.
pub(crate) fn handle_notification<N: RpcNotification, F>(
    params: RawParams<'_>,
    handle: impl FnOnce(N) -> F,
) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let notification = params.parse_with(N::from_json)?.ok();
    Ok(notification.map(|notification| -> BoxFuture<'static, ()> { Box::pin(handle(notification)) }))
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
