//! Addresses whose servers say that they are the same process: one that is given twice or moves, and instances that lie about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use redquorum::{AdmissionStatus, InstanceStatus, Redlock};
use redquorum_testkit::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::support::{MAX_TTL, PATIENCE, eventually, fleet_of, held, ms, on_each_kind, pair, votes, with_admission};

/// Stands before a server, takes connections or not, and may have it called by the name of another.
#[derive(Clone)]
struct Front {
    address: String,
    is_open: watch::Sender<bool>,
    cut: Arc<Notify>,
    lies: Arc<AtomicBool>,
    port: Arc<AtomicU16>,
}

impl Front {
    async fn before(server: &Server, name_of: &Server, lies: bool) -> Self {
        let names = [server, name_of].map(|server| run_id(server).into_bytes());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let (is_open, lies, port) = (watch::channel(true).0, Arc::new(lies.into()), Arc::new(server.port().into()));
        let front = Self { address, is_open, cut: Arc::default(), lies, port };
        let of_listener = front.clone();
        tokio::spawn(async move {
            let mut open = of_listener.is_open.subscribe();
            while let Ok((client, _)) = listener.accept().await {
                open.wait_for(|open| *open).await.unwrap();
                let port = of_listener.port.load(Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                let (front, names) = (of_listener.clone(), names.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = front.cut.notified() => {}
                        () = relay(client, server, &front, &names) => {}
                    }
                });
            }
        });
        front
    }

    /// From now on it stands before another server.
    fn move_to(&self, server: &Server) {
        self.port.store(server.port(), Ordering::Relaxed);
        self.cut.notify_waiters();
    }
}

async fn relay(client: TcpStream, server: TcpStream, front: &Front, [own, other]: &[Vec<u8>; 2]) {
    let (mut requests, mut replies) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(size @ 1..) = requests.read(&mut buffer).await {
            to_server.write_all(&buffer[..size]).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
            let said = &mut buffer[..size];
            if front.lies.load(Ordering::Relaxed)
                && let Some(at) = said.windows(own.len()).position(|name| name == own)
            {
                said[at..at + own.len()].copy_from_slice(other);
            }
            replies.write_all(said).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let _ = tokio::try_join!(there, back);
}

fn run_id(server: &Server) -> String {
    let info = server.command(&["INFO", "server"]).unwrap().text().unwrap();
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim().to_owned()
}

fn said(status: &InstanceStatus) -> String {
    status.last_error.clone().unwrap_or_default()
}

fn are_admitted(redlock: &Redlock, which: std::ops::Range<usize>) -> bool {
    redlock.instances()[which].iter().all(votes)
}

fn is_refused(status: &InstanceStatus) -> bool {
    !status.connected && said(status).contains("the same server process as")
}

/// An honest one that is known goes on, also after its connections have broken; one that comes behind the other is refused.
#[test]
fn an_instance_that_takes_the_name_of_another_shuts_it_out_if_it_connected_first() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let fronts =
            [Front::before(&fleet[0], &fleet[0], false).await, Front::before(&fleet[2], &fleet[0], false).await];
        let addresses = [fronts[0].address.clone(), fleet[1].address(), fronts[1].address.clone()];
        // So that a client that had to wait would be seen.
        let builder = || with_admission(&fleet).quarantine(8 * MAX_TTL).instances(addresses.clone());
        let redlock = builder().connect().await.unwrap();
        redlock.want_locks();
        assert!(eventually(4 * PATIENCE, || are_admitted(&redlock, 0..3)).await, "{:?}", redlock.instances());

        fronts[0].is_open.send_replace(false);
        fronts[1].lies.store(true, Ordering::Relaxed);
        fronts.iter().for_each(|front| front.cut.notify_waiters());
        let refused = || is_refused(&redlock.instances()[2]);
        assert!(eventually(PATIENCE, refused).await, "while the other is away: {:?}", redlock.instances());
        let later = builder().connect().await.unwrap();
        assert!(eventually(PATIENCE, || later.instances()[2].connected).await, "{:?}", later.instances());
        fronts[0].is_open.send_replace(true); // before a quarantine has passed, for which its name is kept
        assert!(eventually(PATIENCE, || are_admitted(&redlock, 0..2)).await, "{:?}", redlock.instances());
        assert!(eventually(PATIENCE, || is_refused(&later.instances()[0])).await, "{:?}", later.instances());
        assert!(eventually(4 * PATIENCE, || are_admitted(&later, 1..3)).await, "{:?}", later.instances());
        let [known, liar] = fronts.each_ref().map(|front| &front.address[8..]);
        assert!(said(&redlock.instances()[2]).contains(known) && said(&later.instances()[0]).contains(liar));
        pair(&redlock, "a").await;
        pair(&later, "a").await;
    });
}

/// Its votes under the two addresses never count together.
#[test]
fn a_process_that_moves_to_another_address_votes_there_after_a_quarantine() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 4);
        let first = Front::before(&fleet[0], &fleet[0], false).await;
        let second = Front::before(&fleet[1], &fleet[1], false).await;
        let addresses = [first.address.clone(), second.address.clone(), fleet[2].address()];
        let redlock = with_admission(&fleet).instances(addresses).connect().await.unwrap();
        redlock.want_locks();
        assert!(eventually(2 * PATIENCE, || are_admitted(&redlock, 0..3)).await, "{:?}", redlock.instances());
        first.is_open.send_replace(false);
        second.move_to(&fleet[0]);
        first.move_to(&fleet[3]);
        assert!(eventually(PATIENCE, || is_refused(&redlock.instances()[1])).await, "{:?}", redlock.instances());
        first.is_open.send_replace(true);
        let waits = || matches!(redlock.instances()[1].admission, AdmissionStatus::Quarantine(_));
        assert!(eventually(PATIENCE, waits).await, "{:?}", redlock.instances());
        assert!(eventually(PATIENCE, || are_admitted(&redlock, 0..3)).await, "{:?}", redlock.instances());
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || guard.redundancy().held_on == 3).await);
    });
}

/// A key that is set in one database is not seen in the other.
#[test]
fn one_process_under_two_databases_has_one_vote() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 2);
        let again = format!("{}/1", fleet[1].address().replace("127.0.0.1", "localhost"));
        let addresses = [fleet[0].address(), fleet[1].address(), again];
        let redlock = with_admission(&fleet).instances(addresses).build().unwrap();
        let connected = || redlock.instances().iter().filter(|status| status.connected).count();
        let is_one_refused = || connected() == 2 && redlock.instances().iter().any(is_refused);
        assert!(eventually(PATIENCE, is_one_refused).await, "{:?}", redlock.instances());
        sleep(2 * MAX_TTL + ms(500)).await;
        assert_eq!(connected(), 2, "{:?}", redlock.instances());
    });
}
