//! A holder that is paused past its lease, and a storage that refuses its late write.
//!
//! `cargo run --example fencing`. The instances are inside the process, the table is in memory; with
//! a database, `Account::write` is the statement
//! `UPDATE account SET balance = ?1, fence = ?2 WHERE id = 7 AND fence <= ?2`.

use std::time::Duration;

use redquorum::testing::Cluster;
use redquorum::{FencingToken, Renewal};

/// A row with one column more: the largest token that wrote to it.
#[derive(Debug, Default)]
struct Account {
    balance: i64,
    fence: i64,
}

impl Account {
    /// Writes, and gives how many rows changed.
    fn write(&mut self, balance: i64, token: FencingToken) -> usize {
        if self.fence > token.as_i64() {
            return 0;
        }
        *self = Self { balance, fence: token.as_i64() };
        1
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::new(3);
    let ttl = Duration::from_millis(300);
    // A process that stands still renews nothing.
    let alice = cluster.builder().ttl(ttl).renew(Renewal::Off).label("alice").connect().await?;
    let bob = cluster.builder().ttl(ttl).label("bob").connect().await?;
    let mut account = Account::default();

    let late = alice.lock("account:7").acquire().await?;
    println!(
        "Alice locks the account, token {}. She checks that it is hers: {}.",
        late.fencing_token(),
        late.is_valid()
    );
    println!("Then she is paused, longer than her lease.");

    let guard = bob.lock("account:7").acquire().await?; // waits until her lease is over
    let changed = account.write(200, guard.fencing_token());
    println!("Bob locks it, token {}, and writes 200: rows changed {changed}.", guard.fencing_token());
    guard.release().await?;

    let changed = account.write(100, late.fencing_token());
    println!("Alice goes on and writes 100: rows changed {changed}. She must give up.");
    let found = late.release().await?;
    println!(
        "The balance is {}. Was the lock still hers when she released it? {}.",
        account.balance, found.was_still_held
    );
    Ok(())
}
