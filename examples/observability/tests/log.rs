//! What the log says of instances that are down for a while.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redquorum::Redlock;
use redquorum_observability::Error;
use redquorum_testkit::{Fleet, Program, wait_until};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// Longer than the ten seconds after which the log says again that an instance is down, and shorter than two of them.
const DOWN: Duration = Duration::from_secs(17);

/// The lines from `info` on, each with the instance that it names.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(String, String)>>>);

impl Lines {
    /// What was said of an instance. Its quarantines are left out: a machine whose clock steps causes them, down or not.
    fn of(&self, address: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = |(instance, line): &&(String, String)| instance == address && !line.contains("quarantine");
        lines.iter().filter(is_asked).map(|(_, line)| line.clone()).collect()
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::INFO || !event.metadata().target().starts_with("redquorum") {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((line.instance, format!("{level} {}", line.message)));
    }
}

#[derive(Default)]
struct Line {
    instance: String,
    message: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "instance" {
            value.clone_into(&mut self.instance);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_down_does_not_flood_the_log() -> Result<(), Error> {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(Registry::default().with(lines.clone()))?;
    let fleet = Fleet::start(&Program::required()?, 5)?;
    let ttl = Duration::from_secs(2);
    // A server that is late for a moment is not to be taken for one that is down.
    let builder = Redlock::builder().instances(fleet.addresses()).instance_timeout(Duration::from_secs(1));
    let redlock = builder.ttl(ttl).max_ttl(ttl).connect().await?;
    let addresses: Vec<String> = fleet.addresses().iter().map(|url| url.replace("redis://", "")).collect();
    let all_say =
        |last: &str| addresses.iter().all(|address| lines.of(address).last().is_some_and(|line| line == last));
    assert!(wait_until(Duration::from_secs(5), || all_say("INFO connected")), "{lines:?}", lines = lines.0);

    fleet[3].kill()?;
    fleet[4].hang()?;
    let mut locked = 0_u32;
    let load = async {
        loop {
            drop(redlock.lock("busy").acquire().await?);
            locked += 1;
            sleep(Duration::from_millis(10)).await;
        }
    };
    if let Ok(Err::<(), Error>(error)) = timeout(DOWN, load).await {
        return Err(error); // three of five are up
    }
    assert!(locked > 50, "there was load: {locked}");
    fleet[3].restart()?;
    fleet[4].resume()?;
    let is_back = || all_say("INFO connected");
    assert!(wait_until(Duration::from_secs(10), is_back), "{lines:?}", lines = lines.0);
    sleep(2 * ttl).await; // the quarantine of the empty one ends

    for (index, address) in addresses.iter().enumerate() {
        let expected: &[&str] = match index {
            3 | 4 => &["INFO connected", "WARN disconnected", "WARN not connected", "INFO connected"],
            _ => &["INFO connected"],
        };
        assert_eq!(lines.of(address), expected, "instance {index}");
    }
    let counted = |address: &String| lines.0.lock().map(|lines| lines.iter().filter(|(of, _)| of == address).count());
    for address in &addresses {
        assert!(counted(address).is_ok_and(|lines| lines <= 12), "{lines:?}", lines = lines.0);
    }
    let rest = lines.of("");
    assert!(rest.iter().all(|line| !line.starts_with("WARN")), "{rest:?}");
    Ok(())
}
