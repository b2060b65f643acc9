//! Addresses whose servers say that they are the same process: one that is given twice, and instances that lie about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::{AdmissionStatus, InstanceStatus, Redlock};
use redquorum_testkit::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::support::{
    MAX_TTL, PATIENCE, all_vote, eventually, fleet_of, held, ms, on_each_kind, pair, votes, with_admission,
};

/// How a client asks whether two are the same: by a script without keys.
const QUESTION: &[u8] = b"*3\r\n$7\r\nEVALSHA";

/// Stands before a server, takes connections or not, and may have it called by the name of another.
#[derive(Clone)]
struct Front {
    address: String,
    is_open: watch::Sender<bool>,
    cut: Arc<Notify>,
    lies: Arc<AtomicBool>,
    evasion: Evasion,
}

/// What it does when it is asked whether it is the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evasion {
    None,
    Hangs,
    Breaks,
}

impl Front {
    async fn before(server: &Server, name_of: &Server, lies: bool) -> Self {
        Self::evading(server, name_of, lies, Evasion::None).await
    }

    async fn evading(server: &Server, name_of: &Server, lies: bool, evasion: Evasion) -> Self {
        let names = [server, name_of].map(|server| run_id(server).into_bytes());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let (is_open, lies) = (watch::channel(true).0, Arc::new(lies.into()));
        let front = Self { address, is_open, cut: Arc::default(), lies, evasion };
        let (of_listener, port) = (front.clone(), server.port());
        tokio::spawn(async move {
            let mut open = of_listener.is_open.subscribe();
            while let Ok((client, _)) = listener.accept().await {
                open.wait_for(|open| *open).await.unwrap();
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
}

async fn relay(client: TcpStream, server: TcpStream, front: &Front, [own, other]: &[Vec<u8>; 2]) {
    let (mut requests, mut replies) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(size @ 1..) = requests.read(&mut buffer).await {
            if buffer[..size].windows(QUESTION.len()).any(|asked| asked == QUESTION) {
                match front.evasion {
                    Evasion::None => {}
                    Evasion::Hangs => std::future::pending().await,
                    Evasion::Breaks => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                }
            }
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

/// They connected first, and kept the honest ones out for as long as they liked.
#[test]
fn instances_that_took_the_names_of_others_first_shut_nobody_out() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        tokio::time::sleep(MAX_TTL).await;
        let mut fronts = Vec::new();
        for (server, name_of) in [(0, 0), (1, 1), (3, 0), (4, 1)] {
            fronts.push(Front::before(&fleet[server], &fleet[name_of], true).await);
        }
        let address = |front: usize| fronts[front].address.clone();
        let builder = with_admission(&fleet);
        let addresses = [address(0), address(1), fleet[2].address(), address(2), address(3)];
        fronts[..2].iter().for_each(|front| _ = front.is_open.send_replace(false));
        let redlock = builder.instances(addresses).build().unwrap();
        redlock.want_locks();
        assert!(eventually(PATIENCE, || are_admitted(&redlock, 2..5)).await, "{:?}", redlock.instances());
        fronts[..2].iter().for_each(|front| _ = front.is_open.send_replace(true));
        let waits = |status: &InstanceStatus| matches!(status.admission, AdmissionStatus::Quarantine(_));
        let late = || redlock.instances()[..2].iter().all(waits);
        assert!(eventually(PATIENCE, late).await, "{:?}", redlock.instances());
        let marked = |at: usize| said(&redlock.instances()[at]).contains("and are two");
        assert!(marked(3) && marked(4), "{:?}", redlock.instances());
        all_vote(&redlock).await;
        let guard = held(&redlock, "a").await;
        assert!(eventually(PATIENCE, || guard.redundancy().held_on == 5).await);
    });
}

/// Each time it was asked it broke the connection, came back before the other one did, and was the first again.
#[test]
fn who_took_the_name_of_another_and_evades_the_question_shuts_it_out_for_a_quarantine_at_most() {
    on_each_kind(async |program| {
        for evasion in [Evasion::Breaks, Evasion::Hangs] {
            let fleet = fleet_of(&program, 3);
            tokio::time::sleep(MAX_TTL).await;
            let honest = Front::before(&fleet[0], &fleet[0], false).await;
            let liar = Front::evading(&fleet[2], &fleet[0], true, evasion).await;
            honest.is_open.send_replace(false);
            let addresses = [honest.address.clone(), fleet[1].address(), liar.address.clone()];
            let redlock = with_admission(&fleet).instances(addresses).build().unwrap();
            redlock.want_locks();
            assert!(eventually(PATIENCE, || are_admitted(&redlock, 1..3)).await, "{:?}", redlock.instances());
            honest.is_open.send_replace(true);
            let votes = || are_admitted(&redlock, 0..2);
            assert!(eventually(MAX_TTL + PATIENCE, votes).await, "{evasion:?}: {:?}", redlock.instances());
            pair(&redlock, "a").await;
        }
    });
}

#[test]
fn an_instance_that_was_known_goes_on_beside_one_that_takes_its_name() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let fronts =
            [Front::before(&fleet[0], &fleet[0], false).await, Front::before(&fleet[2], &fleet[0], false).await];
        let addresses = [fronts[0].address.clone(), fleet[1].address(), fronts[1].address.clone()];
        // So that a client that had to wait would be seen.
        let builder = with_admission(&fleet).quarantine(8 * MAX_TTL).instances(addresses);
        let redlock = builder.connect().await.unwrap();
        redlock.want_locks();
        assert!(eventually(4 * PATIENCE, || are_admitted(&redlock, 0..3)).await, "{:?}", redlock.instances());
        pair(&redlock, "a").await;

        fronts[0].is_open.send_replace(false);
        fronts[1].lies.store(true, Ordering::Relaxed);
        fronts.iter().for_each(|front| front.cut.notify_waiters());
        let refused = || said(&redlock.instances()[2]).contains("the same server process as");
        assert!(eventually(PATIENCE, refused).await, "{:?}", redlock.instances());
        assert!(!redlock.instances()[2].connected, "it is refused while the other is away");
        fronts[0].is_open.send_replace(true);
        assert!(eventually(PATIENCE, || are_admitted(&redlock, 0..2)).await, "{:?}", redlock.instances());
        pair(&redlock, "a").await;
        let waits = || matches!(redlock.instances()[2].admission, AdmissionStatus::Quarantine(_));
        assert!(eventually(PATIENCE, waits).await, "{:?}", redlock.instances());
        let told = said(&redlock.instances()[0]);
        assert!(told.contains("and are two") && told.contains(&fronts[1].address[8..]), "{told}");
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
        let same = || redlock.instances().iter().filter(|status| said(status).contains("same server process")).count();
        assert!(eventually(PATIENCE, || (connected(), same()) == (2, 2)).await, "{:?}", redlock.instances());
        tokio::time::sleep(2 * MAX_TTL + ms(500)).await;
        assert_eq!(connected(), 2, "{:?}", redlock.instances());
    });
}
