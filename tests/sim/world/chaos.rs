//! Faults strike when their trigger is pulled.

use super::plain::Between;
use super::{Event, World, tell};
use crate::faults::{Fault, FaultKind, Trigger};
use crate::scenario::{Kind, MS};

impl World {
    pub(super) fn plan_chaos(&mut self) {
        for index in 0..self.scenario.plan.len() {
            let fault = self.scenario.plan[index];
            if fault.trigger == Trigger::At {
                let after = self.scenario.chaos * u64::from(fault.nth) / 256 + u64::from(fault.amount) * 5_000;
                self.schedule(after, Event::Fault { index });
            }
        }
        if self.scenario.kind == Kind::RollingRestart {
            for i in 0..self.servers.len() {
                let after = self.scenario.ttl_ms + 3 * self.scenario.max_ttl_ms * i as u64;
                self.schedule(after * MS, Event::RollingRestart { i });
            }
        }
    }

    /// Something happened that faults may wait for; they strike `after` from now.
    pub(crate) fn pull(&mut self, trigger: Trigger, count: u8, i: Option<usize>, c: Option<usize>, after: u64) {
        if self.calm {
            return;
        }
        for index in 0..self.scenario.plan.len() {
            let fault = self.scenario.plan[index];
            if fault.trigger == trigger && fault.nth + 1 == count {
                if trigger == Trigger::Fault {
                    let later = u64::from(fault.amount) * self.scenario.max_ttl_ms * MS / 200;
                    self.schedule(later, Event::Fault { index });
                    continue;
                }
                match i.or(c).filter(|_| after == 0 && fault.amount.is_multiple_of(2)) {
                    Some(_) => self.strike(index, i, c),
                    None => {
                        let jitter = u64::from(fault.amount) * MS / 100;
                        self.schedule(after + jitter, Event::Fault { index });
                    }
                }
            }
        }
    }

    /// Carries out a planned fault.
    pub(crate) fn strike(&mut self, index: usize, i: Option<usize>, c: Option<usize>) {
        let fault = self.scenario.plan[index];
        if self.calm {
            return;
        }
        let other = usize::from(fault.target >> 1);
        let near = fault.target.is_multiple_of(2);
        let i = i.filter(|_| near).unwrap_or(other % self.servers.len());
        let c = c.filter(|_| near).unwrap_or(other % self.clients.len());
        if !self.is_allowed(fault, i) {
            return;
        }
        tell!(self, "FAULT {fault} {:?} (instance {i}, client {c})", fault.what);
        self.mix(u64::from(fault.amount) << 32 ^ index as u64);
        self.stats.faults[FaultKind::ALL.iter().position(|what| *what == fault.what).unwrap_or(0)] += 1;
        self.carry_out(fault, i, c);
        self.struck = self.struck.saturating_add(1);
        self.pull(Trigger::Fault, self.struck, None, None, 0);
    }

    fn is_allowed(&self, fault: Fault, i: usize) -> bool {
        let kind = self.scenario.kind;
        // All instances at once may forget that they were ever used: not promised, see `docs/safety.md`.
        let others_stand = (0..self.servers.len()).any(|j| j != i && self.servers[j].stands(self.server_ms(j)));
        match fault.what {
            FaultKind::Flush | FaultKind::Restore | FaultKind::Promote | FaultKind::Resync if !others_stand => false,
            what if what.loses_data() => {
                kind != Kind::AdmissionOff && kind != Kind::RollingRestart && self.servers[i].up
            }
            FaultKind::Step => kind == Kind::Steps,
            _ => true,
        }
    }

    fn carry_out(&mut self, fault: Fault, i: usize, c: usize) {
        let long = u64::from(fault.amount) * self.scenario.ttl_ms * MS / 100;
        let until = self.now + long;
        match fault.what {
            FaultKind::Pause => self.pause(c, long),
            FaultKind::ClientCrash => self.crash(c, long / 4),
            FaultKind::Cancel => self.cancel(c),
            FaultKind::CutBoth => (self.link_mut(c, i).cut_to, self.link_mut(c, i).cut_from) = (until, until),
            FaultKind::CutTo => self.link_mut(c, i).cut_to = until,
            FaultKind::CutFrom => self.link_mut(c, i).cut_from = until,
            FaultKind::Break => {
                let epoch = self.link(c, i).epoch;
                self.schedule(0, Event::Broken { c, i, epoch });
            }
            FaultKind::Step => self.step_clock(i, fault.amount),
            what @ (FaultKind::CrashEmpty
            | FaultKind::CrashFromDisk
            | FaultKind::Flush
            | FaultKind::Restore
            | FaultKind::Promote
            | FaultKind::Resync
            | FaultKind::Poison
            | FaultKind::Lie) => self.hit_instance(i, what, fault.amount),
        }
    }

    /// Steps of a fifth of the ttl at least: smaller ones can hide in the width of the samples.
    fn step_clock(&mut self, i: usize, amount: u8) {
        let step = (u64::from(amount) + 52) * self.scenario.ttl_ms * MS / 256;
        let forward = amount % 4 != 3;
        self.note_between(i, Between::Fault(FaultKind::Step), None);
        let step = if forward { step.cast_signed() } else { -step.cast_signed() };
        self.servers[i].clock.offset_ns += step;
        if forward {
            self.servers[i].stepped_at = self.now;
        } else {
            self.servers[i].was_set_back = true;
        }
    }

    fn pause(&mut self, c: usize, long: u64) {
        if self.clients[c].paused_since.is_none() {
            self.clients[c].paused_since = Some(self.now);
            self.schedule(long + 1, Event::Resume { c });
        }
    }

    /// The process goes on: what waited for it is handled now, timers first or messages first.
    pub(crate) fn resume(&mut self, c: usize) {
        let Some(since) = self.clients[c].paused_since.take() else { return };
        tell!(self, "client {c} goes on");
        self.clients[c].paused_for += self.now - since;
        let mut inbox = std::mem::take(&mut self.clients[c].inbox);
        if self.rng.percent(50) {
            inbox.sort_by_key(|event| matches!(event, Event::Answer { .. } | Event::Flushed { .. }));
        }
        for event in inbox {
            self.handle_in_client(event);
        }
    }
}
