//! What those who wait tell, and what an error tells of them: who has the lock, who is next, how many wait.

use redquorum::testing::Cluster;
use redquorum::testing::simulation::seed_this_thread;
use redquorum::{AcquireError, Guard, HeldBy, Redlock, Renewal};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::Level;

use crate::events::{listen, told};
use crate::support::{TIMEOUT, held, ms, renewing, settle};

const WAITS: [&str; 9] =
    ["asks", "refused", "not granted", "won", "handed over", "announced", "wakes", "woken", "passed on"];

/// What was told of waits, without what differs from run to run.
fn told_of_waits() -> Vec<String> {
    let of_waits = |line: &String| WAITS.iter().any(|word| line.starts_with(word));
    told().into_iter().filter(of_waits).collect()
}

fn waits(redlock: &Redlock) -> JoinHandle<Guard> {
    let redlock = redlock.clone();
    tokio::spawn(async move { redlock.lock("a").acquire().await.unwrap() })
}

async fn refusal(redlock: &Redlock) -> HeldBy {
    let contended = match redlock.lock("a").try_acquire().await.unwrap_err() {
        AcquireError::Contended(held_by) => Some(*held_by),
        _ => None,
    };
    contended.unwrap()
}

async fn ordered(cluster: &Cluster, label: &str) -> Redlock {
    let builder = cluster.builder().label(label).renew(Renewal::Off);
    let redlock = builder.connect().await.unwrap();
    sleep(ms(10)).await;
    redlock
}

#[tokio::test(start_paused = true)]
async fn a_line_tells_each_hand_over_and_why_it_asks() {
    listen(Level::DEBUG);
    let (_cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (first, second) = (waits(&redlock), waits(&redlock));
    settle().await;
    assert_eq!(told_of_waits(), [""; 0], "nobody asks as long as somebody of this client has it");
    drop(guard);
    let guard = first.await.unwrap();
    assert_eq!(told_of_waits(), [r#"handed over resource="a" in_a_row=1 waiting_here=2"#]);
    drop(guard);
    drop(second.await.unwrap());
    assert_eq!(told_of_waits(), [r#"handed over resource="a" in_a_row=2 waiting_here=1"#]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_order_tells_who_has_it_and_that_it_was_woken() {
    listen(Level::DEBUG);
    seed_this_thread(1);
    let cluster = Cluster::new(3);
    let (one, two) = (ordered(&cluster, "one").await, ordered(&cluster, "two").await);
    let guard = held(&one, "a").await;
    told();
    let task = waits(&two);
    sleep(ms(50)).await;
    assert_eq!(
        told_of_waits(),
        [
            r#"asks resource="a" asks=1 why=First waiting_here=1"#,
            r#"refused resource="a" by=a client on one refused_by=3 expires_in=None never_expires=false waiting_here=1 waiting_elsewhere=0"#,
            r#"announced key="a" heard=true"#,
        ]
    );
    let held_by = refusal(&one).await;
    assert_eq!((held_by.waiting_here, held_by.waiting_elsewhere), (0, 1));
    assert_eq!(held_by.next, Some(two.client_id()));
    assert_eq!(held_by.by.client, Some(one.client_id()));
    assert!(held_by.to_string().ends_with("; 0 wait in this client, 1 elsewhere"), "{held_by}");

    drop(guard);
    let guard = task.await.unwrap();
    let wakes = format!(r#"wakes the next key="a" next={} waiting_elsewhere=1"#, two.client_id());
    assert_eq!(
        told_of_waits(),
        [
            wakes.as_str(),
            r#"woken key="a" over=["memory:0", "memory:1", "memory:2"]"#,
            r#"asks resource="a" asks=2 why=Woken waiting_here=1"#,
            r#"won resource="a" asks=2 rounds=2"#,
        ]
    );
    drop(guard);
}

/// Counter-example: it waited for ever without a word.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_key_without_an_end_says_so_more_and_more_rarely() {
    listen(Level::INFO);
    let (cluster, redlock) = renewing(3).await;
    for instance in cluster.instances() {
        instance.set("a", "theirs");
    }
    told();
    let task = waits(&redlock);
    sleep(ms(30_000)).await;
    let warning = "waits for a key that never expires: another program has stored it";
    let asks = |line: String| line.rsplit_once("asks=").and_then(|(_, asks)| asks.parse::<u32>().ok()).unwrap();
    let told: Vec<u32> = told().into_iter().filter(|line| line.starts_with(warning)).map(asks).collect();
    assert!(told.len() > 3 && told[0] <= 2, "{told:?}");
    assert!(told.windows(2).all(|two| two[1] == 2 * two[0]), "{told:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_wait_tells_when_it_asks_for_an_expiry_a_pause_or_its_turn() {
    listen(Level::DEBUG);
    let (cluster, redlock) = renewing(3).await;
    let other = cluster.builder().renew(Renewal::Off).connect().await.unwrap();
    let guard = held(&other, "a").await;
    told();
    let task = waits(&redlock);
    sleep(ms(200)).await;
    let lines = told_of_waits();
    assert!(lines.iter().any(|line| line.contains("asks=2 why=Pause")), "{lines:?}");
    drop((guard, task.await.unwrap()));

    let cluster = Cluster::new(3);
    let (one, two) = (ordered(&cluster, "one").await, ordered(&cluster, "two").await);
    let kept = held(&one, "a").await;
    assert!(kept.remaining() > TIMEOUT);
    kept.keep_for(std::time::Duration::ZERO).await.unwrap();
    drop(one);
    told();
    drop(waits(&two).await.unwrap());
    let lines = told_of_waits();
    assert!(lines.iter().any(|line| line.contains("why=Expired")), "{lines:?}");
}
