//! What a request gets that does not get its lock.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use redquorum::{AcquireError, BadRequest};

/// Why a request did not get its lock: an extension of the response. It names instances, and the holder with host and process,
/// so it is for the service's own log alone.
///
/// ```
/// # use axum::{Router, middleware::map_response, response::Response};
/// # use redquorum_axum::NotLocked;
/// async fn log(response: Response) -> Response {
///     if let Some(NotLocked(error)) = response.extensions().get() {
///         eprintln!("{error}");
///     }
///     response
/// }
///
/// # fn f(routes: Router) -> Router {
/// routes.layer(map_response(log))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NotLocked(pub Arc<AcquireError>);

/// The answer to a request that did not get its lock. `work` is how long handlers work.
pub(crate) fn refuse(error: AcquireError, work: Duration) -> Response {
    let held_by = error.held_by();
    let status = match &error {
        _ if held_by.is_some() => StatusCode::CONFLICT,
        // The key is the caller's.
        AcquireError::BadRequest(BadRequest::Resource(_)) => StatusCode::BAD_REQUEST,
        _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let waiting = held_by.map_or(0, |held_by| held_by.waiting_here + held_by.waiting_elsewhere);
    let body = format!(r#"{{"locked":{},"waiting":{waiting}}}"#, held_by.is_some());
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
    if error.is_retryable() {
        // While too few instances may vote, nobody gets a lock. When the holder's key expires says nothing: it is renewed, or
        // released long before.
        let wait = match &error {
            AcquireError::InQuarantine { remaining: Some(left), .. } => *left,
            _ => work,
        };
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(NotLocked(Arc::new(error)));
    response
}
