//! Keys of locks, from what is in a request.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderName;
use axum::http::request::Parts;

/// The key is the parameter of this name in the route's path, decoded.
///
/// ```
/// # use axum::{Router, routing::post};
/// # use redquorum_axum::{LockLayer, path_parameter};
/// # fn f(redlock: redquorum::Redlock) -> Router {
/// let locked = LockLayer::new(redlock.namespace("order:"), path_parameter("order"));
/// Router::new().route("/orders/{order}/charge", post(|| async { "charged" }).route_layer(locked))
/// # }
/// ```
pub fn path_parameter(name: &'static str) -> impl Fn(&mut Parts) -> Option<String> + Clone {
    move |parts| {
        // axum gives the parameters to extractors only; this one never waits.
        let params = pin!(RawPathParams::from_request_parts(parts, &()));
        let Poll::Ready(Ok(params)) = params.poll(&mut Context::from_waker(Waker::noop())) else { return None };
        params.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    }
}

/// The key is the value of this header, such as `Idempotency-Key`, if it is visible ASCII.
///
/// All callers share such keys: where they do not trust each other, let a function add who calls, as [`LockLayer::new`] shows.
///
/// ```
/// # use axum::{Router, http::HeaderName, routing::post};
/// # use redquorum_axum::{LockLayer, header};
/// # fn f(redlock: redquorum::Redlock) -> Router {
/// let key = header(HeaderName::from_static("idempotency-key"));
/// let locked = LockLayer::new(redlock.namespace("payment:"), key);
/// Router::new().route("/payments", post(|| async { "paid" }).route_layer(locked))
/// # }
/// ```
///
/// [`LockLayer::new`]: crate::LockLayer::new
pub fn header(name: HeaderName) -> impl Fn(&mut Parts) -> Option<String> + Clone {
    move |parts| parts.headers.get(&name)?.to_str().ok().map(str::to_owned)
}
