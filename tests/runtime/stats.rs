//! What a client counts.

use redquorum::testing::{Hang, TestInstance};
use redquorum::{ClientStats, Redlock, ReplyKind};
use tokio::time::sleep;

use crate::support::{held, ms, renewing, secs, settle};

#[tokio::test(start_paused = true)]
async fn acquires_are_counted_by_their_end() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(10), ms(10)));
    assert_eq!(redlock.stats(), ClientStats::default());
    let guard = held(&redlock, "a").await;
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(redlock.lock("a").acquire())).collect();
    settle().await;
    assert!(redlock.namespace("n:").lock("x").try_acquire().await.is_ok(), "namespaces count together");
    assert!(redlock.lock("a").try_acquire().await.is_err());
    let late = redlock.lock("a").wait_at_most(ms(50)).acquire().await;
    assert!(late.unwrap_err().is_contended());
    assert!(redlock.lock("").acquire().await.is_err(), "what is never asked for is not counted");
    let stats = redlock.stats();
    assert_eq!((stats.acquired, stats.contended, stats.failed), (2, 2, 0));
    assert_eq!((stats.held, stats.waiting, stats.handed_over, stats.acquire_rounds), (1, 2, 0, 2));
    assert_eq!(stats.acquire_time, ms(40));

    drop(guard);
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
    cluster.instances().take(2).for_each(TestInstance::cut_off);
    assert!(redlock.lock("b").try_acquire().await.is_err());
    let stats = redlock.stats();
    assert_eq!((stats.acquired, stats.handed_over, stats.failed), (4, 2, 1));
    assert_eq!((stats.held, stats.waiting), (0, 0));
    assert!(stats.pending_releases > 0);
}

#[tokio::test(start_paused = true)]
async fn readers_that_wait_are_counted_behind_a_writer_of_their_own_client_and_of_another() {
    let (cluster, redlock) = renewing(3).await;
    let other = cluster.builder().connect().await.unwrap();
    for holder in [&redlock, &other] {
        let guard = held(holder, "a").await;
        let waiting: Vec<_> = (0..1_000).map(|_| tokio::spawn(redlock.rw_lock("a").read())).collect();
        sleep(secs(1)).await;
        assert_eq!((redlock.stats().waiting, redlock.inspect("a").await.unwrap().waiting_here), (1_000, 1_000));
        guard.release().await.unwrap();
        sleep(secs(2)).await;
        assert_eq!((redlock.stats().waiting, redlock.stats().read), (0, 1_000));
        for waiting in waiting {
            drop(waiting.await.unwrap().unwrap());
        }
        settle().await;
    }
}

/// Losses by expiry, deletion and takeover.
fn losses(redlock: &Redlock) -> [u64; 3] {
    let stats = redlock.stats();
    [stats.lost_by_expiry, stats.lost_by_deletion, stats.lost_by_takeover]
}

#[tokio::test(start_paused = true)]
async fn renewals_and_losses_are_counted() {
    let (cluster, redlock) = renewing(3).await;
    let guards = [held(&redlock, "a").await, held(&redlock, "b").await, held(&redlock, "c").await];
    sleep(secs(5)).await;
    assert_eq!((redlock.stats().renewals, redlock.stats().failed_renewals, redlock.stats().held), (3, 0, 3));
    for instance in cluster.instances() {
        instance.remove("a");
        instance.set("b", "somebody else");
    }
    drop((guards[0].lost().await, guards[1].lost().await));
    assert_eq!(losses(&redlock), [0, 1, 1]);
    cluster.instances().for_each(TestInstance::cut_off);
    guards[2].lost().await;
    assert_eq!(losses(&redlock), [1, 1, 1]);
    assert!(redlock.stats().failed_renewals > 1);
    drop(guards);
    settle().await;
    assert_eq!((losses(&redlock), redlock.stats().held), ([1, 1, 1], 0), "each once");
}

