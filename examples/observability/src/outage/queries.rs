//! What the dashboard and the alerts ask for.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::prometheus::Prometheus;

/// Queries, by where they stand.
pub(crate) struct Queries {
    all: Vec<(String, String)>,
    /// Those that have given no data yet.
    without_data: RefCell<BTreeSet<usize>>,
}

impl Queries {
    /// Reads those of the dashboard and of the alerts.
    pub(crate) async fn read(root: &Path, prometheus: &Prometheus) -> Outcome<Self> {
        let text = std::fs::read_to_string(root.join("docs/grafana-dashboard.json"))?;
        let dashboard: Value = serde_json::from_str(&text)?;
        let panels = dashboard["panels"].as_array().ok_or("no panels")?;
        let mut all = Vec::new();
        for panel in panels {
            for target in panel["targets"].as_array().ok_or("a panel without queries")? {
                let query = target["expr"].as_str().ok_or("no query")?;
                all.push((panel["title"].as_str().unwrap_or_default().to_owned(), filled_in(query)));
            }
        }
        let measured = |(name, query): (String, String)| (name, what_is_compared(&query).to_owned());
        all.extend(prometheus.alerts().await?.into_iter().map(measured));
        println!("{} queries of the dashboard and the alerts", all.len());
        let without_data = RefCell::new((0..all.len()).collect());
        Ok(Self { all, without_data })
    }

    /// Sends all of them; each must at least be understood.
    pub(crate) async fn ask(&self, prometheus: &Prometheus) -> Outcome {
        for (index, (_, query)) in self.all.iter().enumerate() {
            if !prometheus.query(query).await?.is_empty() {
                self.without_data.borrow_mut().remove(&index);
            }
        }
        Ok(())
    }

    /// Whether each has given data.
    pub(crate) fn check(&self) -> Outcome {
        let missing = self.without_data.borrow();
        let named: Vec<_> = missing.iter().filter_map(|index| self.all.get(*index)).collect();
        if named.is_empty() { Ok(()) } else { Err(format!("without data: {named:#?}").into()) }
    }
}

/// What Grafana puts in the place of the dashboard's variables.
fn filled_in(query: &str) -> String {
    query.replace("$__rate_interval", "10s").replace("$job", ".*").replace("$process", ".*")
}

/// An alert without its threshold: below it there is no data, by intention.
fn what_is_compared(query: &str) -> &str {
    [" < on", " == on", " > ", " == "].iter().find_map(|sign| Some(query.split_once(sign)?.0)).unwrap_or(query)
}
