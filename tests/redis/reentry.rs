//! P23: a holder enters its lease again, on real servers.

use redquorum::Holder;

use crate::support::{PATIENCE, builder_of, client_of, fleet_of, free_within, on_each_kind, ready};

#[test]
fn a_lease_is_entered_again_and_shared_in_its_client_alone() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        let elsewhere = ready(builder_of(&fleet).label("elsewhere")).await;
        let lock = || redlock.lock("a").holder(Holder::from("me"));
        let first = lock().try_acquire().await.unwrap();
        let sent = redlock.stats().acquire_rounds;
        let guards: Vec<_> = (0..20).map(|_| lock().try_acquire()).collect();
        for again in guards {
            let again = again.await.unwrap();
            assert_eq!(again.fencing_token(), first.fencing_token());
            assert!(again.release().await.unwrap().was_still_held);
        }
        assert_eq!(redlock.stats().acquire_rounds, sent);
        let refused = elsewhere.lock("a").holder(Holder::from("me")).try_acquire().await;
        assert!(refused.unwrap_err().is_contended());
        assert!(first.is_valid() && first.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet).await;
    });
}
