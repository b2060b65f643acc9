//! What a subject sends to the instances, as they tell it by MONITOR.
//!
//! Counters will not do: INFO counts what a script calls as well. As MONITOR slows an instance down, commands
//! are counted in a run of their own.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread::{self, JoinHandle};

use redquorum_testkit::{Fleet, Server};

use crate::Outcome;

/// Those that ask for a lock, give it back, or tell of it. Of the plain commands of an acquire each counts, but the record
/// is read by others too.
const OF_LOCKS: [&str; 9] = ["eval", "evalsha", "set", "del", "publish", "zadd", "zscore", "pexpiretime", "getrange"];

/// Ends what is counted.
const MARK: &str = "all is counted";

/// Commands on the wire, of all instances together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// Those that ask for a lock, give it back, or tell of it.
    pub(crate) of_locks: u32,
    /// All others: those that ask how an instance is, and what its clock says.
    pub(crate) of_health: u32,
}

/// One connection to each instance, which listens until the end.
pub(crate) struct Monitors(Vec<JoinHandle<Outcome<Commands>>>);

impl Monitors {
    /// Counts from now on.
    pub(crate) fn start(fleet: &Fleet) -> Outcome<Self> {
        fleet.iter().map(listen).collect::<Outcome<_>>().map(Self)
    }

    pub(crate) fn finish(self, fleet: &Fleet) -> Outcome<Commands> {
        for server in fleet.iter() {
            server.command(&["ECHO", MARK])?;
        }
        let mut all = Commands::default();
        for monitor in self.0 {
            let of_one = monitor.join().map_err(|_| "a monitor panicked")??;
            all.of_locks += of_one.of_locks;
            all.of_health += of_one.of_health;
        }
        Ok(all)
    }
}

fn listen(server: &Server) -> Outcome<JoinHandle<Outcome<Commands>>> {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?);
    stream.get_mut().write_all(b"MONITOR\r\n")?;
    let mut answer = String::new();
    stream.read_line(&mut answer)?;
    if answer != "+OK\r\n" {
        return Err(format!("{server:?} does not tell its commands: {answer}").into());
    }
    Ok(thread::spawn(move || count(stream)))
}

fn count(stream: impl BufRead) -> Outcome<Commands> {
    let mut commands = Commands::default();
    for line in stream.lines() {
        let line = line?;
        match sent(&line).as_deref() {
            Some("echo") if line.contains(MARK) => return Ok(commands),
            Some(command) if OF_LOCKS.contains(&command) => commands.of_locks += 1,
            Some(_) => commands.of_health += 1,
            None => {}
        }
    }
    Err("an instance ended".into())
}

/// The command that a client sent, in lower case; none if a script called it.
fn sent(line: &str) -> Option<String> {
    let (from, command) = line.split_once("] \"")?;
    let name = command.split('"').next()?;
    if from.ends_with(" lua") { None } else { Some(name.to_ascii_lowercase()) }
}

#[test]
fn what_a_script_calls_is_not_counted() {
    let told = "+1.2 [0 127.0.0.1:5] \"EVALSHA\" \"f00\"\r\n\
                +1.2 [0 lua] \"SET\" \"] \\\"PING\"\r\n\
                +1.2 [0 127.0.0.1:5] \"TIME\"\r\n\
                +1.2 [0 127.0.0.1:6] \"set\" \"a\" \"b\" \"NX\"\r\n\
                +1.2 [0 127.0.0.1:7] \"ECHO\" \"all is counted\"\r\n\
                +1.2 [0 127.0.0.1:5] \"TIME\"\r\n";
    assert_eq!(count(told.as_bytes()).ok(), Some(Commands { of_locks: 2, of_health: 1 }));
    assert!(count(&b"+1.2 [0 127.0.0.1:5] \"TIME\"\r\n"[..]).is_err());
}
