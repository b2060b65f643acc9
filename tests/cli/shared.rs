//! `run --shared`: commands that read beside each other.

use crate::support::{Dir, fleet_of, output, redquorum};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn commands_that_read_run_beside_each_other_and_none_beside_one_that_does_not() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let (flag, go) = (dir.file("begun"), dir.file("go"));
    let script = format!(
        "echo \"[$REDQUORUM_RESOURCE $REDQUORUM_FENCING_TOKEN]\" > {}; while [ ! -e {} ]; do sleep 0.1; done; sleep 2",
        flag.display(),
        go.display()
    );
    let mut first = redquorum(&fleet, ["run", "-r", "a", "--shared", "--", "sh", "-c", &script]).spawn().unwrap();
    assert!(redquorum_testkit::wait_until(crate::support::PATIENCE, || flag.exists()));

    let second = output(&mut redquorum(&fleet, ["run", "-r", "a", "--shared", "--try", "--", "echo", "beside"]));
    assert!(second.status.success() && text(&second.stdout) == "beside\n", "{second:?}");
    let alone = output(&mut redquorum(&fleet, ["run", "-r", "a", "--try", "--", "true"]));
    assert_eq!(alone.status.code(), Some(75));
    assert!(text(&alone.stderr).contains("readers"), "{}", text(&alone.stderr));
    let seen = output(&mut redquorum(&fleet, ["inspect", "a"]));
    assert!(text(&seen.stdout).contains("  held by a reader, "), "{}", text(&seen.stdout));
    let listed = output(&mut redquorum(&fleet, ["list"]));
    assert!(text(&listed.stdout).contains("a reader"), "{}", text(&listed.stdout));
    std::fs::write(go, "").unwrap();
    let waits = output(&mut redquorum(&fleet, ["run", "-r", "a", "--wait", "10s", "--", "echo", "alone"]));
    assert!(waits.status.success() && text(&waits.stdout) == "alone\n", "{waits:?}");
    assert!(first.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(flag).unwrap(), "[a ]\n", "readers have no token");

    let several = output(&mut redquorum(&fleet, ["run", "-r", "a", "-r", "b", "--shared", "--", "true"]));
    assert_eq!(several.status.code(), Some(64), "{several:?}");
}

#[test]
fn readers_are_taken_away_by_an_operator() {
    let (fleet, dir) = (fleet_of(3), Dir::new());
    let flag = dir.file("begun");
    let script = format!("touch {}; sleep 20", flag.display());
    let command = ["run", "-r", "a", "--shared", "--holder", "job-7", "--", "sh", "-c", &script];
    let mut reader = redquorum(&fleet, command).spawn().unwrap();
    assert!(redquorum_testkit::wait_until(crate::support::PATIENCE, || flag.exists()));
    let released = output(&mut redquorum(&fleet, ["release", "a", "--holder", "job-7"]));
    assert!(released.status.success() && text(&released.stdout).contains("job-7"), "{released:?}");
    assert!(!reader.wait().unwrap().success(), "it has lost what it read");
    let next = output(&mut redquorum(&fleet, ["run", "-r", "a", "--try", "--", "true"]));
    assert!(next.status.success(), "{next:?}");
}
