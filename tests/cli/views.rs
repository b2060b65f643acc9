//! What operators are shown, and what it does.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use redquorum_testkit::{Fleet, Program, wait_until};
use serde_json::{Value, json};

use crate::support::{
    Dir, PATIENCE, all_have, bare, contents, fleet_of, now, output, plain, redquorum, signal, status_of, stderr, stdout,
};

/// The text with what differs from run to run replaced: addresses by letters, and numbers by `#`.
fn masked(fleet: &Fleet, text: &str) -> String {
    let mut text = text.to_owned();
    for (address, letter) in fleet.addresses().iter().zip(["A", "B", "C"]) {
        text = text.replace(address.rsplit(['@', '/']).next().unwrap(), letter);
    }
    let version = Program::required().unwrap().version().to_owned();
    text = text.replace(&version, "VERSION").replace("valkey", "SERVER").replace("redis", "SERVER");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| host.trim().to_owned());
    text = text.replace(&format!("{host}/"), "HOST/");
    let mut masked = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            c => masked.push(c),
        }
    }
    // Columns are as wide as what is in them.
    let lines = masked.lines().map(|line| {
        let indent = line.len() - line.trim_start().len();
        " ".repeat(indent) + &line.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    // From ten milliseconds on they have no decimals.
    let rows = lines.collect::<Vec<_>>().join("\n");
    rows.replace("-#.# ms", "+#.# ms").replace("-# ms", "+#.# ms").replace("+# ms", "+#.# ms")
}

fn json_of(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(&output(command))).unwrap()
}

/// A client has the lock.
fn holder(fleet: &Fleet, dir: &Dir, resource: &str, options: &[&str]) -> Child {
    let begun = dir.file("begun");
    let _ = std::fs::remove_file(&begun);
    let script = format!("echo > {}; exec sleep 60", begun.display());
    let args = [&["run", "-r", resource], options, &["--", "sh", "-c", &script]].concat();
    let child = redquorum(fleet, args).stderr(Stdio::null()).spawn().unwrap();
    contents(&begun);
    all_have(fleet, resource);
    child
}

#[test]
fn the_status_is_a_table_with_what_to_do_and_a_verdict() {
    let fleet = fleet_of(3);
    let status = |options: &[&str]| output(redquorum(&fleet, ["status"]).args(options));
    let well = status(&[]);
    assert_eq!(well.status.code(), Some(0));
    let line = |letter| format!("{letter} up master SERVER VERSION yes none noeviction # +#.# ms #.# ms\n");
    let heading = "INSTANCE STATE ROLE VERSION VOTES PERSISTENCE EVICTION TOKENS CLOCK ROUND TRIP\n";
    let expected = [heading, &line("A"), &line("B"), &line("C"), "# of # may vote, # needed: locks can be acquired"];
    let shown = masked(&fleet, &stdout(&well)).replace(" # ms\n", " #.# ms\n");
    assert_eq!(shown, expected.concat());

    fleet[1].kill().unwrap();
    fleet[0].command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
    fleet[0].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    let ill = status(&[]);
    assert_eq!(ill.status.code(), Some(0), "two of three are enough");
    let shown = masked(&fleet, &stdout(&ill));
    let refused = "B: not connected (Connection refused (os error #)); check that it runs and can be reached";
    for part in
        ["B down - - no - - - - -", refused, "A: it may evict locks (allkeys-lru); set maxmemory-policy noeviction"]
    {
        assert!(shown.lines().any(|line| line == part), "{part}\n{shown}");
    }
    for server in [&fleet[0], &fleet[2]] {
        server.command(&["CONFIG", "SET", "maxmemory", "500kb"]).unwrap();
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    }
    let full = status(&[]);
    assert_eq!(full.status.code(), Some(69));
    let shown = stdout(&full);
    assert!(shown.contains("0 of 3 may vote, 2 needed: too many are full, no lock can be acquired"), "{shown}");
    let bench = output(&mut redquorum(&fleet, ["bench", "--time", "2s"]));
    assert!(bench.status.code() == Some(69) && stderr(&bench).contains("in that time: "), "{}", stderr(&bench));
    assert!(stderr(&bench).contains("maxmemory"), "{}", stderr(&bench));
    fleet[2].kill().unwrap();
    let dead = status(&[]);
    assert_eq!(dead.status.code(), Some(69));
    assert!(stdout(&dead).contains("0 of 3 may vote, 2 needed: no lock can be acquired"));
}

