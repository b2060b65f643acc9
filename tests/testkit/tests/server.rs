//! The servers, on every program of this machine.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use redquorum_testkit::{Error, Fleet, Program, Reply, Server, wait_until};

const SOON: Duration = Duration::from_secs(5);

type Result = std::result::Result<(), Error>;

fn exists(pid: u32) -> bool {
    Command::new("kill")
        .args(["-0", &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn started(start: std::result::Result<Server, Error>) -> String {
    start.map(|server| format!("{server:?} came up")).unwrap_or_else(|error| error.to_string())
}

#[test]
fn a_server_starts_empty_answers_and_leaves_nothing() -> Result {
    for program in Program::all_required()? {
        let server = Server::start(&program)?;
        assert_eq!(server.command(&["PING"])?, Reply::Status("PONG".into()));
        assert_eq!(server.command(&["SET", "orders:42", "held"])?.text().as_deref(), Some("OK"));
        assert_eq!(server.command(&["SET", "redquorum:admission", "1"])?.text().as_deref(), Some("OK"));
        assert_eq!(server.keys()?, ["orders:42"]);
        assert_eq!(server.all_keys()?, ["orders:42", "redquorum:admission"]);
        assert_eq!(server.info("server", "process_id")?, server.pid().map(|pid| pid.to_string()));

        let (pid, dir) = (server.pid().unwrap(), server.dir().to_owned());
        assert!(exists(pid) && dir.is_dir());
        drop(server);
        assert!(!exists(pid) && !dir.exists());
    }
    Ok(())
}

#[test]
fn every_kind_of_reply_is_read() -> Result {
    let server = Server::start(&Program::required()?)?;
    let script = "return {1, 'two', false, {redis.status_reply('OK'), redis.error_reply('ERR NO'), ''}}";
    let nested = vec![Reply::Status("OK".into()), Reply::Error("ERR NO".into()), Reply::Bytes(vec![])];
    let expected = vec![Reply::Int(1), Reply::Bytes(b"two".to_vec()), Reply::Nil, Reply::Array(nested)];
    assert_eq!(server.command(&["EVAL", script, "0"])?, Reply::Array(expected));

    let binary: &[u8] = b"\xff\r\n\0";
    server.command(&[b"SET", b"key".as_slice(), binary])?;
    assert_eq!(server.command(&["GET", "key"])?, Reply::Bytes(binary.to_vec()));
    let refused = server.command(&["INCR", "key"]).unwrap_err();
    assert!(refused.to_string().contains("not an integer"), "{refused}");
    Ok(())
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_on_its_port() -> Result {
    for program in Program::all_required()? {
        let server = Server::start(&program)?;
        server.command(&["SET", "key", "1"])?;
        let (port, pid) = (server.port(), server.pid().unwrap());
        server.kill()?;
        server.kill()?;
        assert!(!server.is_running() && !exists(pid) && server.pid().is_none());
        assert!(server.command(&["PING"]).is_err());
        assert!(matches!(server.hang(), Err(Error::NotRunning { .. })));

        server.restart()?;
        assert_eq!((server.port(), server.keys()?), (port, vec![]));
        server.command(&["SET", "key", "2"])?;
        server.restart()?; // of a running one
        assert_eq!((server.port(), server.keys()?), (port, vec![]));
    }
    Ok(())
}

#[test]
fn a_server_with_a_log_keeps_its_data() -> Result {
    for program in Program::all_required()? {
        let server = Server::builder(&program).config("appendonly", "yes").start()?;
        server.command(&["SET", "key", "1"])?;
        server.restart()?;
        assert_eq!(server.keys()?, ["key"]);
    }
    Ok(())
}

#[test]
fn a_hung_server_is_silent_until_it_is_resumed_and_can_be_dropped() -> Result {
    for program in Program::all_required()? {
        let server = Server::start(&program)?;
        server.hang()?;
        assert!(server.is_running());
        assert!(server.command(&["PING"]).unwrap_err().to_string().contains("read the answer"));
        server.resume()?;
        assert_eq!(server.command(&["PING"])?.text().as_deref(), Some("PONG"));
        server.hang()?;
        let pid = server.pid().unwrap();
        drop(server);
        assert!(!exists(pid));
    }
    Ok(())
}

#[test]
fn a_password_and_files_reach_the_server() -> Result {
    for program in Program::all_required()? {
        let server = Server::builder(&program).password("secret").start()?;
        assert_eq!(server.command(&["PING"])?.text().as_deref(), Some("PONG"));

        let users = "user default on nopass ~* +@all -flushall\n";
        let server = Server::builder(&program).file("users.acl", users).config("aclfile", "users.acl").start()?;
        assert!(server.command(&["FLUSHALL"]).unwrap_err().to_string().contains("NOPERM"));
    }
    Ok(())
}

#[test]
fn a_taken_port_and_a_bad_directive_are_reported_with_the_log() -> Result {
    let program = Program::required()?;
    let first = Server::start(&program)?;
    let text = started(Server::builder(&program).port(first.port()).start());
    assert!(text.contains("could not listen") && text.contains("Address already in use"), "{text}");
    let text = started(Server::builder(&program).config("no-such-directive", "1").start());
    assert!(text.contains("ended at once") && text.contains("no-such-directive"), "{text}");
    Ok(())
}

#[test]
fn calls_are_counted_by_command() -> Result {
    for program in Program::all_required()? {
        let server = Server::start(&program)?;
        server.command(&["EVAL", "return redis.call('GET', 'a')", "0"])?;
        server.command(&["EVAL", "return redis.call('GET', 'a')", "0"])?;
        assert_eq!((server.calls("eval")?, server.calls("get")?, server.calls("set")?), (2, 2, 0));
        assert!(server.usec_per_call("eval")?.is_some_and(|mean| mean > 0.0));
        server.reset_stats()?;
        assert_eq!((server.calls("eval")?, server.usec_per_call("eval")?), (0, None));
    }
    Ok(())
}

#[test]
fn a_fleet_is_of_separate_servers() -> Result {
    for program in Program::all_required()? {
        let fleet = Fleet::start(&program, 5)?;
        fleet[1].command(&["SET", "key", "1"])?;
        fleet[2].kill()?;
        let held = fleet.iter().filter(|server| server.keys().is_ok_and(|keys| keys == ["key"])).count();
        let mut addresses = fleet.addresses();
        addresses.dedup();
        assert_eq!((fleet.len(), held, addresses.len(), &addresses[1]), (5, 1, 5, &fleet[1].address()));
    }
    Ok(())
}

/// Not a test of its own: what the next one kills.
#[test]
#[ignore = "started by a_killed_process_leaves_no_servers"]
fn start_two_and_wait_for_the_end() {
    let program = Program::required().unwrap();
    let (first, second) = (Server::start(&program).unwrap(), Server::start(&program).unwrap());
    drop(Server::start(&program).unwrap());
    second.hang().unwrap();
    println!("\nservers {} {} {}", first.pid().unwrap(), second.pid().unwrap(), first.dir().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_no_servers() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "start_two_and_wait_for_the_end"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("servers ")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    let (first, second): (u32, u32) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let root = PathBuf::from(words[3]).parent().unwrap().to_owned();
    assert!(exists(first) && exists(second) && root.is_dir());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(SOON, || !exists(first) && !exists(second) && !root.exists()), "{line}");
}
