//! Writes the spans of one request to the standard output: `cargo run --package redquorum-observability --bin traces`.

use std::time::Duration;

use redquorum::{Admission, Redlock};
use redquorum_observability::{Error, handle_order, provider, subscriber};
use redquorum_testkit::{Fleet, Program};

/// The longest ttl here.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let fleet = Fleet::start(&Program::required()?, 3)?;
    let builder = || Redlock::builder().instances(fleet.addresses()).ttl(TTL).max_ttl(TTL);
    // These servers are new: as `redquorum admission open`, so that they vote at once.
    builder().admission(Admission::AsRecorded).connect().await?.admission_records().open(TTL).await?;

    let provider = provider(opentelemetry_stdout::SpanExporter::default());
    tracing::subscriber::set_global_default(subscriber(&provider))?;
    let redlock = builder().connect().await?;
    handle_order(&redlock).await?;
    redlock.shutdown(Duration::from_secs(1)).await?;
    provider.shutdown()?; // exports what is left
    Ok(())
}
