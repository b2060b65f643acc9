//! What callers and handlers see of a locked route.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderName, Request, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use redquorum::testing::{Cluster, Data, Hang};
use redquorum::{AcquireError, Redlock};
use redquorum_axum::{LockLayer, Locked, NotLocked, header, path_parameter};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

const WORK: Duration = Duration::from_millis(2500);
/// As long as the longest key can be kept.
const TTL: Duration = Duration::from_secs(20);

async fn client(cluster: &Cluster) -> Redlock {
    cluster.builder().ttl(TTL).max_ttl(TTL).label("host-of-holder/4711").connect().await.unwrap()
}

/// A handler that works, and answers with its token.
async fn charge(Locked(lease): Locked) -> String {
    sleep(WORK).await;
    lease.fencing_token().to_string()
}

fn service(redlock: &Redlock) -> Router {
    let of_path = LockLayer::new(redlock.namespace("order:"), path_parameter("order")).retry_after(WORK);
    let of_header = LockLayer::new(redlock.clone(), header(HeaderName::from_static("idempotency-key")));
    Router::new()
        .route("/orders/{order}/charge", post(charge).route_layer(of_path))
        .route("/payments", post(charge).route_layer(of_header))
        .route("/unlocked", get(charge))
}

fn request_with_key(method: &str, path: &str, key: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
    request.body(Body::empty()).unwrap()
}

fn order(number: &str) -> Request<Body> {
    request_with_key("POST", &format!("/orders/{number}/charge"), "")
}

async fn send(service: &Router, request: Request<Body>) -> Response {
    service.clone().oneshot(request).await.unwrap()
}

async fn body(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1000).await.unwrap().to_vec()).unwrap()
}

