//! A web service that charges an order once: one client for all requests, the lock of its order for each (the layer of
//! `redquorum-axum`), 409 with when to come back, readiness, metrics, and a shutdown that lets work come to its end.
//!
//! `cargo run -p redquorum-examples --bin axum_service` starts it and sends requests to it;
//! `.. --bin axum_service -- 127.0.0.1:8080 redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3` serves until Ctrl-C.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redquorum::{AdmissionStatus, Redlock};
use redquorum_axum::{LockLayer, NotLocked, path_parameter};
use redquorum_examples::http::{Answer, request};
use redquorum_examples::stage::Stage;
use redquorum_examples::{Outcome, check, ms};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// How often the card was charged for each order; all servers share it, as they would a database.
type Charges = Arc<Mutex<BTreeMap<u64, u32>>>;

struct Service {
    redlock: Redlock,
    metrics: PrometheusHandle,
    with_lock: bool,
    charges: Charges,
    /// How many requests for a charge have come.
    asked: Arc<AtomicUsize>,
}

impl Service {
    fn charges(&self, order: u64) -> u32 {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner).get(&order).copied().unwrap_or(0)
    }

    /// Charges the card unless that was done.
    async fn charge_once(&self, order: u64) -> &'static str {
        if self.charges(order) > 0 {
            return "was charged before\n";
        }
        sleep(ms(100)).await; // the provider takes its time
        *self.charges.lock().unwrap_or_else(PoisonError::into_inner).entry(order).or_default() += 1;
        "charged\n"
    }
}

async fn charge(State(service): State<Arc<Service>>, Path(order): Path<u64>) -> &'static str {
    service.asked.fetch_add(1, Ordering::Relaxed);
    service.charge_once(order).await
}

/// Callers do not see why they were refused, because that names instances, hosts and processes.
async fn log_refusal(response: Response) -> Response {
    if let Some(NotLocked(error)) = response.extensions().get().filter(|NotLocked(error)| !error.is_contended()) {
        eprintln!("{error}");
    }
    response
}

/// Ready while a quorum may vote; a service that never locks may be ready without.
async fn ready(State(service): State<Arc<Service>>) -> Response {
    let instances = service.redlock.instances();
    let vote = |status: &AdmissionStatus| matches!(status, AdmissionStatus::Admitted | AdmissionStatus::Off);
    let voting = instances.iter().filter(|instance| instance.connected && vote(&instance.admission)).count();
    let status = if voting > instances.len() / 2 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{voting} of {} instances vote\n", instances.len())).into_response()
}

async fn metrics(State(service): State<Arc<Service>>) -> String {
    service.redlock.record_metrics();
    service.metrics.render()
}

/// Serves until SIGTERM; then ends the requests under way, and gives the locks back.
async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Outcome {
    let locked = LockLayer::new(service.redlock.namespace("order:"), path_parameter("order"));
    let charge = if service.with_lock { post(charge).route_layer(locked) } else { post(charge) };
    let routes = Router::new()
        .route("/orders/{order}/charge", charge.layer(map_response(log_refusal)))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&service));
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    service.redlock.shutdown_gracefully(Duration::from_secs(10), Duration::from_secs(2)).await?;
    Ok(())
}

struct Running {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Outcome>,
}

async fn start(service: Service) -> Outcome<Running> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (asked, (stop, stopped)) = (Arc::clone(&service.asked), oneshot::channel());
    let serving = tokio::spawn(serve(listener, Arc::new(service), async { drop(stopped.await) }));
    Ok(Running { address, asked, stop, serving })
}

/// Sends the same request to both servers, many times at once.
async fn storm(servers: &[Running]) -> Outcome<Vec<Answer>> {
    let mut requests = JoinSet::new();
    for number in 0..20 {
        let address = servers[number % servers.len()].address;
        requests.spawn(async move { request(address, "POST", "/orders/7/charge").await });
    }
    let mut answers = Vec::new();
    while let Some(answer) = requests.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

async fn show(stage: &Stage, metrics: &PrometheusHandle, with_lock: bool) -> Outcome {
    let charges = Charges::default();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let (redlock, metrics, charges) = (stage.redlock().await?, metrics.clone(), Arc::clone(&charges));
        servers.push(start(Service { redlock, metrics, with_lock, charges, asked: Arc::default() }).await?);
    }
    let answers = storm(&servers).await?;
    let times = charges.lock().unwrap_or_else(PoisonError::into_inner).values().sum::<u32>();
    let conflicts: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 409).collect();
    let how = if with_lock { "with" } else { "without" };
    println!("{how} the lock: charged {times} times; {} of {} requests got a 409", conflicts.len(), answers.len());
    check((times == 1) == with_lock, "it is charged once with the lock, and more often without")?;
    check(conflicts.is_empty() != with_lock, "who comes second gets a 409")?;
    if let Some(conflict) = conflicts.first() {
        println!("  one of them: {}", conflict.body);
        check(conflict.head.contains("retry-after: "), "a 409 says when to come back")?;
        check(conflict.body == r#"{"locked":true,"waiting":0}"#, "a 409 names no host and no process")?;
    }
    let ready = request(servers[0].address, "GET", "/ready").await?;
    print!("  /ready: {}", ready.body);
    check(ready.status == 200, "it is ready")?;
    let metrics = request(servers[0].address, "GET", "/metrics").await?.body;
    check(metrics.contains("redquorum_"), "the locks are counted")?;

    for server in servers {
        let before = server.asked.load(Ordering::Relaxed);
        let order = tokio::spawn(request(server.address, "POST", "/orders/8/charge"));
        while server.asked.load(Ordering::Relaxed) == before && !order.is_finished() {
            sleep(ms(1)).await; // until it is under way
        }
        let _ = server.stop.send(());
        check(order.await??.status == 200, "a request under way comes to its end")?;
        server.serving.await??;
    }
    println!("  told to stop in the middle of a request, both answer it and end");
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let mut arguments = std::env::args().skip(1);
    if let Some(address) = arguments.next() {
        let redlock = Redlock::builder().instances(arguments.collect::<Vec<_>>()).connect().await?;
        redlock.want_locks(); // it is ready once instances vote, and locks nothing before
        let listener = TcpListener::bind(address).await?;
        let service = Service { redlock, metrics, with_lock: true, charges: Charges::default(), asked: Arc::default() };
        return serve(listener, Arc::new(service), async { drop(tokio::signal::ctrl_c().await) }).await;
    }
    let stage = Stage::start().await?;
    println!("Two servers get the same 20 requests at once:");
    show(&stage, &metrics, false).await?;
    show(&stage, &metrics, true).await
}
