//! Keys of others at which callers look again when they change (P36).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::instance::ChangedKeys;
use crate::resource::Resource;

/// The keys at which callers of a client look, and the receivers of their changes.
#[derive(Debug)]
pub(crate) struct Observed {
    keys: Mutex<Senders>,
    /// Whether pushes count.
    hears: bool,
}

#[derive(Debug, Default)]
struct Senders {
    by_key: BTreeMap<Vec<u8>, watch::Sender<()>>,
    /// With so many those without a receiver are removed: they have doubled since.
    remove_at: usize,
}

impl Observed {
    pub(super) fn new(hears: bool) -> Self {
        Self { keys: Mutex::default(), hears }
    }

    /// Notifies of changes of this key from now on.
    pub(crate) fn changes_of(&self, resource: &Resource) -> watch::Receiver<()> {
        let mut observed = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if observed.by_key.len() >= observed.remove_at {
            observed.by_key.retain(|_, sender| sender.receiver_count() > 0);
            observed.remove_at = 2 * observed.by_key.len() + 1;
        }
        observed.by_key.entry(resource.key().to_vec()).or_default().subscribe()
    }

    /// These may have changed. A push is no proof: its receiver looks.
    pub(super) fn changed(&self, keys: &ChangedKeys) {
        let observed = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys {
            _ if !self.hears => {}
            ChangedKeys::Any => observed.by_key.values().for_each(|sender| sender.send_replace(())),
            ChangedKeys::Among(keys) => {
                keys.iter().filter_map(|key| observed.by_key.get(key)).for_each(|sender| sender.send_replace(()));
            }
        }
    }
}
