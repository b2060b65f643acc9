//! Each example runs, with the database that is here and with SQLite. Each checks by itself what it shows: damage
//! without the lock, and none with it.
#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::Command;

fn run(program: &str, database: &str) {
    let output = Command::new(program).env("REDQUORUM_EXAMPLES", database).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().count() >= 2, "it shows something");
}

macro_rules! examples {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            run(env!(concat!("CARGO_BIN_EXE_", stringify!($name))), "");
        }
    )*};
}

examples!(
    axum_service,
    blocking,
    configuration,
    downloads,
    duplicate_insert,
    fenced_writes,
    groups,
    hot_account,
    leader,
    order_once,
    scheduled_job,
    scheduler,
    several_resources
);

#[test]
fn duplicate_insert_with_sqlite() {
    run(env!("CARGO_BIN_EXE_duplicate_insert"), "sqlite");
}

#[test]
fn fenced_writes_with_sqlite() {
    run(env!("CARGO_BIN_EXE_fenced_writes"), "sqlite");
}
