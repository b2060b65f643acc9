//! What clients do with locks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::Job;
use super::strike::Tasks;
use super::subject::{Held, Subject};
use crate::clock::{MILLI, Nanos, nanos, now};
use crate::event::{EventKind, log, log_now};
use crate::referee::Referee;

/// The resource that holders and rivals want.
const HELD: &str = "held";

/// The resources that workers share.
const BUSY: [&str; 2] = ["busy-1", "busy-2"];

/// The resource that many wait for.
const LINE: &str = "line";

/// How often a holder looks whether its lease still holds.
const LOOK: Duration = Duration::from_millis(20);

/// How often it writes.
const WRITES: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Takes one of two busy locks, works for a moment, releases it.
    Worker,
    /// Takes one lock and keeps it for good, extending it.
    Holder,
    /// Tries again and again to get that one, and gives it back soon.
    Rival,
    /// A holder that writes without looking whether its lease still holds: the pause that no lock can prevent lies
    /// between its look and its write.
    Careless,
    /// Waits for one lock until it has it, works for a few milliseconds, releases it.
    Waiter,
    /// Wants a part of what several may have.
    Shares(Share),
}

/// What clients do with what several may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Share {
    /// Reads a page beside other readers, for a moment.
    Reader,
    /// Writes it, alone.
    Writer,
    /// Takes one of two permits, works for a moment, gives it back.
    Permitted,
    /// Wants to lead, leads for a while, resigns.
    Candidate,
    /// Reads the page, and goes on until that is lost.
    Subscriber,
    /// Takes one of two permits, and keeps it.
    Tenant,
    /// Wants to lead, and leads until that is lost.
    Leader,
}

/// Never ends.
pub(crate) async fn play(
    job: Arc<Job>,
    role: Role,
    subject: Subject,
    referee: Referee,
    tasks: Arc<Tasks>,
    first_lease: u64,
) {
    let mut actor = Actor { job, subject, referee, tasks, lease: first_lease, random: rand::make_rng() };
    loop {
        actor.turn(role).await;
        let pause = match role {
            Role::Worker => 10..50,
            Role::Waiter => 0..40,
            Role::Holder | Role::Careless | Role::Rival => 20..60,
            Role::Shares(_) => 5..30,
        };
        actor.pause(pause).await;
    }
}

struct Actor {
    job: Arc<Job>,
    subject: Subject,
    referee: Referee,
    tasks: Arc<Tasks>,
    /// The number of the last lease.
    lease: u64,
    random: StdRng,
}

impl Actor {
    async fn turn(&mut self, role: Role) {
        match role {
            Role::Worker => {
                let resource = BUSY[self.random.random_range(0..BUSY.len())];
                if let Some(held) = self.acquire(resource).await {
                    self.work(resource, held, 20..120).await;
                }
            }
            Role::Rival => {
                if let Some(held) = self.acquire(HELD).await {
                    self.work(HELD, held, 100..300).await;
                }
            }
            Role::Holder | Role::Careless => {
                if let Some(held) = self.acquire(HELD).await {
                    self.keep(HELD, held, role == Role::Holder).await;
                }
            }
            Role::Waiter => self.wait_and_work().await,
            Role::Shares(share) => self.share_and_work(share).await,
        }
    }

    async fn wait_and_work(&mut self) {
        self.tasks.wait();
        let held = self.wait(LINE).await;
        self.tasks.hold(&self.job.name);
        self.work(LINE, held, 2..6).await;
        self.tasks.stop();
    }

    async fn share_and_work(&mut self, share: Share) {
        let asked = now();
        let (resource, held) = match self.subject.share(share).await {
            Ok(shared) => shared,
            Err((answer, cause)) => {
                let resource = format!("{share:?}").to_lowercase();
                return log_now(&self.job.name, EventKind::Denied { resource, asked, answer, cause });
            }
        };
        self.lease += 1;
        self.log_grant(resource.clone(), asked, &held);
        match share {
            Share::Reader => {
                self.pause(20..200).await;
                self.stop(held).await;
            }
            Share::Writer | Share::Permitted => self.work(&resource, held, 20..200).await,
            Share::Candidate => self.work(&resource, held, 800..2_500).await,
            Share::Subscriber | Share::Tenant | Share::Leader => self.keep(&resource, held, true).await,
        }
    }

