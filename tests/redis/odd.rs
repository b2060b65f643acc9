//! What answers at an address and is no master of our kind.

use redquorum::{AcquireError, Admission, Redlock, Renewal, Trouble};
use redquorum_testkit::Fleet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::refusing::refused_with;
use crate::support::{
    PATIENCE, builder_of, eventually, fleet_of, free_within, held, ms, on_each_kind, pair, ready, with_admission,
};

/// Answers whatever it reads with `words`, and says them first if `unasked`.
async fn talk(mut stream: TcpStream, words: Vec<u8>, unasked: bool) {
    let mut buffer = [0; 4096];
    let mut speak = unasked;
    loop {
        if speak && stream.write_all(&words).await.is_err() {
            return;
        }
        speak = true;
        if !matches!(stream.read(&mut buffer).await, Ok(1..)) {
            return;
        }
    }
}

/// The address of something that talks so. Ends with the runtime.
pub(crate) async fn stranger(words: &[u8], unasked: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    let words = words.to_vec();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, words.clone(), unasked));
        }
    });
    address
}

const SPEECHES: [&[u8]; 8] = [
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    b"\0\xff\xfe\r\n\r\n*\r\n$-7\r\n",
    b"+OK\r\n",
    b"*2\r\n$7\r\ngranted\r\n:0\r\n",
    b":1\r\n",
    b"-ERR unknown command\r\n",
    b"*1000000000\r\n",
    b"%1\r\n+version\r\n+7.0.0\r\n",
];

#[test]
fn strangers_that_talk_have_no_vote() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        for (words, unasked) in SPEECHES.iter().flat_map(|words| [(words, false), (words, true)]) {
            let addresses = [fleet[0].address(), stranger(words, unasked).await, stranger(words, unasked).await];
            for admission in [Admission::On, Admission::Off] {
                let builder = Redlock::builder().instances(addresses.clone()).admission(admission);
                let redlock = builder.instance_timeout(ms(50)).build().unwrap();
                let first = || redlock.instances()[0].connected;
                assert!(eventually(PATIENCE, first).await);
                for _ in 0..5 {
                    let error = redlock.lock("a").try_acquire().await.unwrap_err();
                    assert!(error.is_retryable(), "{error}");
                }
            }
        }
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn one_stranger_among_five_does_no_harm() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 4);
        let mut addresses = fleet.addresses();
        addresses.push(stranger(SPEECHES[3], false).await);
        let redlock = builder_of(&fleet).instances(addresses).connect().await.unwrap();
        for _ in 0..50 {
            pair(&redlock, "a").await;
        }
        free_within(PATIENCE, &fleet).await;
    });
}

#[test]
fn servers_in_cluster_mode_are_named() {
    on_each_kind(async |program| {
        let cluster = |number, set: redquorum_testkit::ServerBuilder| match number {
            0 => set,
            _ => set.config("cluster-enabled", "yes").config("cluster-port", "0"),
        };
        let fleet = Fleet::start_with(&program, 3, cluster).unwrap();
        for admission in [Admission::On, Admission::Off] {
            let redlock = builder_of(&fleet).admission(admission).build().unwrap();
            refused_with(&redlock, "cluster mode").await;
        }
    });
}

/// They were told as admitted and without an error, and nothing was in the log.
#[test]
fn a_server_that_can_never_vote_does_not_look_healthy() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let allow = |keys: &str| {
            fleet.iter().skip(1).for_each(|server| {
                server.command(&["ACL", "SETUSER", "locker", "on", ">pw", "resetkeys", keys, "&*", "+@all"]).unwrap();
            })
        };
        allow("~redquorum:*");
        let mut addresses = fleet.addresses();
        addresses[1..].iter_mut().for_each(|address| *address = address.replace("redis://", "redis://locker:pw@"));
        let redlock = ready(with_admission(&fleet).instances(addresses)).await;
        let troubles = || redlock.instances().into_iter().map(|status| status.trouble).collect::<Vec<_>>();
        assert_eq!(troubles(), [None, None, None]);

        assert!(redlock.lock("a").try_acquire().await.is_err());
        let denied = |trouble: &Option<Trouble>| {
            trouble.as_ref().is_some_and(|trouble| trouble.cause.to_string().contains("permission denied"))
        };
        assert!(eventually(PATIENCE, || troubles()[1..].iter().all(denied)).await, "{:?}", redlock.instances());
        assert_eq!(troubles()[0], None);

        allow("~*");
        let healthy = async {
            while troubles() != [None, None, None] {
                pair(&redlock, "a").await; // what waits for a slow instance is withdrawn by its release
                sleep(ms(20)).await;
            }
        };
        assert!(timeout(PATIENCE, healthy).await.is_ok(), "{:?}", redlock.instances());
    });
}

#[test]
fn clients_that_disagree_on_max_ttl_are_told() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(with_admission(&fleet)).await;
        pair(&redlock, "a").await;
        let other = with_admission(&fleet).max_ttl(ms(20_000)).build().unwrap();
        refused_with(&other, "20000 ms").await;
        pair(&redlock, "a").await;
    });
}

/// Where the whole of it was told, the connection broke with each try.
#[test]
fn a_foreign_value_of_many_megabytes_is_in_the_way_like_any_other() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(with_admission(&fleet)).await;
        pair(&redlock, "b").await;
        let value = "x".repeat(4 << 20);
        fleet.iter().for_each(|server| drop(server.command(&["SET", "a", &value]).unwrap()));
        for _ in 0..10 {
            let error = redlock.lock("a").try_acquire().await.unwrap_err();
            assert!(matches!(error, AcquireError::Contended(_)), "{error}");
        }
        assert!(redlock.inspect("a").await.is_ok());
        pair(&redlock, "b").await;
        assert!(eventually(PATIENCE, || redlock.instances().iter().all(|status| status.connected)).await);
        assert!(redlock.instances().iter().all(|status| status.counts.connections < 5), "{:?}", redlock.instances());
    });
}

/// The keys of leases are looked at when they change, and after each reconnect.
#[test]
fn a_foreign_value_of_many_megabytes_under_a_lease_costs_no_connection() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(with_admission(&fleet).renew(Renewal::Auto)).await;
        let guard = held(&redlock, "a").await;
        let connections = || redlock.instances()[0].counts.connections;
        assert_eq!(connections(), 1);
        // From now on its keys are watched.
        assert!(tokio::time::timeout(ms(100), guard.lost()).await.is_err());
        fleet[0].command(&["SET", "a", &"x".repeat(8 << 20)]).unwrap();
        assert!(eventually(PATIENCE, || guard.redundancy().held_on == 2).await, "it is looked at");
        tokio::time::sleep(ms(1_500)).await;
        assert_eq!(connections(), 1);
        pair(&redlock, "b").await;
        assert!(guard.is_valid());
    });
}
