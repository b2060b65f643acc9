//! Clients that use another list of instances (A10), as with a setting that was cut short.
//!
//! Who listens for messages is subscribed to one more channel, which says how many votes of how many instances it needs. So a server knows
//! at each moment with which lists its clients work, and who connects asks for those that may miss its own. It warns, and goes on: if one
//! were refused for the list of another, a wrong client that came first would keep out all that are right.

use std::future::Future;

use redis::{Cmd, RedisResult};

use super::conn::Conn;
use crate::instance::OtherList;
use crate::protocol::{CHANNEL, Quorum};

fn channel(quorum: Quorum) -> String {
    format!("{CHANNEL}{}-of-{}", quorum.votes(), quorum.instances())
}

/// Has the server know this client's list.
pub(super) fn announce(quorum: Quorum) -> Cmd {
    redis::cmd("SUBSCRIBE").arg(channel(quorum)).to_owned()
}

/// Asks which lists are in use with which two clients could hold the same lock; sent when this returns.
pub(super) fn ask(conn: &Conn, own: Quorum) -> impl Future<Output = RedisResult<Vec<OtherList>>> + use<> {
    let lists: Vec<Quorum> = own.majorities_missed().collect();
    let mut question = redis::cmd("PUBSUB");
    question.arg("NUMSUB").arg(lists.iter().map(|list| channel(*list)).collect::<Vec<_>>());
    let answer = conn.ask(&question).read::<Vec<(String, u64)>>();
    async move {
        let clients = answer.await?.into_iter().map(|(_, clients)| clients);
        let used = lists.iter().zip(clients).filter(|(_, clients)| *clients > 0);
        Ok(used
            .map(|(list, clients)| OtherList { clients, votes: list.votes(), instances: list.instances() })
            .collect())
    }
}
