//! What this client has let go of one lock: it is released on each instance until that has confirmed it, or the keys have expired (P6).

use std::sync::Arc;
use std::time::Duration;

use super::cx::{Cx, Deed, RoundNumber};
use crate::instance::{Claim, Wake};
use crate::protocol::{Cause, InstanceId, InstanceSet, Instant, Reply};
use crate::runtime::ballot::Ballot;

/// How long the release of a lost try waits for the reply that makes it needless; then it is sent behind the try.
const TRY_PATIENCE: Duration = Duration::from_millis(5);

/// So many releases are sent to an instance ahead of the next acquire: one that refuses them all keeps no client busy with
/// thousands of them, and has the value of one of them at most.
const MOST_AHEAD: usize = 16;

/// In the order in which they were begun.
#[derive(Default)]
pub(super) struct Releases(Vec<Release>);

struct Release {
    number: RoundNumber,
    claim: Arc<Claim>,
    /// The instances that have not confirmed it.
    pending: InstanceSet,
    /// Those of them that it is on its way to.
    sent: InstanceSet,
    /// Those of them whose reply to a lost try may show that there is nothing to release; and until when that is waited for.
    for_try: InstanceSet,
    try_until: Instant,
    /// From then on the keys have expired by themselves.
    expires_at: Instant,
    /// Where the replies go too, if a caller waits for them.
    ballot: Option<Arc<Ballot>>,
    /// Those to which it was sent once more, as they had lost their scripts.
    repeated: InstanceSet,
}

/// What becomes of the releases that an instance has not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// They are sent again.
    Send,
    /// It cannot be reached: those whose keys have expired end.
    Wait,
    /// There are too many: the keys stay there until they expire.
    GiveUp,
}

impl Release {
    fn new(claim: Arc<Claim>, pending: InstanceSet, cx: &mut Cx<'_>) -> Self {
        cx.client.pending.begin(pending);
        // Twice the ttl: no clock is off by that much.
        let expires_at = cx.now.saturating_add(claim.ttl.saturating_mul(2));
        let (number, none) = (cx.next_number(), InstanceSet::default());
        let (sent, for_try, try_until, ballot, repeated) = (none, none, cx.now, None, none);
        Self { number, claim, pending, sent, for_try, try_until, expires_at, ballot, repeated }
    }

    /// Those to which it is to be sent, now or later.
    fn unsent(&self) -> InstanceSet {
        self.pending.without(self.sent)
    }

    fn send(&mut self, to: InstanceSet, wakes: Option<Arc<[Wake]>>, cx: &mut Cx<'_>) {
        if !to.is_empty() {
            self.sent = self.sent.union(to);
            self.for_try = self.for_try.without(to);
            cx.deeds.push(Deed::Release(Arc::clone(&self.claim), to, self.number, wakes));
        }
    }

    /// It goes as one that may come late (P7): what sets its keys may still arrive.
    fn send_again(&mut self, to: InstanceSet, cx: &mut Cx<'_>) {
        if !self.claim.resent {
            self.claim = Arc::new(Claim { resent: true, ..Claim::clone(&self.claim) });
        }
        self.send(to, None, cx);
    }

    /// It is over on these.
    fn end(&mut self, on: InstanceSet, cx: &Cx<'_>) {
        let before = self.pending;
        self.pending = before.without(on);
        self.for_try = self.for_try.without(on);
        cx.client.pending.end(before, self.pending);
    }
}

impl Releases {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a release, behind which `wakes` are published. The replies go to `ballot` too, if the caller waits for them.
    pub(super) fn send(
        &mut self,
        (claim, wakes): (Arc<Claim>, Option<Arc<[Wake]>>),
        targets: InstanceSet,
        ballot: Option<Arc<Ballot>>,
        cx: &mut Cx<'_>,
    ) {
        if targets.is_empty() {
            return;
        }
        let mut release = Release { ballot, ..Release::new(claim, targets, cx) };
        release.send(targets, wakes, cx);
        self.0.push(release);
    }

    /// The release of an attempt that is lost, on those of `instances` where no reply to it shows that it set no key. Gives its number.
    pub(super) fn send_after_replies(
        &mut self,
        claim: Arc<Claim>,
        instances: InstanceSet,
        cx: &mut Cx<'_>,
    ) -> RoundNumber {
        let release = Release::new(claim, instances, cx);
        let number = release.number;
        self.0.push(Release { for_try: instances, try_until: cx.now.saturating_add(TRY_PATIENCE), ..release });
        number
    }

    /// The reply to a lost try has come.
    pub(super) fn take_reply_to_try(&mut self, number: RoundNumber, id: InstanceId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(at) = self.find(number) else { return };
        let Some(release) = self.0.get_mut(at).filter(|release| release.for_try.contains(id)) else { return };
        if matches!(reply, Reply::Refused(_) | Reply::NotSent(_)) {
            release.end(InstanceSet::only(id), cx);
        } else {
            release.send(InstanceSet::only(id), None, cx);
        }
        self.tidy(at);
    }

