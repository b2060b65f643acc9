//! A program without a runtime: threads of two clients count in a file, which they read and write.
//!
//! `cargo run -p redquorum-examples --bin blocking`

use std::fs;
use std::path::Path;
use std::thread;

use redquorum::{AdmissionStatus, Redlock, blocking};
use redquorum_examples::stage::open;
use redquorum_examples::{Outcome, TTL, check, ms};
use redquorum_testkit::{Fleet, Program};

const THREADS: u64 = 4;
const TIMES: u64 = 25;

fn count(file: &Path) -> Outcome {
    let number: u64 = fs::read_to_string(file)?.parse()?;
    thread::sleep(ms(2)); // the work
    let next = file.with_extension(format!("{:?}", thread::current().id()));
    fs::write(&next, (number + 1).to_string())?;
    Ok(fs::rename(next, file)?) // no reader sees half of it
}

fn count_often(client: &blocking::Redlock, file: &Path, with_lock: bool) -> Outcome {
    for _ in 0..TIMES {
        if with_lock {
            client.lock("counter").run(|_lease| count(file))??;
        } else {
            count(file)?;
        }
    }
    Ok(())
}

fn show(clients: &[blocking::Redlock], file: &Path, with_lock: bool) -> Outcome {
    fs::write(file, "0")?;
    thread::scope(|scope| {
        let each = (0..THREADS as usize).map(|number| &clients[number % clients.len()]);
        let threads: Vec<_> = each.map(|client| scope.spawn(|| count_often(client, file, with_lock))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    let counted: u64 = fs::read_to_string(file)?.parse()?;
    let how = if with_lock { "with" } else { "without" };
    println!("{how} the lock: {THREADS} threads counted to {TIMES} each, the file says {counted}");
    check((counted == THREADS * TIMES) == with_lock, "with the lock alone nothing is lost")
}

fn main() -> Outcome {
    let fleet = Fleet::start(&Program::required()?, 5)?;
    tokio::runtime::Runtime::new()?.block_on(open(&fleet.addresses()))?; // of the operator; the program below has no runtime
    let mut clients = Vec::new();
    for _ in 0..2 {
        let builder = Redlock::builder().instances(fleet.addresses()).ttl(TTL).max_ttl(TTL);
        clients.push(blocking::Redlock::connect(builder)?);
    }
    clients[0].want_locks();
    while clients[0].instances().iter().any(|instance| instance.admission != AdmissionStatus::Admitted) {
        thread::sleep(ms(10));
    }
    let dir = std::env::temp_dir().join(format!("redquorum-blocking-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let shown = show(&clients, &dir.join("counter"), false).and_then(|()| show(&clients, &dir.join("counter"), true));
    fs::remove_dir_all(&dir)?;
    for client in &clients {
        client.shutdown(ms(2_000))?;
    }
    shown
}
