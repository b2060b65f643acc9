//! What the lock protects: a table on a server of its own, whose rows are read and written back by
//! separate commands, so that two at once lose what one of them wrote.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use redquorum_testkit::Server;

use crate::Outcome;

/// The table, as a worker reaches it.
#[derive(Clone)]
pub(crate) struct Table(MultiplexedConnection);

impl Table {
    pub(crate) async fn connect(address: &str) -> Outcome<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None); // a late answer is no lost entry
        Ok(Self(redis::Client::open(address)?.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// Adds an entry to a row, which must not have it.
    pub(crate) async fn insert(&mut self, row: usize, entry: usize) -> Outcome {
        let name = format!("row:{row}");
        let text: String = self.0.get::<_, Option<String>>(&name).await?.unwrap_or_default();
        if entries(&text).any(|other| other == entry.to_string()) {
            return Err(format!("{name} has the entry {entry} already").into());
        }
        Ok(self.0.set(name, format!("{text}{entry},")).await?)
    }
}

pub(crate) fn clear(server: &Server) -> Outcome {
    server.command(&["FLUSHALL"])?;
    Ok(())
}

/// The entries of each row, sorted.
pub(crate) fn rows(server: &Server, count: usize) -> Outcome<Vec<Vec<usize>>> {
    let mut client = server.client()?;
    let mut rows = Vec::new();
    for row in 0..count {
        let text = client.command(&["GET", &format!("row:{row}")])?.text().unwrap_or_default();
        let mut row = entries(&text).map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        row.sort_unstable();
        rows.push(row);
    }
    Ok(rows)
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator(',')
}
