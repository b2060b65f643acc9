//! The replies to one round. The connections put them in, and the round takes them out.
//!
//! The task of the round is woken when it may be decided, not by each reply. As long as instances grant, only two replies wake it: the
//! one that makes the quorum, and the last of all. A refusal wakes it, and so does each reply after that: by them it shows how
//! long a silent instance is waited for (P31). So does a repair, which says that the key was missing (P20).

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use crate::clock::Clock;
use crate::instance::TakesReplies;
use crate::protocol::{InstanceId, InstanceSet, Quorum, Reply, Round};

/// The ballot of a round.
pub(super) struct Ballot {
    quorum: Quorum,
    state: Mutex<State>,
}

struct State {
    /// What has come, and the round has not recorded yet.
    came: Vec<(InstanceId, Reply)>,
    outstanding: InstanceSet,
    grants: usize,
    /// How many will not grant, those included that got no request.
    others: usize,
    /// Whether each further reply wakes the round.
    wakes_for_each: bool,
    waker: Option<Waker>,
    /// What takes the replies of these instances instead.
    successor: Option<(InstanceSet, Arc<dyn TakesReplies>)>,
}

impl Ballot {
    /// For the replies of `targets`.
    pub(super) fn new(quorum: Quorum, targets: InstanceSet) -> Arc<Self> {
        let state = State {
            came: Vec::with_capacity(targets.len()),
            outstanding: targets,
            grants: 0,
            others: quorum.instances().saturating_sub(targets.len()),
            wakes_for_each: false,
            waker: None,
            successor: None,
        };
        Arc::new(Self { quorum, state: Mutex::new(state) })
    }

    /// Records what has come in `round`, as of now; whether anything has. With a context its task is woken for what comes next.
    pub(super) fn take_out(&self, round: &mut Round, clock: &dyn Clock, context: Option<&Context<'_>>) -> bool {
        let mut state = self.lock();
        let former = context.and_then(|context| match &state.waker {
            Some(waker) if waker.will_wake(context.waker()) => None,
            _ => state.waker.replace(context.waker().clone()),
        });
        let any = !state.came.is_empty();
        if any {
            let now = clock.now();
            state.came.drain(..).for_each(|(id, reply)| round.record(id, reply, now));
        }
        drop(state);
        drop(former); // foreign code
        any
    }

    /// The instances whose replies are still to come in here.
    pub(super) fn outstanding(&self) -> InstanceSet {
        self.lock().outstanding()
    }

