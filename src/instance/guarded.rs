//! The standing of the instance behind one connection, shared between requests and the task that
//! keeps the connection up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::admit::Rules;
use crate::protocol::{Instant, Named, Raw, Record, Remedy, Reply, Standing};

/// Admission of one connection.
pub(super) struct Guarded {
    pub(super) rules: Rules,
    standing: Mutex<Standing>,
    /// Set the moment a push says that the data was replaced: pushes arrive in order with replies,
    /// so that no reply of after the event is judged before it is set.
    replaced: Arc<AtomicBool>,
    remedy: Mutex<Option<Remedy>>,
    asked: Notify,
}

impl Guarded {
    pub(super) fn new(rules: Rules, standing: Standing, replaced: Arc<AtomicBool>) -> Self {
        let (standing, remedy, asked) = (Mutex::new(standing), Mutex::new(None), Notify::new());
        Self { rules, standing, replaced, remedy, asked }
    }

    /// What a request names that is sent at this instant of the own clock.
    pub(super) fn named(&self, now: Instant) -> Named {
        self.standing().named(now)
    }

    /// A copy of the standing.
    pub(super) fn snapshot(&self) -> Standing {
        self.standing().clone()
    }

    /// Judges a reply to a request that named `record`.
    pub(super) fn judge(&self, raw: Raw, record: &Arc<Record>, sent: Instant) -> Reply {
        let received = self.rules.clock.now();
        let mut standing = self.standing();
        if self.replaced.load(Ordering::Acquire) {
            standing.doubt();
        }
        let (reply, remedy) = standing.judge(raw, record, sent, received);
        drop(standing);
        if let Some(remedy) = remedy {
            self.ask(remedy);
        }
        reply
    }

    /// Takes in a sample of the instance's clock.
    pub(super) fn observe(&self, sent: Instant, received: Instant, instance_us: u64) {
        if self.standing().observe(sent, received, instance_us) {
            self.ask(Remedy::Quarantine);
        }
    }

    /// Asks for something to be done about the instance. The stronger remedy wins.
    pub(super) fn ask(&self, remedy: Remedy) {
        let mut asked = self.remedy();
        if *asked != Some(Remedy::Quarantine) {
            *asked = Some(remedy);
        }
        drop(asked);
        self.asked.notify_one();
    }

    /// Waits until something must be done.
    pub(super) async fn asked(&self) -> Remedy {
        loop {
            self.asked.notified().await;
            if let Some(remedy) = self.remedy().take() {
                return remedy;
            }
        }
    }

    /// Begins to set things right. Gives the record that must not stand, if it is in doubt; then
    /// nothing counts until [`renew`](Self::renew).
    pub(super) fn begin(&self, remedy: Remedy) -> Option<Arc<Record>> {
        let mut standing = self.standing();
        // The push itself may still be in line behind this remedy.
        let replaced = self.replaced.swap(false, Ordering::AcqRel);
        let remedy = if replaced { Remedy::Quarantine } else { remedy };
        standing.begin_remedy(remedy);
        (remedy == Remedy::Quarantine).then(|| Arc::clone(standing.record()))
    }

    /// The record, if it is in doubt and nothing was done about it yet.
    pub(super) fn doubted(&self) -> Option<Arc<Record>> {
        let standing = self.standing();
        (standing.is_doubted() || self.replaced.load(Ordering::Acquire)).then(|| Arc::clone(standing.record()))
    }

    /// Goes by this record from now on.
    pub(super) fn renew(&self, record: Record) {
        self.standing().renew(record);
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remedy(&self) -> MutexGuard<'_, Option<Remedy>> {
        self.remedy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