fn of(redlock: &Redlock, instance: usize, replies: &[ReplyKind]) -> Vec<u64> {
    let counts = redlock.instances().swap_remove(instance).counts;
    replies.iter().map(|reply| counts.of(*reply)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_instances_answered_is_counted_by_kind() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let other = cluster.builder().connect().await.unwrap();
    assert!(other.lock("a").try_acquire().await.is_err());
    assert_eq!((0..3).map(|index| of(&other, index, &[ReplyKind::Refused])).collect::<Vec<_>>(), [[1]; 3]);
    drop(guard);
    settle().await;
    assert_eq!(of(&redlock, 0, &[ReplyKind::Granted, ReplyKind::Refused]), [2, 0], "the acquire and its release");

    cluster.instance(0).stop();
    cluster.instance(1).hang(Hang::Stopped);
    settle().await;
    assert!(redlock.lock("b").try_acquire().await.is_err());
    assert_eq!(of(&redlock, 0, &[ReplyKind::Disconnected, ReplyKind::NotConnected]).iter().sum::<u64>(), 1);
    assert_eq!(of(&redlock, 1, &[ReplyKind::TimedOut, ReplyKind::Silent]), [1, 0]);
    for _ in 0..3 {
        assert!(redlock.lock("b").try_acquire().await.is_err());
    }
    sleep(ms(20)).await; // what those tries have asked of the third is answered
    assert_eq!(of(&redlock, 2, &[ReplyKind::TimedOut]), [0]);

    cluster.instance(2).flush();
    settle().await;
    assert!(redlock.lock("c").try_acquire().await.is_err());
    settle().await; // the others are down: it has not waited for the only one that answers
    assert_eq!(of(&redlock, 2, &[ReplyKind::NotAdmitted]), [1]);
    assert!(redlock.instances().iter().all(|status| status.counts.connections >= 1));
}

#[tokio::test(start_paused = true)]
async fn requests_that_share_a_command_are_one_command() {
    let (cluster, redlock) = renewing(3).await;
    cluster.instances().for_each(|instance| instance.slow_down(ms(10), ms(10)));
    let many: Vec<_> = (0..100).map(|lock| tokio::spawn(redlock.lock(format!("a:{lock}")).acquire())).collect();
    for one in many {
        std::mem::forget(one.await.unwrap().unwrap());
    }
    let counts = redlock.instances().swap_remove(0).counts;
    assert_eq!((counts.requests, counts.of(ReplyKind::Granted)), (100, 100));
    assert!(counts.commands < 20, "{counts:?}");
    sleep(secs(5)).await;
    let renewed = redlock.instances().swap_remove(0).counts;
    assert_eq!(renewed.of(ReplyKind::Granted), 200, "each was renewed once");
    assert!(renewed.commands - counts.commands <= 4, "{renewed:?}");
}

#[cfg(feature = "metrics")]
mod recorded {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, Mutex};

    use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder};
    use metrics::{SharedString, Unit};
    use redquorum::testing::{Cluster, TestInstance};

    use crate::support::held;

    /// The sum of what was recorded, by name and labels.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>, Arc<Mutex<BTreeSet<String>>>);

    struct Handle(Recorded, String);

    impl Handle {
        fn change(&self, to: impl FnOnce(f64) -> f64) {
            let mut values = self.0.0.lock().unwrap();
            let value = values.entry(self.1.clone()).or_default();
            *value = to(*value);
        }
    }

    impl CounterFn for Handle {
        fn increment(&self, value: u64) {
            self.change(|sum| sum + value as f64);
        }

        fn absolute(&self, value: u64) {
            self.change(|_| value as f64);
        }
    }

    impl GaugeFn for Handle {
        fn increment(&self, value: f64) {
            self.change(|sum| sum + value);
        }

        fn decrement(&self, value: f64) {
            self.change(|sum| sum - value);
        }

        fn set(&self, value: f64) {
            self.change(|_| value);
        }
    }

    impl HistogramFn for Handle {
        fn record(&self, _: f64) {
            self.change(|count| count + 1.0);
        }
    }

    impl Recorded {
        fn handle(&self, key: &Key) -> Arc<Handle> {
            let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            Arc::new(Handle(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
        }
    }

    impl Recorder for Recorded {
        fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.1.lock().unwrap().insert(format!("{} counter", name.as_str()));
        }

        fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.1.lock().unwrap().insert(format!("{} gauge", name.as_str()));
        }

        fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.1.lock().unwrap().insert(format!("{} histogram", name.as_str()));
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.handle(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.handle(key))
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.handle(key))
        }
    }

    #[test]
    fn metrics_are_those_of_the_documentation_and_name_no_resource() {
        let recorded = Recorded::default();
        metrics::with_local_recorder(&recorded, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let cluster = Cluster::new(3);
                let redlock = cluster.builder().connect().await.unwrap();
                let guard = held(&redlock, "secret").await;
                let next = tokio::spawn(redlock.lock("secret").acquire());
                assert!(redlock.lock("secret").try_acquire().await.is_err());
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                drop(guard);
                let guard = next.await.unwrap().unwrap();
                redlock.record_metrics();
                redlock.record_metrics(); // counts nothing twice
                cluster.instances().for_each(TestInstance::cut_off);
                assert!(redlock.lock("hidden").try_acquire().await.is_err());
                guard.lost().await;
            });
        });
        let values = recorded.0.lock().unwrap();
        for (name, value) in [
            ("redquorum_acquires_total{outcome=acquired}", 2.0),
            ("redquorum_acquires_total{outcome=contended}", 1.0),
            ("redquorum_acquires_total{outcome=failed,kind=no_quorum}", 1.0),
            ("redquorum_acquires_total{outcome=failed,kind=in_quarantine}", 0.0),
            ("redquorum_acquire_seconds{outcome=acquired}", 2.0),
            ("redquorum_hand_overs_total{}", 1.0),
            ("redquorum_acquire_rounds_total{}", 2.0),
            ("redquorum_renewals_total{result=won}", 1.0),
            ("redquorum_losses_total{cause=expired}", 1.0),
            ("redquorum_held{}", 1.0),
            ("redquorum_waiting{}", 0.0),
            ("redquorum_losses_total{cause=gone}", 0.0),
            ("redquorum_losses_total{cause=max_hold}", 0.0),
            ("redquorum_quorum{}", 2.0),
            ("redquorum_pending_releases{address=memory:0}", 0.0),
            ("redquorum_instance_connected{address=memory:0}", 1.0),
            ("redquorum_instance_may_vote{address=memory:0}", 1.0),
            ("redquorum_instance_quarantine_seconds{address=memory:0}", 0.0),
            ("redquorum_instance_clock_steps{address=memory:0}", 0.0),
        ] {
            assert_eq!(values.get(name), Some(&value), "{name}: {values:?}");
        }
        assert_eq!(values.get("redquorum_instance_replies_total{address=memory:0,reply=busy}"), Some(&0.0));
        let votes = values.get("redquorum_instance_replies_total{address=memory:0,reply=granted}");
        assert_eq!(votes, Some(&2.0), "an acquire and its renewal: {values:?}");
        assert!(values.keys().all(|key| !key.contains("secret") && !key.contains("hidden")), "{values:?}");
        assert!(values.keys().all(|key| !key.contains("instance=")), "Prometheus has a label of that name");
        // What is documented, described and recorded is the same.
        assert_eq!(documented(), *recorded.1.lock().unwrap());
        let name_of = |of: &str| of.split([' ', '{']).next().unwrap_or_default().to_owned();
        let names = |all: BTreeSet<String>| all.iter().map(|one| name_of(one)).collect::<BTreeSet<_>>();
        assert_eq!(names(documented()), names(values.keys().cloned().collect()));
    }

    /// The metrics in the table of docs/operations.md, with their kinds.
    fn documented() -> BTreeSet<String> {
        let rows = include_str!("../../docs/operations.md").lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `redquorum_")?.split_once("` | ")?;
            Some(format!("redquorum_{name} {}", rest.split(' ').next()?))
        });
        rows.collect()
    }

    /// What stands in quotes, brackets or between operators.
    fn metrics_in(text: &str) -> BTreeSet<String> {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        words.filter(|word| word.starts_with("redquorum_")).map(str::to_owned).collect()
    }

    #[test]
    fn dashboard_and_alerts_ask_for_metrics_that_there_are() {
        let histogram = |name: &str| ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"));
        let known: BTreeSet<String> = documented()
            .iter()
            .filter_map(|documented| documented.split_once(' '))
            .flat_map(|(name, kind)| if kind == "histogram" { histogram(name).to_vec() } else { vec![name.to_owned()] })
            .collect();
        for text in [
            include_str!("../../docs/grafana-dashboard.json"),
            include_str!("../../docs/prometheus-rules.yml"),
            include_str!("../../docs/prometheus-rules-test.yml"),
        ] {
            let asked = metrics_in(text);
            assert!(asked.len() > 3 && asked.is_subset(&known), "{:?}", asked.difference(&known).collect::<Vec<_>>());
        }
        serde_json::from_str::<serde_json::Value>(include_str!("../../docs/grafana-dashboard.json")).unwrap();
    }
}
