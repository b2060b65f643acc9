//! What a user reads when an instance cannot serve: the cause by its name, what helps once, and
//! nothing that does not.

use redquorum::{Admission, Instance, Redlock};
use redquorum_testkit::{Program, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::odd::stranger;
use crate::support::{PATIENCE, all_have, builder_of, client_of, eventually, fleet_of, held, ms, on_each_kind, ready};

/// All that the causes advise. A text has its own piece of it, and no other.
const ADVICE: [&str; 18] = [
    "check that it runs",
    "check its certificate",
    "and the name of the group",
    "trust who signed it",
    "give it one that it trusts",
    "check host and port",
    "put one into the address",
    "check user and password",
    "check its number",
    "grant the commands",
    "grant the keys",
    "grant them",
    "need a master",
    "need an independent master",
    "need the address of a master",
    "need standalone masters",
    "name the server itself",
    "name a server itself",
];

/// Waits until a client of this one address reads all of `words` in what it is told of an acquire
/// and, if `connecting` fails already, of the instance; checks that it is not told anything else.
pub(crate) async fn told(instance: impl Into<Instance>, admission: Admission, words: &[&str]) {
    let redlock = Redlock::builder().instances([instance]).admission(admission).build().unwrap();
    let mut said = String::new();
    for _ in 0..100 {
        said = redlock.lock("a").try_acquire().await.unwrap_err().to_string();
        if words.iter().all(|word| said.contains(word)) {
            let given: Vec<_> = ADVICE.iter().filter(|advice| said.contains(**advice)).collect();
            assert!(given.iter().all(|given| words.iter().any(|word| word.contains(**given))), "{given:?}: {said}");
            assert!(given.iter().all(|given| said.matches(**given).count() == 1), "twice: {said}");
            assert!(!said.contains("not sent") && !said.contains("--"), "{said}");
            println!("{said}");
            return;
        }
        tokio::time::sleep(ms(20)).await;
    }
    panic!("{words:?} was expected: {said}");
}

const BOTH: [Admission; 2] = [Admission::On, Admission::Off];

#[test]
fn an_address_that_leads_nowhere_or_to_a_stranger_is_told_so() {
    on_each_kind(async |program| {
        let http = stranger(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", false).await;
        let alert = stranger(b"\x15\x03\x03\x00\x02\x02\x46", false).await;
        let sentinel = Server::builder(&program).sentinel().start().unwrap();
        let cluster = Server::builder(&program).config("cluster-enabled", "yes").config("cluster-port", "0");
        let cluster = cluster.start().unwrap();
        for admission in BOTH {
            told("redis://127.0.0.1:1", admission, &["not connected", "refused", "check that it runs"]).await;
            for address in [&http, &alert] {
                told(address, admission, &["is no Redis or Valkey", "check host and port", "rediss://"]).await;
            }
            told(&sentinel.address(), admission, &["it is a Sentinel", "need the address of a master itself"]).await;
            told(&cluster.address(), admission, &["in cluster mode", "need standalone masters"]).await;
        }
    });
}

#[test]
fn an_instance_that_was_not_needed_is_not_told_as_late_and_no_instances_name_the_variable() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        let addresses = [fleet[0].address(), "redis://127.0.0.1:1".to_owned(), "redis://127.0.0.1:2".to_owned()];
        let redlock = builder_of(&fleet).instances(addresses).build().unwrap();
        assert!(eventually(PATIENCE, || redlock.instances()[0].connected).await);
        fleet[0].hang().unwrap();
        let error = redlock.lock("a").try_acquire().await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("127.0.0.1:{}: not waited for: the others had decided", fleet[0].port())),
            "{error}"
        );
        let error = Redlock::builder().build().unwrap_err().to_string();
        assert!(error.contains("REDQUORUM_INSTANCES"), "{error}");
    });
}

/// In other words each; `HELLO` may also be renamed.
#[test]
fn a_program_that_refuses_hello_is_told_so() {
    on_each_kind(async |program| {
        let renamed = Server::builder(&program).args(["--rename-command", "HELLO", ""]).start().unwrap();
        let words = ["it refuses HELLO (", "name a server itself"];
        for admission in BOTH {
            told(&renamed.address(), admission, &words).await;
            for refusal in
                ["-ERR unsupported command\r\n", "-NOPROTO sorry, this protocol version is not supported\r\n"]
            {
                told(stranger(refusal.as_bytes(), false).await, admission, &words).await;
            }
            let with_password = stranger(b"-NOAUTH Authentication required.\r\n", false).await;
            told(with_password.replacen("redis://", "redis://:secret@", 1), admission, &words).await;
        }
    });
}

/// Without an alert: it just ends the connection.
#[test]
fn a_port_that_ends_the_connection_may_be_one_for_tls() {
    on_each_kind(async |_| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4]).await;
            }
        });
        for admission in BOTH {
            told(
                &*address,
                admission,
                &["ended the connection before it answered", "takes rediss://", "check that it runs"],
            )
            .await;
        }
    });
}

