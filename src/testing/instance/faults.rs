//! What can be wrong with an instance.

use std::time::Duration;

use super::TestInstance;
use crate::protocol::FencingToken;
use crate::testing::network::Way;

/// How an instance hangs: connected, but without an answer. Each request to it then ends with the
/// instance timeout, and after three in a row its client sends nothing more until it is connected again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hang {
    /// The process stands still (SIGSTOP): requests are carried out, in order, when it continues.
    Stopped,
    /// Requests arrive and are carried out at once, answers get lost.
    RepliesLost,
    /// Requests get lost.
    RequestsLost,
}

/// Faults that last until [`resume`](Self::resume).
impl TestInstance {
    /// Hangs.
    pub fn hang(&self, how: Hang) {
        match how {
            Hang::Stopped => self.0.server.hang(),
            Hang::RepliesLost => self.0.network.lose(Way::Down),
            Hang::RequestsLost => self.0.network.lose(Way::Up),
        }
    }

    /// Breaks all connections and refuses new ones, as a network does that cannot reach it. The process continues,
    /// and forgets nothing.
    pub fn cut_off(&self) {
        self.0.network.cut_off();
    }

    /// Requests take `before` to the instance and their answers `after` back. Their order is kept; with a `before`
    /// above the instance timeout requests are carried out after the client has given up.
    pub fn slow_down(&self, before: Duration, after: Duration) {
        self.0.network.slow_down(before, after);
    }

    /// Carries out the next `count` commands with requests, but breaks the connection instead of answering. A
    /// client puts requests that wait for each other into one command.
    pub fn lose_replies(&self, count: usize) {
        self.0.server.lose_replies(count);
    }

    /// Carries out nothing and answers every request with an error, in the words of a server: a code and a
    /// text, as `OOM command not allowed when used memory > 'maxmemory'.` of one whose memory is full.
    pub fn refuse(&self, error: impl Into<String>) {
        self.0.server.refuse(error.into());
    }

    /// Carries out no acquire and answers each that it has stored `token`, which is not so.
    pub fn claim_token(&self, token: FencingToken) {
        self.0.server.claim_token(token);
    }

    /// Breaks all connections once. What was on its way over them to a [slow](Self::slow_down) instance is carried
    /// out after `late`, possibly behind newer requests; what [`Hang::Stopped`] holds back stays so.
    pub fn break_connections(&self, late: Duration) {
        self.0.network.break_connections(late);
    }

    /// Ends every fault. Clients connect again where they must: see [`Redlock::wait_connected`](crate::Redlock::wait_connected).
    pub fn resume(&self) {
        self.0.network.heal();
        self.0.server.end_faults();
        self.0.server.go_on();
    }
}