    /// Leaves the replies of these instances to `successor`. Called once.
    pub(super) fn leave_to(&self, instances: InstanceSet, successor: Arc<dyn TakesReplies>) {
        let mut state = self.lock();
        let (left, came) = take(&mut state.came).into_iter().partition(|(id, _)| instances.contains(*id));
        state.came = came;
        state.successor = Some((instances, Arc::clone(&successor)));
        drop(state);
        let left: Vec<(InstanceId, Reply)> = left;
        left.into_iter().for_each(|(id, reply)| Arc::clone(&successor).take(id, 0, reply));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakesReplies for Ballot {
    fn take(self: Arc<Self>, id: InstanceId, number: usize, reply: Reply) {
        let mut state = self.lock();
        if !state.outstanding.contains(id) {
            return;
        }
        state.outstanding.remove(id);
        if let Some((instances, successor)) = &state.successor
            && instances.contains(id)
        {
            let successor = Arc::clone(successor);
            drop(state);
            return successor.take(id, number, reply);
        }
        let wakes = state.count(&reply, self.quorum);
        state.came.push((id, reply));
        let waker = if wakes { state.waker.take() } else { None };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn outstanding(&self) -> InstanceSet {
        let left = self.successor.as_ref().map(|(instances, _)| *instances);
        self.outstanding.without(left.unwrap_or_default())
    }

    /// Counts a reply; whether the round is to be woken.
    fn count(&mut self, reply: &Reply, quorum: Quorum) -> bool {
        let is_granted = matches!(reply, Reply::Granted | Reply::Repaired);
        self.grants += usize::from(is_granted);
        self.others += usize::from(!is_granted);
        self.wakes_for_each |= matches!(reply, Reply::Refused(_)) || quorum.is_out_of_reach(self.others);
        let is_quorum = is_granted && self.grants == quorum.votes();
        self.wakes_for_each || is_quorum || self.outstanding().is_empty() || matches!(reply, Reply::Repaired)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::clock::SystemClock;
    use crate::protocol::{Cause, Refusal};

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether each of these replies, of one instance after the other, wakes the round.
    fn wakes(replies: &[Reply]) -> Vec<bool> {
        let (quorum, woken) = (Quorum::majority(replies.len()).unwrap(), Arc::<Counted>::default());
        let ballot = Ballot::new(quorum, InstanceSet::first(replies.len()));
        let mut round = Round::release(quorum, SystemClock.now());
        let waker = Waker::from(Arc::clone(&woken));
        let mut wakes = Vec::new();
        for (id, reply) in InstanceId::all(replies.len()).zip(replies) {
            ballot.take_out(&mut round, &SystemClock, Some(&Context::from_waker(&waker)));
            let before = woken.0.load(Ordering::Relaxed);
            Arc::clone(&ballot).take(id, 0, reply.clone());
            wakes.push(woken.0.load(Ordering::Relaxed) > before);
        }
        ballot.take_out(&mut round, &SystemClock, None);
        assert!(round.replies().iter().all(Option::is_some) && ballot.outstanding().is_empty());
        wakes
    }

    #[test]
    fn a_round_is_woken_when_it_may_be_decided() {
        let (granted, refused) = (Reply::Granted, Reply::Refused(Refusal::default()));
        let down = Reply::NotSent(Cause::Silent);
        let all = |reply: &Reply| vec![reply.clone(); 5];
        assert_eq!(wakes(&all(&granted)), [false, false, true, false, true]);
        assert_eq!(wakes(&all(&refused)), vec![true; 5]);
        assert_eq!(wakes(&all(&down)), [false, false, true, true, true]);
        let mut replies = all(&granted);
        replies[0] = down;
        assert_eq!(wakes(&replies), [false, false, false, true, true]);
        replies[0] = refused;
        assert_eq!(wakes(&replies), [true; 5]);
        replies[0] = Reply::Repaired;
        assert_eq!(wakes(&replies), [true, false, true, false, true]);
    }

    /// What takes the place of a round.
    #[derive(Default)]
    struct Successor(Mutex<Vec<usize>>);

    impl TakesReplies for Successor {
        fn take(self: Arc<Self>, id: InstanceId, _: usize, _: Reply) {
            self.0.lock().unwrap().push(id.index());
        }
    }

    #[test]
    fn what_is_left_to_a_successor_comes_there_once_and_however_early_it_came() {
        let quorum = Quorum::majority(5).unwrap();
        let ballot = Ballot::new(quorum, InstanceSet::first(5));
        let mut round = Round::release(quorum, SystemClock.now());
        let put = |index| Arc::clone(&ballot).take(InstanceId::new(index), 0, Reply::Granted);
        put(0);
        ballot.take_out(&mut round, &SystemClock, None);
        put(1);
        let (left, successor) = (ballot.outstanding().without(InstanceSet::first(4)), Arc::<Successor>::default());
        ballot.leave_to(left.union(InstanceSet::first(2)), Arc::clone(&successor) as Arc<dyn TakesReplies>);
        assert_eq!(ballot.outstanding().len(), 2);
        for _ in 0..2 {
            (0..5).for_each(put);
        }
        assert_eq!(*successor.0.lock().unwrap(), [1, 4]);
        ballot.take_out(&mut round, &SystemClock, None);
        assert_eq!(round.granted().iter().map(InstanceId::index).collect::<Vec<_>>(), [0, 2, 3]);
    }
}
