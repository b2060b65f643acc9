//! How much memory a hung instance costs.

use std::time::Duration;

use redquorum_testkit::{Fleet, Program};

use crate::measure::work;
use crate::options::Options;
use crate::resident::resident_kib;
use crate::results::Metric;
use crate::subject::{Kind, Subject};
use crate::workload::{Fault, Links, Stage};
use crate::{INSTANCES, Outcome, TTL};

const TASKS: usize = 64;

const HUNG: Stage = Stage { instances: INSTANCES, fault: Fault::Hung(1), links: Links { of: 0, round_trip_ms: 0 } };

/// The growth of this process over 20 000 pairs with one instance hung; nothing where that would
/// take minutes, or cannot be read.
pub(crate) async fn grown(program: &Program, kind: Kind, options: &Options) -> Outcome<Vec<Metric>> {
    if kind == Kind::Rslock {
        return Ok(Vec::new()); // it takes half a second for every operation
    }
    let pairs = if options.quick { 2_000 } else { 20_000 };
    let fleet = Fleet::start(program, INSTANCES)?;
    let subject = Subject::connect(kind, fleet.addresses(), TTL).await?;
    work(&subject, TASKS, 2_000 / TASKS).await?; // so that buffers have grown
    HUNG.bring_about(&fleet)?;
    let before = resident_kib();
    work(&subject, TASKS, pairs / TASKS).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let Some((before, after)) = before.zip(resident_kib()) else { return Ok(Vec::new()) };
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let grown = (after as f64 - before as f64) / 1024.0;
    Ok(vec![("memory growth", grown, "MiB")])
}
