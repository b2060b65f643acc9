//! Order between clients: whoever is refused tells the client in its way, and a release names who waited longest
//! (P25, P26). Only a share of the runs has it, and only locks of one resource without a holder.

use std::rc::Rc;
use std::time::Duration;

use redquorum::protocol::{Announcement, CLIENT_ID_BYTES, ClientId, InstanceId, Message, Reply, Value, Waiter};

use super::Ticket;
use crate::instance::{Request, Script};
use crate::mutants::Mutant;
use crate::reservation::Successors;
use crate::world::{Event, Sender, World, tell};

/// Over how many of those that refused a client announces itself.
const RELAYS: usize = 2;

/// How a client is known to others.
pub(crate) fn client_id(c: usize) -> ClientId {
    let mut bytes = [0; CLIENT_ID_BYTES];
    bytes[CLIENT_ID_BYTES - 1] = u8::try_from(c).unwrap_or(u8::MAX);
    ClientId::new(bytes)
}

/// A key as messages name it.
fn name(key: usize) -> Vec<u8> {
    vec![b'a' + u8::try_from(key).unwrap_or(0)]
}

impl World {
    fn client_of(&self, id: ClientId) -> Option<usize> {
        (0..self.clients.len()).find(|c| client_id(*c) == id)
    }

    /// The resource of a round that can be waited for in order.
    fn ordered_key(&self, ticket: &Ticket) -> Option<usize> {
        let is_ordered =
            self.scenario.succession && ticket.keys.count_ones() == 1 && ticket.value.holder_prefix().is_empty();
        is_ordered.then(|| ticket.keys.trailing_zeros() as usize)
    }

    /// The keys that a client asks for next: those that it was woken for, if it was.
    pub(super) fn keys_to_ask_for(&mut self, c: usize) -> u8 {
        let now = self.client_now(c);
        self.clients[c].waiters.expire(now);
        let woken_for = self.clients[c].woken_for.take();
        let keys = woken_for.unwrap_or_else(|| self.draw_keys());
        let since = self.wall_us(c);
        for (key, waiting_since) in self.clients[c].waiting_since.iter_mut().enumerate() {
            let is_asked_for = keys & (1 << key) != 0;
            *waiting_since = waiting_since.or(Some(since)).filter(|_| is_asked_for);
        }
        keys
    }

    /// P25: tells those who are in the way of a round that it waits.
    pub(super) fn announce(&mut self, c: usize, at: usize) {
        let in_flight = &self.clients[c].rounds_in_flight[at];
        let Some(key) = self.ordered_key(&in_flight.ticket) else { return };
        let Some(ticket) = self.clients[c].waiting_since[key] else { return };
        let in_the_way =
            |(id, answer): (InstanceId, &Option<redquorum::protocol::TimedReply>)| match &answer.as_ref()?.reply {
                Reply::Refused(refusal) => Some((id, ClientId::of_value(refusal.value.as_deref()?)?)),
                _ => None,
            };
        let replies = in_flight.round.replies();
        let refusing: Vec<_> =
            InstanceId::all(replies.len()).zip(replies).filter_map(in_the_way).take(RELAYS).collect();
        let waiter = Waiter { ticket, client: client_id(c) };
        for (id, to) in refusing {
            self.relay(c, id.index(), to, Message::Waiting { waiter, forwarded: false, key: name(key) });
        }
    }

    /// Sends a message to another client by way of an instance.
    fn relay(&mut self, c: usize, i: usize, to: ClientId, message: Message) {
        let Some(to) = self.client_of(to).filter(|to| *to != c && self.link(c, i).up) else { return };
        self.stats.messages += 1;
        self.publish_later(c, i, to, message);
    }

