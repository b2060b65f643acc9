//! The storage behind the lock: keeps the largest token of each resource and refuses smaller ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::Outcome;
use crate::event::{EventKind, log_now};

pub(crate) const PORT: u16 = 7000;

/// The largest token that each resource has seen.
#[derive(Default)]
struct Ledger(HashMap<String, u64>);

impl Ledger {
    /// `WHERE fence <= token`; who has no token is believed.
    fn accepts(&mut self, resource: &str, token: Option<u64>) -> bool {
        let Some(token) = token else { return true };
        let largest = self.0.entry(resource.to_owned()).or_default();
        let accepted = token >= *largest;
        *largest = token.max(*largest);
        accepted
    }
}

/// Serves until it is killed; logs every decision in the order in which it was made.
pub(crate) async fn serve() -> Outcome {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, Arc::clone(&ledger)));
    }
}

async fn answer(mut stream: TcpStream, ledger: Arc<Mutex<Ledger>>) -> std::io::Result<()> {
    let (from, mut to) = stream.split();
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let Ok((resource, client, lease, token)) = serde_json::from_str::<(String, String, u64, Option<u64>)>(&line)
        else {
            continue;
        };
        {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let accepted = ledger.accepts(&resource, token);
            log_now("referee", EventKind::Write { resource, client, lease, token, accepted });
        }
        to.write_all(b"ok\n").await?;
    }
    Ok(())
}

/// A client's way to the referee, with one connection for each write: a write is rare, and simple is best here.
#[derive(Clone)]
pub(crate) struct Referee {
    address: String,
}

impl Referee {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    /// Sends a write; the referee logs what became of it.
    pub(crate) async fn write(&self, resource: &str, client: &str, lease: u64, token: Option<u64>) {
        let once = async {
            let line = serde_json::to_string(&(resource, client, lease, token))?;
            let mut stream = TcpStream::connect(&self.address).await?;
            stream.write_all(format!("{line}\n").as_bytes()).await?;
            BufReader::new(&mut stream).read_line(&mut String::new()).await
        };
        // The referee is never broken in a drill; a write that it did not get was not made.
        drop(timeout(Duration::from_secs(1), once).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_token_is_refused_and_an_equal_one_is_not() {
        let mut ledger = Ledger::default();
        assert!(ledger.accepts("a", Some(5)));
        assert!(ledger.accepts("a", Some(5)));
        assert!(!ledger.accepts("a", Some(4)));
        assert!(ledger.accepts("b", Some(1)));
        assert!(ledger.accepts("a", None));
    }
}
