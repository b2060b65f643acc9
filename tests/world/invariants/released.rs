//! After the release of a value has been sent to a server, nothing is sent to it that would set or keep its key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redquorum::testing::simulation::{Asked, sent_requests};

/// What one client has sent to one server.
#[derive(Default)]
pub(crate) struct SentSoFar {
    released: BTreeSet<Vec<u8>>,
    /// When what is under each value was last asked to be extended.
    pub(crate) extended: BTreeMap<Vec<u8>, Duration>,
    /// Of which value, and what.
    pub(crate) violations: Vec<(Vec<u8>, String)>,
}

impl SentSoFar {
    /// Takes in what is sent; whether there are requests in it.
    pub(crate) fn read(&mut self, bytes: &[u8], now: Duration) -> bool {
        let requests = sent_requests(bytes);
        let asks = !requests.is_empty();
        for (asked, value) in requests {
            if asked == Asked::Extend {
                self.extended.insert(value.clone(), now);
            }
            if asked == Asked::Release {
                self.released.insert(value);
            } else if self.released.contains(&value) {
                let what = format!("{asked:?} of {:?} behind its release", String::from_utf8_lossy(&value));
                self.violations.push((value, what));
            }
        }
        asks
    }
}