    /// A message has come.
    pub(crate) fn on_message(&mut self, c: usize, i: usize, message: Message) {
        let now = self.client_now(c);
        tell!(self, "client {c} hears {message:?}");
        match message {
            Message::Waiting { waiter, forwarded, key } => {
                let announcement = self.clients[c].waiters.announce(&key, waiter, now);
                if let Announcement::Forward(to) = announcement
                    && !forwarded
                {
                    self.relay(c, i, to, Message::Waiting { waiter, forwarded: true, key });
                }
            }
            Message::Next { then, key } => {
                self.clients[c].waiters.inherit(&key, &then, now);
                let key = usize::from(key.first().map_or(0, |letter| letter - b'a'));
                self.on_woken(c, i, key);
            }
        }
    }

    /// An instance keeps a key for this client.
    fn on_woken(&mut self, c: usize, i: usize, key: usize) {
        let client = &self.clients[c];
        let waits = client.waiting_since[key].is_some() && client.held.is_none() && !client.stopping;
        if !waits {
            return self.decline(c, i, key);
        }
        if !client.is_acquiring() {
            self.clients[c].woken_for = Some(1 << key);
            self.begin_acquire(c);
        }
        if self.is(Mutant::WakeIsGrant) {
            self.count_wake(c, i);
        }
    }

    /// The planted bug.
    fn count_wake(&mut self, c: usize, i: usize) {
        let now = self.client_now(c);
        if let Some(in_flight) = self.clients[c].rounds_in_flight.last_mut() {
            let id = in_flight.id;
            in_flight.round.on_reply(InstanceId::new(i), Reply::Granted, now);
            self.decide(c, id);
        }
    }

    /// P26: who was woken for a wait that has ended gives way to the next at once.
    fn decline(&mut self, c: usize, i: usize, key: usize) {
        let successors = self.take_successors(c, key);
        let value = Rc::new(Value::from_wire(&client_id(c).reservation()));
        let script = Script::Decline;
        let request = Rc::new(Request { script, keys: 1 << key, value, successors, ..Request::clone(&self.blank) });
        let _ = self.send(c, i, Sender::Write, &request, None);
    }

    /// Who is named by the release of a round.
    pub(super) fn successors_of(&mut self, c: usize, ticket: &Ticket) -> Option<Rc<Successors>> {
        let key = self.ordered_key(ticket)?;
        self.take_successors(c, key)
    }

    fn take_successors(&mut self, c: usize, key: usize) -> Option<Rc<Successors>> {
        let now = self.client_now(c);
        let waiters = self.clients[c].waiters.take(&name(key), now);
        let clients: Vec<ClientId> = waiters.iter().map(|waiter| waiter.client).collect();
        let then = waiters.get(1..)?.to_vec();
        self.stats.passed_on += 1;
        let grace = Duration::from_nanos(self.scenario.timeout);
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(0).max(1);
        Some(Rc::new(Successors { clients, message: Message::Next { then, key: name(key) }, grace_ms }))
    }

    /// The wait is over: the lock is held here, and whoever waits for it is remembered.
    pub(super) fn end_wait(&mut self, c: usize, ticket: &Ticket) {
        if let Some(key) = self.ordered_key(ticket) {
            self.clients[c].waiters.hold(&name(key));
            self.clients[c].waiting_since[key] = None;
        }
    }

    /// The client that a release at an instance keeps the key for: the first that is connected there.
    pub(crate) fn heard_by(&self, i: usize, request: &Request) -> Option<ClientId> {
        let hears = |id: &ClientId| self.client_of(*id).is_some_and(|c| self.hears(c, i));
        request.successors.as_ref()?.clients.iter().copied().find(hears)
    }

    /// An instance has kept a key for a client, and tells it.
    pub(crate) fn wake_successor(&mut self, i: usize, request: &Request, heard_by: Option<ClientId>) {
        let (Some(to), Some(successors)) = (heard_by.and_then(|id| self.client_of(id)), &request.successors) else {
            return;
        };
        self.deliver(i, to, successors.message.clone());
    }

    /// A message arrives at its instance.
    pub(crate) fn on_published(&mut self, i: usize, to: usize, message: Message) {
        if self.hears(to, i) {
            self.deliver(i, to, message);
        }
    }

    fn deliver(&mut self, i: usize, to: usize, message: Message) {
        self.push_later(to, i, |epoch| Event::Message { c: to, i, epoch, message });
    }
}
