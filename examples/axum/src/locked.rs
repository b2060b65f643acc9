//! What a handler sees of its lock.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use redquorum::LeaseView;

/// An extractor: the lease that a [`LockLayer`](crate::LockLayer) holds for this request, with its fencing token.
///
/// The layer releases it, also where a copy of this lives on. Without the layer the answer is 500.
///
/// ```
/// # use axum::http::StatusCode;
/// # use redquorum_axum::Locked;
/// async fn export(Locked(lease): Locked) -> Result<&'static str, StatusCode> {
///     tokio::select! {
///         () = write_rows(lease.fencing_token().as_i64()) => Ok("exported"),
///         _ = lease.lost() => Err(StatusCode::SERVICE_UNAVAILABLE), // the work is dropped where it waits
///     }
/// }
///
/// async fn write_rows(_token: i64) {}
/// ```
#[derive(Clone, Debug)]
pub struct Locked(pub LeaseView);

impl<S: Sync> FromRequestParts<S> for Locked {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let without = (StatusCode::INTERNAL_SERVER_ERROR, "the route has no LockLayer");
        parts.extensions.get().cloned().ok_or(without)
    }
}
