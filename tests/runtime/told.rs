//! What is logged of the end of a lease: once, as a warning, with the cause.

use redquorum::testing::TestInstance;
use tokio::time::sleep;
use tracing::Level;

use crate::events::{listen, told};
use crate::support::{cluster_of, held, renewing, secs};

#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_is_told_once_and_why() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(5).await;
    let guard = held(&redlock, "a").await;
    cluster.instances().take(3).for_each(TestInstance::cut_off);
    sleep(secs(20)).await;
    drop((guard.lost().await, guard));
    let lines = told();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("validity has passed") && line.contains("resources=\"a\""), "{line}");
    assert!(
        line.contains("#0") && line.contains("#2") && !line.contains("#3") && line.contains("unreachable"),
        "{line}"
    );

    let (_cluster, redlock) = cluster_of(3).await;
    let guard = held(&redlock, "a").await;
    sleep(secs(20)).await;
    drop(guard);
    let lines = told();
    assert!(matches!(lines.as_slice(), [line] if line.contains("it is not renewed")), "{lines:?}");

    let (_cluster, redlock) = renewing(3).await;
    let guard = redlock.lock("a").max_hold(secs(5)).try_acquire().await.unwrap();
    sleep(secs(20)).await;
    drop(guard);
    let lines = told();
    assert!(matches!(lines.as_slice(), [line] if line.contains("as long as it may be renewed")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_is_told_once_and_one_that_is_given_up_is_not() {
    listen(Level::WARN);
    let (cluster, redlock) = renewing(3).await;
    held(&redlock, "a").await.release().await.unwrap();
    drop(held(&redlock, "b").await);
    sleep(secs(20)).await;
    assert_eq!(told(), [""; 0]);
    let guard = held(&redlock, "c").await;
    sleep(secs(1)).await;
    cluster.instances().for_each(|instance| assert!(instance.remove("c")));
    sleep(secs(20)).await;
    drop(guard);
    let lines = told();
    assert!(matches!(lines.as_slice(), [line] if line.contains("no quorum can have kept it")), "{lines:?}");
}
