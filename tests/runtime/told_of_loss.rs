//! The ways in which a loss is told beside the future of `lost()`.

use std::sync::mpsc::{Receiver, channel};

use redquorum::testing::{Cluster, TestInstance};
use redquorum::{Guard, Loss, Renewal};
use tokio::time::sleep;
#[cfg(feature = "tokio-util")]
use tokio::time::timeout;

#[cfg(feature = "tokio-util")]
use crate::support::settle;
use crate::support::{held, ms, renewing, secs};

/// What a callback of the guard is called with.
fn told(guard: &Guard) -> Receiver<Loss> {
    let (sender, losses) = channel();
    guard.on_lost(move |loss| sender.send(loss).unwrap());
    losses
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_by_hand_beside_the_wait_for_its_loss() {
    let (cluster, redlock) = renewing(3).await;
    let lock = redlock.lock("a").renew(Renewal::Off);
    let guard = lock.acquire().await.unwrap();
    let mut extended = 0;
    let loss = loop {
        tokio::select! {
            loss = guard.lost() => break loss,
            () = sleep(secs(5)) => drop(guard.extend().await.unwrap()),
        }
        extended += 1;
        if extended == 4 {
            cluster.instances().for_each(TestInstance::cut_off);
            break guard.lost().await;
        }
    };
    assert!(extended == 4 && matches!(loss, Loss::Expired { .. }), "{loss:?}");
}

#[tokio::test(start_paused = true)]
async fn a_callback_is_called_once_with_the_cause() {
    let (cluster, redlock) = renewing(3).await;
    let guard = held(&redlock, "a").await;
    let (first, second, of_view) = (told(&guard), told(&guard), channel());
    guard.lease().on_lost(move |loss| of_view.0.send(loss).unwrap());
    sleep(secs(60)).await;
    assert!(first.try_recv().is_err(), "it is renewed");
    for instance in cluster.instances() {
        instance.set("a", "somebody else");
    }
    sleep(ms(200)).await;
    for told in [&first, &second, &of_view.1] {
        assert!(matches!(told.try_recv(), Ok(Loss::TakenOver { .. })));
        assert!(told.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_is_not_called_for_a_lock_that_is_given_up() {
    let (_cluster, redlock) = renewing(3).await;
    let (released, dropped) = (held(&redlock, "a").await, held(&redlock, "b").await);
    let (first, second) = (told(&released), told(&dropped));
    released.release().await.unwrap();
    drop(dropped);
    sleep(secs(30)).await;
    // Both senders are gone, and with them all that waited for the loss.
    assert!(first.recv().is_err() && second.recv().is_err());
}

#[test]
fn a_callback_is_called_when_the_runtime_of_the_client_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let cluster = Cluster::new(3);
    let guard = runtime.block_on(async { held(&cluster.builder().connect().await.unwrap(), "a").await });
    let before = told(&guard);
    drop(runtime);
    assert!(matches!(before.try_recv(), Ok(Loss::RuntimeEnded)));
    assert!(matches!(told(&guard).try_recv(), Ok(Loss::RuntimeEnded)), "and at once after that");
}

#[cfg(feature = "tokio-util")]
#[tokio::test(start_paused = true)]
async fn a_token_is_cancelled_by_a_loss_and_when_the_lock_is_given_up() {
    let (cluster, redlock) = renewing(3).await;
    let (lost, released) = (held(&redlock, "a").await, held(&redlock, "b").await);
    let tokens = [lost.loss_token(), lost.lease().loss_token(), released.loss_token(), released.loss_token()];
    assert!(timeout(secs(60), tokens[0].cancelled()).await.is_err(), "it is renewed");
    for instance in cluster.instances() {
        instance.remove("a");
    }
    sleep(ms(200)).await;
    assert_eq!(tokens.each_ref().map(|token| token.is_cancelled()), [true, true, false, false]);
    tokens[2].cancel();
    assert!(released.is_valid(), "a token that is cancelled ends no lock");
    released.release().await.unwrap();
    settle().await;
    assert!(tokens[3].is_cancelled());
}

#[cfg(feature = "tokio-util")]
#[test]
fn a_token_is_cancelled_when_the_runtime_of_the_client_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let cluster = Cluster::new(3);
    let guard = runtime.block_on(async { held(&cluster.builder().connect().await.unwrap(), "a").await });
    let before = guard.loss_token();
    assert!(!before.is_cancelled());
    drop(runtime);
    assert!(before.is_cancelled() && guard.loss_token().is_cancelled());
}
