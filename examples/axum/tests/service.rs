//! The service keeps the contract of tower.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use redquorum::testing::Cluster;
use redquorum_axum::{LockLayer, LockService};
use tower::{Layer, Service, ServiceExt};

/// Of all its clones only the one that was ready may be called.
#[derive(Debug, Default)]
struct Limited {
    is_open: Arc<AtomicBool>,
    is_ready: bool,
}

impl Clone for Limited {
    fn clone(&self) -> Self {
        Self { is_open: Arc::clone(&self.is_open), is_ready: false }
    }
}

/// Its body is no body of axum.
impl Service<Request<u8>> for Limited {
    type Response = StatusCode;
    type Error = Infallible;
    type Future = Ready<Result<StatusCode, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = self.is_open.load(Ordering::Relaxed);
        if self.is_ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _request: Request<u8>) -> Self::Future {
        assert!(self.is_ready, "it is called without having been ready");
        self.is_ready = false;
        ready(Ok(StatusCode::OK))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_is_ready_when_the_inner_one_is_and_calls_the_one_that_was() {
    let redlock = Cluster::new(3).builder().connect().await.unwrap();
    let limited = Limited::default();
    let is_open = Arc::clone(&limited.is_open);
    let key = |_: &mut Parts| Some("key".to_owned());
    let mut service: LockService<Limited, _> = LockLayer::new(redlock, key).layer(limited);

    let is_ready = pin!(ServiceExt::<Request<u8>>::ready(&mut service));
    assert!(is_ready.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    is_open.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let response = service.ready().await.unwrap().call(Request::new(7)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}