    /// Keys that earlier attempts may have left are released now, ahead of the request of this claim, which is sent next: the newest of
    /// them, and all of its own value, which a lease that was moved may have (P32).
    pub(super) fn send_ahead(&mut self, claim: &Claim, cx: &mut Cx<'_>) {
        if self.0.iter().all(|release| release.unsent().is_empty()) {
            return; // as it is as a rule
        }
        let is_reachable = |id: InstanceId| {
            let instance = cx.client.instances.get(id.index());
            instance.is_some_and(|instance| instance.obstacle().is_none())
        };
        let all = cx.client.all_instances();
        let unreachable: InstanceSet = all.iter().filter(|id| !is_reachable(*id)).collect();
        let mut left = vec![[MOST_AHEAD; 2]; all.len()];
        let mut ahead: Vec<(usize, InstanceSet, InstanceSet)> = Vec::new();
        for (at, release) in self.0.iter().enumerate().rev() {
            let is_own = release.claim.value == claim.value;
            let mut goes = |of: InstanceSet, kind: usize| -> InstanceSet {
                let has_room = |id: &InstanceId| match left.get_mut(id.index()).and_then(|left| left.get_mut(kind)) {
                    Some(0) | None => is_own,
                    Some(left) => {
                        *left -= 1;
                        true
                    }
                };
                of.iter().filter(has_room).collect()
            };
            let first = goes(release.for_try, 0);
            let again = goes(release.unsent().without(release.for_try).without(unreachable), 1);
            if !first.is_empty() || !again.is_empty() {
                ahead.push((at, first, again));
            }
        }
        for (at, first, again) in ahead.into_iter().rev() {
            if let Some(release) = self.0.get_mut(at) {
                release.send(first, None, cx);
                if !again.is_empty() {
                    release.send_again(again, cx);
                }
            }
        }
    }

    /// Whether this reply is to one of them: then it is taken in.
    pub(super) fn take(&mut self, number: RoundNumber, id: InstanceId, reply: &Reply, cx: &mut Cx<'_>) -> bool {
        let Some(at) = self.find(number) else { return false };
        let Some(release) = self.0.get_mut(at) else { return false };
        let only = InstanceSet::only(id);
        release.sent = release.sent.without(only);
        let is_repeated = release.ballot.is_none() || release.repeated.contains(id);
        if matches!(reply, Reply::NotSent(Cause::ScriptMissing)) && !is_repeated {
            // The scripts are on their way there again.
            release.repeated.insert(id);
            release.send(only, None, cx);
            return true;
        }
        let woken = release.ballot.as_ref().and_then(|ballot| ballot.put(id, reply.clone()));
        cx.deeds.extend(woken.map(Deed::Wake));
        let is_confirmed = matches!(reply, Reply::Granted | Reply::Refused(_)); // gone or foreign is as good
        if is_confirmed {
            release.end(only, cx);
        } else {
            cx.deeds.push(Deed::RetryLater(id, release.expires_at));
        }
        self.tidy(at);
        true
    }

    /// What the instance has not confirmed is sent again, or ends; how many were sent.
    pub(super) fn retry(&mut self, id: InstanceId, retry: Retry, cx: &mut Cx<'_>) -> usize {
        let (only, mut count) = (InstanceSet::only(id), 0);
        for release in self.0.iter_mut().filter(|release| release.unsent().without(release.for_try).contains(id)) {
            if retry == Retry::GiveUp || cx.now >= release.expires_at {
                release.end(only, cx);
            } else if retry == Retry::Send {
                release.send_again(only, cx);
                count += 1;
            }
        }
        self.0.retain(|release| !release.pending.is_empty());
        count
    }

    /// Sends what has waited for long enough for the replies to lost tries.
    pub(super) fn end_patience(&mut self, cx: &mut Cx<'_>) {
        for release in &mut self.0 {
            if !release.for_try.is_empty() && cx.now >= release.try_until {
                release.send(release.for_try, None, cx);
            }
        }
    }

    /// When something is to be sent next.
    pub(super) fn due(&self) -> Option<Instant> {
        let waits = self.0.iter().filter(|release| !release.for_try.is_empty());
        waits.map(|release| release.try_until).min()
    }

    fn find(&self, number: RoundNumber) -> Option<usize> {
        self.0.binary_search_by_key(&number, |release| release.number).ok()
    }

    fn tidy(&mut self, at: usize) {
        if self.0.get(at).is_some_and(|release| release.pending.is_empty()) {
            self.0.remove(at);
        }
    }
}