/// A10.
#[test]
fn a_list_that_was_cut_is_told_of_by_status_check_and_run() {
    let (fleet, dir) = (fleet_of(5), Dir::new());
    let mut holder = holder(&fleet, &dir, "a", &[]);
    let cut = |args: &[&str]| {
        let mut command = redquorum(&fleet, args);
        output(command.env("REDQUORUM_INSTANCES", fleet.addresses()[..3].join(" ")))
    };
    let words = "clients with another list of instances are connected to it (1), which need 3 of 5 votes";
    for (args, code) in [(&["status"][..], 0), (&["check", "-r", "b"], 1), (&["run", "-r", "b", "--", "true"], 0)] {
        let told = cut(args);
        let all = stdout(&told) + &stderr(&told);
        assert!(told.status.code() == Some(code) && all.contains(words), "{args:?}: {told:?}");
    }
    signal(&holder, Signal::SIGTERM);
    holder.wait().unwrap();
}

#[test]
fn the_status_for_programs_keeps_its_shape() {
    let fleet = fleet_of(3);
    fleet[2].kill().unwrap();
    let status = json_of(redquorum(&fleet, ["status"]).arg("--json"));
    assert_eq!((&status["may_vote"], &status["quorum"], &status["can_lock"]), (&json!(2), &json!(2), &json!(true)));
    let (up, down) = (&status["instances"][0], &status["instances"][2]);
    let names: Vec<&str> = up.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "address",
        "connected",
        "state",
        "has_record",
        "max_ttl_ms",
        "is_master",
        "version",
        "may_vote",
        "quarantine_left_ms",
        "flushed_ago_ms",
        "tokens",
        "floor_lag_ms",
        "replicas",
        "appends_to_file",
        "saves_snapshots",
        "memory_limit",
        "memory_used",
        "eviction_policy",
        "refuses_writes",
        "clock_offset_us",
        "clock_steps",
        "round_trip_us",
        "problems",
    ];
    expected.sort_unstable();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(
        (&up["is_master"], &up["eviction_policy"], &up["problems"]),
        (&json!(true), &json!("noeviction"), &json!([]))
    );
    assert!(up["round_trip_us"].as_u64().unwrap() > 0);
    assert_eq!(
        (&down["connected"], &down["version"], &down["round_trip_us"]),
        (&json!(false), &Value::Null, &Value::Null)
    );
    assert_eq!(down["problems"][0]["is_severe"], json!(true));
}

#[test]
fn an_instance_in_quarantine_is_shown_with_what_is_left_of_it() {
    let fleet = fleet_of(3);
    // Who wants a lock writes the records.
    let wanted = output(&mut plain(&fleet, ["run", "-r", "a", "--try", "--max-ttl", "30s", "--", "true"]));
    assert!(stderr(&wanted).contains("in quarantine"), "{}", stderr(&wanted));
    let status = output(&mut plain(&fleet, ["status", "--max-ttl", "30s"]));
    assert_eq!(status.status.code(), Some(69));
    let shown = masked(&fleet, &stdout(&status));
    assert!(shown.contains("A up master SERVER VERSION in #.# s none"), "{shown}");
    // Told once where it is alike: a record that was written a moment later leaves another time.
    let text = stdout(&status);
    let told = text.lines().filter_map(|line| line.split_once(": it may have forgotten locks and votes in "));
    let (named, mut rest): (Vec<&str>, Vec<&str>) = told.unzip();
    assert_eq!(named.iter().flat_map(|addresses| addresses.split(", ")).count(), 3, "{text}");
    assert!(rest.iter().all(|rest| rest.contains(" s; wait")), "{text}");
    rest.sort_unstable();
    rest.dedup();
    assert_eq!(rest.len(), named.len(), "told once\n{text}");
}

