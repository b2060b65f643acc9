//! Notices from the library's own events that the lock is kept for this process: nobody outside could hit that moment.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::strike::{Moment, take_strike};

const TARGET: &str = "redquorum::wait";

/// What the library says when the lock is kept for one that waits here, and has not been asked for yet.
const KEPT: &str = "kept for this client";

/// Strikes this process when it is named as the next, if that is to happen.
pub(crate) struct WhenNamed {
    client: String,
}

impl WhenNamed {
    pub(crate) const fn new(client: String) -> Self {
        Self { client }
    }
}

impl Subscriber for WhenNamed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = IsKept(false);
        event.record(&mut message);
        if message.0 {
            take_strike(&self.client, Moment::Named);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // never: spans are not enabled
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct IsKept(bool);

impl Visit for IsKept {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 |= field.name() == "message" && format!("{value:?}") == KEPT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_is_recognized() {
        struct Recorded(std::sync::Arc<std::sync::atomic::AtomicBool>, WhenNamed);
        impl Subscriber for Recorded {
            fn enabled(&self, metadata: &Metadata<'_>) -> bool {
                self.1.enabled(metadata)
            }
            fn event(&self, event: &Event<'_>) {
                let mut message = IsKept(false);
                event.record(&mut message);
                self.0.fetch_or(message.0, std::sync::atomic::Ordering::Relaxed);
            }
            fn new_span(&self, attributes: &Attributes<'_>) -> Id {
                self.1.new_span(attributes)
            }
            fn record(&self, _: &Id, _: &Record<'_>) {}
            fn record_follows_from(&self, _: &Id, _: &Id) {}
            fn enter(&self, _: &Id) {}
            fn exit(&self, _: &Id) {}
        }
        let seen = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let recorded = Recorded(std::sync::Arc::clone(&seen), WhenNamed::new("c1".to_owned()));
        tracing::subscriber::with_default(recorded, || {
            tracing::debug!(target: TARGET, key = "a", "woken");
            assert!(!seen.load(std::sync::atomic::Ordering::Relaxed));
            tracing::debug!(target: TARGET, key = "a", "kept for this client");
        });
        assert!(seen.load(std::sync::atomic::Ordering::Relaxed));
    }
}
