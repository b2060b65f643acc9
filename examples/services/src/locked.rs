//! An extractor for axum: the handler of a request has the lock of its path meanwhile.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use redquorum::{AcquireError, Guard, Redlock};

/// When a caller who was refused may come back, in seconds: what is left of a section, rounded up. How long the
/// holder's key lasts says nothing of that, it is renewed or released long before.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The lock of the request's path. It is released when the handler drops it, at the latest with its answer.
///
/// Put it last among the arguments, so that nothing is locked for a request that another extractor refuses.
#[derive(Debug)]
pub struct Locked(pub Guard);

impl<S: Send + Sync> FromRequestParts<S> for Locked
where
    Redlock: FromRef<S>,
{
    type Rejection = NotLocked;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, NotLocked> {
        let redlock = Redlock::from_ref(state);
        redlock.lock(parts.uri.path()).try_acquire().await.map(Self).map_err(NotLocked)
    }
}

/// Another process handles the same: 409, come back. Or the instances are the problem: that is ours, 503.
#[derive(Debug)]
pub struct NotLocked(AcquireError);

impl IntoResponse for NotLocked {
    fn into_response(self) -> Response {
        let status = match self.0.held_by() {
            Some(_) => StatusCode::CONFLICT,
            None => StatusCode::SERVICE_UNAVAILABLE,
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            eprintln!("{}", self.0); // it names each instance and its cause, which is for the log alone
        }
        // The holder's host and process are not shown outside.
        let waiting = self.0.held_by().map_or(0, |held_by| held_by.waiting_here + held_by.waiting_elsewhere);
        let body = format!(r#"{{"locked":{},"waiting":{waiting}}}"#, status == StatusCode::CONFLICT);
        let body = ([("content-type", "application/json")], body);
        (status, [(RETRY_AFTER, RETRY_AFTER_SECONDS)], body).into_response()
    }
}