/// So the command line can take part while `max_ttl` is being changed.
#[test]
fn a_quarantine_may_be_longer_than_the_longest_ttl() {
    let fleet = fleet_of(1);
    let of_instance = |args: &[&str]| {
        let mut command = plain(&fleet, ["--max-ttl", "5s", "--quarantine", "40s"]);
        command.args(args);
        command
    };
    output(&mut of_instance(&["run", "-r", "a", "--try", "--", "true"]));
    let status = json_of(&mut of_instance(&["status", "--json"]));
    let left_ms = status["instances"][0]["quarantine_left_ms"].as_u64().unwrap();
    assert!((20_000..=40_000).contains(&left_ms), "{status}");
}

#[test]
fn a_watched_status_ends_with_the_pipe_that_it_is_written_to() {
    use std::io::{BufRead, BufReader};
    let fleet = fleet_of(1);
    let mut child = redquorum(&fleet, ["status", "--json", "--watch", "50ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let status: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(status["can_lock"], json!(true));
    }
    drop(lines);
    assert_eq!(status_of(&mut child), 141);
    assert_eq!(stderr(&child.wait_with_output().unwrap()), "");
}

#[test]
fn a_lock_is_shown_with_its_holder_and_listed_with_others() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let mut first = holder(&fleet, &dir, "orders:42", &["--holder", "me"]);
    let mut second = holder(&fleet, &dir, "jobs*", &[]);
    fleet[2].command(&["DEL", "orders:42"]).unwrap();
    fleet.iter().for_each(|server| drop(server.command(&["SET", "data", "x", "PX", "60000"]).unwrap()));
    fleet.iter().for_each(|server| drop(server.command(&["RPUSH", "orders:list", "x"]).unwrap()));
    let inspected = output(&mut redquorum(&fleet, ["inspect", "orders:42"]));
    let shown = masked(&fleet, &stdout(&inspected));
    // The third instance may have been set again meanwhile.
    assert!(shown.starts_with("orders:#\n  held by holder \"me\" on HOST/# on # of #, expires in #.# s"), "{shown}");
    let inspected = json_of(redquorum(&fleet, ["inspect", "orders:42"]).arg("--json"));
    assert_eq!(
        (&inspected["resource"], &inspected["is_held"], &inspected["quorum"]),
        (&json!("orders:42"), &json!(true), &json!(2))
    );
    let found = &inspected["holders"][0];
    assert_eq!(&found["by"]["holder"], &json!("me"));
    assert!(inspected["largest_token"].as_str().unwrap().parse::<u64>().is_ok());
    assert!(found["expires_in_ms"].as_u64().unwrap() < 10_000);
    assert_eq!((&found["other_type"], &found["is_mark"]), (&Value::Null, &json!(false)));
    assert!(found["on"].as_array().unwrap().len() >= 2);

    let listed = masked(&fleet, &stdout(&output(&mut redquorum(&fleet, ["list"]))));
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows[0], "RESOURCE HELD BY ON EXPIRES IN");
    assert_eq!(rows[1], "jobs* a client on HOST/# #/# #.# s");
    assert_eq!(rows[2], "orders:# holder \"me\" on HOST/# #/# #.# s");
    assert_eq!(rows.len(), 3, "other data is none of its business\n{listed}");
    let listed = json_of(redquorum(&fleet, ["list", "--match", "ord*"]).arg("--json"));
    assert_eq!((listed["locks"].as_array().unwrap().len(), &listed["is_complete"]), (1, &json!(true)));
    assert_eq!(listed["locks"][0]["resource"], json!("orders:42"));
    let below = json_of(redquorum(&fleet, ["list", "--namespace", "orders:"]).arg("--json"));
    assert_eq!(below["locks"][0]["resource"], json!("orders:42"));
    let literal = json_of(redquorum(&fleet, ["list", "--namespace", "o*"]).arg("--json"));
    assert_eq!(literal["locks"], json!([]), "a namespace is no pattern");

    for child in [&mut first, &mut second] {
        signal(child, Signal::SIGTERM);
        assert_eq!(status_of(child), 143);
    }
    let free = output(&mut redquorum(&fleet, ["inspect", "orders:42"]));
    assert_eq!(
        (free.status.code(), masked(&fleet, &stdout(&free)).as_str()),
        (Some(1), "orders:#\n  free on # of #: A, B, C\n  largest token #")
    );
}

