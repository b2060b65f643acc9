//! What happens in the simulated world, and what is on its way.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use redquorum::protocol::{AdmissionRecord, Instant, Message};

use crate::client::Ticket;
use crate::instance::{Answer, Request};
use crate::plain::PlainWrite;

/// Which request of a client an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    RoundInFlight(u32),
    Release(u32),
    /// With the client's clock when it was asked.
    Setup(Instant),
    /// Nobody waits for the answer.
    Write,
    Opening(u32),
    /// The planted bug of old tokens.
    OldTokens,
}

/// What is on its way to an instance.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) sender: Sender,
    /// The record that the client knows; `None` without admission.
    pub(crate) known: Option<Arc<AdmissionRecord>>,
    /// Whether it leaves the record's instant out, as it knows that it has come.
    pub(crate) quarantine_over: bool,
    pub(crate) request: Rc<Request>,
    pub(crate) ticket: Option<Rc<Ticket>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Request {
        c: usize,
        i: usize,
        epoch: u32,
        incarnation: u32,
        call: Call,
    },
    /// One command of a plain acquire (P28).
    Command {
        c: usize,
        i: usize,
        epoch: u32,
        incarnation: u32,
        call: Call,
        write: Rc<PlainWrite>,
        place: usize,
    },
    /// `CLIENT KILL ID` of a client's former connections.
    EndFormer {
        c: usize,
        i: usize,
        incarnation: u32,
        former: Vec<u32>,
    },
    Answer {
        c: usize,
        i: usize,
        epoch: u32,
        sender: Sender,
        /// The record that the request named.
        named: Option<Arc<AdmissionRecord>>,
        answer: Answer,
        server_us: u64,
    },
    /// The instance says that its data were flushed.
    Flushed {
        c: usize,
        i: usize,
        epoch: u32,
    },
    /// A message to a client that an instance passes on.
    Message {
        c: usize,
        i: usize,
        epoch: u32,
        message: Message,
    },
    /// The same, on its way to the instance.
    Publish {
        i: usize,
        incarnation: u32,
        to: usize,
        message: Message,
    },
    SetupDeadline {
        c: usize,
        i: usize,
        epoch: u32,
    },
    /// No answer of this flight is waited for any longer.
    Deadline {
        c: usize,
        in_flight: u32,
    },
    Wake {
        c: usize,
        generation: u32,
    },
    ResendRelease {
        c: usize,
        release: u32,
    },
    Broken {
        c: usize,
        i: usize,
        epoch: u32,
    },
    Connect {
        c: usize,
        i: usize,
    },
    Resume {
        c: usize,
    },
    Reborn {
        c: usize,
    },
    Restart {
        i: usize,
        up_ms: u64,
    },
    Fault {
        index: usize,
    },
    RollingRestart {
        i: usize,
    },
    Calm,
    /// Clients hear of records that have changed.
    Heartbeat,
    Probe,
    End,
}

pub(super) struct Scheduled {
    pub(super) at: u64,
    pub(super) sequence: u64,
    pub(super) event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// Reversed: the heap gives the largest, we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}
