//! Masters that Sentinels know: at each connect they name the address.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

use super::address::{Address, Endpoint, SentinelGroup};
use super::classify::failed;
use super::conn::Conn;
use super::login::hello;
use super::open::open_stream;
use super::options::ConnectOptions;
use crate::protocol::Cause;

/// What a Sentinel says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedMaster {
    host: String,
    port: u16,
    /// Larger with each failover.
    epoch: u64,
}

/// Sends the question to all Sentinels of a group at once. Those that are in doubt about each other differ for a while: of the answers
/// of the first majority, or of all that answer at all, the newest counts.
pub(super) async fn find_master(options: &ConnectOptions, group: &SentinelGroup) -> Result<Endpoint, Cause> {
    let asks = group.sentinels.iter().map(|sentinel| async move {
        let asked = options.within_trips("asking it for the master", 6, ask(options, sentinel, &group.name)).await;
        asked.map_err(|failure| format!("{}: {}", sentinel.shown(), failure.cause()))
    });
    let mut asks: FuturesUnordered<_> = asks.collect();
    let (mut named, mut failures) = (Vec::new(), Vec::new());
    while let Some(answer) = asks.next().await {
        match answer {
            Ok(master) => named.push(master),
            Err(failure) => failures.push(failure),
        }
        if named.len() > group.sentinels.len() / 2 {
            break;
        }
    }
    let Some(NamedMaster { host, port, .. }) = newest(&named) else {
        return Err(Cause::NoMaster(failures.join("; ")));
    };
    tracing::debug!(instance = options.address.shown(), %host, port, "the sentinels name this master");
    Ok(Endpoint::Tcp { host: host.clone(), port: *port, tls: group.tls.clone() })
}

/// Resolves when the Sentinels name another master than the one that is connected; never for an instance without any.
///
/// The former master of a failover that was not its own stays one for some seconds, until a Sentinel makes a replica of it.
/// A client that is still connected must have left it before the new one gives its first vote, `max_ttl` after it was promoted.
pub(super) async fn moved(options: &ConnectOptions, connected: Option<Endpoint>) {
    let (Endpoint::Group(group), Some(Endpoint::Tcp { host, port, .. })) = (options.address.endpoint(), connected)
    else {
        return std::future::pending().await;
    };
    loop {
        sleep(options.client.max_ttl / 4).await;
        // If no Sentinel answers, nothing speaks against it.
        if let Ok(Endpoint::Tcp { host: now, port: on, .. }) = find_master(options, group).await
            && (now.as_str(), on) != (host.as_str(), port)
        {
            return;
        }
    }
}

/// Of two as new as each other that which more name.
fn newest(named: &[NamedMaster]) -> Option<&NamedMaster> {
    let votes = |master: &NamedMaster| named.iter().filter(|other| *other == master).count();
    named.iter().max_by_key(|master| (master.epoch, votes(master)))
}

async fn ask(options: &ConnectOptions, sentinel: &Address, name: &str) -> Result<NamedMaster, Cause> {
    let stream = open_stream(sentinel.endpoint(), sentinel.tcp(), &AtomicBool::new(false)).await?;
    let credentials = sentinel.credentials().await?;
    let (conn, _task) = Conn::begin(stream, Box::new(|_: &[u8]| {}), options.of_connection());
    hello(&conn, credentials.as_ref(), sentinel.database).await.map_err(|error| failed(&error))?;
    let ask = redis::cmd("SENTINEL").arg("MASTER").arg(name).to_owned();
    let fields: HashMap<String, String> = conn.ask(&ask).read().await.map_err(|error| failed(&error))?;
    read(&fields).ok_or_else(|| Cause::OtherProtocol("it names no address of the master".to_owned()))
}

fn read(fields: &HashMap<String, String>) -> Option<NamedMaster> {
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Some(NamedMaster { host: fields.get("ip")?.clone(), port: fields.get("port")?.parse().ok()?, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(host: &str, epoch: u64) -> NamedMaster {
        NamedMaster { host: host.to_owned(), port: 6379, epoch }
    }

    #[test]
    fn the_newest_master_counts_and_of_two_that_which_more_name() {
        assert_eq!(newest(&[]), None);
        assert_eq!(newest(&[named("a", 1), named("b", 2), named("a", 1)]), Some(&named("b", 2)));
        assert_eq!(newest(&[named("a", 2), named("b", 2), named("a", 2)]), Some(&named("a", 2)));
    }

    #[test]
    fn an_answer_without_an_address_names_no_master() {
        let fields = |words: &[(&str, &str)]| {
            read(&words.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(fields(&[("ip", "a"), ("port", "6379"), ("config-epoch", "7")]), Some(named("a", 7)));
        assert_eq!(fields(&[("ip", "a"), ("port", "6379")]), Some(named("a", 0)));
        assert_eq!(fields(&[("ip", "a"), ("port", "x")]), None);
        assert_eq!(fields(&[("port", "6379")]), None);
    }
}
