//! The service that locks, and the layer that puts it around another.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use redquorum::Redlock;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Locked, refusal};

/// Puts a [`LockService`] around a service.
///
/// ```
/// # use axum::{Router, routing::post};
/// # use redquorum_axum::{LockLayer, path_parameter};
/// # use std::time::Duration;
/// # fn f(redlock: redquorum::Redlock) -> Router {
/// let locked = LockLayer::new(redlock, path_parameter("order")).retry_after(Duration::from_secs(3));
/// Router::new().route("/orders/{order}/charge", post(|| async { "charged" }).route_layer(locked))
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockLayer<K> {
    redlock: Redlock,
    key: K,
    work: Duration,
}

impl<K> LockLayer<K> {
    /// Locks with `redlock`, its namespace and its ttl. `key` gives the key of a request; without one the answer is 400. It may change the
    /// parts of the request, because the extractors of axum need that.
    ///
    /// ```
    /// # use redquorum_axum::LockLayer;
    /// # #[derive(Clone)] struct Account(u64);
    /// # fn f(redlock: redquorum::Redlock) {
    /// use axum::http::request::Parts;
    ///
    /// // `Account` was put there by the layer that knows who calls.
    /// let layer = LockLayer::new(redlock, |parts: &mut Parts| {
    ///     let Account(account) = parts.extensions.get()?;
    ///     let key = parts.headers.get("idempotency-key")?.to_str().ok()?;
    ///     Some(format!("payment:{account}:{key}"))
    /// });
    /// # let _ = layer; }
    /// ```
    pub fn new(redlock: Redlock, key: K) -> Self
    where
        K: Fn(&mut Parts) -> Option<String>,
    {
        Self { redlock, key, work: Duration::from_secs(1) }
    }

    /// How long handlers work, in whole seconds or rounded up: it is the `Retry-After` of a 409. Default: a second.
    ///
    /// ```
    /// # use redquorum_axum::{LockLayer, path_parameter};
    /// # fn f(redlock: redquorum::Redlock) {
    /// let layer = LockLayer::new(redlock, path_parameter("report")).retry_after(std::time::Duration::from_secs(20));
    /// # let _ = layer; }
    /// ```
    #[must_use]
    pub fn retry_after(self, work: Duration) -> Self {
        Self { work, ..self }
    }
}

impl<S, K: Clone> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, layer: self.clone() }
    }
}

/// Holds the lock of a request while the inner service answers it, and gives it [`Locked`] as an extension.
///
/// # Cancel safety
/// If the request is dropped, so is the handler; then the lock is released in the background.
///
/// ```
/// # use redquorum_axum::{LockLayer, LockService};
/// # use axum::{Router, http::request::Parts};
/// # use tower_layer::Layer;
/// # fn f(redlock: redquorum::Redlock, routes: Router) {
/// let key = |parts: &mut Parts| Some(parts.uri.path().to_owned());
/// let service: LockService<Router, _> = LockLayer::new(redlock, key).layer(routes);
/// # let _ = service; }
/// ```
#[derive(Clone, Debug)]
pub struct LockService<S, K> {
    inner: S,
    layer: LockLayer<K>,
}

impl<S, K, B> Service<Request<B>> for LockService<S, K>
where
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
    K: Fn(&mut Parts) -> Option<String>,
    B: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    // Boxed, because the future of an acquire has no name.
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // It is this service that is ready; a clone of it need not be.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let LockLayer { redlock, key, work } = &self.layer;
        let (acquired, work) = (key(&mut parts).map(|key| redlock.lock(key).try_acquire()), *work);
        Box::pin(async move {
            let Some(acquired) = acquired else { return Ok(StatusCode::BAD_REQUEST.into_response()) };
            let guard = match acquired.await {
                Ok(guard) => guard,
                Err(error) => return Ok(refusal::refuse(error, work)),
            };
            parts.extensions.insert(Locked(guard.lease()));
            let response = inner.call(Request::from_parts(parts, body)).await;
            response.map(IntoResponse::into_response)
        })
    }
}