#[test]
fn what_is_no_lock_of_this_library_is_shown_with_its_type_and_never_deleted() {
    let fleet = fleet_of(3);
    let on_all = |words: &[&str]| fleet.iter().for_each(|server| drop(server.command(words).unwrap()));
    on_all(&["HSET", "profile", "name", "x"]);
    on_all(&["SET", "data", "x"]);
    on_all(&["ZADD", "scores", "5", "x"]);
    for (name, shown) in [("profile", "hash"), ("data", "string"), ("scores", "zset")] {
        let seen = output(&mut redquorum(&fleet, ["inspect", name]));
        let expected = format!("{name}\n  blocked by another program's {shown} on 3 of 3, never expires\n");
        assert_eq!((seen.status.code(), stdout(&seen)), (Some(0), expected), "{}", stderr(&seen));
        let refused = output(&mut redquorum(&fleet, ["release", name, "--force", "--yes"]));
        assert_eq!(refused.status.code(), Some(75), "{}", stdout(&refused));
        let words = format!("{name} is held by another program's {shown} on ");
        assert!(stderr(&refused).contains(&words) && stderr(&refused).contains("not deleted"), "{}", stderr(&refused));
        all_have(&fleet, name);
        let waited = output(&mut redquorum(&fleet, ["run", "-r", name, "--wait", "1s", "--", "true"]));
        let words = format!("waiting for {name}, blocked by another program's {shown} on 3/3, never expires\n");
        assert!(waited.status.code() == Some(75) && stderr(&waited).contains(&words), "{}", stderr(&waited));
    }
    // A user without the right to look is told so.
    for server in fleet.iter() {
        server.command(&["ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all", "-getrange"]).unwrap();
    }
    let few = |options: &[&str]| {
        let mut command = redquorum(&fleet, options);
        output(command.env("REDQUORUM_USERNAME", "few").env("REDQUORUM_PASSWORD", "x"))
    };
    let denied = few(&["inspect", "data"]);
    let words = stderr(&denied);
    assert!(
        denied.status.code() == Some(69) && words.contains("could be read") && words.contains("permission denied"),
        "{words}"
    );
}

#[test]
fn a_mark_and_the_permits_of_a_semaphore_are_shown_as_what_they_are() {
    let fleet = fleet_of(3);
    let with_records = |args: &[&str]| output(&mut plain(&fleet, args));
    let opened = with_records(&["admission", "open", "--quarantine", "10s", "--no-lock-was-held-within", "10s"]);
    assert!(opened.status.success(), "{}", stderr(&opened));
    let kept = with_records(&["run", "-r", "done", "--keep", "1h", "--", "true"]);
    assert!(kept.status.success(), "{}", stderr(&kept));
    all_have(&fleet, "done");
    for args in [&["inspect", "done"][..], &["list"]] {
        let seen = stdout(&with_records(args));
        assert!(seen.contains("a mark of a client on "), "{args:?}: {seen}");
    }
    let script = "\"$redquorum\" inspect pool; \"$redquorum\" inspect other";
    let args = ["run", "-r", "pool", "--permits", "2", "--pass-environment", "--", "sh", "-c", script];
    let mut command = plain(&fleet, args);
    let program = command.get_program().to_owned();
    let seen = stdout(&output(command.env("redquorum", program)));
    assert_eq!(seen.matches("permits of a semaphore that are held: #").count(), 1, "{seen}");
}

