//! Listens to what the library tells through `tracing`, thread by thread: each test has its own.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// From which level on this thread listens, if it does.
    static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static PANICS_AT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// One for all tests of the process.
struct Listener;

/// From now on this test hears of events of this level and above.
pub(crate) fn listen(level: Level) {
    let _ = set_global_default(Listener); // another test may have done it
    LEVEL.set(Some(level));
}

/// The events since the last call: the message, and then each field as `name=value`.
pub(crate) fn told() -> Vec<String> {
    LINES.take()
}

/// The next event that says this panics.
pub(crate) fn panic_at(message: &'static str) {
    PANICS_AT.set(Some(message));
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Who listens is another question on each thread.
        let told = [
            "redquorum::run",
            "redquorum::runtime",
            "redquorum::wait",
            "redquorum::instance::redis::trouble",
            "redquorum::instance::redis::quarantine_log",
            "redquorum::inspection",
        ];
        let is_told = told.iter().any(|target| metadata.target().starts_with(target));
        if is_told { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && LEVEL.get().is_some_and(|least| *metadata.level() <= least)
    }

    #[expect(clippy::panic, reason = "tests ask for it")]
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        if PANICS_AT.get() == Some(message.as_str()) {
            PANICS_AT.set(None);
            panic!("somebody who listens to the log");
        }
        LINES.with_borrow_mut(|lines| lines.push(format!("{message}{fields}")));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
