//! Releases that are owed: sent at once, repeated until every instance has answered or the ttl has
//! passed (P5, P6, P7).

use std::rc::Rc;

use redquorum::protocol::{FencingToken, InstanceId, InstanceSet, Instant, Terms};

use super::Ticket;
use crate::instance::{Request, Script};
use crate::mutants::Mutant;
use crate::world::{Event, Sender, World};

#[derive(Debug)]
pub(crate) struct Debt {
    id: u32,
    owed: InstanceSet,
    /// After this no instance can hold the key any more.
    until: Instant,
    request: Rc<Request>,
    pub(crate) ticket: Rc<Ticket>,
}

impl World {
    /// Owes a release to instances and sends it to all of them.
    pub(super) fn owe(&mut self, c: usize, ticket: &Rc<Ticket>, token: FencingToken, owed: InstanceSet, terms: Terms) {
        self.owe_by(c, Script::Release, (ticket, token, terms), owed);
    }

    /// The same for a try that was not won (P23).
    pub(super) fn owe_back(
        &mut self,
        c: usize,
        ticket: &Rc<Ticket>,
        token: FencingToken,
        owed: InstanceSet,
        terms: Terms,
    ) {
        let script = if ticket.value.holder_prefix().is_empty() { Script::Release } else { Script::GiveBack };
        self.owe_by(c, script, (ticket, token, terms), owed);
    }

    fn owe_by(
        &mut self,
        c: usize,
        script: Script,
        (ticket, token, terms): (&Rc<Ticket>, FencingToken, Terms),
        owed: InstanceSet,
    ) {
        let request = Rc::new(Request {
            note: None,
            script,
            keys: ticket.keys,
            value: ticket.value.clone(),
            token,
            ttl_ms: u64::try_from(terms.ttl().as_millis()).unwrap_or(0),
            retention_ms: 86_400_000,
            resent: ticket.resent.get(),
        });
        let id = self.fresh_id();
        let until = self.client_now(c).saturating_add(terms.ttl() + terms.drift());
        self.clients[c].debts.push(Debt { id, owed, until, request, ticket: ticket.clone() });
        if owed.is_empty() {
            return self.on_all_paid(c, id);
        }
        self.pay_debt(c, id);
    }

    /// Sends a release to everybody who has not answered it.
    pub(crate) fn pay_debt(&mut self, c: usize, debt: u32) {
        let Some(at) = self.clients[c].debts.iter().position(|known| known.id == debt) else { return };
        let Debt { owed, until, ref request, ref ticket, .. } = self.clients[c].debts[at];
        let (request, ticket) = (request.clone(), ticket.clone());
        if self.client_now(c) >= until {
            self.clients[c].debts.swap_remove(at);
            self.clients[c].over.retain(|over| over.id != ticket.id);
            return self.stop_relying(c, ticket.id);
        }
        for id in owed.iter() {
            let _ = self.send(c, id.index(), Sender::Debt(debt), &request, Some(&ticket));
        }
        let after = self.clients[c].clock.true_span(self.scenario.timeout);
        self.schedule(after, Event::PayDebt { c, debt });
    }

    pub(crate) fn on_paid(&mut self, c: usize, id: InstanceId, debt: u32) {
        let Some(debt) = self.clients[c].debts.iter_mut().find(|known| known.id == debt) else { return };
        debt.owed.remove(id);
        if debt.owed.is_empty() {
            let id = debt.id;
            self.on_all_paid(c, id);
        }
    }

    fn on_all_paid(&mut self, c: usize, debt: u32) {
        let Some(at) = self.clients[c].debts.iter().position(|known| known.id == debt) else { return };
        let debt = self.clients[c].debts.swap_remove(at);
        if !self.is(Mutant::FailedExtendDeletes) {
            debt.ticket.paid.set(true);
        }
        self.stop_relying(c, debt.ticket.id);
    }

    /// A new connection: what is owed there is paid first.
    pub(crate) fn resend_debts(&mut self, c: usize, id: InstanceId) {
        for at in 0..self.clients[c].debts.len() {
            let debt = &self.clients[c].debts[at];
            if debt.owed.contains(id) {
                let (sender, request, ticket) = (Sender::Debt(debt.id), debt.request.clone(), debt.ticket.clone());
                let _ = self.send(c, id.index(), sender, &request, Some(&ticket));
            }
        }
    }
}
