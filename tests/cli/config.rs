//! `redquorum config check`: which settings count, where they come from, and what cannot be used.

use std::fs;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::{Dir, bare, fleet_of, output, redquorum, stderr, stdout};

fn check(options: &[&str]) -> Command {
    bare(options.iter().copied().chain(["config", "check"]))
}

#[test]
fn each_setting_is_shown_with_the_source_that_counts() {
    let dir = Dir::new();
    let file = dir.file("locks.toml");
    fs::write(
        &file,
        "instances = ['10.0.0.1', '10.0.0.2', 'u:secret@10.0.0.3']\nmax_ttl = '20s'\nttl = '7s'\nlabel = 'me'\n",
    )
    .unwrap();
    let path = file.to_string_lossy().into_owned();
    let mut command = check(&["-c", &path, "--ttl", "5s"]);
    command.env("REDQUORUM_TTL", "6s").env("REDQUORUM_MAX_TTL", "30s").env("REDQUORUM_PASSWORD", "secret");
    let words = output(&mut command);
    assert!(words.status.success() && words.stderr.is_empty(), "{}", stderr(&words));
    for line in [
        "instances         10.0.0.1, 10.0.0.2, u:***@10.0.0.3  file FILE",
        "namespace         -                                   default",
        "password          ***                                 REDQUORUM_PASSWORD",
        "ttl               5s                                  --ttl",
        "max_ttl           30s                                 REDQUORUM_MAX_TTL",
        "quarantine        30s                                 default",
        "quorum            2                                   default",
        "label             me                                  file FILE",
    ] {
        let line = line.replace("FILE", &path);
        assert!(stdout(&words).lines().any(|shown| shown == line), "{line}\n{}", stdout(&words));
    }
    let shown = output(command.arg("--json"));
    let value: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let settings = value["settings"].as_array().unwrap();
    for expected in [
        json!({ "setting": "ttl", "value": "5s", "from": "option", "place": "--ttl" }),
        json!({ "setting": "max_ttl", "value": "30s", "from": "variable", "place": "REDQUORUM_MAX_TTL" }),
        json!({ "setting": "label", "value": "me", "from": "file", "place": path }),
        json!({ "setting": "instance_timeout", "value": "200ms", "from": "default", "place": null }),
    ] {
        assert!(settings.contains(&expected), "{expected}: {value}");
    }
    for output in [words, shown] {
        assert!(!(stdout(&output) + &stderr(&output)).contains("secret"));
    }
}

#[test]
fn what_cannot_be_used_is_told_with_one_status() {
    let dir = Dir::new();
    let file = dir.file("locks.toml");
    fs::write(&file, "password = 7137\n").unwrap();
    let path = file.to_string_lossy().into_owned();
    let with = |options: &[&str], variable: &str, value: &str| output(check(options).env(variable, value));
    for (output, says) in [
        (with(&[], "REDQUORUM_TTL", "5s"), "no instances are named; use -i, REDQUORUM_INSTANCES"),
        (with(&["-i", "h"], "REDQUORUM_MAXTTL", "5s"), "there is no setting REDQUORUM_MAXTTL"),
        (with(&["-i", "h", "-i", "htp://secret"], "REDQUORUM_TTL", "5s"), "the address of instance 2 cannot be used"),
        (with(&["-i", "h,u:secret@h"], "REDQUORUM_TTL", "5s"), "a password in -i is visible in the list of processes"),
        (with(&["-i", "h", "--ttl", "20s"], "REDQUORUM_TTL", "5s"), "above max_ttl"),
        (with(&["-i", "h"], "REDQUORUM_QUORUM", "2"), "a quorum of 2"),
        (with(&["-i", "h"], "REDQUORUM_CONFIG", &path), "locks.toml: password: it must be a text in quotes"),
        (with(&["-i", "h"], "REDQUORUM_CONFIG", "/nonexistent"), "/nonexistent: No such file"),
        (with(&["-i", "h"], "REDQUORUM_PASSWORD_FILE", "/nonexistent"), "password_file: /nonexistent: No such file"),
    ] {
        assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{says}: {}", stderr(&output));
        let told = stdout(&output) + &stderr(&output);
        assert!(!told.contains("secret") && !told.contains("7137") && !told.contains("::"), "{told}");
    }
    // What can be used is not connected to: nothing listens there.
    assert!(output(&mut check(&["-i", "127.0.0.1:1"])).status.success());
}

/// The page and the program do not part.
#[test]
fn the_example_in_the_documentation_is_a_file_that_can_be_used() {
    let page = include_str!("../../docs/cli.md");
    let example = page.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    let dir = Dir::new();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["10.0.0.3".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    for (name, text) in [
        ("locks.toml", example),
        ("redis.password", "secret\n"),
        ("ca.pem", &certificate),
        ("own.pem", &certificate),
        ("own.key", &key.serialize_pem()),
    ] {
        fs::write(dir.file(name), text).unwrap();
    }
    let path = dir.file("locks.toml").to_string_lossy().into_owned();
    let checked = output(&mut check(&["-c", &path]));
    assert!(checked.status.success(), "{}", stderr(&checked));
    let all = stdout(&checked);
    for line in all.lines().skip(1).filter(|line| !line.starts_with("password ")) {
        assert!(line.ends_with(&format!("file {path}")), "the example shows every setting: {line}");
    }
    assert!(all.lines().count() >= 18, "{all}");
}

#[test]
fn a_longest_hold_that_is_a_setting_ends_a_command() {
    let fleet = fleet_of(3);
    let mut command = redquorum(&fleet, ["run", "-r", "a", "--", "sleep", "60"]);
    let ended = output(command.env("REDQUORUM_MAX_HOLD", "1s"));
    assert_eq!(ended.status.code(), Some(79), "{}", stderr(&ended));
    let mut option_counts = redquorum(&fleet, ["run", "-r", "a", "--max-hold", "1m", "--", "sleep", "2"]);
    let ended = output(option_counts.env("REDQUORUM_MAX_HOLD", "1s"));
    assert!(ended.status.success(), "{}", stderr(&ended));
}
