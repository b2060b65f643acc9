//! `redquorum bench`: how long locks take on the user's own instances, and what ttl and timeouts that asks for.

mod advice;
mod measure;
mod samples;

use std::process::ExitCode;
use std::time::Duration;

use redquorum::Redlock;
use serde_json::{Value, json};

use crate::cli::BenchArgs;
use crate::exit::{Code, Failure};
use crate::output::{self, Look, ProgressLine, Table, time, with_colours};
use crate::settings::Settings;
use measure::{Pair, hand_overs, uncontended};
use samples::Samples;

/// What was measured.
struct Measured {
    whole: Pair,
    each: Vec<(String, Pair)>,
    hand_over: Samples,
}

pub(crate) async fn bench(args: &BenchArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = settings.connected().await?;
    let measured = measure_all(args, settings, &redlock).await?;
    let advice = advice::advice(&measured, settings);
    let _ = redlock.shutdown(Duration::from_secs(1)).await;
    if args.form.json {
        return output::write_json(&to_json(&measured, &advice));
    }
    let mut text = table(&measured).render(with_colours());
    for line in &advice {
        text.push_str(&format!("{line}\n"));
    }
    output::write(text.as_bytes())
}

/// Half of the time for all instances together, a quarter for each alone, and one for two clients against each other.
async fn measure_all(args: &BenchArgs, settings: &Settings, redlock: &Redlock) -> Result<Measured, Failure> {
    let mut line = ProgressLine::new();
    let resource = format!("{}-{}", args.resource, redlock.client_id());
    let addresses: Vec<String> = redlock.instances().into_iter().map(|instance| instance.address).collect();
    line.show("acquiring and releasing on all instances");
    let whole = uncontended(redlock, &resource, args.time / 2).await?;
    let mut each = Vec::new();
    let share = args.time / 4 / u32::try_from(addresses.len()).unwrap_or(1);
    for (index, address) in addresses.into_iter().enumerate() {
        line.show(&format!("acquiring and releasing on {address} alone"));
        let alone = settings.client_of_one(index)?;
        // One that cannot be used is no reason not to measure the others.
        if alone.wait_connected(settings.connect_timeout.min(share)).await.is_ok() {
            each.push((address, uncontended(&alone, &resource, share).await?));
        } else {
            each.push((address, Pair::default()));
        }
    }
    line.show("handing a lock over between two clients");
    let other = settings.connected().await?;
    let hand_over = hand_overs([redlock, &other], &resource, args.time / 4).await;
    if whole.acquire.count() == 0 {
        return Err(Failure::new(Code::NoQuorum, "no lock could be acquired in that time"));
    }
    Ok(Measured { whole, each, hand_over })
}

fn rows(measured: &Measured) -> Vec<(String, &Samples)> {
    let mut rows =
        vec![("acquire".to_owned(), &measured.whole.acquire), ("release".to_owned(), &measured.whole.release)];
    for (address, pair) in &measured.each {
        rows.push((format!("acquire on {address}"), &pair.acquire));
        rows.push((format!("release on {address}"), &pair.release));
    }
    rows.push(("hand-over".to_owned(), &measured.hand_over));
    rows
}

fn table(measured: &Measured) -> Table {
    let mut table = Table::new(&["WHAT", "COUNT", "P50", "P99", "MOST"]);
    for (name, samples) in rows(measured) {
        let cell = |part: u32| samples.percentile(part).map_or("-".to_owned(), time);
        let cells = [name, samples.count().to_string(), cell(50), cell(99), cell(100)];
        table.row(cells.into_iter().map(|cell| (cell, Look::Plain)).collect());
    }
    table
}

fn to_json(measured: &Measured, advice: &[String]) -> Value {
    let rows = rows(measured).into_iter().map(|(name, samples)| {
        let micros = |part| samples.percentile(part).map(|it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX));
        json!({ "what": name, "count": samples.count(), "p50_us": micros(50), "p99_us": micros(99), "most_us": micros(100) })
    });
    json!({ "measured": rows.collect::<Vec<_>>(), "advice": advice })
}