/// Its value, if there is one.
fn retry_after(response: &Response) -> Option<u64> {
    Some(response.headers().get(RETRY_AFTER)?.to_str().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn of_two_requests_at_once_for_a_key_one_is_answered_and_one_gets_409_with_when_to_come_back() {
    let cluster = Cluster::new(3);
    // Each in a process of its own.
    let (one, other) = (service(&client(&cluster).await), service(&client(&cluster).await));
    let (first, second, beside) =
        tokio::join!(send(&one, order("7")), send(&other, order("7")), send(&other, order("8")));
    let (answered, refused) = if first.status() == StatusCode::OK { (first, second) } else { (second, first) };
    assert_eq!((answered.status(), retry_after(&answered)), (StatusCode::OK, None));
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::CONFLICT, Some(3)));
    assert_eq!(body(refused).await, r#"{"locked":true,"waiting":0}"#);
    assert_eq!(beside.status(), StatusCode::OK, "another order is not in its way");
    assert_eq!(send(&other, order("7")).await.status(), StatusCode::OK, "it was released with the answer");
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_the_answer_is_503_with_when_to_come_back() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    cluster.instances().take(2).for_each(|instance| instance.hang(Hang::Stopped));
    let response = send(&service, order("7")).await;
    assert_eq!((response.status(), retry_after(&response)), (StatusCode::SERVICE_UNAVAILABLE, Some(3)));
    let NotLocked(error) = response.extensions().get().unwrap();
    assert!(matches!(**error, AcquireError::NoQuorum { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn while_too_few_instances_may_vote_a_caller_comes_back_when_enough_may() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    for instance in cluster.instances() {
        instance.stop();
        instance.start(Data::Nothing);
    }
    sleep(Duration::from_secs(5)).await; // until they are connected again
    let response = send(&service, order("7")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let seconds = retry_after(&response).unwrap();
    assert!((10..=20).contains(&seconds), "{seconds}");
    sleep(Duration::from_secs(seconds)).await;
    assert_eq!(send(&service, order("7")).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn no_answer_names_a_host_a_process_or_an_instance() {
    let cluster = Cluster::new(3);
    let redlock = client(&cluster).await;
    let service = service(&redlock);
    let guard = client(&cluster).await.namespace("order:").lock("7").acquire().await.unwrap();
    let conflict = send(&service, order("7")).await;
    guard.release().await.unwrap();
    cluster.instances().for_each(|instance| instance.hang(Hang::Stopped));
    let no_quorum = send(&service, order("7")).await;
    redlock.shutdown(Duration::from_secs(1)).await.unwrap_err();
    let shut_down = send(&service, order("7")).await;

    let instances: Vec<&str> = cluster.instances().map(|instance| instance.address()).collect();
    for (response, status, names) in [
        (conflict, StatusCode::CONFLICT, vec!["host-of-holder/4711"]),
        (no_quorum, StatusCode::SERVICE_UNAVAILABLE, instances),
        (shut_down, StatusCode::INTERNAL_SERVER_ERROR, vec!["shut down"]),
    ] {
        assert_eq!(response.status(), status);
        let NotLocked(error) = response.extensions().get::<NotLocked>().unwrap().clone();
        let headers = format!("{:?}", response.headers());
        let shown = headers + &body(response).await;
        for name in names {
            assert!(error.to_string().contains(name), "the log has {name}: {error}");
            assert!(!shown.contains(name), "the answer has it, too: {shown}");
        }
        assert!(!shown.contains("host") && !shown.contains("4711"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_shut_down_asks_nobody_to_come_back() {
    let redlock = client(&Cluster::new(3)).await;
    redlock.shutdown(Duration::from_secs(1)).await.unwrap();
    let response = send(&service(&redlock), order("7")).await;
    assert_eq!((response.status(), retry_after(&response)), (StatusCode::INTERNAL_SERVER_ERROR, None));
}

#[tokio::test(start_paused = true)]
async fn a_header_is_a_key_and_without_one_that_can_be_locked_the_answer_is_400() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    let pay = |key: &str| send(&service, request_with_key("POST", "/payments", key));
    let long = "x".repeat(100_000);
    let (first, second, other, none, long) = tokio::join!(pay("a"), pay("a"), pay("b"), pay(""), pay(&long));
    assert_eq!(
        [first, second, other, none, long].map(|response| response.status().as_u16()),
        [200, 409, 200, 400, 400]
    );
}

#[tokio::test(start_paused = true)]
async fn a_parameter_is_decoded_and_another_method_locks_nothing() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    let keys = async {
        sleep(WORK / 2).await;
        cluster.keys()
    };
    let (response, keys) = tokio::join!(send(&service, order("a%2Fb")), keys);
    assert_eq!((response.status(), keys), (StatusCode::OK, vec!["order:a/b".to_owned()]));
    let requests = cluster.requests().acquire;
    let response = send(&service, request_with_key("GET", "/orders/7/charge", "")).await;
    assert_eq!((response.status(), cluster.requests().acquire), (StatusCode::METHOD_NOT_ALLOWED, requests));
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_the_token_of_its_lock_and_a_later_one_has_a_larger() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    let token = async || body(send(&service, order("7")).await).await.parse::<i64>().unwrap();
    let first = token().await;
    let stored = cluster.instance(0).fencing_token("order:7").unwrap();
    assert_eq!(first, stored.as_i64());
    assert!(token().await > first);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlasts_the_ttl_keeps_its_lock() {
    let cluster = Cluster::new(3);
    let redlock = client(&cluster).await;
    let slow = async |Locked(lease): Locked| {
        sleep(3 * TTL).await;
        lease.is_valid().to_string()
    };
    let path = |parts: &mut Parts| Some(parts.uri.path().to_owned());
    let service = Router::new().route("/", post(slow)).route_layer(LockLayer::new(redlock, path));
    assert_eq!(body(send(&service, request_with_key("POST", "/", "")).await).await, "true");
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_when_its_lock_is_lost() {
    let cluster = Cluster::new(3);
    let redlock = client(&cluster).await;
    let told = async |Locked(lease): Locked| lease.lost().await.to_string();
    let path = |parts: &mut Parts| Some(parts.uri.path().to_owned());
    let service = Router::new().route("/", post(told)).route_layer(LockLayer::new(redlock, path));
    let operator = async {
        sleep(Duration::from_secs(1)).await;
        assert!(cluster.instances().all(|instance| instance.remove("/")));
    };
    let (response, ()) = tokio::join!(send(&service, request_with_key("POST", "/", "")), operator);
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_releases_its_lock() {
    let cluster = Cluster::new(3);
    let service = service(&client(&cluster).await);
    timeout(WORK / 2, send(&service, order("7"))).await.unwrap_err();
    sleep(Duration::from_millis(100)).await; // it is released in the background
    assert_eq!(cluster.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_the_layer_answers_500() {
    let service = service(&client(&Cluster::new(3)).await);
    let response = send(&service, request_with_key("GET", "/unlocked", "")).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}
