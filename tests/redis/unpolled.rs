//! P22: futures that nobody polls do not stop the client.

use std::task::{Context, Poll, Waker};

use redquorum_testkit::{Fleet, Program};
use tokio::time::timeout;

use crate::support::{PATIENCE, beside_others, builder_of, fleet_of, free_within, held, on_each_kind, pair, ready};

/// As many as commands that one connection has on their way at once, and more.
const UNPOLLED: usize = 9;

/// Counter-example: a command gave its place in the connection's queue back only when its caller polled.
/// Four acquires in a `select!` whose other branch was busy stopped every other operation of the client.
async fn others_go_on(fleet: &Fleet) {
    let redlock = ready(builder_of(fleet)).await;
    let before = redlock.lock_all(["before", "before:2"]).try_acquire().await.unwrap();
    let mut unpolled = Vec::new();
    for index in 0.. {
        let mut acquire = Box::pin(redlock.lock(format!("unpolled:{index}")).acquire());
        match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => unpolled.push(acquire),
            // The machine was so busy that the replies were there before the poll had returned: nothing is left to poll.
            Poll::Ready(guard) => assert!(guard.unwrap().release().await.unwrap().was_still_held),
        }
        if unpolled.len() == UNPOLLED {
            break;
        }
    }
    for round in 0..20 {
        pair(&redlock, &format!("polled:{round}")).await;
    }
    drop(held(&redlock, "dropped").await);
    assert!(before.release().await.unwrap().was_still_held);
    for acquire in unpolled {
        let guard = timeout(PATIENCE, acquire).await.unwrap().unwrap();
        assert!(guard.release().await.unwrap().was_still_held);
    }
    free_within(PATIENCE, fleet).await;
    assert_eq!(redlock.shutdown(PATIENCE).await, Ok(Vec::new()));
}

#[test]
fn acquires_that_nobody_polls_do_not_stop_others() {
    on_each_kind(async |program| others_go_on(&fleet_of(&program, 3)).await);
}

#[test]
fn acquires_that_nobody_polls_do_not_stop_others_on_a_single_thread() {
    let _shared = beside_others();
    for program in Program::all_required().unwrap() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fleet = fleet_of(&program, 3);
        runtime.block_on(others_go_on(&fleet));
    }
}
