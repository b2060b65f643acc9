//! The alerts, as promtool judges them.

use std::process::Command;

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    for (kind, file) in [("check", "prometheus-rules.yml"), ("test", "prometheus-rules-test.yml")] {
        let output = match Command::new("promtool").args([kind, "rules", &format!("{docs}{file}")]).output() {
            Ok(output) => output,
            Err(error) => {
                println!("not checked, there is no promtool here: {error}");
                return;
            }
        };
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{said}");
    }
}