#[test]
fn a_quiet_inspect_says_by_its_status_whether_a_lock_is_held() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let inspect = |fleet: &Fleet, name: &str| output(&mut redquorum(fleet, ["inspect", "--quiet", name]));
    let mut held = holder(&fleet, &dir, "a", &[]);
    for (name, status) in [("a", 0), ("b", 1)] {
        let seen = inspect(&fleet, name);
        assert_eq!((seen.status.code(), stdout(&seen), stderr(&seen)), (Some(status), String::new(), String::new()));
    }
    signal(&held, Signal::SIGTERM);
    assert_eq!(status_of(&mut held), 143);
    fleet.iter().take(2).for_each(|server| server.kill().unwrap());
    let unknown = inspect(&fleet, "a");
    assert_eq!((unknown.status.code(), stdout(&unknown)), (Some(69), String::new()));
    assert!(stderr(&unknown).contains("Connection refused"), "{}", stderr(&unknown));
}

#[test]
fn a_listing_goes_on_behind_the_last_lock_of_a_page() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let mut held = ["a", "b", "c"].map(|name| holder(&fleet, &dir, name, &[]));
    let first = output(&mut redquorum(&fleet, ["list", "--count", "2"]));
    assert!(stderr(&first).ends_with("there are more locks: list --after b\n"), "{}", stderr(&first));
    assert!(stdout(&first).contains("\na ") && stdout(&first).contains("\nb "), "{}", stdout(&first));
    let rest = json_of(&mut redquorum(&fleet, ["list", "--after", "b", "--count", "2", "--json"]));
    assert_eq!((&rest["locks"][0]["resource"], &rest["next"]), (&json!("c"), &json!(null)));
    assert_eq!(rest["locks"].as_array().unwrap().len(), 1);
    for child in &mut held {
        signal(child, Signal::SIGTERM);
        status_of(child);
    }
}

#[test]
fn a_scan_of_too_many_keys_says_that_there_are_more() {
    let fleet = fleet_of(1);
    let many: Vec<String> = (0..3000).flat_map(|number| [format!("k{number}"), "x".to_owned()]).collect();
    let words: Vec<&str> = ["MSET"].into_iter().chain(many.iter().map(String::as_str)).collect();
    fleet[0].command(&words).unwrap();
    let part = output(&mut redquorum(&fleet, ["list", "--most", "1000"]));
    assert!(part.status.success() && stderr(&part).contains("there are more keys"));
    assert_eq!(json_of(redquorum(&fleet, ["list", "--json"]).arg("--most=9999"))["is_complete"], json!(true));
}

#[test]
fn a_lock_is_taken_from_the_holder_that_is_named_or_from_anybody_after_a_question() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let mut stuck = holder(&fleet, &dir, "a", &["--holder", "me"]);
    let release = |options: &[&str]| output(redquorum(&fleet, ["release", "a"]).args(options));
    for (options, expected, says) in [
        (&[][..], 64, "--holder"),
        (&["--holder", "you"], 75, "a is held by holder \"me\" on "),
        (&["--force"], 64, "--yes releases without asking"),
        (&["--holder", "me", "--force"], 64, "cannot be used with"),
    ] {
        let refused = release(options);
        assert_eq!(refused.status.code(), Some(expected), "{options:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{}", stderr(&refused));
    }
    let begun = now();
    let released = release(&["--holder", "me"]);
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert_eq!(masked(&fleet, &stdout(&released)), "a is taken from holder \"me\" on HOST/# on #");
    assert_eq!(status_of(&mut stuck), 79, "its command was ended");
    assert!(begun.elapsed() < PATIENCE);
    let again = release(&["--force", "--yes"]);
    assert_eq!((again.status.code(), stdout(&again).as_str()), (Some(1), "no client has a\n"));

    let mut stuck = holder(&fleet, &dir, "a", &[]);
    let forced = json_of(redquorum(&fleet, ["release", "a", "--force", "--yes"]).arg("--json"));
    assert_eq!((&forced["resource"], &forced["unknown"]), (&json!("a"), &json!([])));
    // Once two have lost it, the client that had it releases it itself: it may be the first on the third.
    assert!(forced["released_on"].as_array().unwrap().len() >= 2, "{forced}");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "it is free on each");
    assert_eq!(status_of(&mut stuck), 79);
}

