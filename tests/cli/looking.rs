//! Commands that look change nothing: no record is written, and no service loses a vote by them (P15, P29).

use std::time::Duration;

use redquorum::{AdmissionStatus, Builder, Guard, Redlock};
use redquorum_testkit::{Fleet, Proxy, Server, wait_until};
use serde_json::Value;

use crate::support::{PATIENCE, all_have, fleet_of, output, plain, stderr, stdout};

const RECORD: &str = "redquorum:admission";
const LOCK: &str = "orders:42";
const LONG: Duration = Duration::from_secs(30);

/// Connections are kept up on another thread than the one that runs commands.
fn on_two_threads(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn service<A: AsRef<str>>(addresses: &[A], max_ttl: Duration) -> Builder {
    let addresses: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
    let ttl = max_ttl.min(Duration::from_secs(10));
    Redlock::builder().instances(addresses).ttl(ttl).max_ttl(max_ttl).instance_timeout(Duration::from_secs(1))
}

fn record_of(server: &Server) -> Option<String> {
    server.command(&["GET", RECORD]).unwrap().text()
}

/// As if clients with this `max_ttl` had used it for long.
fn put_to_use(server: &Server, max_ttl: Duration) {
    let id = |section, field| server.info(section, field).unwrap().unwrap().get(..16).unwrap().to_owned();
    let process = format!("{}/{}", id("server", "run_id"), id("replication", "master_replid"));
    let record = format!("{process} 1 {} waits 7", max_ttl.as_millis());
    server.command(&["SET", RECORD, &record]).unwrap();
}

fn in_use(count: usize, max_ttl: Duration) -> Fleet {
    let fleet = fleet_of(count);
    fleet.iter().for_each(|server| put_to_use(server, max_ttl));
    fleet
}

fn is_held(guard: &Guard) -> bool {
    std::thread::sleep(Duration::from_millis(300)); // a client that is refused is told by then
    guard.is_valid()
}

fn admissions(redlock: &Redlock) -> Vec<AdmissionStatus> {
    redlock.instances().iter().map(|instance| instance.admission).collect()
}

/// The operator's `max_ttl` is the default of 10 s, and the record said so: the service was refused for good.
#[test]
fn a_status_of_new_servers_does_not_keep_a_service_out_whose_max_ttl_is_longer() {
    on_two_threads(async {
        let fleet = fleet_of(3);
        let release = ["release", LOCK, "--force", "--yes"];
        let bench = ["bench", "--dry", "--time", "1s"];
        for args in [&["status"][..], &["check"], &["inspect", LOCK], &["list"], &release, &bench] {
            let output = output(&mut plain(&fleet, args));
            assert!(fleet.iter().all(|server| record_of(server).is_none()), "{args:?} has written a record");
            assert_eq!(fleet.iter().map(|server| server.keys().unwrap().len()).sum::<usize>(), 0, "{args:?}");
            assert!(!stderr(&output).contains("panic"), "{}", stderr(&output));
        }
        let redlock = service(&fleet.addresses(), LONG).connect().await.unwrap();
        redlock.want_locks();
        let waits = |status: &AdmissionStatus| matches!(status, AdmissionStatus::Quarantine(left) if *left > LONG / 2);
        assert!(wait_until(PATIENCE, || admissions(&redlock).iter().all(waits)), "{:?}", redlock.instances());
        let error = redlock.lock(LOCK).try_acquire().await.unwrap_err().to_string();
        assert!(error.contains("in quarantine") && !error.contains("max_ttl"), "{error}");
    });
}

/// It said `down`, and that no lock could be acquired.
#[test]
fn beside_a_service_with_a_longer_max_ttl_everything_is_shown_as_it_is() {
    on_two_threads(async {
        let fleet = in_use(3, LONG);
        let redlock = service(&fleet.addresses(), LONG).connect().await.unwrap();
        let guard = redlock.lock(LOCK).acquire().await.unwrap();
        all_have(&fleet, LOCK);
        let records: Vec<_> = fleet.iter().map(record_of).collect();

        let status = output(&mut plain(&fleet, ["status"]));
        let shown = stdout(&status);
        assert_eq!(status.status.code(), Some(0), "{shown}");
        assert!(
            shown.contains("3 of 3 may vote, 2 needed: locks can be acquired") && !shown.contains("down"),
            "{shown}"
        );
        let inspected = output(&mut plain(&fleet, ["inspect", LOCK]));
        assert!(stdout(&inspected).contains("on 3 of 3"), "{}{}", stdout(&inspected), stderr(&inspected));
        let listed = output(&mut plain(&fleet, ["list"]));
        assert!(stdout(&listed).contains("3/3"), "{}{}", stdout(&listed), stderr(&listed));
        let checked = output(&mut plain(&fleet, ["check"]));
        assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
        assert!(stdout(&checked).contains("a lock was acquired in"), "{}", stdout(&checked));

        // With its own settings told, it does not fit, and why has both figures.
        let refused = output(&mut plain(&fleet, ["status", "--max-ttl", "10s"]));
        let shown = stdout(&refused);
        assert_eq!(refused.status.code(), Some(69), "{shown}");
        assert!(
            shown.contains(" unfit ")
                && shown.contains("does not fit")
                && !shown.contains("refused")
                && !shown.contains("down"),
            "{shown}"
        );
        assert!(shown.contains("30000 ms") && shown.contains("10000 ms"), "{shown}");
        let json = output(plain(&fleet, ["status", "--json"]).env("REDQUORUM_MAX_TTL", "10s"));
        let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert_eq!((&json["instances"][0]["state"], &json["can_lock"]), (&"refused".into(), &false.into()), "{json}");

        assert!(is_held(&guard), "{:?}", redlock.instances());
        assert_eq!(fleet.iter().map(record_of).collect::<Vec<_>>(), records, "nothing was written");
        let released = output(&mut plain(&fleet, ["release", LOCK, "--force", "--yes"]));
        // Once two have lost it, the client that had it releases it itself: it may be the first on the third.
        let is_told = [" on 2\n", " on 3\n"].iter().any(|count| stdout(&released).ends_with(*count));
        assert!(is_told, "{}{}", stdout(&released), stderr(&released));
        guard.lost().await;
    });
}

/// It was the first at each instance that came back empty, wrote its own 10 s there, and kept the service out of one
/// instance after the other.
#[test]
fn a_status_over_and_over_during_a_rolling_restart_costs_the_service_no_vote() {
    on_two_threads(async {
        let fleet = in_use(3, LONG);
        let proxies: Vec<Proxy> = fleet.iter().map(|server| Proxy::start(server).unwrap()).collect();
        let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
        let redlock = service(&addresses, LONG).connect().await.unwrap();
        redlock.lock(LOCK).acquire().await.unwrap().release().await.unwrap();
        for (index, (server, proxy)) in fleet.iter().zip(&proxies).enumerate() {
            proxy.black_hole().unwrap();
            proxy.cut();
            server.restart().unwrap();
            assert_eq!(record_of(server), None, "it is empty");
            let shown = [(); 3].map(|()| stdout(&output(&mut plain(&fleet, ["status"]))));
            assert_eq!(record_of(server), None, "the status has written a record");
            assert!(shown.iter().all(|it| it.contains("no record")), "{shown:?}");
            proxy.cut();
            proxy.forward().unwrap();
            let waits = |redlock: &Redlock| matches!(admissions(redlock)[index], AdmissionStatus::Quarantine(left) if left > LONG / 2);
            assert!(wait_until(PATIENCE, || waits(&redlock)), "{:?}", redlock.instances());
            assert!(record_of(server).unwrap().contains(" 30000 waits "), "{:?}", record_of(server));
        }
    });
}

/// Its first answer was to let everybody wait for longer, and one command for that was enough to let the longer service
/// in, and to end the leases of the one that ran.
#[test]
fn following_the_words_of_a_refusal_breaks_no_lock_that_is_held() {
    on_two_threads(async {
        let short = Duration::from_secs(10);
        let fleet = in_use(3, short);
        let runs = service(&fleet.addresses(), short).connect().await.unwrap();
        let guard = runs.lock(LOCK).acquire().await.unwrap();
        let longer = service(&fleet.addresses(), LONG).connect_timeout(Duration::from_secs(1)).connect().await;
        let refusal = longer.unwrap_err().to_string();
        assert!(refusal.contains("10000 ms") && refusal.contains("30000 ms"), "{refusal}");
        assert!(!refusal.contains("longer quarantine first"), "on one client alone that is no help: {refusal}");
        let steps = [["--max-ttl", "10s", "--quarantine", "30s"], ["--max-ttl", "30s", "--quarantine", "30s"]];
        for step in steps {
            for command in [&["status"][..], &["check"], &["inspect", LOCK], &["list"]] {
                output(plain(&fleet, command).args(step));
            }
            let longer = service(&fleet.addresses(), LONG).connect_timeout(Duration::from_secs(1)).connect().await;
            assert!(longer.is_err(), "{step:?} has let it in");
            assert!(is_held(&guard), "{step:?}: {:?}", runs.instances());
        }
        let asked = output(&mut plain(&fleet, ["run", "-r", "other", "--try", "--max-ttl", "30s", "--", "true"]));
        assert_eq!(asked.status.code(), Some(69));
        let told = stderr(&asked);
        assert!(told.contains("give it a max_ttl of 10000 ms") && told.contains("(--max-ttl"), "{told}");
        assert!(
            told.contains("once all clients have a quarantine of 30000 ms, run 'redquorum admission set"),
            "{told}"
        );
        let followed = output(&mut plain(&fleet, ["run", "-r", "other", "--try", "--max-ttl", "10s", "--", "true"]));
        assert_eq!(followed.status.code(), Some(0), "{}", stderr(&followed));
        assert!(is_held(&guard));
    });
}

/// P29: what it writes itself lets the service go on.
#[test]
fn a_command_that_locks_and_comes_first_makes_an_instance_wait_for_as_long_as_the_service_needs() {
    on_two_threads(async {
        let fleet = in_use(3, Duration::from_secs(2));
        put_to_use(&fleet[1], Duration::from_secs(5));
        fleet[2].command(&["DEL", RECORD]).unwrap();
        let run =
            output(&mut plain(&fleet, ["run", "-r", "a", "--try", "--ttl", "2s", "--max-ttl", "2s", "--", "true"]));
        assert!(stderr(&run).contains("allows ttls of 5000 ms"), "{}", stderr(&run));
        let written = record_of(&fleet[2]).unwrap();
        assert!(written.contains(" 5000 waits "), "{written}");
        let words: Vec<u64> = written.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [vote_from, _, written_at] = words.as_slice() else { unreachable!("{written}") };
        assert_eq!(vote_from - written_at, 5_000, "{written}");
    });
}

/// The library's clients, and not the commands alone.
#[test]
fn a_client_writes_nothing_before_its_first_lock_and_goes_on_to_write_after_it() {
    on_two_threads(async {
        let fleet = fleet_of(3);
        let max_ttl = Duration::from_millis(500);
        let redlock = service(&fleet.addresses(), max_ttl).ttl(max_ttl).connect().await.unwrap();
        let status = stdout(&output(plain(&fleet, ["status"]).env("REDQUORUM_MAX_TTL", "500ms")));
        assert!(status.ends_with("0 of 3 may vote, 2 needed: no lock can be acquired\n"), "{status}");
        redlock.inspect(LOCK).await.unwrap();
        assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty() && record_of(server).is_none()));
        let guard = redlock.lock(LOCK).wait_at_most(PATIENCE).acquire().await.unwrap();
        guard.release().await.unwrap();
        assert!(wait_until(PATIENCE, || fleet.iter().all(|server| record_of(server).is_some())));
        fleet[0].restart().unwrap();
        assert!(
            wait_until(PATIENCE, || record_of(&fleet[0]).is_some()),
            "it waits at once, and not from the next lock on"
        );
        assert!(redlock.instances().iter().all(|it| it.refusal.is_none()));
        let other = service(&fleet.addresses(), LONG).build().unwrap();
        let refused = |it: &redquorum::InstanceStatus| it.refusal.as_ref().is_some_and(|it| it.contains("30000 ms"));
        assert!(wait_until(PATIENCE, || other.instances().iter().all(|it| it.connected && refused(it))));
    });
}

/// Which database it was no push says, so it is told what any flush costs.
#[test]
fn an_instance_that_is_flushed_is_shown_with_what_that_costs() {
    on_two_threads(async {
        let fleet = in_use(3, LONG);
        let redlock = service(&fleet.addresses(), LONG).connect().await.unwrap();
        redlock.lock(LOCK).acquire().await.unwrap().release().await.unwrap();
        for server in &fleet[..2] {
            server.command(&["EVAL", "redis.call('SELECT', 1) return redis.call('FLUSHDB')", "0"]).unwrap();
        }
        let waits = || redlock.instances().iter().filter(|status| status.flushed_ago.is_some()).count() == 2;
        assert!(wait_until(PATIENCE, waits), "{:?}", redlock.instances());
        for command in ["status", "check"] {
            let shown = stdout(&output(&mut plain(&fleet, [command])));
            assert!(shown.contains("a database of it was flushed"), "{command}: {shown}");
            assert!(shown.contains("give locks servers of their own"), "{command}: {shown}");
        }
    });
}
