//! Secrets are not shown: not on a screen, not in an error, not in a list of processes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use redquorum_testkit::{Fleet, Program, wait_until};

use crate::support::{Dir, bare, contents, output, redquorum, status_of, stderr, stdout};

const SECRET: &str = "s3cr3t/@:%x";

fn guarded() -> Fleet {
    Fleet::start_with(&Program::required().unwrap(), 3, |_, builder| builder.password(SECRET)).unwrap()
}

fn ports(fleet: &Fleet) -> Vec<String> {
    // As the kit gives them, with the password.
    fleet
        .addresses()
        .iter()
        .map(|address| address.rsplit_once('@').map_or(&**address, |(_, host)| host).to_owned())
        .collect()
}

#[test]
fn a_password_comes_from_the_environment_or_a_file_and_is_seen_nowhere() {
    let (fleet, dir) = (guarded(), Dir::new());
    let (secret, settings) = (dir.file("secret"), dir.file("settings.toml"));
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let list = ports(&fleet).iter().map(|port| format!("{port:?}")).collect::<Vec<_>>().join(", ");
    fs::write(&settings, format!("instances = [{list}]\npassword_file = \"secret\"\nadmission = false\n")).unwrap();
    let run = ["run", "-r", "a", "--wait", "3s", "--", "true"];
    let path = secret.to_string_lossy().into_owned();
    let with = |options: &[&str], change: &dyn Fn(&mut Command)| {
        let mut command = redquorum(&fleet, options);
        command.args(run);
        command.env("REDQUORUM_INSTANCES", ports(&fleet).join(" "));
        change(&mut command);
        output(&mut command)
    };
    let without = with(&[], &|_| {});
    assert_eq!(without.status.code(), Some(69));
    assert!(
        stderr(&without).contains("NOAUTH") && stderr(&without).contains("REDQUORUM_PASSWORD"),
        "{}",
        stderr(&without)
    );
    for output in [
        with(&[], &|command| {
            command.env("REDQUORUM_PASSWORD", SECRET);
        }),
        with(&[], &|command| {
            command.env("REDQUORUM_PASSWORD_FILE", &path);
        }),
        with(&["--password-file", &path], &|_| {}),
        output(bare(["-c"]).arg(&settings).args(run)),
    ] {
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let wrong = with(&[], &|command| {
        command.env("REDQUORUM_PASSWORD", format!("{SECRET}no"));
    });
    assert_eq!(wrong.status.code(), Some(69));
    let help = with(&["--help"], &|command| {
        command.env("REDQUORUM_PASSWORD", SECRET);
    });
    for output in [wrong, help] {
        assert!(!(stdout(&output) + &stderr(&output)).contains("s3cr3t"));
    }
}

#[test]
fn no_process_has_a_secret_among_its_arguments() {
    let (fleet, dir) = (guarded(), Dir::new());
    let begun = dir.file("begun");
    let script = format!("echo $PPID > {}; sleep 3", begun.display());
    let mut command = redquorum(&fleet, ["run", "-r", "a", "--", "sh", "-c", &script]);
    command.env("REDQUORUM_INSTANCES", ports(&fleet).join(" ")).env("REDQUORUM_PASSWORD", SECRET);
    let mut child = command.spawn().unwrap();
    let parent = contents(&begun);
    assert_eq!(parent.trim(), child.id().to_string());
    let mut of_ours = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).unwrap_or_default().to_owned();
        if of == parent.trim() || entry.file_name().to_string_lossy() == parent.trim() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&line).contains("s3cr3t"));
            of_ours += 1;
        }
    }
    assert!(of_ours >= 3, "the program, its command and the watchdog: {of_ours}");
    assert!(wait_until(Duration::from_secs(10), || child.try_wait().unwrap().is_some()));
    assert_eq!(status_of(&mut child), 0);
}

#[test]
fn a_command_inherits_nothing_that_may_contain_a_password() {
    let fleet = guarded();
    let script = "echo ${REDQUORUM_PASSWORD-none} ${REDQUORUM_INSTANCES-none} $REDQUORUM_NAMESPACE";
    let run = |options: &[&str]| {
        let args = [&["run", "-r", "a"], options, &["--", "sh", "-c", script]].concat();
        let mut command = redquorum(&fleet, args); // with addresses that have the password
        stdout(&output(command.env("REDQUORUM_PASSWORD", SECRET).env("REDQUORUM_NAMESPACE", "of:")))
    };
    assert_eq!(run(&[]), "none none of:\n");
    assert!(run(&["--pass-environment"]).starts_with(SECRET), "for a command that runs the program itself");
}