/// Each line of the findings, with what is alike in all runs.
fn findings(fleet: &Fleet, output: &std::process::Output) -> Vec<String> {
    masked(fleet, &stdout(output)).lines().map(str::to_owned).collect()
}

#[test]
fn a_check_says_what_is_well_and_what_to_do_about_the_rest() {
    let fleet = fleet_of(3);
    let mut command = plain(&fleet, ["check", "--max-ttl", "5s"]);
    let new = output(&mut command);
    let lines = findings(&fleet, &new);
    assert_eq!(new.status.code(), Some(1), "none gives a lock: {}", stdout(&new));
    assert!(lines[2].starts_with("warning A it has no admission record, as when it is new"), "{}", lines[2]);
    assert!(lines[5].starts_with("failure all no lock can be acquired: too few instances have"), "{}", lines[5]);
    let opened = ["admission", "open", "--max-ttl", "5s", "--no-lock-was-held-within", "5s"];
    let opened = output(&mut plain(&fleet, opened));
    assert_eq!(opened.status.code(), Some(0), "{}", stderr(&opened));
    let well = output(&mut command);
    assert_eq!(well.status.code(), Some(0), "{}", stdout(&well));
    let lines = findings(&fleet, &well);
    assert_eq!(lines[0], "ok all # instances, # needed: # may fail");
    assert_eq!(lines[1], "ok all instances that may have forgotten locks do not vote for max_ttl");
    let start = "ok A master, SERVER VERSION, noeviction, persistence none, clock +#.# ms, round trip #";
    assert!(lines[2].starts_with(start), "{}", lines[2]);
    assert_eq!(lines[5], "ok A acquired, extended and released a lock of its own");
    assert!(lines[8].starts_with("ok all a lock was acquired in #"), "{}", lines[8]);
    assert_eq!(lines[9], "warning all # instances are on this machine, and # may fail: give each a machine of its own");
    assert!(lines[10].starts_with("warning all A, B, C let in any client without a password"), "{}", lines[10]);
    assert_eq!(lines[11], "# checks, # warnings, # failures");
    assert!(fleet.iter().all(|server| server.keys().unwrap().is_empty()), "it leaves nothing behind");

    // Everything that can be wrong, one thing on each.
    fleet[0].command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
    fleet[0].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    fleet[1].command(&["ACL", "SETUSER", "default", "-pexpire", "-pexpireat", "-subscribe"]).unwrap();
    fleet[2].kill().unwrap();
    let ill = output(&mut command);
    assert_eq!(ill.status.code(), Some(1));
    let lines = findings(&fleet, &ill);
    let has = |start: &str| assert!(lines.iter().any(|line| line.starts_with(start)), "{start}\n{}", lines.join("\n"));
    has("failure A it may evict locks (allkeys-lru); set maxmemory-policy noeviction");
    has("warning B SUBSCRIBE is denied");
    has(
        "failure B acquire: no quorum: # of # instances must answer: B: permission denied: its user may not run pexpire",
    );
    has("failure C not connected");
    has("failure all no lock can be acquired: no quorum");
    let left = fleet[..2].iter().map(|server| server.keys().unwrap()).collect::<Vec<_>>();
    assert!(left.iter().all(Vec::is_empty), "a lock that could not be extended is not taken: {left:?}");

    fleet[0].command(&["ACL", "SETUSER", "default", "-zrange", "-getrange"]).unwrap();
    let shown = masked(&fleet, &stdout(&output(&mut command)));
    for right in ["inspect: permission denied", "read, beside other readers: "] {
        assert!(shown.lines().any(|line| line.starts_with(&format!("warning A {right}"))), "{right}\n{shown}");
    }
    let json = json_of(command.arg("--json"));
    assert_eq!(json["is_well"], json!(false));
    assert!(json["findings"].as_array().unwrap().iter().all(|it| it["verdict"].is_string() && it["text"].is_string()));
}

