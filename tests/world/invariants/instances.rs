//! P7 to P12: what a request does to a key on one server.

use std::time::Duration;

use redquorum::FencingToken;
use redquorum::testing::simulation::{KeyState, Said, Step, StepKind};

use super::readers::{broken_beside_readers, broken_by_reader};
use crate::world::World;

/// No floor is further ahead than so: a quarantine, and what clocks are stepped by.
const MOST_FLOOR_AHEAD: Duration = Duration::from_secs(30);

/// Further ahead than what clients believe: a day less a minute, and what clocks may differ by and be stepped by.
const MOST_AHEAD: Duration = Duration::from_secs(24 * 60 * 60 - 50);

impl World {
    pub(crate) fn check_step(&self, server: usize, step: &Step) {
        let mut broken: Option<&'static str> = None;
        let is_own = |state: &KeyState| state.value.as_ref() == Some(&step.value);
        let (before, after) = (&step.before, &step.after);
        let is_others = |state: &KeyState| state.value.is_some() && !is_own(state);
        let is_denied = self.judge().denied(server, step).is_some();
        match step.kind {
            StepKind::Set | StepKind::Acquire | StepKind::Extend | StepKind::Keep => {
                if is_others(before) && after != before {
                    broken = Some("foreign keys stay"); // P8
                } else if is_own(before) && is_own(after) && after.end < before.end {
                    broken = Some("an end moves only forward"); // P9
                } else if step.kind != StepKind::Set && has_granted(step) && !is_own(after) {
                    broken = Some("what is granted is there"); // P2
                } else if has_granted(step) && after.end < Some(step.wall + step.ttl) {
                    broken = Some("what is granted is kept for its ttl"); // P2
                } else if step.kind == StepKind::Acquire && step.said == Said::No && !is_own(before) && is_own(after) {
                    broken = Some("what is refused sets nothing"); // P5
                } else if has_granted(step) && !step.is_known {
                    broken = Some("nothing is granted under another record"); // P14
                } else if has_granted(step) && !step.is_admitted && !is_own(before) {
                    broken = Some("in quarantine nothing is set"); // P10
                } else if is_left_missing(step) {
                    broken = Some("a missing key is set again"); // P10
                } else if step.said == Said::NotAdmitted && after != before {
                    broken = Some("who may not vote changes nothing"); // P14
                } else if step.kind != StepKind::Set
                    && before.value.is_none()
                    && is_own(after)
                    && step.before.is_released
                {
                    broken = Some("nothing is set behind its release"); // P6
                } else if has_granted(step) && step.token.is_some() && after.token.max(after.floor) < step.token {
                    broken = Some("what is granted leaves its token"); // P12
                } else if step.kind == StepKind::Acquire && has_granted(step) && step.token <= before.floor {
                    broken = Some("nothing is granted below what was forgotten"); // P13
                }
            }
            StepKind::Release => {
                if is_others(before) && (&after.value, after.end) != (&before.value, before.end) {
                    broken = Some("a release compares"); // P7
                } else if is_denied {
                    // Where rights are missing, or no memory is left for a tombstone, it does what it can.
                } else if is_own(after) {
                    broken = Some("a release deletes"); // P7
                } else if (step.resent || !is_own(before)) && !after.is_released && !is_ahead(step.token, step) {
                    broken = Some("a release leaves its tombstone"); // P6
                }
            }
            StepKind::ReaderComes | StepKind::ReaderStays | StepKind::ReaderLeaves => {
                broken = broken_by_reader(step, is_denied)
            }
            StepKind::Token | StepKind::Read => {}
        }
        let broken = broken.or_else(|| broken_beside_readers(step)).or_else(|| is_odd(step));
        let is_smaller = after.token < before.token;
        let broken =
            broken.or_else(|| (is_smaller && !is_ahead(before.token, step)).then_some("stored tokens only grow"));
        let broken = broken.or_else(|| self.is_floor_ahead(step).then_some("no floor is ahead of all clocks"));
        if let Some(invariant) = broken {
            let value = String::from_utf8_lossy(&step.value).into_owned();
            let what = format!("{:?} of {value} at server {server}: {before:?}, then {after:?}", step.kind);
            self.violate(invariant, what);
        }
    }

    /// P13: whether the floor is ahead of the clocks of all servers: no lock could be had until they get there.
    fn is_floor_ahead(&self, step: &Step) -> bool {
        let most =
            || self.servers.iter().map(|server| server.clock().wall()).max().unwrap_or_default() + MOST_FLOOR_AHEAD;
        step.after.floor.is_some_and(|floor| Duration::from_micros(floor.clock_us()) > most())
    }
}

/// P12: whether it follows, or stores, a token that no clock can have made, or names another than the largest.
fn is_odd(step: &Step) -> Option<&'static str> {
    let asks = matches!(step.kind, StepKind::Set | StepKind::Acquire | StepKind::Token);
    let most = u64::try_from((step.wall + MOST_AHEAD).as_micros()).unwrap_or(u64::MAX);
    if has_granted(step) && step.kind == StepKind::Acquire && is_ahead(step.token, step) {
        return Some("no token is stored that no clock can have made");
    }
    let own_wall_is_old = is_ahead(step.token, step);
    if asks && !own_wall_is_old && step.token.is_some_and(|token| token.clock_us() > most) {
        return Some("no lock follows a token that no clock can have made");
    }
    if is_ahead(step.stale, step) {
        return Some("a token that no clock can have made stops no acquire");
    }
    let is_larger =
        (step.before.token > step.stale && !is_ahead(step.before.token, step)) || step.before.floor > step.stale;
    (step.stale.is_some() && is_larger).then_some("the largest token is named")
}

const fn has_granted(step: &Step) -> bool {
    matches!(step.said, Said::Yes | Said::Repaired | Said::Kept)
}

/// Whether an extend finds no key, and leaves it at that.
fn is_left_missing(step: &Step) -> bool {
    let is_missing = step.before.value.is_none()
        && step.before.end.is_none()
        && step.before.readers.is_empty()
        && step.said == Said::No;
    step.kind == StepKind::Extend && is_missing && step.is_admitted && !step.before.is_released
}

fn is_ahead(token: Option<FencingToken>, step: &Step) -> bool {
    let wall_us = u64::try_from(step.wall.as_micros()).unwrap_or(u64::MAX);
    token.is_some_and(|token| token.is_ahead_of(wall_us))
}
