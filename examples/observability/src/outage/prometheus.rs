//! A Prometheus of one's own, and the client's metrics for it to scrape.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use redquorum::Redlock;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Outcome;

/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers every request with the metrics as they are now.
pub(crate) async fn serve(redlock: Redlock, recorder: PrometheusHandle) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            redlock.record_metrics();
            recorder.run_upkeep();
            let body = recorder.render();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Ok(address)
}

/// Ends with the value.
pub(crate) struct Prometheus {
    address: SocketAddr,
    dir: PathBuf,
    _process: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Prometheus {
    /// Starts one that scrapes `metrics` each second, with the alerts of this project.
    pub(crate) async fn start(root: &Path, metrics: SocketAddr) -> Outcome<Self> {
        let dir = std::env::temp_dir().join(format!("redquorum-outage-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let config = dir.join("prometheus.yml");
        let rules = root.join("docs/prometheus-rules.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: orders, static_configs: [{{targets: ['{metrics}']}}]}}]\n",
            rules.display()
        );
        std::fs::write(&config, text)?;
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("prometheus does not start ({error}); on Debian: apt-get install prometheus"))?;
        let prometheus = Self { address, dir, _process: process };
        let is_ready = async {
            while prometheus.value("redquorum_quorum").await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, is_ready).await.map_err(|_| "prometheus has scraped nothing in time")?;
        Ok(prometheus)
    }

    /// Its clock, in seconds.
    pub(crate) async fn now(&self) -> Outcome<f64> {
        self.value("time()").await
    }

    /// The series of an expression at present.
    pub(crate) async fn query(&self, expression: &str) -> Outcome<Vec<Value>> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        Ok(match &data["result"] {
            Value::Array(series) => series.clone(),
            _ => Vec::new(),
        })
    }

    /// The first value of an expression at present.
    async fn value(&self, expression: &str) -> Outcome<f64> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        let point = if data["resultType"] == "scalar" { &data["result"] } else { &data["result"][0]["value"] };
        Ok(point[1].as_str().ok_or("no data")?.parse()?)
    }

    /// An expression over a time, each second: its series, each with its labels.
    pub(crate) async fn range(&self, expression: &str, from: f64, to: f64) -> Outcome<Vec<(Value, Vec<(f64, f64)>)>> {
        let path = format!("/api/v1/query_range?query={}&start={from}&end={to}&step=1", encoded(expression));
        let data = self.get(&path).await?;
        let point = |point: &Value| Some((point[0].as_f64()? - from, point[1].as_str()?.parse().ok()?));
        let points = |series: &Value| series["values"].as_array().map(|all| all.iter().filter_map(point).collect());
        let series = data["result"].as_array().ok_or("no series")?;
        Ok(series.iter().map(|one| (one["metric"].clone(), points(one).unwrap_or_default())).collect())
    }

    /// The expressions of all alerts, each of which it could evaluate.
    pub(crate) async fn alerts(&self) -> Outcome<Vec<(String, String)>> {
        let data = self.get("/api/v1/rules").await?;
        let rules = data["groups"][0]["rules"].as_array().ok_or("no rules")?;
        let text = |rule: &Value, what: &str| rule[what].as_str().unwrap_or_default().to_owned();
        Ok(rules.iter().map(|rule| (text(rule, "name"), text(rule, "query"))).collect())
    }

    /// The alerts that fired in a time.
    pub(crate) async fn fired(&self, from: f64, to: f64) -> Outcome<Vec<String>> {
        let fired = self.range("max by (alertname) (ALERTS{alertstate=\"firing\"})", from, to).await?;
        Ok(fired.iter().filter_map(|(labels, _)| Some(labels["alertname"].as_str()?.to_owned())).collect())
    }

    async fn get(&self, path: &str) -> Outcome<Value> {
        let answer = timeout(PATIENCE, async {
            let mut stream = TcpStream::connect(self.address).await?;
            let request = format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address);
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        })
        .await??;
        let body = answer.split_once("\r\n\r\n").ok_or("no answer")?.1;
        let body: Value = serde_json::from_str(body)?;
        if body["status"] == "success" { Ok(body["data"].clone()) } else { Err(format!("{path}: {body}").into()) }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
