//! Every setting from the environment, the file and options alike.

use std::fs;

use crate::support::{Dir, bare, output, stderr};

/// What each of them leads to that cannot work, so that nothing need be there to see it.
#[test]
fn each_setting_counts_from_the_option_the_environment_and_the_file() {
    let dir = Dir::new();
    let cases = [
        ("max-ttl", "25h", "max_ttl is above 24 hours"),
        ("quarantine", "1s", "the quarantine, 1s, is below max_ttl"),
        ("ttl", "1h", "above max_ttl"),
        ("instance-timeout", "0s", "instance_timeout must not be zero"),
        ("connect-timeout", "0s", "connect_timeout must not be zero"),
        ("quorum", "9", "quorum"),
        ("namespace", "redquorum:", "the namespace begins with"),
        ("username", "locks", "has a user and no password"),
        ("password-file", "/nonexistent/p", "/nonexistent/p"),
        ("tls-ca", "/nonexistent/ca.pem", "certificates are of no use"),
        ("tls-cert", "/nonexistent/own.pem", "belong together"),
        ("tls-key", "/nonexistent/own.key", "belong together"),
    ];
    for (name, value, expected) in cases {
        let run = ["-i", "127.0.0.1:1", "run", "-r", "a", "--try"];
        let option = output(bare(run).args([&format!("--{name}={value}"), "--", "true"]));
        let variable = format!("REDQUORUM_{}", name.replace('-', "_").to_uppercase());
        let environment = output(bare(run).args(["--", "true"]).env(&variable, value));
        let settings = dir.file("settings.toml");
        let quote = if name == "quorum" { "" } else { "'" };
        fs::write(&settings, format!("{} = {quote}{value}{quote}\n", name.replace('-', "_"))).unwrap();
        let file = output(bare(run).args(["--", "true"]).env("REDQUORUM_CONFIG", &settings));
        for (from, output) in [("option", option), ("environment", environment), ("file", file)] {
            let told = stderr(&output);
            assert!(told.contains(expected), "{name} from the {from}: {told}");
            assert!(matches!(output.status.code(), Some(64 | 78)), "{name} from the {from}: {told}");
        }
    }
}

#[test]
fn settings_without_an_option_count_from_the_environment_and_the_file() {
    let dir = Dir::new();
    let settings = dir.file("settings.toml");
    for (name, value, expected) in [
        ("max_hold", "0s", "max_hold must not be zero"),
        ("label", &*"x".repeat(201), "the label is longer than 200 bytes"),
        ("renew", "maybe", "it must be true or false"),
    ] {
        let status = ["-i", "127.0.0.1:1", "status"];
        let variable = format!("REDQUORUM_{}", name.to_uppercase());
        let environment = output(bare(status).env(&variable, value));
        fs::write(&settings, format!("{name} = '{value}'\n")).unwrap();
        let file = output(bare(status).env("REDQUORUM_CONFIG", &settings));
        for (from, output) in [("environment", environment), ("file", file)] {
            let told = stderr(&output);
            assert!(told.contains(expected), "{name} from the {from}: {told}");
            assert_eq!(output.status.code(), Some(78), "{name} from the {from}: {told}");
        }
    }
}

#[test]
fn what_is_not_known_in_the_environment_is_an_error() {
    let told = output(bare(["-i", "127.0.0.1:1", "status"]).env("REDQUORUM_MAXTTL", "30s"));
    assert_eq!(told.status.code(), Some(78));
    assert!(stderr(&told).contains("there is no setting REDQUORUM_MAXTTL"), "{}", stderr(&told));
    assert!(stderr(&told).contains("REDQUORUM_MAX_TTL"), "{}", stderr(&told));
    for (variable, value) in
        [("REDQUORUM_MAX_TTL", "30"), ("REDQUORUM_QUORUM", "two"), ("REDQUORUM_ADMISSION", "maybe")]
    {
        let told = output(bare(["-i", "127.0.0.1:1", "status"]).env(variable, value));
        assert_eq!((told.status.code(), stderr(&told).contains(variable)), (Some(78), true), "{}", stderr(&told));
    }
    // What `run` tells its command, Kubernetes tells its pods, and the README exports.
    let mut command = bare(["-i", "127.0.0.1:1", "--connect-timeout", "100ms", "status"]);
    command.env("REDQUORUM_FENCING_TOKEN", "1").env("REDQUORUM_SERVICE_HOST", "10.0.0.1");
    command.env("REDQUORUM_IMAGE", "redquorum-local").env("REDQUORUM_SERVER", "/usr/bin/redis-server");
    assert_eq!(output(&mut command).status.code(), Some(69));
}

#[test]
fn instances_may_stand_in_one_option_with_commas() {
    let table = output(&mut bare(["-i", "127.0.0.1:1,127.0.0.1:2", "-i", "127.0.0.1:3", "status"])).stdout;
    let table = String::from_utf8(table).unwrap();
    for address in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"] {
        assert!(table.lines().any(|line| line.starts_with(address)), "{table}");
    }
    let second = output(&mut bare(["-i", "127.0.0.1:1,htp://x", "status"]));
    assert_eq!(second.status.code(), Some(64));
    assert!(stderr(&second).contains("the address of instance 2 cannot be used"), "{}", stderr(&second));
}
