//! Instances that say more than anybody asked for, or never come to an end: what they may cost.

use redquorum::AcquireError;
use redquorum_testkit::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::memory::resident;
use crate::support::{
    PATIENCE, alone_on_each_kind, builder_of, eventually, fleet_of, held, ms, on_each_kind, pair, ready,
};

/// How much the process may grow: several of the longest replies, and what an allocator keeps.
const MOST_GROWTH: usize = 48 * 1024 * 1024;

/// What is said once, and again and again behind it.
type Speech = (&'static str, String);

/// Stands before a server and says something of its own from a moment on. Ends with the runtime.
struct Talker {
    address: String,
    speech: watch::Sender<Option<Speech>>,
}

impl Talker {
    async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let (speech, said) = watch::channel(None);
        let port = server.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(talk(client, server, said.clone()));
            }
        });
        Self { address, speech }
    }
}

/// Passes everything on until there is something to say, and then requests only.
async fn talk(client: TcpStream, server: TcpStream, mut said: watch::Receiver<Option<Speech>>) {
    let (mut requests, mut replies) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut requests, &mut to_server).await });
    let mut buffer = vec![0; 64 * 1024];
    let speech = loop {
        tokio::select! {
            size = from_server.read(&mut buffer) => match size {
                Ok(size @ 1..) => if replies.write_all(&buffer[..size]).await.is_err() { return },
                _ => return,
            },
            Ok(_) = said.changed() => {
                let speech = said.borrow().clone();
                if let Some(speech) = speech {
                    break speech;
                }
            }
        }
    };
    let _ = replies.write_all(speech.0.as_bytes()).await;
    while replies.write_all(speech.1.as_bytes()).await.is_ok() {}
}

/// What an instance says that talks so, and is connected to again whenever it is given up.
fn hears(once: &'static str, then: &str, told: &str) {
    alone_on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let talker = Talker::before(&fleet[2]).await;
        let mut addresses = fleet.addresses();
        addresses[2] = talker.address.clone();
        let redlock = ready(builder_of(&fleet).instances(addresses)).await;
        pair(&redlock, "a").await;
        let Some(before) = resident() else { return };
        talker.speech.send_replace(Some((once, then.to_owned())));
        let mut growth = 0;
        for _ in 0..40 {
            pair(&redlock, "a").await;
            tokio::time::sleep(ms(50)).await;
            growth = resident().unwrap_or(before).saturating_sub(before).max(growth);
        }
        println!("{} MiB more", growth / 1024 / 1024);
        assert!(growth <= MOST_GROWTH, "{growth} bytes more");
        let is_told = || redlock.instances()[2].last_error.clone().is_some_and(|error| error.contains(told));
        assert!(told.is_empty() || eventually(PATIENCE, is_told).await, "{:?}", redlock.instances()[2]);
    });
}

#[test]
fn a_flood_of_pushes_costs_a_bounded_amount_of_memory() {
    let key = "x".repeat(1000);
    hears("", &format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1000\r\n{key}\r\n").repeat(60), "");
}

#[test]
fn a_text_without_end_is_given_up() {
    hears("$1000000000000\r\n", &"x".repeat(64 * 1024), "longer than");
}

#[test]
fn a_line_without_end_is_given_up() {
    hears("+", &"x".repeat(64 * 1024), "longer than");
}

#[test]
fn a_list_without_end_is_given_up() {
    hears("*1000000000\r\n", &":1\r\n".repeat(16 * 1024), "longer than");
}

/// Counter-example: what stood in the way was told in full, and a reply of that length ends a
/// connection. A client that waited for the one lock ended the connections of all others.
#[test]
fn a_long_value_under_the_key_of_one_lock_harms_no_other() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let redlock = ready(builder_of(&fleet).instance_timeout(PATIENCE)).await; // it is work for a server
        for server in fleet.iter() {
            server.command(&[b"SET".as_slice(), b"long", &vec![b'x'; 5 * 1024 * 1024]]).unwrap();
        }
        for _ in 0..10 {
            let error = redlock.lock("long").try_acquire().await.unwrap_err();
            assert!(matches!(error, AcquireError::Contended(_)), "{error}");
            held(&redlock, "other").await.release().await.unwrap();
        }
    });
}
