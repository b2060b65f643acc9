//! What must hold in every run, one file each.

mod all_or_nothing;
mod fencing_order;
mod key_life;
mod leftovers;
mod line;
mod lost_lease;
mod mutual_exclusion;
mod progress;
mod reservation;

use std::rc::Rc;

use redquorum::protocol::{FencingToken, Value};

use crate::client::Ticket;
use crate::instance::{Answer, Companion, RESOURCES, Request};
use crate::world::World;
use key_life::Ends;

/// What the invariants remember of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The largest token of a won round, for each resource.
    highest: [Option<FencingToken>; RESOURCES],
    /// The same for the holder that several clients are.
    highest_of_holder: [Option<FencingToken>; RESOURCES],
    /// The longest ttl that was asked for.
    longest_ttl_ms: u64,
    pub(crate) probe_won: bool,
    pub(crate) probe_repeats: usize,
    pub(crate) probe_prolonged: bool,
}

impl World {
    /// After each script.
    pub(crate) fn check_instance(&mut self, i: usize, request: &Request, ticket: &Ticket, answer: &Answer) {
        self.check_all_or_nothing(i, request);
        self.check_key_life(i, request);
        self.check_late_set(i, request, ticket, answer);
    }

    /// After each command of a plain acquire, for each of those that share it.
    pub(crate) fn check_command(
        &mut self,
        (c, i, epoch): (usize, usize, u32),
        claim: &Companion,
        before: Ends,
        reserved: &[(usize, Rc<Value>)],
    ) {
        self.check_key_life(i, &claim.request);
        self.check_late_command((c, i, epoch), claim, before);
        self.check_nothing_shortened(i, &claim.request, before);
        self.check_reservations(i, &claim.request, reserved);
    }

    /// After each won acquire.
    pub(crate) fn check_win(&mut self, c: usize) {
        self.check_won_in_time(c);
        self.check_fencing_order(c); // notes the largest token
        self.note_succession(c);
        self.check_mutual_exclusion(c);
    }

    /// After each extend that was decided as won.
    pub(crate) fn check_extended(&mut self, c: usize, was_valid: bool, was_until: redquorum::protocol::Instant) {
        self.check_never_revived(c, was_valid, was_until);
        self.check_mutual_exclusion(c);
    }
}
