//! Leases for the tests of the runtime.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{AfterLoss, HeldLease};
use crate::clock::{Clock, SystemClock};
use crate::instance::Claim;
use crate::protocol::{FencingToken, InstanceId, InstanceSet, Lease, LeaseTerms, Quorum, Reply, Round, Value};
use crate::resource::Resource;
use crate::runtime::counters::Counters;

#[derive(Debug)]
struct NoClient;

impl AfterLoss for NoClient {
    fn addresses(&self, _instances: InstanceSet) -> Vec<String> {
        Vec::new()
    }

    fn release_after_loss(&self, _held: &HeldLease) {}
}

/// What so many instances have just granted for a ttl.
pub(in crate::runtime) fn won(instances: usize, ttl: Duration) -> Arc<HeldLease> {
    won_and_counted(instances, ttl, &Arc::default())
}

/// The same, whose loss is counted there.
pub(in crate::runtime) fn won_and_counted(instances: usize, ttl: Duration, counters: &Arc<Counters>) -> Arc<HeldLease> {
    let (terms, now, token) = (LeaseTerms::new(ttl, 0).unwrap(), SystemClock.now(), FencingToken::propose(1, None));
    let mut round = Round::acquire(Quorum::majority(instances).unwrap(), terms, now);
    for id in InstanceId::all(instances) {
        round.on_reply(id, Reply::Granted, now);
    }
    let claim = Claim::new(Resource::new(b"", b"a").unwrap(), Value::from_wire(b"v"), token, ttl);
    let claim = Arc::new(Claim { is_first: true, ..claim });
    let lease = Lease::from_won(&mut round, terms, now).unwrap();
    Arc::new(HeldLease::new(lease, (claim, token), "me".into(), Weak::<NoClient>::new(), Arc::clone(counters)))
}
