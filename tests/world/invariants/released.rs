//! After the release of a value has been sent to a server, nothing is sent to it that would set or keep its key.

use std::collections::BTreeSet;

use redquorum::testing::simulation::{Asked, sent_requests};

/// What one client has sent to one server.
#[derive(Default)]
pub(crate) struct SentSoFar {
    released: BTreeSet<Vec<u8>>,
    pub(crate) violation: Option<String>,
}

impl SentSoFar {
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for (asked, value) in sent_requests(bytes) {
            if asked == Asked::Release {
                self.released.insert(value);
            } else if self.released.contains(&value) {
                let what = format!("{asked:?} of {:?} behind its release", String::from_utf8_lossy(&value));
                self.violation.get_or_insert(what);
            }
        }
    }
}
