//! Pages of other origins: what browsers must be told before they let an allowed page use the server.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bowline_protocol::remote::CONNECTION_HEADER;
use http::{HeaderValue, Method, StatusCode, header};

use super::Endpoint;

const ALLOWED_METHODS: &str = "GET, POST, DELETE";
const ALLOWED_HEADERS: &str =
    "authorization, content-type, accept, acp-connection-id, acp-session-id, last-event-id";
/// How long a browser remembers what it was told, in seconds.
const MAX_AGE: &str = "600";

/// Answers preflight requests, and adds the headers for pages of allowed origins. Others get none, so browsers keep
/// the response from them.
pub(super) async fn allow_origins(endpoint: &Endpoint, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let Some(origin) = origin.filter(|origin| endpoint.access.is_allowed_origin(origin)) else {
        return next.run(request).await;
    };
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        let (parts, _) = request.into_parts();
        match endpoint.access.check_source(&parts) {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(refusal) => return endpoint.refuse(refusal),
        }
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    let mut add = |name, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    if is_preflight {
        add(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        add(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
        add(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    add(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    add(header::ACCESS_CONTROL_EXPOSE_HEADERS, CONNECTION_HEADER);
    add(header::VARY, "origin");
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response
}
