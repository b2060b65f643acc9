//! Releases in the background: sent at once, repeated until every instance has answered or the ttl has
//! passed (P5, P6, P7).

use std::rc::Rc;

use redquorum::protocol::{FencingToken, InstanceId, InstanceSet, Instant, LeaseTerms};

use super::Ticket;
use crate::instance::{Request, Script};
use crate::mutants::Mutant;
use crate::reservation::Successors;
use crate::world::{Event, Sender, World};

#[derive(Debug)]
pub(crate) struct PendingRelease {
    id: u32,
    targets: InstanceSet,
    /// After this no instance can hold the key any more.
    until: Instant,
    request: Rc<Request>,
    pub(crate) ticket: Rc<Ticket>,
}

impl World {
    /// Sends a release to instances, again until all have answered.
    pub(super) fn release_in_background(
        &mut self,
        c: usize,
        ticket: &Rc<Ticket>,
        token: FencingToken,
        targets: InstanceSet,
        terms: LeaseTerms,
    ) {
        self.send_in_background(c, (Script::Release, None), (ticket, token, terms), targets);
    }

    /// The same for a lease that somebody may wait for: then it is named as the successor (P26).
    pub(super) fn let_go_in_background(
        &mut self,
        c: usize,
        ticket: &Rc<Ticket>,
        token: FencingToken,
        targets: InstanceSet,
        terms: LeaseTerms,
    ) {
        let successors = self.successors_of(c, ticket);
        let script = if successors.is_some() { Script::PassOn } else { Script::Release };
        self.send_in_background(c, (script, successors), (ticket, token, terms), targets);
    }

    /// The same for a try that was not won (P23).
    pub(super) fn give_back_in_background(
        &mut self,
        c: usize,
        ticket: &Rc<Ticket>,
        token: FencingToken,
        targets: InstanceSet,
        terms: LeaseTerms,
    ) {
        let script = if ticket.value.holder_prefix().is_empty() { Script::Release } else { Script::GiveBack };
        self.send_in_background(c, (script, None), (ticket, token, terms), targets);
    }

    fn send_in_background(
        &mut self,
        c: usize,
        (script, successors): (Script, Option<Rc<Successors>>),
        (ticket, token, terms): (&Rc<Ticket>, FencingToken, LeaseTerms),
        targets: InstanceSet,
    ) {
        let request = Rc::new(Request {
            note: None,
            script,
            keys: ticket.keys,
            value: ticket.value.clone(),
            token,
            ttl_ms: u64::try_from(terms.ttl().as_millis()).unwrap_or(0),
            resent: ticket.resent.get(),
            successors,
            is_first: false,
            companion: None,
        });
        let id = self.fresh_id();
        let until = self.client_now(c).saturating_add(terms.ttl() + terms.drift());
        self.clients[c].pending_releases.push(PendingRelease { id, targets, until, request, ticket: ticket.clone() });
        if targets.is_empty() {
            return self.on_released(c, id);
        }
        self.resend_release(c, id);
        self.forget_successors(c, id);
    }

    /// Whoever was named may not wait any more when a release is sent again.
    fn forget_successors(&mut self, c: usize, release: u32) {
        if let Some(release) = self.clients[c].pending_releases.iter_mut().find(|known| known.id == release)
            && release.request.script == Script::PassOn
        {
            let plain = Request { script: Script::Release, successors: None, ..Request::clone(&release.request) };
            release.request = Rc::new(plain);
        }
    }

    /// Sends a release to everybody who has not answered it.
    pub(crate) fn resend_release(&mut self, c: usize, release: u32) {
        let Some(at) = self.clients[c].pending_releases.iter().position(|known| known.id == release) else { return };
        let PendingRelease { targets, until, ref request, ref ticket, .. } = self.clients[c].pending_releases[at];
        let (request, ticket) = (request.clone(), ticket.clone());
        if self.client_now(c) >= until {
            self.clients[c].pending_releases.swap_remove(at);
            self.clients[c].over.retain(|over| over.id != ticket.id);
            return self.stop_relying(c, ticket.id);
        }
        for id in targets.iter() {
            let _ = self.send(c, id.index(), Sender::Release(release), &request, Some(&ticket));
        }
        let after = self.clients[c].clock.true_span(self.scenario.timeout);
        self.schedule(after, Event::ResendRelease { c, release });
    }

    pub(crate) fn on_release_answered(&mut self, c: usize, id: InstanceId, release: u32) {
        let Some(release) = self.clients[c].pending_releases.iter_mut().find(|known| known.id == release) else {
            return;
        };
        release.targets.remove(id);
        if release.targets.is_empty() {
            let id = release.id;
            self.on_released(c, id);
        }
    }

    fn on_released(&mut self, c: usize, release: u32) {
        let Some(at) = self.clients[c].pending_releases.iter().position(|known| known.id == release) else { return };
        let release = self.clients[c].pending_releases.swap_remove(at);
        if !self.is(Mutant::FailedExtendDeletes) {
            release.ticket.released.set(true);
        }
        self.stop_relying(c, release.ticket.id);
    }

    /// A new connection: the releases that are pending there are sent first.
    pub(crate) fn resend_releases(&mut self, c: usize, id: InstanceId) {
        for at in 0..self.clients[c].pending_releases.len() {
            let release = &self.clients[c].pending_releases[at];
            if release.targets.contains(id) {
                let (sender, request, ticket) =
                    (Sender::Release(release.id), release.request.clone(), release.ticket.clone());
                let _ = self.send(c, id.index(), sender, &request, Some(&ticket));
            }
        }
    }
}