#[cfg(feature = "tls-rustls")]
#[test]
fn an_address_that_does_not_speak_tls_is_told_so() {
    on_each_kind(async |_| {
        let http = stranger(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", false).await;
        let address = http.replacen("redis://", "rediss://", 1);
        for admission in BOTH {
            told(&address, admission, &["no TLS with it", "check its certificate"]).await;
        }
    });
}

#[test]
fn what_is_wrong_with_the_credentials_in_an_address_is_told() {
    on_each_kind(async |program| {
        let server = Server::builder(&program).password("right").start().unwrap();
        let with = |credentials: &str| server.address().replacen("redis://", &format!("redis://{credentials}@"), 1);
        for admission in BOTH {
            told(&server.address(), admission, &["requires a password (NOAUTH)", "put one into the address"]).await;
            for credentials in [":wrong", "nobody:right"] {
                let words = ["refuses the password (WRONGPASS)", "check user and password"];
                told(&with(credentials), admission, &words).await;
            }
            let number = format!("{}/99", with(":right"));
            told(&number, admission, &["refuses the database (DB index", "check its number"]).await;
        }
    });
}

/// A server whose user `locker` is denied something, and the address of that user.
fn denying(program: &Program, rules: &[&str]) -> (Server, String) {
    let server = Server::start(program).unwrap();
    server.command(&[&["ACL", "SETUSER", "locker", "reset", "on", ">pw", "&*", "+@all"], rules].concat()).unwrap();
    let address = server.address().replacen("redis://", "redis://locker:pw@", 1);
    (server, address)
}

#[test]
fn a_user_without_a_key_is_told_of_keys_and_one_without_a_command_of_commands() {
    on_each_kind(async |program| {
        let keys = ["permission denied", "grant the keys of the locks and redquorum:*"];
        let commands = ["permission denied", "grant the commands named in redquorum::guide::operations"];
        let (_server, address) = denying(&program, &["~redquorum:*"]);
        told(&address, Admission::Off, &keys).await;
        let (_server, address) = denying(&program, &["~a", "~b"]);
        told(&address, Admission::On, &keys).await;
        told(&address, Admission::Off, &keys).await;
        for command in ["-set", "-evalsha"] {
            let (_server, address) = denying(&program, &["~*", command]);
            told(&address, Admission::Off, &commands).await;
        }
        let (_server, address) = denying(&program, &["~*", "-script"]);
        told(&address, Admission::On, &commands).await;
        let (_server, address) = denying(&program, &["~*", "-info"]);
        told(&address, Admission::On, &["admission needs INFO and TIME", "grant them", "Admission::Off"]).await;
    });
}

#[test]
fn a_server_that_is_full_or_a_replica_or_has_no_place_is_told_so() {
    on_each_kind(async |program| {
        let server = Server::start(&program).unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        told(&server.address(), Admission::Off, &["at its maxmemory; raise it or free keys"]).await;
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        told(&server.address(), Admission::On, &["it is a replica", "need an independent master"]).await;
        told(&server.address(), Admission::Off, &["a read-only replica", "need a master"]).await;
        let server = Server::builder(&program).config("maxclients", "1").start().unwrap();
        // The connection by which it was started may still have the place.
        let mut only = server.client().unwrap();
        while only.command(&["PING"]).is_err() {
            only = server.client().unwrap();
        }
        for admission in BOTH {
            told(&server.address(), admission, &["error: ERR max number of clients reached"]).await;
        }
        drop(only);
    });
}

/// Passes everything on to a server, and what comes back with `word` in place of `name`.
async fn rewriting(server: &Server, name: &'static str, word: &'static str) -> String {
    assert_eq!(name.len(), word.len(), "lengths are part of an answer");
    let port = server.port();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 20];
                while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                    // Answers are small and come whole.
                    let mut answer = buffer[..length].to_vec();
                    while let Some(at) = answer.windows(name.len()).position(|part| part == name.as_bytes()) {
                        answer[at..at + name.len()].copy_from_slice(word.as_bytes());
                    }
                    to_client.write_all(&answer).await.unwrap();
                }
            });
        }
    });
    address
}

/// It was called a replica without `role`, and two without `run_id` the same process.
#[test]
fn servers_that_do_not_say_what_they_are_are_told_so() {
    on_each_kind(async |program| {
        let [first, second] = [(); 2].map(|()| Server::start(&program).unwrap());
        for (name, word, field) in [("\nrole:", "\nxxxx:", "\"role\""), ("\nrun_id:", "\nxxxxxx:", "\"run_id\"")] {
            let addresses = [rewriting(&first, name, word).await, rewriting(&second, name, word).await];
            let redlock = Redlock::builder().instances(&addresses).build().unwrap();
            let said = || {
                let instances = redlock.instances();
                instances.into_iter().map(|status| status.last_error.unwrap_or_default()).collect::<Vec<_>>()
            };
            let words = format!("has no {field}");
            assert!(eventually(PATIENCE, || said().iter().all(|said| said.contains(&words))).await, "{:?}", said());
            told(&addresses[0], Admission::On, &[&words, "name the server itself"]).await;
        }
    });
}

#[test]
fn a_refused_extend_says_by_whom_and_a_release_that_it_deleted() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let guard = held(&client_of(&fleet).await, "a").await;
        assert!(eventually(PATIENCE, || all_have(&fleet)).await);
        for server in fleet.iter().skip(1) {
            server.command(&["DEL", "a"]).unwrap();
        }
        let theirs = held(&ready(builder_of(&fleet).label("theirs")).await, "a").await;
        let error = guard.extend().await.unwrap_err().to_string();
        assert_eq!(
            error.matches("has the key of a client on theirs").count(),
            1,
            "told once, with both addresses: {error}"
        );
        for server in fleet.iter().take(2) {
            server.hang().unwrap();
        }
        let error = theirs.release().await.unwrap_err().to_string();
        assert!(error.contains(": deleted (after"), "{error}");
        assert!(!error.contains("granted"), "{error}");
    });
}