#[test]
fn a_quiet_check_writes_what_fails_and_nothing_else() {
    let fleet = fleet_of(3);
    let well = output(&mut redquorum(&fleet, ["check", "--quiet"]));
    assert_eq!((well.status.code(), stdout(&well), stderr(&well)), (Some(0), String::new(), String::new()));
    fleet[2].kill().unwrap();
    let ill = output(&mut redquorum(&fleet, ["check", "-q"]));
    assert_eq!((ill.status.code(), stdout(&ill)), (Some(1), String::new()));
    let told = masked(&fleet, &stderr(&ill));
    assert!(told.contains("C: not connected") && told.lines().count() == 1, "{told}");
}

#[test]
fn a_replica_and_a_second_address_of_one_process_do_not_pass_the_check() {
    let fleet = fleet_of(2);
    let port = |at: usize| fleet.addresses()[at].rsplit(':').next().unwrap().to_owned();
    fleet[1].command(&["REPLICAOF", "127.0.0.1", &port(0)]).unwrap();
    assert!(wait_until(PATIENCE, || {
        fleet[1].info("replication", "master_link_status").unwrap().as_deref() == Some("up")
    }));
    let list = format!("127.0.0.1:{0} localhost:{0} 127.0.0.1:{1}", port(0), port(1));
    let mut command = bare(["check", "--connect-timeout", "1s", "--instance-timeout", "1s", "--max-ttl", "1s"]);
    let checked = output(command.env("REDQUORUM_INSTANCES", list));
    assert_eq!(checked.status.code(), Some(1));
    let text = stdout(&checked);
    for part in
        ["it is a replica; locks need an independent master", "it is the same server process as", "it has replicas (1)"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn also_without_admission_a_replica_and_a_second_address_of_one_process_are_told() {
    let fleet = fleet_of(2);
    let port = |at: usize| fleet.addresses()[at].rsplit(':').next().unwrap().to_owned();
    fleet[1].command(&["REPLICAOF", "127.0.0.1", &port(0)]).unwrap();
    let list = format!("127.0.0.1:{0} localhost:{0} 127.0.0.1:{1}", port(0), port(1));
    let options = ["--no-admission", "--instance-timeout", "1s"];
    let run = |args: &[&str]| output(bare(options).args(args).env("REDQUORUM_INSTANCES", &list));
    let (checked, status) = (run(&["check"]), run(&["status"]));
    assert_eq!((checked.status.code(), status.status.code()), (Some(1), Some(69)));
    for part in ["it is a replica; locks need", "it is the same server process as 127.0.0.1"] {
        for text in [stdout(&checked), stdout(&status)] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
    assert!(!stdout(&checked).lines().any(|line| line.starts_with("ok") && line.contains(&port(1))));
    assert!(stdout(&status).contains("1 of 3 may vote, 2 needed"), "{}", stdout(&status));
}

#[test]
fn a_check_names_the_instances_that_need_no_password() {
    let fleet = fleet_of(3);
    for server in &fleet[..2] {
        server.command(&["CONFIG", "SET", "requirepass", "s"]).unwrap();
    }
    let mut command = redquorum(&fleet, ["check"]);
    let checked = stdout(&output(command.env("REDQUORUM_PASSWORD", "s")));
    let open = format!("{} lets in any client without a password", fleet[2].address().trim_start_matches("redis://"));
    assert!(checked.contains(&open), "{checked}");
    fleet[2].command(&["CONFIG", "SET", "requirepass", "s"]).unwrap();
    let closed = stdout(&output(&mut command));
    assert!(!closed.contains("without a password"), "{closed}");
}

#[test]
fn a_check_warns_where_no_instance_may_fail() {
    let fleet = fleet_of(3);
    let checked = output(&mut redquorum(&fleet, ["check", "--quorum", "3"]));
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    assert_eq!(findings(&fleet, &checked)[0], "warning all # instances, # needed: none may fail; use a smaller quorum");
    // Of two no quorum is smaller.
    let pair = output(redquorum(&fleet, ["check"]).env("REDQUORUM_INSTANCES", fleet.addresses()[..2].join(" ")));
    assert_eq!(findings(&fleet, &pair)[0], "warning all # instances can lose #, as # can; use an odd number");
}

#[test]
fn a_bench_measures_the_instances_together_alone_and_against_each_other() {
    let fleet = fleet_of(3);
    let bench = json_of(redquorum(&fleet, ["bench", "--time", "3s"]).arg("--json"));
    let measured = bench["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 2 + 2 * 3 + 1);
    for row in measured {
        let of = |name: &str| row[name].as_u64().unwrap();
        assert!(of("count") > 5 && of("p50_us") <= of("p99_us") && of("p99_us") <= of("most_us"), "{row}");
    }
    assert_eq!(measured[0]["what"], json!("acquire"));
    assert!(bench["advice"][0].as_str().unwrap().starts_with("instance timeout: "));
    fleet[2].kill().unwrap();
    let shown = output(&mut redquorum(&fleet, ["bench", "--time", "1s"]));
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let shown = masked(&fleet, &stdout(&shown)).replace(" # ms", " #.# ms");
    assert!(shown.starts_with("WHAT COUNT P# P# MOST\nacquire # #.# ms "), "{shown}");
    assert!(shown.contains("\nacquire on C # - - -\n") && shown.contains("C could not be used"), "{shown}");
}

#[test]
fn a_dry_bench_measures_answers_beside_a_longer_max_ttl_and_writes_nothing() {
    let fleet = fleet_of(3);
    let mut long = redquorum(&fleet, ["--admission", "run", "-r", "a", "--max-ttl", "12s", "--try", "--", "true"]);
    assert_eq!(output(&mut long).status.code(), Some(69), "it has written records, and waits for 12 s");
    let record = |at: usize| fleet[at].command(&["GET", "redquorum:admission"]).unwrap().text();
    let records = [record(0), record(1)];
    fleet[2].kill().unwrap();
    let bench = json_of(redquorum(&fleet, ["--admission", "bench", "--dry", "--time", "3s"]).arg("--json"));
    let measured = bench["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 3, "{bench}");
    let counts: Vec<u64> = measured.iter().map(|row| row["count"].as_u64().unwrap()).collect();
    assert!(counts[0] > 5 && counts[1] > 5 && counts[2] == 0, "{bench}");
    assert!(bench["advice"][0].as_str().unwrap().contains("could not be used"), "{bench}");
    assert!(bench["advice"][1].as_str().unwrap().starts_with("instance timeout: "), "{bench}");
    assert!(records[0].is_some() && [record(0), record(1)] == records);
}

#[test]
fn who_only_looks_is_not_told_that_subscribing_is_denied() {
    let fleet = fleet_of(3);
    for view in ["status", "check"] {
        let mut command = bare([view]);
        let shown = output(command.env("REDQUORUM_INSTANCES", fleet.addresses().join(" ")));
        assert!(stdout(&shown).contains("127.0.0.1"), "{view} shows each: {}", stderr(&shown));
        assert!(!stdout(&shown).contains("SUBSCRIBE"), "{view} does not subscribe: {}", stdout(&shown));
    }
}
