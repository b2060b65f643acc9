//! P23: a holder that enters its lease again asks whether it still has it, on real servers.

use redquorum::{Holder, Loss};

use crate::support::{PATIENCE, builder_of, client_of, fleet_of, free_within, on_each_kind, ready};

#[test]
fn a_holder_that_was_granted_elsewhere_gets_a_larger_token_and_the_former_is_told_at_once() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let one = client_of(&fleet).await;
        let two = ready(builder_of(&fleet).label("elsewhere")).await;
        for released in [false, true] {
            let former = one.lock("a").holder(Holder::from("me")).try_acquire().await.unwrap();
            let elsewhere = two.lock("a").holder(Holder::from("me")).try_acquire().await.unwrap();
            let granted = elsewhere.fencing_token();
            if released {
                elsewhere.release().await.unwrap();
            } else {
                let _ = elsewhere.keep_until_expiry();
            }
            let again = one.lock("a").holder(Holder::from("me")).try_acquire().await.unwrap();
            assert!(again.fencing_token() > granted);
            assert!(!former.is_valid(), "it is known with the round");
            assert!(matches!(former.lost().await, Loss::ResumedElsewhere { .. } | Loss::Gone { .. }));
            drop(former);
            assert!(again.is_valid() && again.release().await.unwrap().was_still_held);
            free_within(PATIENCE, &fleet).await;
        }
    });
}

#[test]
fn a_lease_is_entered_again_and_shared() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = client_of(&fleet).await;
        let lock = |names: [&str; 2]| redlock.lock(names).holder(Holder::from("me"));
        let first = lock(["a", "b"]).try_acquire().await.unwrap();
        for _ in 0..20 {
            let token = first.fencing_token();
            let again = lock(["b", "a"]).try_acquire().await.unwrap();
            assert!(again.fencing_token() > token && first.fencing_token() == again.fencing_token());
        }
        let part = redlock.lock("b").holder(Holder::from("me")).try_acquire().await.unwrap();
        assert!(!first.is_valid() && matches!(first.lost().await, Loss::ResumedElsewhere { .. }));
        drop(first);
        assert!(part.release().await.unwrap().was_still_held);
        free_within(PATIENCE, &fleet).await;
    });
}
