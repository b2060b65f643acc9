//! `redquorum bench`: how long locks take on the user's own instances, and what ttl and timeouts that requires.

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
use measure::{Pair, answers, hand_overs, uncontended};
use samples::Samples;

/// What was measured.
struct Measured {
    /// Each thing that was measured, by its name.
    rows: Vec<(String, Samples)>,
    /// What 99 of 100 requests took at most on each instance alone; nothing of one that could not be used.
    slowest: Vec<(String, Option<Duration>)>,
}

impl Measured {
    fn add(&mut self, what: impl Into<String>, samples: Samples) {
        self.rows.push((what.into(), samples));
    }

    fn add_instance(&mut self, address: &str, requests: &Samples) {
        self.slowest.push((address.to_owned(), requests.percentile(99)));
    }
}

pub(crate) async fn bench(args: &BenchArgs, settings: &Settings) -> Result<ExitCode, Failure> {
    let redlock = if args.dry { settings.connected_to_look().await? } else { settings.connected().await? };
    let mut measured = Measured { rows: Vec::new(), slowest: Vec::new() };
    if args.dry {
        measure_answers(args, settings, &redlock, &mut measured).await?;
    } else {
        measure_locks(args, settings, &redlock, &mut measured).await?;
    }
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
async fn measure_locks(
    args: &BenchArgs,
    settings: &Settings,
    redlock: &Redlock,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let mut line = ProgressLine::new();
    let resource = format!("{}-{}", args.resource, redlock.client_id());
    let addresses = addresses(redlock);
    line.show("acquiring and releasing on all instances");
    let whole = uncontended(redlock, &resource, args.time / 2).await?;
    let failure = whole.failure.filter(|_| whole.acquire.count() == 0);
    measured.add("acquire", whole.acquire);
    measured.add("release", whole.release);
    let share = args.time / 4 / u32::try_from(addresses.len()).unwrap_or(1);
    for (index, address) in addresses.into_iter().enumerate() {
        line.show(&format!("acquiring and releasing on {address} alone"));
        let alone = settings.client_of_one(index)?;
        // One that cannot be used is no reason not to measure the others.
        let pair = match alone.wait_connected(settings.connect_timeout.min(share)).await {
            Ok(()) => uncontended(&alone, &resource, share).await?,
            Err(_) => Pair::default(),
        };
        measured.add_instance(&address, &pair.acquire);
        measured.add(format!("acquire on {address}"), pair.acquire);
        measured.add(format!("release on {address}"), pair.release);
    }
    line.show("handing a lock over between two clients");
    let other = settings.connected().await?;
    measured.add("hand-over", hand_overs([redlock, &other], &resource, args.time / 4).await);
    failure.map_or(Ok(()), |error| {
        Err(Failure::new(Code::NoQuorum, format!("no lock could be acquired in that time: {error}")))
    })
}

/// How long each instance takes to say who has a lock. Nothing is written.
async fn measure_answers(
    args: &BenchArgs,
    settings: &Settings,
    redlock: &Redlock,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let mut line = ProgressLine::new();
    let addresses = addresses(redlock);
    let share = args.time / u32::try_from(addresses.len()).unwrap_or(1);
    for (index, address) in addresses.into_iter().enumerate() {
        line.show(&format!("asking {address}"));
        let alone = settings.client_of_one(index)?;
        let samples = match alone.wait_connected(settings.connect_timeout.min(share)).await {
            Ok(()) => answers(&alone, &args.resource, share).await?,
            Err(_) => Samples::default(),
        };
        measured.add_instance(&address, &samples);
        measured.add(format!("answer of {address}"), samples);
    }
    Ok(())
}

fn addresses(redlock: &Redlock) -> Vec<String> {
    redlock.instances().into_iter().map(|instance| instance.address).collect()
}

fn table(measured: &Measured) -> Table {
    let mut table = Table::new(&["WHAT", "COUNT", "P50", "P99", "MOST"]);
    for (name, samples) in &measured.rows {
        let cell = |part: u32| samples.percentile(part).map_or("-".to_owned(), time);
        let cells = [name.clone(), samples.count().to_string(), cell(50), cell(99), cell(100)];
        table.row(cells.into_iter().map(|cell| (cell, Look::Plain)).collect());
    }
    table
}

fn to_json(measured: &Measured, advice: &[String]) -> Value {
    let rows = measured.rows.iter().map(|(name, samples)| {
        let micros = |part| samples.percentile(part).map(|it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX));
        json!({ "what": name, "count": samples.count(), "p50_us": micros(50), "p99_us": micros(99), "most_us": micros(100) })
    });
    json!({ "measured": rows.collect::<Vec<_>>(), "advice": advice })
}
