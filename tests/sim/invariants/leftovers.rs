//! A round that is over and released leaves no key behind, and none appears later (P5, P6, P7).
//!
//! Not promised: on an instance that has lost its data or its tokens (the bar of a release was among
//! them), and for a lease whose extend was left without an answer (it may arrive after the release; its key
//! then stays for one ttl at most and gives nobody a vote).

use std::rc::Rc;

use super::key_life::Ends;
use crate::client::Ticket;
use crate::instance::{Answer, Companion, Request, Script, Store, keys};
use crate::world::World;

const NAME: &str = "a round that is over leaves no key";

impl World {
    /// A script set a key of a round that was over.
    pub(super) fn check_late_set(&mut self, i: usize, request: &Request, ticket: &Ticket, answer: &Answer) {
        let marked = |store: &Store, key: usize| store.has_mark(request, key);
        let sets = match (request.script, answer) {
            (Script::Acquire, Answer::Granted) => true,
            // The mark may be gone with a later grant: then the extend sets a key that gives nobody a vote.
            (Script::Extend, Answer::Repaired) => keys(request.keys).any(|key| marked(&self.servers[i].store, key)),
            _ => false,
        };
        if sets && ticket.released.get() && !self.servers[i].has_lost_marks() {
            self.violate(NAME, format!("instance {i} set a key of round {} after its release", ticket.id));
        }
    }

    /// A plain command set a key of a round that was over. Where the former connection is ended first none does (P28);
    /// where the right to that is missing one may, over a connection that broke: such a key runs out.
    pub(super) fn check_late_command(&mut self, (c, i, epoch): (usize, usize, u32), claim: &Companion, before: Ends) {
        let sets = self.own_ends(i, &claim.request) != before;
        if !sets {
            return;
        }
        if !self.scenario.ends_former && self.link(c, i).epoch != epoch {
            return claim.ticket.late_extend.set(true);
        }
        if claim.ticket.released.get() && !self.servers[i].has_lost_marks() {
            self.violate(NAME, format!("instance {i} set a key of round {} after its release", claim.ticket.id));
        }
    }

    /// The client has no pending release: then nothing of it may be left.
    pub(crate) fn check_paid_up(&mut self, c: usize) {
        if !self.clients[c].pending_releases.is_empty() || self.clients[c].held.is_some() {
            return;
        }
        let over = std::mem::take(&mut self.clients[c].over);
        for ticket in &over {
            if !ticket.late_extend.get() {
                self.check_ticket(ticket);
            }
        }
    }

    fn check_ticket(&mut self, ticket: &Ticket) {
        for i in 0..self.servers.len() {
            let now_ms = self.server_ms(i);
            let server = &self.servers[i];
            let own =
                |key: usize| server.store.lock(now_ms, key).is_some_and(|lock| Rc::ptr_eq(&lock.value, &ticket.value));
            if server.up && !server.has_lost_marks() && keys(ticket.keys).any(own) {
                self.violate(NAME, format!("instance {i} holds a key of round {}", ticket.id));
            }
        }
    }
}
