//! P32: a lease is moved by its value, on real servers.

use redquorum::{DetachedLease, ExtendError, Renewal};
use tokio::time::timeout;

use crate::support::{PATIENCE, all_have, builder_of, eventually, fleet_of, free_within, held, on_each_kind, ready};

/// As a process does that stores it, and is started again: nothing of the former client is left.
fn stored(lease: &DetachedLease) -> DetachedLease {
    serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap()
}

#[test]
fn a_lease_outlives_its_client_and_goes_on_under_its_token() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let former = ready(builder_of(&fleet).renew(Renewal::Auto)).await;
        let other = ready(builder_of(&fleet)).await;
        let guard = held(&former, "a").await;
        let token = guard.fencing_token();
        let lease = stored(&guard.detach());
        former.shutdown(PATIENCE).await.unwrap();
        drop(former);
        assert!(other.lock("a").try_acquire().await.unwrap_err().is_contended());

        let restarted = ready(builder_of(&fleet).renew(Renewal::Auto)).await;
        let guard = restarted.attach(&lease).await.unwrap();
        assert_eq!(guard.fencing_token(), token);
        // A second attacher has it as well, until the first lets it go.
        let second = other.attach(&lease).await.unwrap();
        assert_eq!(second.fencing_token(), token);
        assert!(guard.is_valid() && guard.release().await.unwrap().was_still_held);
        assert!(timeout(PATIENCE, second.lost()).await.is_ok(), "it is watched from now on, or was told by then");
        drop(second);
        free_within(PATIENCE, &fleet).await;
        assert!(matches!(restarted.attach(&lease).await, Err(ExtendError::Lost { .. })));
        assert!(held(&restarted, "a").await.fencing_token() > token);
    });
}

#[test]
fn a_lease_that_no_quorum_has_is_not_set_again() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let redlock = ready(builder_of(&fleet)).await;
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || all_have(&fleet)).await);
        let lease = guard.detach();
        for server in &fleet[..2] {
            server.command(&["DEL", "a"]).unwrap();
        }
        let guard = redlock.attach(&lease).await.unwrap();
        assert!(fleet[..2].iter().all(|server| server.keys().unwrap().is_empty()), "it is not set by that");
        let lease = guard.detach();
        fleet[2].command(&["DEL", "a"]).unwrap();
        assert!(matches!(redlock.attach(&lease).await, Err(ExtendError::Lost { .. })));
        assert_eq!(fleet.iter().filter(|server| !server.keys().unwrap().is_empty()).count(), 2);
    });
}
