//! Which instances are meant, and what is told about those that cannot be used.

use std::process::{Child, Stdio};
use std::time::Duration;

use redquorum_testkit::wait_until;

use crate::support::{Dir, PATIENCE, bare, fleet_of, now, output, plain, redquorum, status_of, stderr, stdout};

#[test]
fn an_address_that_would_be_misread_is_refused_and_no_part_of_it_is_shown() {
    let cases = [
        "redis://user:s3cr/et@127.0.0.1:1",
        "redis://user:12?s3cr@127.0.0.1:1",
        "redis://user:s3cr#t@127.0.0.1:1",
        "unix:///nonexistent?password=s3cr",
        "redis://127.0.0.1:1?password=s3cr",
        "redis://127.0.0.1:1/s3cr",
        "unix://s3cr@/nonexistent",
        "http://s3cr",
    ];
    for address in cases {
        let option = output(bare(["-i", address]).arg("status"));
        let variable = output(bare(["status"]).env("REDQUORUM_INSTANCES", address));
        assert_eq!(variable.status.code(), Some(78), "{address}");
        assert!(matches!(option.status.code(), Some(64 | 78)), "{address}");
        for output in [option, variable] {
            let told = stdout(&output) + &stderr(&output);
            assert!(!told.contains("s3cr") && !told.contains("user:12"), "{address}: {told}");
            assert!(!told.contains("::"), "no call of the library, but an option\n{told}");
        }
    }
    let nothing = output(&mut bare(["-i", "", "status"]));
    assert_eq!(nothing.status.code(), Some(64));
    assert!(
        stderr(&nothing).contains("the address of instance 1 cannot be used: it is empty; write host:port"),
        "{}",
        stderr(&nothing)
    );
}

#[test]
fn a_release_that_fails_names_each_instance_with_its_reason_and_what_to_do() {
    let fleet = fleet_of(3);
    let slow = ["release", "a", "--force", "--yes", "--connect-timeout", "3s"];
    fleet[1].command(&["ACL", "SETUSER", "default", "-get", "-pttl", "-eval", "-evalsha", "-mget"]).unwrap();
    fleet[2].command(&["ACL", "SETUSER", "default", "-get", "-pttl", "-eval", "-evalsha", "-mget"]).unwrap();
    let denied = output(&mut redquorum(&fleet, slow));
    let told = stderr(&denied);
    assert_eq!(denied.status.code(), Some(69), "{told}");
    for part in ["permission denied", "docs/operations.md, under 'Access rights'"] {
        assert_eq!(told.matches(part).count(), 1, "{part}: {told}");
    }
    assert!(fleet[1..].iter().all(|server| told.contains(&format!("127.0.0.1:{}", server.port()))), "{told}");
    fleet[1].kill().unwrap();
    fleet[2].kill().unwrap();
    let dead = output(&mut redquorum(&fleet, slow));
    let told = stderr(&dead);
    assert_eq!(dead.status.code(), Some(69), "{told}");
    assert_eq!(told.matches("Connection refused (os error 111)); check that it runs").count(), 1, "{told}");
}

#[test]
fn instances_that_hang_are_known_to_be_out_of_reach_before_the_time_for_connecting_is_over() {
    let fleet = fleet_of(3);
    fleet[1].hang().unwrap();
    fleet[2].hang().unwrap();
    let begun = now();
    let args = ["run", "-r", "a", "--connect-timeout", "15s", "--instance-timeout", "200ms", "--try", "--", "true"];
    let tried = output(&mut redquorum(&fleet, args));
    let (took, told) = (begun.elapsed(), stderr(&tried));
    assert_eq!(tried.status.code(), Some(69), "{told}");
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!(told.matches("no answer in time while logging in").count(), 1, "{told}");
    let (_, after) = told.split_once("used after ").unwrap();
    let (waited, _) = after.split_once(": ").unwrap();
    let millis = waited.strip_suffix("ms").map(|millis| millis.parse::<f64>().unwrap());
    assert!(!waited.ends_with("µs") && millis.is_none_or(|millis| millis > 100.0), "as long as it has waited: {told}");
}

/// Counter-example: it gave up after five seconds, whatever `--wait` said.
#[test]
fn a_command_that_waits_for_its_lock_waits_as_long_for_connections_and_says_for_whom() {
    for options in [&["--wait", "1m"][..], &[]] {
        let (fleet, dir) = (fleet_of(3), Dir::new());
        fleet[1].kill().unwrap();
        fleet[2].kill().unwrap();
        let (log, begun) = (dir.file("log"), now());
        let args = [&["--connect-timeout", "1s", "run", "-r", "a"], options, &["--", "true"]].concat();
        let to_log = Stdio::from(std::fs::File::create(&log).unwrap());
        let mut waits = redquorum(&fleet, args).stderr(to_log).spawn().unwrap();
        let told = || std::fs::read_to_string(&log).unwrap();
        let says = "waiting for a: 1 of 3 instances answer, 2 needed; ";
        assert!(wait_until(PATIENCE, || told().contains(says) && told().contains("Connection refused")), "{}", told());
        let address = format!("127.0.0.1:{}", fleet[1].port());
        assert!(told().contains(&address), "{}", told());
        assert!(
            !wait_until(Duration::from_secs(4).saturating_sub(begun.elapsed()), || waits.try_wait().unwrap().is_some()),
            "{}",
            told()
        );
        fleet[1].restart().unwrap();
        assert_eq!(status_of(&mut waits), 0, "{}", told());
    }
}

