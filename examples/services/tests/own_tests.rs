//! How a service tests what it does under a lock: on instances inside the process, with their faults, in milliseconds.
//!
//! `cargo test -p redquorum-examples --test own_tests`
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::time::Duration;

use redquorum::testing::{Cluster, Hang};
use redquorum::{AcquireError, Redlock, RunError};
use tokio::time::sleep;

/// The service: it sends an invoice once.
struct Invoices {
    redlock: Redlock,
    sent: Cell<u32>,
    with_lock: bool,
}

impl Invoices {
    async fn send_once(&self) -> Result<(), RunError> {
        if self.with_lock {
            let lock = self.redlock.lock("invoice:7").wait_at_most(Duration::from_secs(1));
            return lock.run(async |_lease| self.send_unless_sent().await).await;
        }
        self.send_unless_sent().await;
        Ok(())
    }

    async fn send_unless_sent(&self) {
        if self.sent.get() == 0 {
            sleep(Duration::from_millis(20)).await;
            self.sent.set(self.sent.get() + 1);
        }
    }
}

async fn service_on(cluster: &Cluster, with_lock: bool) -> Invoices {
    Invoices { redlock: cluster.builder().connect().await.unwrap(), sent: Cell::new(0), with_lock }
}

#[tokio::test(start_paused = true)]
async fn without_the_lock_two_invoices_are_sent() {
    let service = service_on(&Cluster::new(3), false).await;
    let (first, second) = tokio::join!(service.send_once(), service.send_once());
    first.and(second).unwrap();
    assert_eq!(service.sent.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_invoice_is_sent() {
    let service = service_on(&Cluster::new(3), true).await;
    let (first, second) = tokio::join!(service.send_once(), service.send_once());
    first.and(second).unwrap();
    assert_eq!(service.sent.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_hangs_is_not_noticed() {
    let cluster = Cluster::new(3);
    let service = service_on(&cluster, true).await;
    cluster.instance(0).hang(Hang::Stopped);
    service.send_once().await.unwrap();
    assert_eq!(service.sent.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_a_majority_hangs() {
    let cluster = Cluster::new(3);
    let service = service_on(&cluster, true).await;
    cluster.instances().take(2).for_each(|instance| instance.hang(Hang::Stopped));
    let error = service.send_once().await.unwrap_err();
    assert!(matches!(error, RunError::Acquire(AcquireError::DeadlinePassed { .. })), "{error}");
    assert_eq!(service.sent.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_lock_is_lost() {
    let cluster = Cluster::new(3);
    let service = service_on(&cluster, true).await;
    let lock = service.redlock.lock("invoice:7");
    let work = lock.run(async |_lease| sleep(Duration::from_secs(3600)).await);
    let operator = async {
        sleep(Duration::from_secs(1)).await;
        assert!(cluster.instances().all(|instance| instance.remove("invoice:7")));
    };
    let (run, ()) = tokio::join!(work, operator);
    assert!(matches!(run, Err(RunError::Lost(_))));
}
