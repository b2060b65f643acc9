//! The program runs to its end: all votes are there, and no key is left.

use std::process::Command;

#[test]
fn the_first_look_shows_what_it_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_redquorum-quickstart")).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    for line in ["Bob tries to lock it and is refused", "larger than hers? yes", "Keys left on the instances: 0"] {
        assert!(shown.contains(line), "no {line:?} in\n{shown}");
    }
}
