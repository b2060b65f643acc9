//! Servers that a bench has started itself vote at once.

use std::time::Duration;

use redquorum::{Admission, Redlock};

/// Nobody holds a lock on them. Where another client has come first they are waited for.
pub(crate) async fn open(addresses: &[String], ttl: Duration) {
    let builder = Redlock::builder().instances(addresses).ttl(ttl).max_ttl(ttl).admission(Admission::AsRecorded);
    if let Ok(redlock) = builder.connect().await {
        let _ = redlock.admission_records().open(ttl).await;
    }
}