/// Counter-example: "after waiting 7.3s" of twenty, since the rest went to connections.
#[test]
fn a_wait_that_is_over_counts_the_time_for_connections() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    fleet[1].kill().unwrap();
    fleet[2].kill().unwrap();
    let log = dir.file("log");
    let to_log = Stdio::from(std::fs::File::create(&log).unwrap());
    let args = ["run", "-r", "a", "--wait", "8s", "--", "true"]; // new servers vote after ten
    let mut waits = plain(&fleet, args).stderr(to_log).spawn().unwrap();
    let told = || std::fs::read_to_string(&log).unwrap();
    assert!(wait_until(PATIENCE, || told().contains("1 of 3 instances answer, 2 needed; ")), "{}", told());
    fleet[1].restart().unwrap();
    assert_eq!(status_of(&mut waits), 69, "{}", told());
    let log = told();
    let waited = log
        .split_once("not acquired after waiting ")
        .and_then(|(_, rest)| rest.split_once("s; ")?.0.parse::<f64>().ok());
    assert!(waited.is_some_and(|waited| waited >= 8.0) && log.contains("in quarantine"), "{log}");
}

#[test]
fn commands_that_look_wait_no_longer_than_a_try_for_instances_that_refuse_connections() {
    let fleet = fleet_of(3);
    fleet[1].kill().unwrap();
    fleet[2].kill().unwrap();
    for args in [&["run", "-r", "a", "--try", "--", "true"][..], &["inspect", "a"], &["list"]] {
        let begun = now();
        let output = output(redquorum(&fleet, ["--connect-timeout", "15s"]).args(args));
        assert_eq!(output.status.code(), Some(69), "{args:?}: {}", stderr(&output));
        assert!(begun.elapsed().as_secs() < 5, "{args:?}: {:?}", begun.elapsed());
        assert!(stderr(&output).contains("Connection refused"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_lock_of_several_holders_is_shown_and_taken_with_each_of_them() {
    let fleet = fleet_of(3);
    // Clients with lists that have nothing in common.
    let mut holders: Vec<Child> = ["one", "two"]
        .into_iter()
        .zip(fleet.addresses())
        .map(|(name, address)| {
            let args = ["--no-admission", "run", "-r", "a", "--holder", name, "--", "sleep", "60"];
            bare(args).env("REDQUORUM_INSTANCES", address).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let held = || fleet.iter().filter(|server| server.keys().unwrap() == ["a"]).count();
    assert!(wait_until(PATIENCE, || held() == 2));
    let mine = redquorum(&fleet, ["release", "a", "--holder", "me"]).output().unwrap();
    assert_eq!(mine.status.code(), Some(75));
    let told = stderr(&mine);
    assert!(
        told.contains("held by holder \"one\" on ") && told.contains(", and by holder \"two\" on "),
        "both of them: {told}"
    );
    let forced = output(&mut redquorum(&fleet, ["release", "a", "--force", "--yes"]));
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    assert_eq!(stdout(&forced).matches(" on 1").count(), 2, "one instance each: {}", stdout(&forced));
    holders.iter_mut().for_each(|holder| assert_eq!(status_of(holder), 79, "its command was ended"));
}

#[cfg(feature = "tls-rustls")]
#[test]
fn certificates_of_ones_own_are_trusted_and_shown() {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use redquorum_testkit::{Error, Program, Server};

    let dir = Dir::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "ours");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap().pem();
    for (name, text) in [("ca.pem", authority.pem()), ("own.pem", signed.clone()), ("own.key", key.serialize_pem())] {
        std::fs::write(dir.file(name), text).unwrap();
    }
    let program = Program::required().unwrap();
    let server = match Server::builder(&program).tls(&authority.pem(), &signed, &key.serialize_pem(), true).start() {
        Err(Error::Start { log, .. }) if log.contains("connection type tls") => {
            println!("{program} was built without TLS");
            return;
        }
        server => server.unwrap(),
    };
    let address = format!("rediss://127.0.0.1:{}", server.tls_port().unwrap());
    let path = |name: &str| dir.file(name).to_string_lossy().into_owned();
    let run = |options: &[&str]| {
        let mut command = bare(["--no-admission", "--instance-timeout", "1s", "-i", &address]);
        output(command.args(options).args(["run", "-r", "a", "--try", "--", "true"]))
    };
    let (ca, own, its_key) = (path("ca.pem"), path("own.pem"), path("own.key"));
    let all = run(&["--tls-ca", &ca, "--tls-cert", &own, "--tls-key", &its_key]);
    assert!(all.status.success(), "{}", stderr(&all));
    for (options, says) in [
        (&[][..], "trust who signed it with --tls-ca"),
        (&["--tls-ca", &ca], "give it one that it trusts with --tls-cert and --tls-key"),
        (&["--tls-ca", &ca, "--tls-cert", &own], "belong together"),
        (&["--tls-ca", "/nonexistent"], "/nonexistent cannot be read: No such file"),
    ] {
        let refused = run(options);
        assert!(!refused.status.success() && stderr(&refused).contains(says), "{options:?}: {}", stderr(&refused));
    }
    std::fs::write(
        dir.file("settings.toml"),
        format!("instances = [{address:?}]\nadmission = false\ntls_ca = \"ca.pem\"\ntls_cert = \"own.pem\"\ntls_key = \"own.key\"\n"),
    )
    .unwrap();
    let by_file = output(bare(["-c", &path("settings.toml")]).args(["run", "-r", "a", "--", "true"]));
    assert!(by_file.status.success(), "{}", stderr(&by_file));
    let without = output(bare(["-i", "127.0.0.1:1", "--tls-ca", &ca]).arg("status"));
    assert!(without.status.code() == Some(78) && stderr(&without).contains("rediss://"), "{}", stderr(&without));
}
