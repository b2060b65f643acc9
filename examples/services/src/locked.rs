//! An extractor for axum: the handler of a request has the lock of its path meanwhile.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use redquorum::{AcquireError, Guard, Redlock};

/// When a caller who was refused may come back, in seconds: what is left of a section, rounded up. How long the
/// holder's key lasts says nothing of that, it is renewed or released long before.
const SECTION_SECONDS: u64 = 1;

/// While too few instances may vote nobody gets a lock: then it is what is left of that.
fn retry_after(error: &AcquireError) -> u64 {
    match error {
        AcquireError::InQuarantine { remaining: Some(left), .. } => left.as_secs().saturating_add(1),
        AcquireError::DeadlinePassed { last, .. } => retry_after(last),
        _ => SECTION_SECONDS,
    }
}

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
        (status, [(RETRY_AFTER, HeaderValue::from(retry_after(&self.0)))], body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Request;
    use redquorum::testing::{Cluster, Data};

    use super::*;

    /// The status of a request for a lock, and its `Retry-After`.
    async fn refused(redlock: &Redlock) -> (StatusCode, u64) {
        let (mut parts, ()) = Request::new(()).into_parts();
        let response = Locked::from_request_parts(&mut parts, redlock).await.unwrap_err().into_response();
        (response.status(), response.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_comes_back_after_a_section_or_when_enough_instances_vote() {
        let (cluster, ttl) = (Cluster::new(3), Duration::from_secs(20));
        let redlock = cluster.builder().ttl(ttl).max_ttl(ttl).connect().await.unwrap();
        let guard = redlock.lock("/").acquire().await.unwrap();
        assert_eq!(refused(&redlock).await, (StatusCode::CONFLICT, 1));
        guard.release().await.unwrap();
        for instance in cluster.instances() {
            instance.stop();
            instance.start(Data::Nothing);
        }
        tokio::time::sleep(Duration::from_secs(5)).await; // until they are connected again
        let (status, seconds) = refused(&redlock).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!((10..=20).contains(&seconds), "{seconds}");
    }
}
