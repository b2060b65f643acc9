//! The proxy, with every fault that it can make.

use std::time::{Duration, SystemTime};

use redquorum_testkit::{Client, Error, Program, Proxy, Reply, Server, wait_until};

/// Ends what has no answer; enough for an answer also on a machine that stands still for a moment.
const SHORT: Duration = Duration::from_millis(700);
const SOON: Duration = Duration::from_secs(5);

type Result = std::result::Result<(), Error>;

fn pair() -> std::result::Result<(Server, Proxy), Error> {
    let server = Server::start(&Program::required()?)?;
    let proxy = Proxy::start(&server)?;
    Ok((server, proxy))
}

fn pong() -> Reply {
    Reply::Status("PONG".into())
}

#[expect(clippy::disallowed_methods, reason = "measures a real proxy")]
fn time<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let start = SystemTime::now();
    let result = act();
    (result, start.elapsed().unwrap_or_default())
}

#[test]
fn it_passes_on_both_ways_and_counts_connections() -> Result {
    let (server, proxy) = pair()?;
    let mut client = Client::connect(proxy.port(), SOON)?;
    let value = "v".repeat(100_000);
    client.command(&["SET", "key", &value])?;
    assert_eq!(client.command(&["GET", "key"])?.text(), Some(value));
    assert_eq!((server.keys()?, proxy.accepted(), proxy.open()), (vec!["key".into()], 1, 1));
    drop(client);
    assert!(wait_until(SOON, || proxy.open() == 0));
    Ok(())
}

#[test]
fn a_delay_is_in_each_direction_on_its_own() -> Result {
    let (_server, proxy) = pair()?;
    let mut client = Client::connect(proxy.port(), SOON)?;
    proxy.delay(Duration::from_millis(300), Duration::from_millis(450))?;
    let (reply, took) = time(|| client.command(&["PING"]));
    assert_eq!(reply?, pong());
    assert!(took >= Duration::from_millis(745), "{took:?}");
    proxy.forward()?;
    let (reply, took) = time(|| client.command(&["PING"]));
    assert_eq!(reply?, pong());
    assert!(took < Duration::from_millis(745), "{took:?}");
    Ok(())
}

#[test]
fn a_black_hole_accepts_and_is_silent_even_when_the_server_dies() -> Result {
    let (server, proxy) = pair()?;
    let mut old = Client::connect(proxy.port(), SHORT)?;
    assert_eq!(old.command(&["PING"])?, pong());
    proxy.black_hole()?;
    let mut new = Client::connect(proxy.port(), SHORT)?;
    for client in [&mut old, &mut new] {
        let (reply, took) = time(|| client.command(&["SET", "key", "1"]));
        assert!(reply.is_err() && took >= SHORT, "{took:?}");
    }
    assert_eq!(server.keys()?, Vec::<String>::new());
    server.kill()?;
    assert!(!wait_until(SHORT, || proxy.open() < 2), "it told of the server's end");

    server.restart()?;
    proxy.forward()?;
    assert!(wait_until(SOON, || proxy.open() == 0), "connections that lost bytes stay");
    assert_eq!(Client::connect(proxy.port(), SOON)?.command(&["PING"])?, pong());
    Ok(())
}

#[test]
fn lost_replies_are_of_requests_that_were_carried_out() -> Result {
    let (server, proxy) = pair()?;
    proxy.lose_replies()?;
    let mut client = Client::connect(proxy.port(), SHORT)?;
    assert!(client.command(&["SET", "key", "1"]).is_err());
    assert!(wait_until(SOON, || server.keys().is_ok_and(|keys| keys == ["key"])));
    Ok(())
}

#[test]
fn a_cut_closes_and_refuses_until_it_is_mended() -> Result {
    let (_server, proxy) = pair()?;
    let mut client = Client::connect(proxy.port(), SOON)?;
    assert_eq!(client.command(&["PING"])?, pong());
    proxy.cut();
    proxy.cut();
    let (reply, took) = time(|| client.command(&["PING"]));
    assert!(reply.is_err() && took < SOON, "{took:?}");
    assert!(Client::connect(proxy.port(), SOON).is_err());
    proxy.forward()?;
    assert_eq!(Client::connect(proxy.port(), SOON)?.command(&["PING"])?, pong());
    let port = proxy.port();
    drop(proxy);
    assert!(Client::connect(port, SOON).is_err());
    Ok(())
}

#[test]
fn a_server_that_ends_closes_its_connections() -> Result {
    let (server, proxy) = pair()?;
    let mut client = Client::connect(proxy.port(), SOON)?;
    assert_eq!(client.command(&["PING"])?, pong());
    server.kill()?;
    let (reply, took) = time(|| client.command(&["PING"]));
    assert!(reply.is_err() && took < SOON, "{took:?}");
    Ok(())
}