    async fn wait(&mut self, resource: &str) -> Held {
        let (asked, resource) = (now(), resource.to_owned());
        self.lease += 1;
        log(asked, &self.job.name, EventKind::Wait { resource: resource.clone(), lease: self.lease });
        loop {
            match self.subject.wait(&resource, self.job.ttl()).await {
                Ok(held) => {
                    self.log_grant(resource, asked, &held);
                    return held;
                }
                Err((answer, cause)) => {
                    log_now(&self.job.name, EventKind::Denied { resource: resource.clone(), asked, answer, cause });
                    self.pause(20..60).await;
                }
            }
        }
    }

    async fn acquire(&mut self, resource: &str) -> Option<Held> {
        let (asked, resource) = (now(), resource.to_owned());
        match self.subject.acquire(&resource, self.job.ttl()).await {
            Ok(held) => {
                self.lease += 1;
                self.log_grant(resource, asked, &held);
                Some(held)
            }
            Err((answer, cause)) => {
                log_now(&self.job.name, EventKind::Denied { resource, asked, answer, cause });
                None
            }
        }
    }

    fn log_grant(&self, resource: String, asked: Nanos, held: &Held) {
        let (at, valid_until) = (now(), held.valid_until());
        let what = EventKind::Grant { resource, lease: self.lease, asked, valid_until, token: held.token() };
        log(at, &self.job.name, what);
    }

    /// Writes, works for a moment, writes, releases.
    async fn work(&mut self, resource: &str, held: Held, millis: Range<u64>) {
        self.write(resource, &held).await;
        self.pause(millis).await;
        if held.is_valid() {
            self.write(resource, &held).await;
        }
        self.stop(held).await;
    }

    /// Writes every tenth of a second, unless it reads, until the lease is lost. This library renews it meanwhile; where one does not,
    /// it is extended every third of the ttl.
    async fn keep(&mut self, resource: &str, mut held: Held, looks: bool) {
        let third = nanos(self.job.ttl() / 3);
        let mut extend_at = now() + third;
        let mut write_at = 0;
        let mut known = held.valid_until();
        loop {
            let valid = held.is_valid();
            // One who does not look finds out after the write.
            let due = now() >= write_at;
            let writes = if looks { valid && due } else { due || !valid };
            if writes && !held.reads() {
                self.write(resource, &held).await;
                write_at = now() + nanos(WRITES);
            }
            if !valid {
                break;
            }
            if now() >= extend_at {
                extend_at = now() + third;
                if let Err(cause) = held.extend(self.job.ttl()).await {
                    log_now(&self.job.name, EventKind::Unextended { lease: self.lease, cause });
                    extend_at = now() + third / 4;
                }
            }
            known = self.note_extend(&held, known);
            if looks {
                tokio::select! { () = sleep(LOOK) => {}, () = held.lost() => {} }
            } else {
                sleep(LOOK).await;
            }
        }
        self.stop(held).await;
    }

    /// Logs that the lease was extended, if it was.
    fn note_extend(&self, held: &Held, known: Nanos) -> Nanos {
        let (at, valid_until) = (now(), held.valid_until());
        if valid_until <= known.saturating_add(MILLI) {
            return known;
        }
        log(at, &self.job.name, EventKind::Extend { lease: self.lease, valid_until });
        valid_until
    }

    async fn write(&self, resource: &str, held: &Held) {
        self.referee.write(resource, &self.job.name, self.lease, held.token()).await;
    }

    /// The client stops relying on the lock before it sends the release.
    async fn stop(&self, held: Held) {
        let (at, lost): (Nanos, bool) = (now(), !held.is_valid());
        let at = held.lost_at().map_or(at, |lost_at| lost_at.min(at));
        log(at, &self.job.name, EventKind::Stop { lease: self.lease, lost });
        held.release().await;
    }

    async fn pause(&mut self, millis: Range<u64>) {
        let millis = self.random.random_range(millis);
        sleep(Duration::from_millis(millis)).await;
    }
}
